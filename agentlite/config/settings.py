"""The settings of every stage: type, default, help and flags of each."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from agentlite.config.fields import (
    COMMON,
    MOST,
    NO_FLAG,
    NOT_IN_PLAN,
    REPEAT,
    Count,
    Field,
    File,
    Flag,
    Folder,
    Metavar,
    Model,
    Name,
    NonNegative,
    Positive,
    Section,
    Seed,
    Share,
    StageName,
    Url,
    Variable,
    Whole,
    as_text,
    fields_of,
)
from agentlite.config.pipeline import TRAINED, TRAINERS

Engine = Literal["unsloth", "hf"]
Attention = Literal["auto", "eager", "sdpa", "flash_attention_2"]
Scheduler = Literal[
    "cosine", "linear", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt"
]
Tracker = Literal["trackio", "wandb", "tensorboard"]
VllmLever = Literal["standby", "suffix", "sampled-as-old"]
# TRL's others are left out: aot and aot_unpaired sort the pairs of a micro-batch, so that how a
# step is cut would change what is learned; sft is sft_weight.
PreferenceLoss = Literal[
    "sigmoid",
    "hinge",
    "ipo",
    "robust",
    "exo_pair",
    "nca_pair",
    "bco_pair",
    "sppo_hard",
    "apo_zero",
    "apo_down",
    "discopop",
    "sigmoid_norm",
    "simpo",
    "orpo",
]
PROTOCOLS = "PROTOCOL|FILE[=WEIGHT],..."  # how --protocol is shown
RankBy = Literal["tuned", "bm25"]
if TYPE_CHECKING:
    Trainer = str
else:
    Trainer = Literal[("", *TRAINERS)]


class InMemory(NamedTuple):
    """How many rows, prompts and answers a stage has in memory at once: what its estimate is of."""

    rows: int = 0  # trained together
    packed: bool = False  # each of them filled up to max_length
    reference: bool = False  # with a frozen copy of the model
    prompts: int = 0  # sampled together
    samples: int = 0  # answers to each of them
    greedy: bool = False  # and before, apart, one greedy answer to each


DATA = Section("Data and model")
ENGINE = Section("Engine and memory")
ENVIRONMENT = Section("Environment")
ENDPOINTS = Section("Endpoints")
REWARDS = Section("Rewards")
SAMPLING = Section("Sampling")
TRAINING = Section("Training")
SEARCH = Section("Evaluation of the search")
ADAPTER = Section("Adapter")
LOSS = Section("Loss")
PAIRING = Section("Choice of pairs")
MEASURED = Section("Metrics")
JUDGED = Section("Judges of the answers")
READ = Section("Input")
LEARNED = Section("Cleaning and selection")
ROWS = Section("Training rows")
SPLITS = Section("Splits and output")
DIALOGS = Section("Dialogs")
QUERIES = Section("Queries")
TEMPLATES = Section("Templates")


class PrepSettings(Struct, frozen=True, kw_only=True):
    """Check dialogs, leave out duplicates, and split the rest into train, dev and test."""

    sources: tuple[File, ...] = ()
    """files or folders, - for stdin, bfcl:CATEGORY,..., or hub:ORG/NAME"""

    trajectories: Annotated[
        tuple[StageName, ...], Flag(name="--from", repeat=True), READ, COMMON
    ] = ()
    """finished stage to read as well: the dialogs of a rollout or of make, or the candidates of
    pairs or grpo; its name in the workspace, or a path"""
    keep: Annotated[str, Metavar("[best,]SCORE>=FLOAT,..."), READ, COMMON] = ""
    """rollouts or candidates to keep, by their scores; best keeps one per task or step [all
    rollouts; the candidates that are exactly right]"""
    format: Annotated[tuple[str, ...], Metavar("[SOURCE=]FORMAT"), REPEAT, READ] = ("auto",)
    """format of the raw rows (see --formats); auto recognizes each row"""
    fix: Annotated[bool, READ, COMMON] = False
    """read rows of Python literals or invalid JSON, where nothing is lost; each is reported"""
    max_rejects: Annotated[Share, READ] = 0.01
    """share of rejected rows above which prep stops"""
    tools: Annotated[tuple[File, ...], REPEAT, READ] = ()
    """file of the tools that rows name by id: SAGE's agent_tools, or OpenAI tools"""

    personal: Annotated[Literal["off", "report", "mask", "drop"], LEARNED] = "report"
    """what to do with keys, e-mail addresses, phone and card numbers"""
    duplicates: Annotated[tuple[Literal["equal", "calls", "near", "none"], ...], LEARNED] = (
        "equal",
    )
    """kinds of duplicates to leave out"""
    near: Annotated[Share, LEARNED, NO_FLAG] = 0.8
    """Jaccard similarity from which texts are near-duplicates, or leaks"""
    contradictions: Annotated[Literal["report", "drop"], LEARNED, NO_FLAG] = "report"
    """what to do with rows whose calls differ for the same conversation"""
    holdout: Annotated[tuple[File, ...], REPEAT, LEARNED] = ()
    """file that must not be learned, such as a benchmark; similar rows are left out"""
    mix: Annotated[tuple[str, ...], Metavar("NAME=SOURCE+...:RATIO"), REPEAT, LEARNED] = ()
    """sources to mix in, such as general=chat.jsonl:0.2 (0.2*: rows may be repeated)"""
    task_weights: Annotated[dict[str, float], Metavar("TASK=FLOAT,..."), LEARNED, NO_FLAG] = {}
    """weights of the tasks in the sample, also as JSON"""
    limit: Annotated[Count | None, LEARNED, COMMON] = None
    """number of rows to sample, spread evenly over the sources [all]"""
    coreset_strategy: Annotated[
        Literal["", "loss_topk", "diversity", "hybrid", "random"], LEARNED
    ] = ""
    """how to choose a subset of the train records [all are kept]"""
    coreset_target_size: Annotated[Count | None, LEARNED] = None
    """number of train records in that subset"""
    replay: Annotated[Folder, LEARNED] = ""
    """buffer of earlier train records, some of which are learned again"""
    continual_buffer_size: Annotated[Count, LEARNED, NO_FLAG] = 2048
    """number of records that the replay buffer keeps"""
    continual_replay_ratio: Annotated[Share, LEARNED, NO_FLAG] = 0.25
    """replayed records per new train record"""

    model: Annotated[Model, ROWS, COMMON] = ""
    """model to train later; rows are checked with its tokenizer and template [smollm2-135m; with a
    GPU Qwen/Qwen2.5-1.5B-Instruct]"""
    protocol: Annotated[str, Metavar(PROTOCOLS), ROWS, COMMON] = "auto"
    """text format of tool calls, or several with weights: hermes=2,react; auto is chat (the model's
    own) if that keeps every row, otherwise hermes"""
    system: Annotated[str, ROWS, NO_FLAG] = ""
    """system prompt for rows without one [that of the chat template]"""
    thoughts: Annotated[Literal["keep", "drop"], ROWS] = "keep"
    """what to do with the thoughts of turns; those that are kept stand where the chat template has
    them, or in <think> where it has no place for them"""
    no_call_share: Annotated[float, Meta(ge=0, lt=1), ROWS] = 0.0
    """share of train rows with tools that call none: rows without the right tool are added"""
    mask_names: Annotated[Share, ROWS, NO_FLAG] = 0.0
    """share of train rows that are also taught with renamed tools"""
    max_length: Annotated[Count, Flag("--max-tokens"), ROWS, COMMON] = 2048
    """maximum tokens of a row; longer rows are rejected (see --long-rows)"""
    long_rows: Annotated[Literal["reject", "cut", "filter"], ROWS] = "reject"
    """what to do with longer rows; cut removes whole steps"""
    unanswered: Annotated[Literal["reject", "cut"], ROWS] = "reject"
    """what to do with dialogs that end without an answer; cut removes what follows the last one"""
    distractors: Annotated[Whole, ROWS, NO_FLAG] = 0
    """unrelated tools added to each train row that offers one tool"""
    join: Annotated[Count, ROWS, NO_FLAG] = 1
    """number of single-turn train rows to join into one dialog"""
    join_tokens: Annotated[Count | None, ROWS, NO_FLAG] = None
    """maximum tokens of a joined dialog [as --max-length]"""
    retrieve: Annotated[Count | None, ROWS] = None
    """number of tools to offer, chosen by the retriever [the tools of the record]"""
    retriever: Annotated[StageName, ROWS, NO_FLAG] = "retriever"
    """finished retriever stage: its name in the workspace, or a path"""
    retrieve_by: Annotated[RankBy, ROWS, NO_FLAG] = "tuned"
    """ranking method of the retriever"""
    no_call_answer: Annotated[str, ROWS, NO_FLAG] = "None of the available tools can answer this."
    """answer to learn where BFCL expects no call, or the right tool was removed"""
    model_name: Annotated[tuple[Name, ...], ROWS, NO_FLAG] = ()
    """what replaces {{NAME}} and {{name}} in the rows: one name, or Chinese,English"""
    model_author: Annotated[tuple[Name, ...], ROWS, NO_FLAG] = ()
    """what replaces {{AUTHOR}} and {{author}} in the rows: one name, or Chinese,English"""

    dev: Annotated[Share, SPLITS, COMMON] = 0.1
    """share of the records for dev: training measures its loss on them"""
    test: Annotated[Share, SPLITS, COMMON] = 0.2
    """share of the records for test: only eval uses them"""
    split_by: Annotated[
        tuple[Literal["query", "near", "parent", "tools", "calls"], ...], SPLITS, NO_FLAG
    ] = ("query", "near", "parent", "calls")
    """what must not be in both train and test"""
    rows: Annotated[Literal["jsonl", "parquet", "-"], SPLITS] = "jsonl"
    """file format of the records; - writes them to stdout as well"""
    seed: Annotated[Seed, SPLITS] = 0
    """random seed of the split, the sample and the shuffling"""


