"""The settings of every stage; the docstring of a struct is its page of help (config/fields.py)."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from agentlite.config.fields import (
    COMMON,
    MAX_INT,
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
    Seed,
    Share,
    StageName,
    Url,
    Variable,
    Whole,
    fields_of,
    option_text,
)
from agentlite.config.pipeline import DEFAULT_MODEL, TRAINERS

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
if TYPE_CHECKING:  # mypy takes no Literal that is computed; msgspec checks values by it
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


class PrepSettings(Struct, frozen=True, kw_only=True):
    """Check dialogs, leave out duplicates, and split the rest into train, dev and test.

    Input:
        sources: files or folders, - for stdin, bfcl:CATEGORY,..., or hub:ORG/NAME
        trajectories: finished stage to read as well: the dialogs of a rollout or of make, or the
            candidates of pairs or grpo; its name in the workspace, or a path
        keep: rollouts or candidates to keep, by their scores; best keeps one per task or step [all
            rollouts; the candidates that are exactly right]
        format: format of the raw rows (see --formats); auto recognizes each row
        fix: read rows of Python literals or invalid JSON, where nothing is lost; each is reported
        max_rejects: share of rejected rows above which prep stops
        tools: file of the tools that rows name by id: SAGE's agent_tools, or OpenAI tools
    Cleaning and selection:
        personal: what to do with keys, e-mail addresses, phone and card numbers
        duplicates: kinds of duplicates to leave out
        near: Jaccard similarity from which texts are near-duplicates, or leaks
        contradictions: what to do with rows whose calls differ for the same conversation
        holdout: file that must not be learned, such as a benchmark; similar rows are left out
        mix: sources to mix in, such as general=chat.jsonl:0.2 (0.2*: rows may be repeated)
        task_weights: weights of the tasks in the sample, also as JSON
        limit: number of rows to sample, spread evenly over the sources [all]
        coreset_strategy: how to choose a subset of the train records [all are kept]
        coreset_target_size: number of train records in that subset
        replay: buffer of earlier train records, some of which are learned again
        continual_buffer_size: number of records that the replay buffer keeps
        continual_replay_ratio: replayed records per new train record
    Training rows:
        model: model to train later; rows are checked with its tokenizer and template [smollm2-135m;
            with a GPU Qwen/Qwen2.5-1.5B-Instruct]
        protocol: text format of tool calls, or several with weights: hermes=2,react; auto is chat
            (the model's own) if that keeps every row, otherwise hermes
        system: system prompt for rows without one [that of the chat template]
        thoughts: what to do with the thoughts of turns; those that are kept stand where the chat
            template has them, or in <think> where it has no place for them
        no_call_share: share of train rows with tools that call none: rows without the right tool
            are added
        mask_names: share of train rows that are also taught with renamed tools
        max_length: maximum tokens of a row; longer rows are rejected (see --long-rows)
        long_rows: what to do with longer rows; cut removes whole steps
        unanswered: what to do with dialogs that end without an answer; cut removes what follows the
            last one
        distractors: unrelated tools added to each train row that offers one tool
        join: number of single-turn train rows to join into one dialog
        join_tokens: maximum tokens of a joined dialog [as --max-length]
        retrieve: number of tools to offer, chosen by the retriever [the tools of the record]
        retriever: finished retriever stage: its name in the workspace, or a path
        retrieve_by: ranking method of the retriever
        no_call_answer: answer to learn where BFCL expects no call, or the right tool was removed
        model_name: what replaces {{NAME}} and {{name}} in the rows: one name, or Chinese,English
        model_author: what replaces {{AUTHOR}} and {{author}} in the rows: one name, or
            Chinese,English
    Splits and output:
        dev: share of the records for dev: training measures its loss on them
        test: share of the records for test: only eval uses them
        split_by: what must not be in both train and test
        rows: file format of the records; - writes them to stdout as well
        seed: random seed of the split, the sample and the shuffling
    """

    sources: tuple[File, ...] = ()
    trajectories: Annotated[tuple[StageName, ...], Flag(name="--from", repeat=True), COMMON] = ()
    keep: Annotated[str, Metavar("[best,]SCORE>=FLOAT,..."), COMMON] = ""
    format: Annotated[tuple[str, ...], Metavar("[SOURCE=]FORMAT"), REPEAT] = ("auto",)
    fix: Annotated[bool, COMMON] = False
    max_rejects: Share = 0.01
    tools: Annotated[tuple[File, ...], REPEAT] = ()
    personal: Literal["off", "report", "mask", "drop"] = "report"
    duplicates: tuple[Literal["equal", "calls", "near", "none"], ...] = ("equal",)
    near: Annotated[Share, NO_FLAG] = 0.8
    contradictions: Annotated[Literal["report", "drop"], NO_FLAG] = "report"
    holdout: Annotated[tuple[File, ...], REPEAT] = ()
    mix: Annotated[tuple[str, ...], Metavar("NAME=SOURCE+...:RATIO"), REPEAT] = ()
    task_weights: Annotated[dict[str, float], Metavar("TASK=FLOAT,..."), NO_FLAG] = {}
    limit: Annotated[Count | None, COMMON] = None
    coreset_strategy: Literal["", "loss_topk", "diversity", "hybrid", "random"] = ""
    coreset_target_size: Count | None = None
    replay: Folder = ""
    continual_buffer_size: Annotated[Count, NO_FLAG] = 2048
    continual_replay_ratio: Annotated[Share, NO_FLAG] = 0.25
    model: Annotated[Model, COMMON] = ""
    protocol: Annotated[str, Metavar(PROTOCOLS), COMMON] = "auto"
    system: Annotated[str, NO_FLAG] = ""
    thoughts: Literal["keep", "drop"] = "keep"
    no_call_share: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    mask_names: Annotated[Share, NO_FLAG] = 0.0
    max_length: Annotated[Count, Flag("--max-tokens"), COMMON] = 2048
    long_rows: Literal["reject", "cut", "filter"] = "reject"
    unanswered: Literal["reject", "cut"] = "reject"
    distractors: Annotated[Whole, NO_FLAG] = 0
    join: Annotated[Count, NO_FLAG] = 1
    join_tokens: Annotated[Count | None, NO_FLAG] = None
    retrieve: Count | None = None
    retriever: Annotated[StageName, NO_FLAG] = "retriever"
    retrieve_by: Annotated[RankBy, NO_FLAG] = "tuned"
    no_call_answer: Annotated[str, NO_FLAG] = "None of the available tools can answer this."
    model_name: Annotated[tuple[Name, ...], NO_FLAG] = ()
    model_author: Annotated[tuple[Name, ...], NO_FLAG] = ()
    dev: Annotated[Share, COMMON] = 0.1
    test: Annotated[Share, COMMON] = 0.2
    split_by: Annotated[
        tuple[Literal["query", "near", "parent", "tools", "calls"], ...], NO_FLAG
    ] = ("query", "near", "parent", "calls")
    rows: Literal["jsonl", "parquet", "-"] = "jsonl"
    seed: Seed = 0


class RetrieverSettings(Struct, frozen=True, kw_only=True):
    """Train a model that finds the right tools among many, and build its index.

    Data and model:
        data: finished prep stage: its name in the workspace, or a path
        tools: file of further tools: SAGE's agent_tools, or OpenAI tools
        model: sentence-transformers model: alias, path, hub id or stage
        max_length: maximum tokens of a question or tool; the rest is not read
    Training:
        negatives: hard negatives for each right tool: wrong tools that look right
        num_epochs: passes over the training pairs
        max_steps: optimizer steps; 0 only builds the index [as --num-epochs says]
        batch_size: pairs per batch; the tools of the other pairs are negatives too
        learning_rate: peak learning rate
        warmup_ratio: share of the steps for the warm-up of the learning rate
        lr_scheduler: decay of the learning rate
        scale: factor of the cosine similarities in the loss: 1 / temperature
        save_steps: steps between checkpoints; the dev loss is measured at each
        seed: random seed of the negatives, the order of pairs and the bootstrap
        report_to: trackers that follow the run, in addition to metrics.jsonl; wandb sends figures
            away
        trl: any other argument of sentence-transformers' trainer
    Evaluation of the search:
        sizes: numbers of tools to search among; all of them is always measured
        top: number of retrieved tools at which the search is measured
    """

    data: Annotated[StageName, COMMON] = "prep"
    tools: Annotated[tuple[File, ...], REPEAT, COMMON] = ()
    model: Annotated[Model, COMMON] = "all-minilm-l6-v2"
    max_length: Count = 96
    negatives: Annotated[Whole, COMMON] = 1
    num_epochs: Annotated[Positive, Flag("-e --epochs"), COMMON] = 1.0
    max_steps: Annotated[Whole | None, COMMON] = None
    batch_size: Annotated[Count, Flag("-b --bs"), COMMON] = 32
    learning_rate: Annotated[NonNegative, Flag("--lr"), COMMON] = 2e-4
    warmup_ratio: Annotated[Share, NO_FLAG] = 0.1
    lr_scheduler: Scheduler = "linear"
    scale: Annotated[Positive, NO_FLAG] = 20.0
    save_steps: Count = 50
    sizes: tuple[Count, ...] = (100, 500, 1000)
    top: Annotated[Count, COMMON] = 5
    seed: Seed = 0
    report_to: Annotated[tuple[Tracker, ...], NOT_IN_PLAN] = ()
    trl: Annotated[dict[str, Any], NO_FLAG] = {}


class TrainerSettings(Struct, frozen=True, kw_only=True):
    """What every trainer can be set to; its help stands here for all of them.

    Data and model:
        data: finished prep stage: its name in the workspace, or a path
        model: model to start from: alias, path, hub id or earlier stage
        max_length: maximum tokens of a training row, prompt and answer together [2048, or as many
            as --data has]
    Training:
        num_epochs: passes over the training rows
        max_steps: optimizer steps, in place of --num-epochs [as --num-epochs says]
        batch_size: rows per batch [by --profile]
        gradient_accumulation: batches per optimizer step [by --profile]
        learning_rate: peak learning rate; --full divides the default by 10
        seed: random seed of the initial weights, the order of rows and the sampling
    Adapter:
        full: train all weights in place of an adapter; the result is a whole model
        lora_r: rank of a new LoRA adapter; one that is trained further keeps its rank
        lora_alpha: scale of the adapter; it is divided by the rank
        lora_dropout: dropout on the adapter's inputs
        lora_target_modules: layers that get an adapter; all adds the embeddings (needs --engine hf)
    Engine and memory:
        engine: library: unsloth, or plain transformers with PEFT and TRL
        attn_implementation: attention kernel, for --engine hf; flash_attention_2 needs CUDA and
            flash-attn
        load_in_4bit: load the base model in 4 bit (needs CUDA) [by --profile]
        load_in_8bit: load the base model in 8 bit (needs CUDA)
        deepspeed: DeepSpeed configuration for torchrun, such as deepspeed/zero3.json (needs
            --engine hf)
        trl: any other field of the TRL configuration, passed through unchanged
        peft: any other field of PEFT's LoraConfig, passed through unchanged
    """

    data: StageName = "prep"
    model: Annotated[Model, COMMON] = DEFAULT_MODEL
    max_length: Count = 2048
    num_epochs: Annotated[Positive, Flag("-e --epochs"), COMMON] = 3.0
    max_steps: Annotated[Count | None, COMMON] = None
    batch_size: Annotated[Count, Flag("-b --bs"), COMMON] = 2
    gradient_accumulation: Count = 4
    learning_rate: Annotated[NonNegative, Flag("--lr"), COMMON]
    warmup_ratio: Annotated[Share, NO_FLAG] = 0.1
    lr_scheduler: Scheduler = "cosine"
    save_steps: Count = 50
    seed: Seed = 0
    report_to: Annotated[tuple[Tracker, ...], NOT_IN_PLAN] = ()
    full: bool = False
    lora_r: Annotated[Count, COMMON] = 16
    lora_alpha: Annotated[Count, NO_FLAG] = 32
    lora_dropout: Annotated[Share, NO_FLAG] = 0.0
    lora_target_modules: Annotated[tuple[str, ...], Metavar("MODULE,..."), NO_FLAG] = (
        "all-linear",
    )
    engine: Engine = "unsloth"
    attn_implementation: Annotated[Attention, NO_FLAG] = "auto"
    load_in_4bit: bool = False
    load_in_8bit: Annotated[bool, NO_FLAG] = False
    deepspeed: File = ""
    trl: Annotated[dict[str, Any], NO_FLAG] = {}
    peft: Annotated[dict[str, Any], NO_FLAG] = {}

    def in_memory(self, gpu: bool) -> InMemory:
        return InMemory(rows=self.batch_size)


class SftSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter on the assistant's answers and calls in the records of prep.

    Data and model:
        model: model to start from: alias, path, hub id or earlier stage [the model of prep]
    Engine and memory:
        packing: put several rows into one sequence (needs CUDA)
        batch_tokens: tokens per batch with --packing, in place of --batch-size [by --profile]
    """

    model: Annotated[Model, COMMON] = ""
    learning_rate: Annotated[NonNegative, Flag("--lr"), COMMON] = 2e-4
    packing: bool = False
    batch_tokens: Count = 8192

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
    """What every stage that asks a model, here or behind servers, can be set to.

    Endpoints:
        endpoint: OpenAI-compatible server of the model, such as http://localhost:8000/v1; several
            share the work
        endpoint_key: environment variable with the API key of the servers
        requests: how each server is asked: seconds of one try, tries until a question counts as
            unanswered, concurrency (requests at the same time)
    Engine and memory:
        engine: library: unsloth, or plain transformers with PEFT
    Sampling:
        temperature: sampling temperature; 0 always takes the likeliest token
        max_new_tokens: maximum tokens of an answer
    """

    endpoint: Annotated[tuple[Url, ...], REPEAT, COMMON, NOT_IN_PLAN] = ()
    endpoint_key: Annotated[Variable, NOT_IN_PLAN, NO_FLAG] = "OPENAI_API_KEY"
    requests: Annotated[Requests, NOT_IN_PLAN, NO_FLAG] = Requests()
    engine: Engine = "unsloth"
    attn_implementation: Annotated[Attention, NO_FLAG] = "auto"
    load_in_4bit: bool = False
    load_in_8bit: Annotated[bool, NO_FLAG] = False
    temperature: Annotated[NonNegative, COMMON] = 1.0
    max_new_tokens: Count = 256


class WorldSettings(SamplerSettings, frozen=True, kw_only=True):
    """What every stage that lets a model act in an environment can be set to.

    Environment:
        env: environment to act in: bfcl:multi_turn_base, a class (shop.py:Shop), or an MCP server
            (mcp:COMMAND, mcp:URL)
        tasks: JSON lines of tasks ({"prompt": ..., ...}), for an environment that brings none
        dev: share of the dev tasks
        test: share of the test tasks
        extra_tools: number of tools on offer that the gold of BFCL does not call [all that BFCL
            offers]
        max_turns: maximum turns with calls between two turns of the user
        call_seconds: seconds that one call of a tool may take
        world_memory: GiB of memory that each process of an environment may take (Linux)
        env_keep: environment variables that the command of an MCP server gets, beside PATH, HOME
            and a few
    """

    env: Annotated[str, Metavar("ENVIRONMENT"), COMMON] = ""
    tasks: File = ""
    dev: Annotated[Share, NO_FLAG] = 0.1
    test: Annotated[Share, NO_FLAG] = 0.2
    extra_tools: Annotated[Whole | None, NO_FLAG] = None
    max_turns: Annotated[Count, NO_FLAG] = 20
    call_seconds: Annotated[Positive, NO_FLAG] = 10.0
    world_memory: Annotated[Positive, NOT_IN_PLAN, NO_FLAG] = 4.0
    env_keep: Annotated[tuple[Variable, ...], NOT_IN_PLAN, NO_FLAG] = ()


class WriterSettings(Struct, frozen=True, kw_only=True):
    """What every stage can be set to for which a model behind servers writes data.

    Endpoints:
        endpoint: OpenAI-compatible server of the model that writes; several share the work
        model: name of that model on its server
        max_failures: share of requests that a server may leave unanswered
    Sampling:
        temperature: sampling temperature; 0 always takes the likeliest token
        max_new_tokens: maximum tokens of an answer
    """

    endpoint: Annotated[tuple[Url, ...], REPEAT, COMMON, NOT_IN_PLAN] = ()
    model: Annotated[Name, COMMON] = ""
    endpoint_key: Annotated[Variable, NOT_IN_PLAN] = "OPENAI_API_KEY"
    requests: Annotated[Requests, NOT_IN_PLAN, NO_FLAG] = Requests()
    max_failures: Annotated[Share, NOT_IN_PLAN] = 0.1
    temperature: NonNegative = 1.0
    max_new_tokens: Count = 1024


class PairsSettings(SamplerSettings, frozen=True, kw_only=True):
    """Sample several answers at every step, score them, and pair the best with the worst.

    Data and model:
        data: finished prep stage; or a file of rows, or - for stdin
        split: records of prep to use
        model: model that answers: alias, path, hub id or earlier stage
        candidates: finished pairs, grpo or rollout stage whose answers are ranked again, without a
            model
        preferences: file of prompts with chosen and rejected answers, which become pairs
        max_rejects: share of rejected rows of --preferences above which pairs stops
        limit: number of records to sample, spread evenly over the sources [all]
    Endpoints:
        unanswered: what to do about unanswered questions: stop, and ask them again when the same
            command is run again; or finish without candidates for them
    Sampling:
        num_samples: candidates per step
        top_p: nucleus sampling: the likeliest tokens that add up to this probability
        max_length: maximum tokens of prompt and answer together [2048, or as many as --data has]
        batch_size: prompts per batch [by --profile]
        seed: random seed of the choice of records and of the answers
    Rewards:
        weights: reward weights that differ from the defaults
        rewards: reward component of your own, such as rewards.py:short
        judge: OpenAI-compatible server of a judge, up to /v1, that ranks the answers to each prompt
        judge_model: name of the judge's model on that server
        judge_key: environment variable with the API key of the judge
        judge_limit: most questions to the judge about the same candidates, in all runs [no limit]
        reward_seconds: seconds that one call of your own functions may take
        reward_memory: GiB of memory that each process of your own functions may take (Linux)
        max_failures: share of candidates for which your own functions, or the judge, may fail
    Choice of pairs:
        margin: smallest difference in reward between chosen and rejected
        gold: take the correct answer of the data as chosen where every candidate fails
    """

    data: Annotated[str, Metavar("STAGE|FILE")] = "prep"
    split: Literal["train", "dev", "test"] = "train"
    model: Annotated[Model, COMMON] = DEFAULT_MODEL
    unanswered: Annotated[Literal["ask", "wrong"], NOT_IN_PLAN] = "ask"
    candidates: Annotated[StageName, Flag(name="--from"), COMMON, NOT_IN_PLAN] = ""
    preferences: Annotated[tuple[File, ...], REPEAT, NOT_IN_PLAN] = ()
    max_rejects: Annotated[Share, NOT_IN_PLAN] = 0.01
    limit: Annotated[Count | None, COMMON] = None
    num_samples: Annotated[Count, Flag("-n"), COMMON] = 4
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    weights: Annotated[dict[str, float], Metavar("COMPONENT=FLOAT,..."), COMMON] = {}
    rewards: Annotated[tuple[str, ...], Metavar("FILE:FUNCTION"), REPEAT, COMMON] = ()
    judge: Url = ""
    judge_model: Name = ""
    judge_key: Annotated[Variable, NOT_IN_PLAN, NO_FLAG] = "OPENAI_API_KEY"
    judge_limit: Annotated[Count | None, NOT_IN_PLAN] = None
    reward_seconds: Annotated[Positive, NOT_IN_PLAN] = 10.0
    reward_memory: Annotated[Positive, NOT_IN_PLAN, NO_FLAG] = 16.0
    max_failures: Annotated[Share, NOT_IN_PLAN] = 0.1
    max_length: Count = 2048
    batch_size: Annotated[Count, Flag("-b --bs"), COMMON, NOT_IN_PLAN] = 8
    margin: NonNegative = 0.05
    gold: Annotated[bool, COMMON] = False
    seed: Seed = 0

    def in_memory(self, gpu: bool) -> InMemory:
        return InMemory(prompts=self.batch_size, samples=self.num_samples)


class DpoSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter to prefer the chosen answers of pairs to the rejected ones.

    Data and model:
        data: finished pairs stage: its name in the workspace, or a path
        model: model to start from: alias, path, hub id or earlier stage [the model that was
            sampled]
    Loss:
        beta: KL penalty coefficient: how strongly the policy is kept close to the reference; for
            simpo the scale of the margin, for orpo the weight of the odds ratio [0.1; 2 for simpo]
        loss_type: preference loss as TRL names it; simpo and orpo train without a reference
        gamma: margin that simpo aims at
        label_smoothing: assumed share of pairs whose answers are swapped, for sigmoid, robust and
            exo_pair
        reference_free: train without a reference: its log-probabilities count as zero
        sft_weight: weight of an added SFT loss on the chosen answer [0; 1 for orpo]
    """

    data: Annotated[StageName, COMMON] = "pairs"
    model: Annotated[Model, COMMON] = ""
    learning_rate: Annotated[NonNegative, Flag("--lr"), COMMON] = 5e-6
    beta: Annotated[Positive, COMMON] = 0.1
    loss_type: Annotated[PreferenceLoss, COMMON] = "sigmoid"
    gamma: NonNegative = 1.0
    label_smoothing: Annotated[float, Meta(ge=0, lt=0.5)] = 0.0
    reference_free: bool = False
    sft_weight: NonNegative = 0.0

    @property
    def has_reference(self) -> bool:
        return not self.reference_free and self.loss_type not in ("simpo", "orpo")

    def in_memory(self, gpu: bool) -> InMemory:
        """Chosen and rejected are rows of their own."""
        return InMemory(rows=2 * self.batch_size, reference=self.has_reference)


class GrpoSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter on its own answers, each scored against the others of its group.

    Environment:
        env: environment to act in, in place of recorded prompts: bfcl:multi_turn_base, shop.py:Shop
    Training:
        batch_size: answers per batch
        max_flat_steps: steps in a row without any reward difference before training ends; 0 never
            ends it
    Sampling:
        group_size: answers per prompt
        rest_epochs: epochs for which a prompt rests after a group whose answers all scored the
            same; others take its place [0; with --env: 2]
        vllm: sample with vLLM (needs CUDA and vLLM); with Unsloth it shares the weights
        vllm_levers: with --vllm: standby (no cache on the GPU while it trains), suffix (guesses
            from earlier answers), sampled-as-old (no pass over the answers before the update)
    Rewards:
        max_failures: share of answers for which your own functions, the judge or the environment
            may fail
    Loss:
        beta: KL penalty coefficient: how strongly the policy is kept close to the start
        loss_type: loss as TRL names it, and gspo; cispo with its clip (epsilon_high) at 5
        scale_rewards: whose standard deviation divides the advantages; component: each component is
            scaled in its group, and their weighted sum over the batch (GDPO)
        advantage: what an answer is compared with: the others of its group; or what a value head
            expected of it (PPO), which loss_type and scale_rewards do not apply to
        rollouts: answers of a round of PPO, sampled before any of them is learned from
        ppo_epochs: passes of PPO over the answers of a round
        clip: how far the ratio of new and old policy, and a value, count in a round of PPO
        value_coef: weight of the loss of the value head
        value_learning_rate: peak learning rate of the value head, which begins at nothing
        gae_lambda: how much later tokens count in the advantage of PPO: 1 is what was earned less
            the value, 0 looks one token ahead
    """

    env: Annotated[str, Metavar("ENVIRONMENT"), COMMON] = ""
    tasks: File = ""
    dev: Annotated[Share, NO_FLAG] = 0.1
    test: Annotated[Share, NO_FLAG] = 0.2
    extra_tools: Annotated[Whole | None, NO_FLAG] = None
    max_turns: Annotated[Count, NO_FLAG] = 20
    call_seconds: Annotated[Positive, NO_FLAG] = 10.0
    world_memory: Annotated[Positive, NOT_IN_PLAN, NO_FLAG] = 4.0
    env_keep: Annotated[tuple[Variable, ...], NOT_IN_PLAN, NO_FLAG] = ()
    split: Annotated[Literal["train", "dev"], NO_FLAG] = "train"
    limit: Count | None = None
    learning_rate: Annotated[NonNegative, Flag("--lr"), COMMON] = 1e-5
    lr_scheduler: Annotated[Scheduler, NO_FLAG] = "cosine"
    deepspeed: Annotated[File, NO_FLAG] = ""
    batch_size: Annotated[Count, Flag("-b --bs"), COMMON] = 4
    group_size: Annotated[int, Meta(ge=2, le=MAX_INT), COMMON] = 4
    temperature: NonNegative = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1), NO_FLAG] = 1.0
    max_new_tokens: Count = 256
    weights: Annotated[dict[str, float], Metavar("COMPONENT=FLOAT,..."), COMMON] = {}
    rewards: Annotated[tuple[str, ...], Metavar("FILE:FUNCTION"), REPEAT, COMMON] = ()
    judge: Url = ""
    judge_model: Name = ""
    judge_key: Annotated[Variable, NOT_IN_PLAN, NO_FLAG] = "OPENAI_API_KEY"
    judge_limit: Annotated[Count | None, NOT_IN_PLAN] = None
    requests: Annotated[Requests, NOT_IN_PLAN, NO_FLAG] = Requests()
    reward_seconds: Annotated[Positive, NOT_IN_PLAN, NO_FLAG] = 10.0
    reward_memory: Annotated[Positive, NOT_IN_PLAN, NO_FLAG] = 16.0
    max_failures: Annotated[Share, NOT_IN_PLAN, NO_FLAG] = 0.1
    beta: NonNegative = 0.1
    loss_type: Literal[
        "grpo", "dr_grpo", "bnpo", "dapo", "cispo", "gspo", "sapo", "luspo", "vespo"
    ] = "dapo"
    scale_rewards: Annotated[Literal["group", "batch", "none", "component"], NO_FLAG] = "group"
    advantage: Literal["group", "value"] = "group"
    rollouts: Annotated[Count, NO_FLAG] = 128
    ppo_epochs: Annotated[Count, NO_FLAG] = 4
    clip: Annotated[float, Meta(gt=0, le=1), NO_FLAG] = 0.2
    value_coef: Annotated[NonNegative, NO_FLAG] = 0.5
    value_learning_rate: Annotated[NonNegative, NO_FLAG] = 1e-3
    gae_lambda: Annotated[Share, NO_FLAG] = 0.95
    rest_epochs: Annotated[NonNegative | None, NO_FLAG] = None
    max_flat_steps: Annotated[Whole, NOT_IN_PLAN, NO_FLAG] = 20
    vllm: bool = False
    vllm_levers: tuple[VllmLever, ...] = ()

    @property
    def resting_epochs(self) -> float:
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
        # of 4 batches with 4 answers each, in groups of 4: 4 prompts
        prompts = max(1, self.batch_size * self.gradient_accumulation // self.group_size)
        return InMemory(self.batch_size, reference=True, prompts=prompts, samples=self.group_size)


class DistillSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter to go on as a teacher does, at every token of its own answers.

    Data and model:
        model: model to start from: alias, path, hub id or earlier stage [the model of prep]
        teacher: model to learn from, with the same tokenizer: alias, path, hub id or earlier stage
        limit: number of records to use, spread evenly over the sources [all]
    Loss:
        beta: divergence: 1 is the reverse KL, 0 the forward KL, and between lies the generalised
            Jensen-Shannon divergence
        lmbda: share of the answers that the student samples; the others are those of the records
        fade: share of the steps over which those answers fade out [0: their share stays]
    """

    model: Annotated[Model, COMMON] = ""
    teacher: Annotated[Model, COMMON] = DEFAULT_MODEL
    split: Literal["train", "dev"] = "train"
    limit: Count | None = None
    learning_rate: Annotated[NonNegative, Flag("--lr"), COMMON] = 1e-4
    temperature: NonNegative = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    max_new_tokens: Count = 256
    beta: Annotated[Share, COMMON] = 1.0
    lmbda: Annotated[Share, COMMON] = 1.0
    fade: Share = 0.0

    @property
    def uses_records(self) -> bool:
        """Whether any answer is one of the records."""
        return self.lmbda < 1

    @property
    def uses_samples(self) -> bool:
        """Whether any answer is sampled."""
        return self.lmbda > 0 or self.fade > 0

    def in_memory(self, gpu: bool) -> InMemory:
        """Every answer of a step is sampled before the first is learned from."""
        if not self.uses_samples:
            return InMemory(self.batch_size)
        prompts = self.batch_size * self.gradient_accumulation
        return InMemory(self.batch_size, prompts=prompts, samples=1)


class RolloutSettings(WorldSettings, frozen=True, kw_only=True):
    """Let a model act in an environment: it calls tools, reads results and talks to a user.

    Data and model:
        model: model that acts: alias, path, hub id or earlier stage; gold makes the calls that the
            tasks name as right
        split: tasks to take; the split of a task is made from its question
        limit: number of tasks, the first of a seeded order [all]
    Sampling:
        num_samples: rollouts per task
        max_length: maximum tokens of all turns and the answer together
        batch_size: rollouts that are sampled together [by --profile]
        seed: random seed of the order of tasks and of the sampling
    Environment:
        max_failures: share of rollouts whose environment, or server of a model, may break down
    """

    model: Annotated[Model, COMMON] = DEFAULT_MODEL
    split: Annotated[Literal["all", "train", "dev", "test"], COMMON] = "all"
    limit: Annotated[Count | None, COMMON] = None
    num_samples: Annotated[Count, Flag("-n"), COMMON] = 1
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    max_length: Annotated[Count, COMMON] = 8192
    max_failures: Annotated[Share, NOT_IN_PLAN] = 0.1
    batch_size: Annotated[Count, Flag("-b --bs"), COMMON, NOT_IN_PLAN] = 8
    seed: Seed = 0

    def in_memory(self, gpu: bool) -> InMemory:
        return InMemory(prompts=self.batch_size, samples=1)


class EvalSettings(WorldSettings, frozen=True, kw_only=True):
    """Ask models at every step of the test records, score their answers, and compare them.

    Data and model:
        model: model to evaluate: alias, path, hub id or earlier stage; several are compared [sft]
        predictions: answers made elsewhere, to be scored without a model
        kagent: rows of KAgentBench by which --predictions are scored; writes nothing
        data: finished prep stage: its name in the workspace, or a path
        split: records of prep, or tasks of --env, to use; all is only for tasks
        protocol: protocols or files of prompt templates in which records are asked [those of the
            data]
        retrieve: number of tools to offer, chosen by the retriever [the tools of the record]
        limit: number of records or tasks to measure, chosen by --seed [all]
    Endpoints:
        unanswered: what to do about unanswered questions: stop, and ask them again when the same
            command is run again; or count them as wrong
    Environment:
        max_failures: share of rollouts whose environment, or server of a model, may break down, or
            for which your own functions may fail
        rewards: figure of your own for a rollout, such as rewards.py:polite
    Metrics:
        metrics: metrics to print, by their names in metrics.json [the main ones]
        every: print every metric, and the wrong answers by kind
        gate: conditions on the last model; the exit code is 9 if one is not met
        general: general dialogs, to measure what the model forgets (`forgetting`)
        model_name: the model's own name, or Chinese,English; it is asked who it is [that of prep,
            if set]
        model_author: who made the model, or Chinese,English; it is asked [that of prep, if set]
        num_samples: answers to sample at each step for pass^k, in addition to the greedy one
        temperature: sampling temperature of those answers
        seed: random seed of the sampled answers and of the bootstrap
    Judges of the answers:
        judge: OpenAI-compatible server of an LLM judge, up to /v1
        judge_model: name of the judge's model on that server
        sheet: CSV to write, in which people score the answers, blind and shuffled
        ratings: copy of --sheet that was filled in; writes nothing
    Engine and memory:
        max_length: maximum tokens of prompt and answer together [2048, or as many as --data has;
            with --env, 8192]
        max_new_tokens: maximum tokens of an answer [twice the longest answer of --data, from 64 to
            256]
        batch_size: prompts per batch [by --profile]
    """

    model: Annotated[tuple[Model, ...], REPEAT, COMMON] = ()
    unanswered: Literal["ask", "wrong"] = "ask"
    predictions: Annotated[tuple[File, ...], REPEAT, COMMON] = ()
    kagent: File = ""
    data: Annotated[StageName, COMMON] = "prep"
    split: Literal["train", "dev", "test", "all"] = "test"
    protocol: Annotated[str, Metavar(PROTOCOLS)] = ""
    retrieve: Count | None = None
    retriever: Annotated[StageName, NO_FLAG] = "retriever"
    retrieve_by: Annotated[RankBy, NO_FLAG] = "tuned"
    limit: Annotated[Count | None, COMMON] = None
    max_failures: Annotated[Share, NO_FLAG] = 0.1
    rewards: Annotated[tuple[str, ...], Metavar("FILE:FUNCTION"), REPEAT] = ()
    reward_seconds: Annotated[Positive, NO_FLAG] = 10.0
    reward_memory: Annotated[Positive, NO_FLAG] = 16.0
    metrics: Annotated[tuple[str, ...], Metavar("METRIC,...")] = ()
    every: Annotated[bool, Flag(name="--all"), COMMON] = False
    gate: Annotated[str, Metavar("METRIC>=FLOAT,..."), COMMON] = ""
    general: File = ""
    model_name: tuple[Name, ...] = ()
    model_author: Annotated[tuple[Name, ...], NO_FLAG] = ()
    num_samples: Annotated[Whole, Flag("-n -k"), COMMON] = 0
    temperature: Annotated[Positive, NO_FLAG] = 0.7
    judge: Url = ""
    judge_model: Name = ""
    judge_key: Annotated[Variable, NO_FLAG] = "OPENAI_API_KEY"
    sheet: File = ""
    ratings: Annotated[tuple[File, ...], REPEAT] = ()
    max_length: Count = 2048
    max_new_tokens: Count = 256
    batch_size: Annotated[Count, Flag("-b --bs"), COMMON] = 16
    seed: Seed = 0

    def in_memory(self, gpu: bool) -> InMemory:
        return InMemory(prompts=self.batch_size, samples=max(1, self.num_samples), greedy=True)


class AblateSettings(Struct, frozen=True, kw_only=True):
    """Train and evaluate every combination of reward weights and settings, and compare them.

    Data and model:
        grid: YAML file of reward weights and values of settings; each combination is a cell
        by: stage that trains each cell [as the grid file says, otherwise dpo]
        model: model that every cell starts from: alias, path, hub id or earlier stage [that of
            --by]
        candidates: finished pairs or grpo stage whose candidates are ranked [they are sampled once]
    Metrics:
        split: records on which the cells are measured
        metric: metric of the verdict
        seed: random seed of the intervals; that of training is a setting of its stage
    """

    grid: Annotated[File, COMMON] = ""
    by: Annotated[Trainer, COMMON] = ""
    data: Annotated[StageName, COMMON] = "prep"
    model: Annotated[Model, COMMON] = ""
    candidates: Annotated[StageName, Flag(name="--from"), COMMON] = ""
    split: Annotated[Literal["test", "dev"], COMMON] = "test"
    metric: Annotated[str, Metavar("METRIC"), COMMON] = "exact_call"
    seed: Seed = 0


class MakeSettings(Struct, frozen=True, kw_only=True):
    """Make training dialogs from tools alone: calls that were carried out, with words for them.

    Dialogs:
        what: what is made
        num_dialogs: number of dialogs
        shares: kinds of dialogs and their shares: single, parallel, several_turns,
            missing_function, missing_parameter, no_tool [all; single and several_turns twice as
            often]
        extra_tools: number of tools on offer that a dialog does not call
        seed: random seed of the calls and of the words
    Data and model:
        env: environment whose tools are used: bfcl:multi_turn_base, a class (shop.py:Shop), or an
            MCP server (mcp:COMMAND, mcp:URL)
        tasks: JSON lines of tasks, whose columns the environment's reset takes [one without
            columns]
        split: tasks whose worlds are used; the split of a task is made from its question
        dev: share of the dev tasks
        test: share of the test tasks
    """

    what: Literal["dialogs"] = "dialogs"
    env: Annotated[str, Metavar("ENVIRONMENT"), COMMON] = ""
    tasks: Annotated[File, COMMON] = ""
    split: Annotated[Literal["all", "train", "dev", "test"], COMMON] = "all"
    dev: Share = 0.1
    test: Share = 0.2
    num_dialogs: Annotated[Count, Flag("-n"), COMMON] = 100
    shares: Annotated[dict[str, NonNegative], Metavar("KIND=FLOAT,..."), COMMON] = {}
    extra_tools: Annotated[Whole, COMMON] = 4
    call_seconds: Positive = 10.0
    world_memory: Annotated[Positive, NOT_IN_PLAN] = 4.0
    env_keep: Annotated[tuple[Variable, ...], NOT_IN_PLAN, NO_FLAG] = ()
    seed: Seed = 0


class QueriesSettings(WriterSettings, frozen=True, kw_only=True):
    """Let a model write new queries like those that there are, without copies and leaks.

    Data and model:
        data: finished prep stage whose training records give the queries to begin with
        queries: rows of prompts, as `pairs --data` reads them, in place of a prep
        holdout: rows whose questions, and near ones, must not be among the new queries
        encoder: sentence-transformers model by which queries are grouped: alias, path, hub id or
            stage
    Queries:
        num_queries: number of new queries
        clusters: number of clusters [the square root of half the queries]
        near: number of near queries that the model is shown in one request
        per_request: number of new queries that one request asks for
        seed: random seed of the clusters and of what the model is shown
    """

    data: Annotated[StageName, COMMON] = "prep"
    queries: Annotated[File, COMMON] = ""
    holdout: Annotated[tuple[File, ...], REPEAT, COMMON] = ()
    encoder: Model = "all-minilm-l6-v2"
    num_queries: Annotated[Count, Flag("-n"), COMMON] = 100
    clusters: Annotated[Count | None, COMMON] = None
    near: Count = 4
    per_request: Count = 5
    seed: Seed = 0


class TemplatesSettings(WriterSettings, frozen=True, kw_only=True):
    """Let a model write prompt templates, and keep those that are better than known protocols.

    Data and model:
        data: finished prep stage whose training records give the requests
    Templates:
        num_templates: number of templates that the model writes
        near: number of like requests that the model is shown for one template
        benchmark: protocols that a template is measured against, on the same requests
        num_queries: number of requests on which a template is measured
        epsilon: points, of 5, by which an answer, and the mean of a template, must exceed the
            benchmark
        threshold: points, of 5, that the mean of a template's own answers must exceed
        seed: random seed of the requests and of what the model is asked for
    Endpoints:
        judge_endpoint: server of the model that scores the answers [the first --endpoint]
        judge_model: name of that model on its server [that of --model]
        judge_key: environment variable with the API key of the judge
    Sampling:
        temperature: sampling temperature of the templates; answers in them are the likeliest ones
        max_new_tokens: maximum tokens of a template or an answer
    """

    data: Annotated[StageName, COMMON] = "prep"
    num_templates: Annotated[Count, Flag("-n"), COMMON] = 8
    near: Count = 4
    benchmark: Annotated[str, Metavar("PROTOCOL,..."), COMMON] = "autogpt,toolllama"
    num_queries: Annotated[Count, COMMON] = 20
    epsilon: Annotated[float, Meta(ge=-5, le=5), COMMON] = 0.0
    threshold: Annotated[float, Meta(ge=0, le=5), COMMON] = 3.0
    judge_endpoint: Annotated[Url, COMMON, NOT_IN_PLAN] = ""
    judge_model: Name = ""
    judge_key: Annotated[Variable, NOT_IN_PLAN] = "OPENAI_API_KEY"
    temperature: NonNegative = 1.0
    max_new_tokens: Count = 2048
    seed: Seed = 0


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
    items = value if isinstance(value, list) else []
    if field.flag.repeat and items:
        return [word for item in items for word in (name, str(item))]
    # a text with a comma would be taken for two, and nothing at all cannot be typed after a flag
    has_comma = any(isinstance(item, str) and "," in item for item in items)
    if NO_FLAG in field.marks or has_comma or value in (None, [], {}):
        return ["--set", f"{command}.{key}={json.dumps(value, ensure_ascii=False)}"]  # JSON is YAML
    return [name, *([] if value is True else [option_text(value)])]