class RetrieverSettings(Struct, frozen=True, kw_only=True):
    """Train a model that finds the right tools among many, and build its index."""

    data: Annotated[StageName, DATA, COMMON] = "prep"
    """finished prep stage: its name in the workspace, or a path"""
    tools: Annotated[tuple[File, ...], REPEAT, DATA, COMMON] = ()
    """file of further tools: SAGE's agent_tools, or OpenAI tools"""
    model: Annotated[Model, DATA, COMMON] = "all-minilm-l6-v2"
    """sentence-transformers model: alias, path, hub id or stage"""
    max_length: Annotated[Count, DATA] = 96
    """maximum tokens of a question or tool; the rest is not read"""
    negatives: Annotated[Whole, TRAINING, COMMON] = 1
    """hard negatives for each right tool: wrong tools that look right"""
    num_epochs: Annotated[Positive, Flag("-e --epochs"), TRAINING, COMMON] = 1.0
    """passes over the training pairs"""
    max_steps: Annotated[Whole | None, TRAINING, COMMON] = None
    """optimizer steps; 0 only builds the index [as --num-epochs says]"""
    batch_size: Annotated[Count, Flag("-b --bs"), TRAINING, COMMON] = 32
    """pairs per batch; the tools of the other pairs are negatives too"""
    learning_rate: Annotated[NonNegative, Flag("--lr"), TRAINING, COMMON] = 2e-4
    """peak learning rate"""
    warmup_ratio: Annotated[Share, TRAINING, NO_FLAG] = 0.1
    """share of the steps for the warm-up of the learning rate"""
    lr_scheduler: Annotated[Scheduler, TRAINING] = "linear"
    """decay of the learning rate"""
    scale: Annotated[Positive, TRAINING, NO_FLAG] = 20.0
    """factor of the cosine similarities in the loss: 1 / temperature"""
    save_steps: Annotated[Count, TRAINING] = 50
    """steps between checkpoints; the dev loss is measured at each"""
    sizes: Annotated[tuple[Count, ...], SEARCH] = (100, 500, 1000)
    """numbers of tools to search among; all of them is always measured"""
    top: Annotated[Count, SEARCH, COMMON] = 5
    """number of retrieved tools at which the search is measured"""
    seed: Annotated[Seed, TRAINING] = 0
    """random seed of the negatives, the order of pairs and the bootstrap"""
    report_to: Annotated[tuple[Tracker, ...], TRAINING, NOT_IN_PLAN] = ()
    """trackers that follow the run, in addition to metrics.jsonl; wandb sends figures away"""
    trl: Annotated[dict[str, Any], NO_FLAG] = {}
    """any other argument of sentence-transformers' trainer"""


class TrainerSettings(Struct, frozen=True, kw_only=True):
    """What every trainer can be set to; its help stands here for all of them."""

    data: Annotated[StageName, DATA] = "prep"
    """finished prep stage: its name in the workspace, or a path"""
    model: Annotated[Model, DATA, COMMON] = TRAINED
    """model to start from: alias, path, hub id or earlier stage"""
    max_length: Annotated[Count, DATA] = 2048
    """maximum tokens of a training row, prompt and answer together [2048, or as many as --data
    has]"""
    num_epochs: Annotated[Positive, Flag("-e --epochs"), TRAINING, COMMON] = 3.0
    """passes over the training rows"""
    max_steps: Annotated[Count | None, TRAINING, COMMON] = None
    """optimizer steps, in place of --num-epochs [as --num-epochs says]"""
    batch_size: Annotated[Count, Flag("-b --bs"), TRAINING, COMMON] = 2
    """rows per batch [by --profile]"""
    gradient_accumulation: Annotated[Count, TRAINING] = 4
    """batches per optimizer step [by --profile]"""
    learning_rate: Annotated[NonNegative, Flag("--lr"), TRAINING, COMMON]
    """peak learning rate; --full divides the default by 10"""
    warmup_ratio: Annotated[Share, TRAINING, NO_FLAG] = 0.1
    """share of the steps for the warm-up of the learning rate"""
    lr_scheduler: Annotated[Scheduler, TRAINING] = "cosine"
    """decay of the learning rate"""
    save_steps: Annotated[Count, TRAINING] = 50
    """steps between checkpoints; the dev loss is measured at each"""
    seed: Annotated[Seed, TRAINING] = 0
    """random seed of the initial weights, the order of rows and the sampling"""
    report_to: Annotated[tuple[Tracker, ...], TRAINING, NOT_IN_PLAN] = ()
    """trackers that follow the run, in addition to metrics.jsonl; wandb sends figures away"""
    full: Annotated[bool, ADAPTER] = False
    """train all weights in place of an adapter; the result is a whole model"""
    lora_r: Annotated[Count, ADAPTER, COMMON] = 16
    """rank of a new LoRA adapter; one that is trained further keeps its rank"""
    lora_alpha: Annotated[Count, ADAPTER, NO_FLAG] = 32
    """scale of the adapter; it is divided by the rank"""
    lora_dropout: Annotated[Share, ADAPTER, NO_FLAG] = 0.0
    """dropout on the adapter's inputs"""
    lora_target_modules: Annotated[tuple[str, ...], Metavar("MODULE,..."), ADAPTER, NO_FLAG] = (
        "all-linear",
    )
    """layers that get an adapter; all adds the embeddings (needs --engine hf)"""
    engine: Annotated[Engine, ENGINE] = "unsloth"
    """library: unsloth, or plain transformers with PEFT and TRL"""
    attn_implementation: Annotated[Attention, ENGINE, NO_FLAG] = "auto"
    """attention kernel, for --engine hf; flash_attention_2 needs CUDA and flash-attn"""
    load_in_4bit: Annotated[bool, ENGINE] = False
    """load the base model in 4 bit (needs CUDA) [by --profile]"""
    load_in_8bit: Annotated[bool, ENGINE, NO_FLAG] = False
    """load the base model in 8 bit (needs CUDA)"""
    deepspeed: Annotated[File, ENGINE] = ""
    """DeepSpeed configuration for torchrun, such as deepspeed/zero3.json (needs --engine hf)"""
    trl: Annotated[dict[str, Any], NO_FLAG] = {}
    """any other field of the TRL configuration, passed through unchanged"""
    peft: Annotated[dict[str, Any], NO_FLAG] = {}
    """any other field of PEFT's LoraConfig, passed through unchanged"""

    def in_memory(self, gpu: bool) -> InMemory:
        return InMemory(rows=self.batch_size)


class SftSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter on the assistant's answers and calls in the records of prep."""

    model: Annotated[Model, DATA, COMMON] = ""
    """model to start from: alias, path, hub id or earlier stage [the model of prep]"""
    learning_rate: Annotated[NonNegative, Flag("--lr"), TRAINING, COMMON] = 2e-4
    packing: Annotated[bool, ENGINE] = False
    """put several rows into one sequence (needs CUDA)"""
    batch_tokens: Annotated[Count, ENGINE] = 8192
    """tokens per batch with --packing, in place of --batch-size [by --profile]"""

    @property
    def packed_rows(self) -> int:
        """Full sequences in a micro-batch, where rows are packed."""
        return max(1, self.batch_tokens // self.max_length)

    def in_memory(self, gpu: bool) -> InMemory:
        if self.packing and gpu:
            return InMemory(rows=self.packed_rows, packed=True)
        return InMemory(rows=self.batch_size)


class Requests(Struct, frozen=True, forbid_unknown_fields=True):
    """How servers are asked."""

    seconds: Positive = 600.0  # that one try of a request may take
    tries: Count = 5  # of a request, before its question counts as unanswered
    concurrency: Count = 4  # requests at the same time, per endpoint


class SamplerSettings(Struct, frozen=True, kw_only=True):
    """What every stage that asks a model, here or behind servers, can be set to."""

    endpoint: Annotated[tuple[Url, ...], REPEAT, ENDPOINTS, COMMON, NOT_IN_PLAN] = ()
    """OpenAI-compatible server of the model, such as http://localhost:8000/v1; several share the
    work"""
    endpoint_key: Annotated[Variable, ENDPOINTS, NOT_IN_PLAN, NO_FLAG] = "OPENAI_API_KEY"
    """environment variable with the API key of the servers"""
    requests: Annotated[Requests, ENDPOINTS, NOT_IN_PLAN, NO_FLAG] = Requests()
    """how each server is asked: seconds of one try, tries until a question counts as unanswered,
    concurrency (requests at the same time)"""
    engine: Annotated[Engine, ENGINE] = "unsloth"
    """library: unsloth, or plain transformers with PEFT"""
    attn_implementation: Annotated[Attention, ENGINE, NO_FLAG] = "auto"
    load_in_4bit: Annotated[bool, ENGINE] = False
    load_in_8bit: Annotated[bool, ENGINE, NO_FLAG] = False
    temperature: Annotated[NonNegative, SAMPLING, COMMON] = 1.0
    """sampling temperature; 0 always takes the likeliest token"""
    max_new_tokens: Annotated[Count, SAMPLING] = 256
    """maximum tokens of an answer"""


class WorldSettings(SamplerSettings, frozen=True, kw_only=True):
    """What every stage that lets a model act in an environment can be set to."""

    env: Annotated[str, Metavar("ENVIRONMENT"), ENVIRONMENT, COMMON] = ""
    """environment to act in: bfcl:multi_turn_base, a class (shop.py:Shop), or an MCP server
    (mcp:COMMAND, mcp:URL)"""
    tasks: Annotated[File, ENVIRONMENT] = ""
    """JSON lines of tasks ({"prompt": ..., ...}), for an environment that brings none"""
    dev: Annotated[Share, ENVIRONMENT, NO_FLAG] = 0.1
    """share of the dev tasks"""
    test: Annotated[Share, ENVIRONMENT, NO_FLAG] = 0.2
    """share of the test tasks"""
    extra_tools: Annotated[Whole | None, ENVIRONMENT, NO_FLAG] = None
    """number of tools on offer that the gold of BFCL does not call [all that BFCL offers]"""
    max_turns: Annotated[Count, ENVIRONMENT, NO_FLAG] = 20
    """maximum turns with calls between two turns of the user"""
    call_seconds: Annotated[Positive, ENVIRONMENT, NO_FLAG] = 10.0
    """seconds that one call of a tool may take"""
    world_memory: Annotated[Positive, ENVIRONMENT, NOT_IN_PLAN, NO_FLAG] = 4.0
    """GiB of memory that each process of an environment may take (Linux)"""
    env_keep: Annotated[tuple[Variable, ...], ENVIRONMENT, NOT_IN_PLAN, NO_FLAG] = ()
    """environment variables that the command of an MCP server gets, beside PATH, HOME and a few"""


class WriterSettings(Struct, frozen=True, kw_only=True):
    """What every stage can be set to for which a model behind servers writes data."""

    endpoint: Annotated[tuple[Url, ...], REPEAT, ENDPOINTS, COMMON, NOT_IN_PLAN] = ()
    """OpenAI-compatible server of the model that writes; several share the work"""
    model: Annotated[Name, ENDPOINTS, COMMON] = ""
    """name of that model on its server"""
    endpoint_key: Annotated[Variable, ENDPOINTS, NOT_IN_PLAN] = "OPENAI_API_KEY"
    requests: Annotated[Requests, ENDPOINTS, NOT_IN_PLAN, NO_FLAG] = Requests()
    max_failures: Annotated[Share, ENDPOINTS, NOT_IN_PLAN] = 0.1
    """share of requests that a server may leave unanswered"""
    temperature: Annotated[NonNegative, SAMPLING] = 1.0
    max_new_tokens: Annotated[Count, SAMPLING] = 1024
    """maximum tokens of an answer"""


class PairsSettings(SamplerSettings, frozen=True, kw_only=True):
    """Sample several answers at every step, score them, and pair the best with the worst."""

    data: Annotated[str, Metavar("STAGE|FILE"), DATA] = "prep"
    """finished prep stage; or a file of rows, or - for stdin"""
    split: Annotated[Literal["train", "dev", "test"], DATA] = "train"
    """records of prep to use"""
    model: Annotated[Model, DATA, COMMON] = TRAINED
    """model that answers: alias, path, hub id or earlier stage"""
    unanswered: Annotated[Literal["ask", "wrong"], ENDPOINTS, NOT_IN_PLAN] = "ask"
    """what to do about unanswered questions: stop, and ask them again when the same command is run
    again; or finish without candidates for them"""
    candidates: Annotated[StageName, Flag(name="--from"), DATA, COMMON, NOT_IN_PLAN] = ""
    """finished pairs, grpo or rollout stage whose answers are ranked again, without a model"""
    preferences: Annotated[tuple[File, ...], REPEAT, DATA, NOT_IN_PLAN] = ()
    """file of prompts with chosen and rejected answers, which become pairs"""
    max_rejects: Annotated[Share, DATA, NOT_IN_PLAN] = 0.01
    """share of rejected rows of --preferences above which pairs stops"""
    limit: Annotated[Count | None, DATA, COMMON] = None
    """number of records to sample, spread evenly over the sources [all]"""
    num_samples: Annotated[Count, Flag("-n"), SAMPLING, COMMON] = 4
    """candidates per step"""
    top_p: Annotated[float, Meta(gt=0, le=1), SAMPLING] = 1.0
    """nucleus sampling: the likeliest tokens that add up to this probability"""
    weights: Annotated[dict[str, float], Metavar("COMPONENT=FLOAT,..."), REWARDS, COMMON] = {}
    """reward weights that differ from the defaults"""
    rewards: Annotated[tuple[str, ...], Metavar("FILE:FUNCTION"), REPEAT, REWARDS, COMMON] = ()
    """reward component of your own, such as rewards.py:short"""
    judge: Annotated[Url, REWARDS] = ""
    """OpenAI-compatible server of a judge, up to /v1, that ranks the answers to each prompt"""
    judge_model: Annotated[Name, REWARDS] = ""
    """name of the judge's model on that server"""
    judge_key: Annotated[Variable, REWARDS, NOT_IN_PLAN, NO_FLAG] = "OPENAI_API_KEY"
    """environment variable with the API key of the judge"""
    judge_limit: Annotated[Count | None, REWARDS, NOT_IN_PLAN] = None
    """most questions to the judge about the same candidates, in all runs [no limit]"""
    reward_seconds: Annotated[Positive, REWARDS, NOT_IN_PLAN] = 10.0
    """seconds that one call of your own functions may take"""
    reward_memory: Annotated[Positive, REWARDS, NOT_IN_PLAN, NO_FLAG] = 16.0
    """GiB of memory that each process of your own functions may take (Linux)"""
    max_failures: Annotated[Share, REWARDS, NOT_IN_PLAN] = 0.1
    """share of candidates for which your own functions, or the judge, may fail"""
    max_length: Annotated[Count, SAMPLING] = 2048
    """maximum tokens of prompt and answer together [2048, or as many as --data has]"""
    batch_size: Annotated[Count, Flag("-b --bs"), SAMPLING, COMMON, NOT_IN_PLAN] = 8
    """prompts per batch [by --profile]"""
    margin: Annotated[NonNegative, PAIRING] = 0.05
    """smallest difference in reward between chosen and rejected"""
    gold: Annotated[bool, PAIRING, COMMON] = False
    """take the correct answer of the data as chosen where every candidate fails"""
    seed: Annotated[Seed, SAMPLING] = 0
    """random seed of the choice of records and of the answers"""

    def in_memory(self, gpu: bool) -> InMemory:
        return InMemory(prompts=self.batch_size, samples=self.num_samples)


class DpoSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter to prefer the chosen answers of pairs to the rejected ones."""

    data: Annotated[StageName, DATA, COMMON] = "pairs"
    """finished pairs stage: its name in the workspace, or a path"""
    model: Annotated[Model, DATA, COMMON] = ""
    """model to start from: alias, path, hub id or earlier stage [the model that was sampled]"""
    learning_rate: Annotated[NonNegative, Flag("--lr"), TRAINING, COMMON] = 5e-6
    beta: Annotated[Positive, LOSS, COMMON] = 0.1
    """KL penalty coefficient: how strongly the policy is kept close to the reference; for simpo the
    scale of the margin, for orpo the weight of the odds ratio [0.1; 2 for simpo]"""
    loss_type: Annotated[PreferenceLoss, LOSS, COMMON] = "sigmoid"
    """preference loss as TRL names it; simpo and orpo train without a reference"""
    gamma: Annotated[NonNegative, LOSS] = 1.0
    """margin that simpo aims at"""
    label_smoothing: Annotated[float, Meta(ge=0, lt=0.5), LOSS] = 0.0
    """assumed share of pairs whose answers are swapped, for sigmoid, robust and exo_pair"""
    reference_free: Annotated[bool, LOSS] = False
    """train without a reference: its log-probabilities count as zero"""
    sft_weight: Annotated[NonNegative, LOSS] = 0.0
    """weight of an added SFT loss on the chosen answer [0; 1 for orpo]"""

    @property
    def has_reference(self) -> bool:
        return not self.reference_free and self.loss_type not in ("simpo", "orpo")

    def in_memory(self, gpu: bool) -> InMemory:
        """Chosen and rejected are rows of their own."""
        return InMemory(rows=2 * self.batch_size, reference=self.has_reference)


class GrpoSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter on its own answers, each scored against the others of its group."""

    env: Annotated[str, Metavar("ENVIRONMENT"), ENVIRONMENT, COMMON] = ""
    """environment to act in, in place of recorded prompts: bfcl:multi_turn_base, shop.py:Shop"""
    tasks: Annotated[File, ENVIRONMENT] = ""
    dev: Annotated[Share, ENVIRONMENT, NO_FLAG] = 0.1
    test: Annotated[Share, ENVIRONMENT, NO_FLAG] = 0.2
    extra_tools: Annotated[Whole | None, ENVIRONMENT, NO_FLAG] = None
    max_turns: Annotated[Count, ENVIRONMENT, NO_FLAG] = 20
    call_seconds: Annotated[Positive, ENVIRONMENT, NO_FLAG] = 10.0
    world_memory: Annotated[Positive, ENVIRONMENT, NOT_IN_PLAN, NO_FLAG] = 4.0
    env_keep: Annotated[tuple[Variable, ...], ENVIRONMENT, NOT_IN_PLAN, NO_FLAG] = ()
    split: Annotated[Literal["train", "dev"], DATA, NO_FLAG] = "train"
    limit: Annotated[Count | None, DATA] = None
    learning_rate: Annotated[NonNegative, Flag("--lr"), TRAINING, COMMON] = 1e-5
    lr_scheduler: Annotated[Scheduler, TRAINING, NO_FLAG] = "cosine"
    deepspeed: Annotated[File, ENGINE, NO_FLAG] = ""
    batch_size: Annotated[Count, Flag("-b --bs"), TRAINING, COMMON] = 4
    """answers per batch"""
    group_size: Annotated[int, Meta(ge=2, le=MOST), SAMPLING, COMMON] = 4
    """answers per prompt"""
    temperature: Annotated[NonNegative, SAMPLING] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1), SAMPLING, NO_FLAG] = 1.0
    max_new_tokens: Annotated[Count, SAMPLING] = 256
    weights: Annotated[dict[str, float], Metavar("COMPONENT=FLOAT,..."), REWARDS, COMMON] = {}
    """reward weights that differ from the defaults"""
    rewards: Annotated[tuple[str, ...], Metavar("FILE:FUNCTION"), REPEAT, REWARDS, COMMON] = ()
    judge: Annotated[Url, REWARDS] = ""
    judge_model: Annotated[Name, REWARDS] = ""
    judge_key: Annotated[Variable, REWARDS, NOT_IN_PLAN, NO_FLAG] = "OPENAI_API_KEY"
    judge_limit: Annotated[Count | None, REWARDS, NOT_IN_PLAN] = None
    requests: Annotated[Requests, REWARDS, NOT_IN_PLAN, NO_FLAG] = Requests()
    reward_seconds: Annotated[Positive, REWARDS, NOT_IN_PLAN, NO_FLAG] = 10.0
    reward_memory: Annotated[Positive, REWARDS, NOT_IN_PLAN, NO_FLAG] = 16.0
    max_failures: Annotated[Share, REWARDS, NOT_IN_PLAN, NO_FLAG] = 0.1
    """share of answers for which your own functions, the judge or the environment may fail"""
    beta: Annotated[NonNegative, LOSS] = 0.1
    """KL penalty coefficient: how strongly the policy is kept close to the start"""
    loss_type: Annotated[
        Literal["grpo", "dr_grpo", "bnpo", "dapo", "cispo", "gspo", "sapo", "luspo", "vespo"], LOSS
    ] = "dapo"
    """loss as TRL names it, and gspo; cispo with its clip (epsilon_high) at 5"""
    scale_rewards: Annotated[Literal["group", "batch", "none", "component"], LOSS, NO_FLAG] = (
        "group"
    )
    """whose standard deviation divides the advantages; component: each component is scaled in its
    group, and their weighted sum over the batch (GDPO)"""
    advantage: Annotated[Literal["group", "value"], LOSS] = "group"
    """what an answer is compared with: the others of its group; or what a value head expected of it
    (PPO), which loss_type and scale_rewards do not apply to"""
    rollouts: Annotated[Count, LOSS, NO_FLAG] = 128
    """answers of a round of PPO, sampled before any of them is learned from"""
    ppo_epochs: Annotated[Count, LOSS, NO_FLAG] = 4
    """passes of PPO over the answers of a round"""
    clip: Annotated[float, Meta(gt=0, le=1), LOSS, NO_FLAG] = 0.2
    """how far the ratio of new and old policy, and a value, count in a round of PPO"""
    value_coef: Annotated[NonNegative, LOSS, NO_FLAG] = 0.5
    """weight of the loss of the value head"""
    value_learning_rate: Annotated[NonNegative, LOSS, NO_FLAG] = 1e-3
    """peak learning rate of the value head, which begins at nothing"""
    gae_lambda: Annotated[Share, LOSS, NO_FLAG] = 0.95
    """how much later tokens count in the advantage of PPO: 1 is what was earned less the value, 0
    looks one token ahead"""
    rest_epochs: Annotated[NonNegative | None, SAMPLING, NO_FLAG] = None
    """epochs for which a prompt rests after a group whose answers all scored the same; others take
    its place [0; with --env: 2]"""
    max_flat_steps: Annotated[Whole, TRAINING, NOT_IN_PLAN, NO_FLAG] = 20
    """steps in a row without any reward difference before training ends; 0 never ends it"""
    vllm: Annotated[bool, SAMPLING] = False
    """sample with vLLM (needs CUDA and vLLM); with Unsloth it shares the weights"""
    vllm_levers: Annotated[tuple[VllmLever, ...], SAMPLING] = ()
    """with --vllm: standby (no cache on the GPU while it trains), suffix (guesses from earlier
    answers), sampled-as-old (no pass over the answers before the update)"""

    @property
    def rested_epochs(self) -> float:
        if self.rest_epochs is None:
            return 2.0 if self.env else 0.0
        return self.rest_epochs

    @property
    def passes(self) -> int:
        """How often an answer is learned from."""
        return self.ppo_epochs if self.advantage == "value" else 1

    def in_memory(self, gpu: bool) -> InMemory:
        """Every answer of a step is sampled before the first is learned from. Rollouts share no
        prompt beyond their first turn.
        """
        if self.env:
            rollouts = self.batch_size * self.gradient_accumulation
            return InMemory(self.batch_size, reference=True, prompts=rollouts, samples=1)
        prompts = max(1, self.batch_size * self.gradient_accumulation // self.group_size)
        return InMemory(self.batch_size, reference=True, prompts=prompts, samples=self.group_size)


class DistillSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter to go on as a teacher does, at every token of its own answers."""

    model: Annotated[Model, DATA, COMMON] = ""
    """model to start from: alias, path, hub id or earlier stage [the model of prep]"""
    teacher: Annotated[Model, DATA, COMMON] = TRAINED
    """model to learn from, with the same tokenizer: alias, path, hub id or earlier stage"""
    split: Annotated[Literal["train", "dev"], DATA] = "train"
    limit: Annotated[Count | None, DATA] = None
    """number of records to use, spread evenly over the sources [all]"""
    learning_rate: Annotated[NonNegative, Flag("--lr"), TRAINING, COMMON] = 1e-4
    temperature: Annotated[NonNegative, SAMPLING] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1), SAMPLING] = 1.0
    max_new_tokens: Annotated[Count, SAMPLING] = 256
    beta: Annotated[Share, LOSS, COMMON] = 1.0
    """divergence: 1 is the reverse KL, 0 the forward KL, and between lies the generalised
    Jensen-Shannon divergence"""
    lmbda: Annotated[Share, LOSS, COMMON] = 1.0
    """share of the answers that the student samples; the others are those of the records"""
    fade: Annotated[Share, LOSS] = 0.0
    """share of the steps over which those answers fade out [0: their share stays]"""

    @property
    def uses_records(self) -> bool:
        """Whether any answer is one of the records."""
        return self.lmbda < 1

    @property
    def samples(self) -> bool:
        """Whether any answer is sampled."""
        return self.lmbda > 0 or self.fade > 0

    def in_memory(self, gpu: bool) -> InMemory:
        """Every answer of a step is sampled before the first is learned from."""
        if not self.samples:
            return InMemory(self.batch_size)
        prompts = self.batch_size * self.gradient_accumulation
        return InMemory(self.batch_size, prompts=prompts, samples=1)


class RolloutSettings(WorldSettings, frozen=True, kw_only=True):
    """Let a model act in an environment: it calls tools, reads results and talks to a user."""

    model: Annotated[Model, DATA, COMMON] = TRAINED
    """model that acts: alias, path, hub id or earlier stage; gold makes the calls that the tasks
    name as right"""
    split: Annotated[Literal["all", "train", "dev", "test"], DATA, COMMON] = "all"
    """tasks to take; the split of a task is made from its question"""
    limit: Annotated[Count | None, DATA, COMMON] = None
    """number of tasks, the first of a seeded order [all]"""
    num_samples: Annotated[Count, Flag("-n"), SAMPLING, COMMON] = 1
    """rollouts per task"""
    top_p: Annotated[float, Meta(gt=0, le=1), SAMPLING] = 1.0
    max_length: Annotated[Count, SAMPLING, COMMON] = 8192
    """maximum tokens of all turns and the answer together"""
    max_failures: Annotated[Share, ENVIRONMENT, NOT_IN_PLAN] = 0.1
    """share of rollouts whose environment, or server of a model, may break down"""
    batch_size: Annotated[Count, Flag("-b --bs"), SAMPLING, COMMON, NOT_IN_PLAN] = 8
    """rollouts that are sampled together [by --profile]"""
    seed: Annotated[Seed, SAMPLING] = 0
    """random seed of the order of tasks and of the sampling"""

    def in_memory(self, gpu: bool) -> InMemory:
        return InMemory(prompts=self.batch_size, samples=1)


class EvalSettings(WorldSettings, frozen=True, kw_only=True):
    """Ask models at every step of the test records, score their answers, and compare them."""

    model: Annotated[tuple[Model, ...], REPEAT, DATA, COMMON] = ()
    """model to evaluate: alias, path, hub id or earlier stage; several are compared [sft]"""
    unanswered: Annotated[Literal["ask", "wrong"], ENDPOINTS] = "ask"
    """what to do about unanswered questions: stop, and ask them again when the same command is run
    again; or count them as wrong"""
    predictions: Annotated[tuple[File, ...], REPEAT, DATA, COMMON] = ()
    """answers made elsewhere, to be scored without a model"""
    kagent: Annotated[File, DATA] = ""
    """rows of KAgentBench by which --predictions are scored; writes nothing"""
    data: Annotated[StageName, DATA, COMMON] = "prep"
    """finished prep stage: its name in the workspace, or a path"""
    split: Annotated[Literal["train", "dev", "test", "all"], DATA] = "test"
    """records of prep, or tasks of --env, to use; all is only for tasks"""
    protocol: Annotated[str, Metavar(PROTOCOLS), DATA] = ""
    """protocols or files of prompt templates in which records are asked [those of the data]"""
    retrieve: Annotated[Count | None, DATA] = None
    retriever: Annotated[StageName, DATA, NO_FLAG] = "retriever"
    retrieve_by: Annotated[RankBy, DATA, NO_FLAG] = "tuned"
    limit: Annotated[Count | None, DATA, COMMON] = None
    """number of records or tasks to measure, chosen by --seed [all]"""

    max_failures: Annotated[Share, ENVIRONMENT, NO_FLAG] = 0.1
    """share of rollouts whose environment, or server of a model, may break down, or for which your
    own functions may fail"""
    rewards: Annotated[tuple[str, ...], Metavar("FILE:FUNCTION"), REPEAT, ENVIRONMENT] = ()
    """figure of your own for a rollout, such as rewards.py:polite"""
    reward_seconds: Annotated[Positive, ENVIRONMENT, NO_FLAG] = 10.0
    reward_memory: Annotated[Positive, ENVIRONMENT, NO_FLAG] = 16.0

    metrics: Annotated[tuple[str, ...], Metavar("METRIC,..."), MEASURED] = ()
    """metrics to print, by their names in metrics.json [the main ones]"""
    every: Annotated[bool, Flag(name="--all"), MEASURED, COMMON] = False
    """print every metric, and the wrong answers by kind"""
    gate: Annotated[str, Metavar("METRIC>=FLOAT,..."), MEASURED, COMMON] = ""
    """conditions on the last model; the exit code is 9 if one is not met"""
    general: Annotated[File, MEASURED] = ""
    """general dialogs, to measure what the model forgets (`forgetting`)"""
    model_name: Annotated[tuple[Name, ...], MEASURED] = ()
    """the model's own name, or Chinese,English; it is asked who it is [that of prep, if set]"""
    model_author: Annotated[tuple[Name, ...], MEASURED, NO_FLAG] = ()
    """who made the model, or Chinese,English; it is asked [that of prep, if set]"""
    num_samples: Annotated[Whole, Flag("-n -k"), MEASURED, COMMON] = 0
    """answers to sample at each step for pass^k, in addition to the greedy one"""
    temperature: Annotated[Positive, MEASURED, NO_FLAG] = 0.7
    """sampling temperature of those answers"""

    judge: Annotated[Url, JUDGED] = ""
    """OpenAI-compatible server of an LLM judge, up to /v1"""
    judge_model: Annotated[Name, JUDGED] = ""
    judge_key: Annotated[Variable, JUDGED, NO_FLAG] = "OPENAI_API_KEY"
    sheet: Annotated[File, JUDGED] = ""
    """CSV to write, in which people score the answers, blind and shuffled"""
    ratings: Annotated[tuple[File, ...], REPEAT, JUDGED] = ()
    """copy of --sheet that was filled in; writes nothing"""

    max_length: Annotated[Count, ENGINE] = 2048
    """maximum tokens of prompt and answer together [2048, or as many as --data has; with --env,
    8192]"""
    max_new_tokens: Annotated[Count, ENGINE] = 256
    """maximum tokens of an answer [twice the longest answer of --data, from 64 to 256]"""
    batch_size: Annotated[Count, Flag("-b --bs"), ENGINE, COMMON] = 16
    """prompts per batch [by --profile]"""
    seed: Annotated[Seed, MEASURED] = 0
    """random seed of the sampled answers and of the bootstrap"""

    def in_memory(self, gpu: bool) -> InMemory:
        samples = max(1, self.num_samples)
        return InMemory(prompts=self.batch_size, samples=samples, greedy=True)


class AblateSettings(Struct, frozen=True, kw_only=True):
    """Train and evaluate every combination of reward weights and settings, and compare them."""

    grid: Annotated[File, DATA, COMMON] = ""
    """YAML file of reward weights and values of settings; each combination is a cell"""
    by: Annotated[Trainer, DATA, COMMON] = ""
    """stage that trains each cell [as the grid file says, otherwise dpo]"""
    data: Annotated[StageName, DATA, COMMON] = "prep"
    model: Annotated[Model, DATA, COMMON] = ""
    """model that every cell starts from: alias, path, hub id or earlier stage [that of --by]"""
    candidates: Annotated[StageName, Flag(name="--from"), DATA, COMMON] = ""
    """finished pairs or grpo stage whose candidates are ranked [they are sampled once]"""
    split: Annotated[Literal["test", "dev"], MEASURED, COMMON] = "test"
    """records on which the cells are measured"""
    metric: Annotated[str, Metavar("METRIC"), MEASURED, COMMON] = "exact_call"
    """metric of the verdict"""
    seed: Annotated[Seed, MEASURED] = 0
    """random seed of the intervals; that of training is a setting of its stage"""


class MakeSettings(Struct, frozen=True, kw_only=True):
    """Make training dialogs from tools alone: calls that were carried out, with words for them."""

    what: Literal["dialogs"] = "dialogs"
    """what is made"""
    env: Annotated[str, Metavar("ENVIRONMENT"), DATA, COMMON] = ""
    """environment whose tools are used: bfcl:multi_turn_base, a class (shop.py:Shop), or an MCP
    server (mcp:COMMAND, mcp:URL)"""
    tasks: Annotated[File, DATA, COMMON] = ""
    """JSON lines of tasks, whose columns the environment's reset takes [one without columns]"""
    split: Annotated[Literal["all", "train", "dev", "test"], DATA, COMMON] = "all"
    """tasks whose worlds are used; the split of a task is made from its question"""
    dev: Annotated[Share, DATA] = 0.1
    test: Annotated[Share, DATA] = 0.2
    num_dialogs: Annotated[Count, Flag("-n"), DIALOGS, COMMON] = 100
    """number of dialogs"""
    shares: Annotated[dict[str, NonNegative], Metavar("KIND=FLOAT,..."), DIALOGS, COMMON] = {}
    """kinds of dialogs and their shares: single, parallel, several_turns, missing_function,
    missing_parameter, no_tool [all; single and several_turns twice as often]"""
    extra_tools: Annotated[Whole, DIALOGS, COMMON] = 4
    """number of tools on offer that a dialog does not call"""
    call_seconds: Annotated[Positive, ENVIRONMENT] = 10.0
    world_memory: Annotated[Positive, ENVIRONMENT, NOT_IN_PLAN] = 4.0
    env_keep: Annotated[tuple[Variable, ...], ENVIRONMENT, NOT_IN_PLAN, NO_FLAG] = ()
    seed: Annotated[Seed, DIALOGS] = 0
    """random seed of the calls and of the words"""


class QueriesSettings(WriterSettings, frozen=True, kw_only=True):
    """Let a model write new queries like those that there are, without copies and leaks."""

    data: Annotated[StageName, DATA, COMMON] = "prep"
    """finished prep stage whose training records give the queries to begin with"""
    queries: Annotated[File, DATA, COMMON] = ""
    """rows of prompts, as `pairs --data` reads them, in place of a prep"""
    holdout: Annotated[tuple[File, ...], REPEAT, DATA, COMMON] = ()
    """rows whose questions, and near ones, must not be among the new queries"""
    encoder: Annotated[Model, DATA] = "all-minilm-l6-v2"
    """sentence-transformers model by which queries are grouped: alias, path, hub id or stage"""
    num_queries: Annotated[Count, Flag("-n"), QUERIES, COMMON] = 100
    """number of new queries"""
    clusters: Annotated[Count | None, QUERIES, COMMON] = None
    """number of clusters [the square root of half the queries]"""
    near: Annotated[Count, QUERIES] = 4
    """number of near queries that the model is shown in one request"""
    per_request: Annotated[Count, QUERIES] = 5
    """number of new queries that one request asks for"""
    seed: Annotated[Seed, QUERIES] = 0
    """random seed of the clusters and of what the model is shown"""


class TemplatesSettings(WriterSettings, frozen=True, kw_only=True):
    """Let a model write prompt templates, and keep those that are better than known protocols."""

    data: Annotated[StageName, DATA, COMMON] = "prep"
    """finished prep stage whose training records give the requests"""
    num_templates: Annotated[Count, Flag("-n"), TEMPLATES, COMMON] = 8
    """number of templates that the model writes"""
    near: Annotated[Count, TEMPLATES] = 4
    """number of like requests that the model is shown for one template"""
    benchmark: Annotated[str, Metavar("PROTOCOL,..."), TEMPLATES, COMMON] = "autogpt,toolllama"
    """protocols that a template is measured against, on the same requests"""
    num_queries: Annotated[Count, TEMPLATES, COMMON] = 20
    """number of requests on which a template is measured"""
    epsilon: Annotated[float, Meta(ge=-5, le=5), TEMPLATES, COMMON] = 0.0
    """points, of 5, by which an answer, and the mean of a template, must exceed the benchmark"""
    threshold: Annotated[float, Meta(ge=0, le=5), TEMPLATES, COMMON] = 3.0
    """points, of 5, that the mean of a template's own answers must exceed"""
    judge_endpoint: Annotated[Url, ENDPOINTS, COMMON, NOT_IN_PLAN] = ""
    """server of the model that scores the answers [the first --endpoint]"""
    judge_model: Annotated[Name, ENDPOINTS] = ""
    """name of that model on its server [that of --model]"""
    judge_key: Annotated[Variable, ENDPOINTS, NOT_IN_PLAN] = "OPENAI_API_KEY"
    temperature: Annotated[NonNegative, SAMPLING] = 1.0
    """sampling temperature of the templates; answers in them are the likeliest ones"""
    max_new_tokens: Annotated[Count, SAMPLING] = 2048
    """maximum tokens of a template or an answer"""
    seed: Annotated[Seed, TEMPLATES] = 0
    """random seed of the requests and of what the model is asked for"""


COMMANDS: dict[str, type[Struct]] = {
    "prep": PrepSettings,
    "retriever": RetrieverSettings,
    "sft": SftSettings,
    "pairs": PairsSettings,
    "dpo": DpoSettings,
    "grpo": GrpoSettings,
    "distill": DistillSettings,
    "rollout": RolloutSettings,
    "make": MakeSettings,
    "queries": QueriesSettings,
    "templates": TemplatesSettings,
    "eval": EvalSettings,
    "ablate": AblateSettings,
}
CPU_MODEL, GPU_MODEL = "smollm2-135m", "Qwen/Qwen2.5-1.5B-Instruct"


def fields(command: str) -> dict[str, Field]:
    """The settings of a command."""
    return fields_of(COMMANDS[command])


def default(command: str, key: str) -> Any:
    return fields(command)[key].default


def option_words(command: str, key: str, value: Any) -> list[str]:
    """The words of a command line that set one setting; `value`: as a plan has it."""
    field = fields(command)[key]
    name = field.names(key)[0]
    if field.flag.repeat and isinstance(value, list) and value:
        return [word for one in value for word in (name, str(one))]
    # a text with a comma would be taken for two
    commas = isinstance(value, list) and any(isinstance(one, str) and "," in one for one in value)
    if not field.has_flag or commas or value in (None, [], {}):
        return ["--set", f"{command}.{key}={json.dumps(value, ensure_ascii=False)}"]  # JSON is YAML
    return [name, *([] if value is True else [as_text(value)])]
