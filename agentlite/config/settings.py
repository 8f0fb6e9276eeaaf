"""The settings of every stage: type, default, help and flags of each."""

import ast
import functools
import itertools
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import msgspec
from msgspec import Meta, Struct

from agentlite.config.pipeline import TRAINED

# Every number has two bounds. The upper ones stand far above what anyone needs, and below what the
# libraries can compute with: infinity and 10^20 are refused before anything starts.
MOST, LARGEST, LAST_SEED = 2**31 - 1, 1e9, 2**32 - 1
Positive = Annotated[float, Meta(gt=0, le=LARGEST)]
NonNegative = Annotated[float, Meta(ge=0, le=LARGEST)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=MOST)]
Whole = Annotated[int, Meta(ge=0, le=MOST)]
Seed = Annotated[int, Meta(ge=0, le=LAST_SEED)]
Engine = Literal["unsloth", "hf"]
Attention = Literal["auto", "eager", "sdpa", "flash_attention_2"]
Scheduler = Literal[
    "cosine", "linear", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt"
]
RankBy = Literal["tuned", "hybrid", "bm25", "tfidf", "keyword"]


class Flag(NamedTuple):
    """How a setting is written on the command line, where that is not `--its-name VALUE`, once."""

    more: str = ""  # further ones, apart by a blank: "-n -k", "--max-tokens"
    name: str = ""  # in place of --its-name
    repeat: bool = False


class Section(NamedTuple):
    """The heading on a help page under which a setting stands; without one: Options."""

    title: str


class InMemory(NamedTuple):
    """How many rows, prompts and answers a stage has in memory at once: what its estimate is of."""

    rows: int = 0  # trained together
    packed: bool = False  # each of them filled up to max_length
    reference: bool = False  # with a frozen copy of the model
    prompts: int = 0  # sampled together
    samples: int = 0  # answers to each of them
    greedy: bool = False  # and before, apart, one greedy answer to each


REPEAT = Flag(repeat=True)
READ = Section("What is read")
LEARNED = Section("What is learned from")
ROWS = Section("What training rows look like")
EVALUATED = Section("What is evaluated")
MEASURED = Section("What is measured besides")
JUDGED = Section("What others think of the answers")


# A setting is three things: its type (and flags), its default, and under it its help, which
# `describe` reads. A setting without help means the same as in the stage above that has one.
class PrepSettings(Struct, frozen=True, kw_only=True):
    """Raw agent dialogs -> checked, de-duplicated records in train, dev and test."""

    sources: tuple[str, ...] = ()
    """files, - for stdin, or bfcl:<category>,<category>"""

    format: Annotated[tuple[str, ...], REPEAT, READ] = ("auto",)
    """of the raw rows: NAME, or SOURCE=NAME, as chat.jsonl=ms_bench; auto looks at each row"""
    repair: Annotated[tuple[str, ...], READ] = ()
    """repair rows: literal (Python), json (invalid JSON), encoding (Windows-1252); each is named"""
    retry_rejects: Annotated[str, READ] = ""
    """an edited rejects.jsonl, whose rows replace the rejected ones"""
    max_rejects: Annotated[Share, READ] = 0.01
    """share of rejected rows above which prep stops"""
    tools: Annotated[tuple[str, ...], REPEAT, READ] = ()
    """files that describe tools which rows name by their ids: SAGE's agent_tools, OpenAI's"""
    workers: Annotated[Whole, READ] = 1
    """processes; 0: one per processor. The output is the same"""

    personal: Annotated[Literal["off", "report", "mask", "drop"], LEARNED] = "report"
    """off, report, mask or drop: keys, e-mail addresses, phone and card numbers"""
    duplicates: Annotated[tuple[str, ...], LEARNED] = ("equal",)
    """which copies are left out: equal, calls, near; or none"""
    near: Annotated[Share, LEARNED] = 0.8
    """Jaccard index from which texts are near copies, or leaks"""
    contradictions: Annotated[Literal["report", "drop"], LEARNED] = "report"
    """rows with conflicting calls for the same conversation: report, drop"""
    holdout: Annotated[tuple[str, ...], REPEAT, LEARNED] = ()
    """files of which nothing may be learned; repeat it"""
    mix: Annotated[tuple[str, ...], REPEAT, LEARNED] = ()
    """NAME=SOURCE+...:RATIO, as general=chat.jsonl:0.2 (0.2*: with rows repeated); repeat it"""
    task_weights: Annotated[dict[str, float], LEARNED] = {}
    """TASK=WEIGHT,..., or as JSON: their shares of the sample"""
    limit: Annotated[Count | None, LEARNED] = None
    """a seeded sample of N rows, even over the sources"""
    coreset_strategy: Annotated[str, LEARNED] = ""
    """loss_topk, diversity, hybrid or random, of train"""
    coreset_target_size: Annotated[Count | None, LEARNED] = None
    """train records that it chooses"""
    coreset_loss: Annotated[Literal["model", "proxy"], LEARNED] = "model"
    """by a forward pass, or by length and variety"""
    coreset_model: Annotated[str, LEARNED] = ""
    """whose loss: alias, path, hub id or stage [that of model]"""
    replay: Annotated[str, LEARNED] = ""
    """folder of a buffer of earlier train records, to learn again with the new ones"""
    continual_buffer_size: Annotated[Count, LEARNED] = 2048
    """records it keeps"""
    continual_replay_ratio: Annotated[Share, LEARNED] = 0.25
    """of them for each new train record"""

    model: Annotated[str, ROWS] = ""
    """whose tokenizer and template the rows must fit (a GPU: Qwen2.5-1.5B)"""
    protocol: Annotated[str, ROWS] = "auto"
    """how calls are written; several, with weights: hermes=2,react; auto: chat if that keeps all,
    or hermes"""
    system: Annotated[str, ROWS] = ""
    """system text of rows without one, in place of the template's own"""
    remove_tool: Annotated[Share, ROWS] = 0.0
    """train rows also taught with the right tool gone"""
    mask_names: Annotated[Share, ROWS] = 0.0
    """train rows also taught with other names of tools"""
    max_length: Annotated[Count, Flag("--max-tokens"), ROWS] = 2048
    """tokens of a rendered row; longer ones are rejected"""
    long_rows: Annotated[Literal["reject", "cut", "filter"], ROWS] = "reject"
    """what becomes of a longer row; cut: by whole steps"""
    distractors: Annotated[Whole, ROWS] = 0
    """foreign tools added to train rows that have one tool"""
    join: Annotated[Count, ROWS] = 1
    """train rows of one turn put together in one dialog"""
    join_tokens: Annotated[Count | None, ROWS] = None
    """tokens of joined rows, added up [max_length]"""
    retrieve: Annotated[Count | None, ROWS] = None
    """offer the top N tools from the retriever, not the record's own"""
    retriever: Annotated[str, ROWS] = "retriever"
    """a finished retriever: its name in the workspace, or a path"""
    retrieve_by: Annotated[RankBy, ROWS] = "tuned"
    """how it ranks: tuned, hybrid (tuned and bm25), bm25, tfidf, keyword"""
    no_call_answer: Annotated[str, ROWS] = "None of the available tools can answer this."
    """said where BFCL wants no call"""
    no_call_answer_zh: Annotated[str, ROWS] = "现有的工具都无法完成这个请求。"
    """said where the right tool is gone, to Chinese"""
    model_name: Annotated[tuple[str, ...], Meta(min_length=1), ROWS] = ("agentlite",)
    """{{NAME}} of self-cognition; zh,en"""
    model_author: Annotated[tuple[str, ...], Meta(min_length=1), ROWS] = ("its developers",)
    """{{AUTHOR}} of the same; zh,en"""

    dev: Share = 0.1
    """share of the records watched during training"""
    test: Share = 0.2
    """share of the records kept for eval"""
    split_by: tuple[str, ...] = ("query", "near", "parent", "calls")
    """what must not be in both train and test"""
    rows: Literal["jsonl", "parquet", "-"] = "jsonl"
    """how records are stored; - : also to stdout"""
    seed: Seed = 0
    """of the split, the sample and the shuffles"""


class RetrieverSettings(Struct, frozen=True, kw_only=True):
    """Train a model to find the few tools, of many, that a question needs; and index them."""

    data: str = "prep"
    """a finished prep: its name in the workspace, or a path"""
    tools: Annotated[tuple[str, ...], REPEAT] = ()
    """files of further tools: SAGE's agent_tools, or OpenAI's"""
    model: str = "all-minilm-l6-v2"
    """sentence-transformers model: alias, path, hub id or stage"""
    max_length: Count = 96
    """tokens that are read of a question, or of a tool"""
    negatives: Whole = 1
    """wrong tools for each right one, that look right"""
    num_epochs: Annotated[Positive | None, Flag("-e --epochs")] = None
    """times through the pairs [1; a static model: 10]"""
    max_steps: Whole | None = None
    """steps; 0: only an index [as num_epochs says]"""
    batch_size: Annotated[Count, Flag("-b --bs")] = 32
    """pairs in a step; the others' tools are wrong ones too"""
    learning_rate: Annotated[NonNegative | None, Flag("--lr")] = None
    """peak learning rate [2e-4; a static model: 0.02]"""
    warmup_ratio: Share = 0.1
    """share of the steps in which the learning rate rises; never from 0"""
    lr_scheduler: Scheduler = "linear"
    """how the learning rate falls: cosine, linear, constant, ..."""
    scale: Positive = 20.0
    """what cosines are multiplied by: 1 / temperature"""
    save_steps: Count = 50
    """steps between checkpoints; a dev loss is taken at each"""
    sizes: tuple[Count, ...] = (100, 500, 1000)
    """how many tools to search among, in the evaluation; also all of them"""
    top: Annotated[tuple[Count, ...], Meta(min_length=1)] = (1, 5, 10)
    """how many tools are retrieved, in the evaluation"""
    seed: Seed = 0
    """of the wrong tools, the order of pairs and the bootstrap"""
    trl: dict[str, Any] = {}
    """any other argument of sentence-transformers' trainer"""

    @property
    def epochs(self) -> float:
        """As the user set them, or as the model's kind has them once that is known."""
        return self.num_epochs or 1.0


class TrainerSettings(Struct, frozen=True, kw_only=True):
    """What every trainer can be set to; its help stands here for all of them."""

    data: str = "prep"
    """a finished prep: its name in the workspace, or a path"""
    model: str = TRAINED
    """alias, path, hub id or earlier stage to start from"""
    engine: Engine = "unsloth"
    """unsloth, or plain transformers + peft + trl"""
    attn_implementation: Attention = "auto"
    """engine hf: as transformers names it; flash_attention_2 needs CUDA and flash-attn"""
    max_length: Count = 2048
    """tokens of a training row, prompt and answer together"""
    full: bool = False
    """train all weights, not an adapter: the result is a whole model"""
    deepspeed: str = ""
    """a DeepSpeed JSON, under torchrun: deepspeed/zero3.json (hf)"""
    lora_r: Count = 16
    """rank of the adapter"""
    lora_alpha: Count = 32
    """scale of the adapter"""
    lora_dropout: Share = 0.0
    """share of the adapter's inputs dropped"""
    lora_target_modules: tuple[str, ...] = ("all-linear",)
    """layers with an adapter; all adds embeddings (engine hf)"""
    num_epochs: Annotated[Positive, Flag("-e --epochs")] = 3.0
    """times through the rows"""
    max_steps: Count | None = None
    """optimizer steps [as num_epochs says]"""
    batch_size: Annotated[Count, Flag("-b --bs")] = 2
    """rows in a micro-batch"""
    gradient_accumulation: Count = 4
    """micro-batches in a step"""
    learning_rate: Annotated[NonNegative, Flag("--lr")]
    """peak learning rate"""
    warmup_ratio: Share = 0.1
    """share of the steps in which the learning rate rises; never from 0"""
    lr_scheduler: Scheduler = "cosine"
    """how the learning rate falls: cosine, linear, constant, ..."""
    load_in_4bit: bool = False
    """base model in 4 bit (CUDA)"""
    load_in_8bit: bool = False
    """base model in 8 bit (CUDA)"""
    save_steps: Count = 50
    """steps between checkpoints; a dev loss is taken at each"""
    seed: Seed = 0
    """of initial weights, the order of rows and the sampling"""
    trl: dict[str, Any] = {}
    """any other field of the TRL configuration, passed through unchanged"""
    peft: dict[str, Any] = {}
    """any other field of PEFT's LoraConfig, passed through unchanged"""

    def in_memory(self, gpu: bool) -> InMemory:
        return InMemory(rows=self.batch_size)


class SftSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter to say what the assistant says in the records of prep."""

    model: str = ""
    """alias, path, hub id or earlier stage [the model of prep]"""
    learning_rate: Annotated[NonNegative, Flag("--lr")] = 2e-4
    segment_weights: Literal["none", "react", "hermes", "qwen", "alpha_umi", "agentflan"] = "none"
    """how much tool calls count relative to text in the loss: a table of ms-swift's loss_scale"""
    packing: bool = False
    """several rows in one sequence (CUDA)"""
    batch_tokens: Count = 8192
    """of a micro-batch, in place of batch_size, with packing"""

    @property
    def packed_rows(self) -> int:
        """Full sequences in a micro-batch, where rows are packed."""
        return max(1, self.batch_tokens // self.max_length)

    def in_memory(self, gpu: bool) -> InMemory:
        if self.packing and gpu:
            return InMemory(rows=self.packed_rows, packed=True)
        return InMemory(rows=self.batch_size)


class PairsSettings(Struct, frozen=True, kw_only=True):
    """Sample several answers at every step, score them, pair the best with the worst."""

    data: str = "prep"
    """a finished prep; or a file of rows, or - for stdin"""
    split: Literal["train", "dev", "test"] = "train"
    """which records of prep"""
    model: str = TRAINED
    """alias, path, hub id or earlier stage that answers"""
    endpoint: Annotated[tuple[str, ...], REPEAT] = ()
    """OpenAI-compatible server that has the model: http://localhost:8000/v1; repeat it to share
    the work"""
    endpoint_key: str = "OPENAI_API_KEY"
    """environment variable that holds the key of the servers"""
    endpoint_seconds: Positive = 600.0
    """time limit of one try of a request, from the connection to the last byte"""
    endpoint_tries: Count = 5
    """tries of a request before a question counts as unanswered"""
    concurrency: Count = 4
    """requests under way at each endpoint"""
    unanswered: Literal["ask", "wrong"] = "ask"
    """questions without an answer: ask again by the same command, or finish without candidates"""
    candidates: Annotated[str, Flag(name="--from")] = ""
    """a finished pairs or grpo: rank its candidates, without a model"""
    preferences: Annotated[tuple[str, ...], REPEAT] = ()
    """files of prompts with chosen and rejected answers: their pairs"""
    max_rejects: Share = 0.01
    """share of rejected rows of preferences above which pairs stops"""
    grid: Annotated[tuple[str, ...], REPEAT] = ()
    """weightings to set side by side: a file; writes nothing"""
    engine: Engine = "unsloth"
    """unsloth, or plain transformers + peft"""
    attn_implementation: Attention = "auto"
    limit: Count | None = None
    """a seeded sample of N records, even over the sources"""
    num_samples: Annotated[Count, Flag("-n")] = 4
    """candidates per step"""
    temperature: NonNegative = 1.0
    """of sampling; 0 always takes the likeliest token"""
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """the likeliest tokens that together reach this"""
    max_new_tokens: Count = 256
    """tokens of an answer"""
    weights: Annotated[dict[str, float], REPEAT] = {}
    """component=weight,...: weights that differ from the defaults"""
    rewards: Annotated[tuple[str, ...], REPEAT] = ()
    """reward components of yours: file.py:function, repeatable"""
    reward_seconds: Positive = 10.0
    """time limit of one call of a function of your own"""
    reward_memory: Positive = 16.0
    """GiB of memory that each process of your own functions may take (Linux)"""
    max_failures: Share = 0.1
    """share of candidates a function of your own may fail for"""
    max_length: Count = 2048
    """tokens of prompt and answer together"""
    batch_size: Annotated[Count, Flag("-b --bs")] = 8
    """prompts sampled at once"""
    margin: NonNegative = 0.05
    """least difference of the totals of a pair"""
    balance: bool = False
    """choose pairs so that chosen ones are no longer than rejected"""
    gold: bool = False
    """the gold is chosen where every candidate fails"""
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    seed: Seed = 0
    """of the sample of records and of the sampled answers"""

    def in_memory(self, gpu: bool) -> InMemory:
        return InMemory(prompts=self.batch_size, samples=self.num_samples)


class DpoSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter to prefer the chosen answers of pairs to the rejected ones."""

    data: str = "pairs"
    """a finished pairs: its name in the workspace, or a path"""
    model: str = ""
    """alias, path, hub id or earlier stage [the one that was sampled]"""
    learning_rate: Annotated[NonNegative, Flag("--lr")] = 5e-6
    beta: Positive = 0.1
    """KL penalty coefficient: how strongly the policy is kept close to the reference"""
    loss_type: Literal["sigmoid", "hinge", "ipo"] = "sigmoid"
    """sigmoid, hinge, or ipo (to 1 / (2 beta) nats a token)"""
    label_smoothing: Annotated[float, Meta(ge=0, lt=0.5)] = 0.0
    """share of pairs thought to be swapped"""
    reference_free: bool = False
    """the reference's log-probabilities count as zero"""
    sft_weight: NonNegative = 0.0
    """weight of the SFT loss on the chosen answer, which is added"""

    def in_memory(self, gpu: bool) -> InMemory:
        """Chosen and rejected are rows of their own."""
        return InMemory(rows=2 * self.batch_size, reference=not self.reference_free)


class GrpoSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter on answers it samples itself, each against the others of its group."""

    split: Literal["train", "dev"] = "train"
    limit: Count | None = None
    learning_rate: Annotated[NonNegative, Flag("--lr")] = 1e-5
    batch_size: Annotated[Count, Flag("-b --bs")] = 4
    """answers in a micro-batch"""
    group_size: Annotated[int, Meta(ge=2, le=MOST)] = 4
    """answers to a prompt"""
    temperature: NonNegative = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    max_new_tokens: Count = 256
    weights: dict[str, float] = {}
    rewards: Annotated[tuple[str, ...], REPEAT] = ()
    reward_seconds: Positive = 10.0
    reward_memory: Positive = 16.0
    max_failures: Share = 0.1
    beta: NonNegative = 0.1
    """KL penalty coefficient: how strongly the policy is kept close to the start"""
    loss_type: Literal["grpo", "dr_grpo", "bnpo", "dapo", "cispo"] = "dapo"
    """as TRL names it; cispo with its clip (epsilon_high) at 5"""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """what advantages are divided by"""
    skip_solved: bool = False
    """leave out prompts whose first group all score the same"""
    max_flat_steps: Whole = 20
    """end after so many steps in which each group scores the same; 0: never"""
    vllm: bool = False
    """sample with vLLM (CUDA; must be installed); with Unsloth it shares the weights"""

    def in_memory(self, gpu: bool) -> InMemory:
        """Every answer of a step is sampled before the first is learned from."""
        prompts = max(1, self.batch_size * self.gradient_accumulation // self.group_size)
        return InMemory(self.batch_size, reference=True, prompts=prompts, samples=self.group_size)


class EvalSettings(Struct, frozen=True, kw_only=True):
    """Ask models at every step of the test records, score what they say, set them side by side."""

    model: Annotated[tuple[str, ...], REPEAT, EVALUATED] = ()
    """as in sft; repeat it to compare [sft]"""
    endpoint: Annotated[tuple[str, ...], REPEAT, EVALUATED] = ()
    endpoint_key: Annotated[str, EVALUATED] = "OPENAI_API_KEY"
    endpoint_seconds: Annotated[Positive, EVALUATED] = 600.0
    """time limit of one try of a request to an endpoint or the judge"""
    endpoint_tries: Annotated[Count, EVALUATED] = 5
    concurrency: Annotated[Count, EVALUATED] = 4
    """requests under way at each endpoint, and at the judge"""
    unanswered: Annotated[Literal["ask", "wrong"], EVALUATED] = "ask"
    """questions without an answer: ask again by the same command, or count as wrong"""
    predictions: Annotated[tuple[str, ...], REPEAT, EVALUATED] = ()
    """texts made elsewhere, to score without a model"""
    compare: Annotated[tuple[str, ...], REPEAT, EVALUATED] = ()
    """finished folders, to set side by side; writes nothing"""
    kagent: Annotated[str, EVALUATED] = ""
    """rows of KAgentBench, to score --predictions by; writes nothing"""
    data: Annotated[str, EVALUATED] = "prep"
    """a finished prep: its name in the workspace, or a path"""
    split: Annotated[Literal["train", "dev", "test"], EVALUATED] = "test"
    """which records"""
    retrieve: Annotated[Count | None, EVALUATED] = None
    retriever: Annotated[str, EVALUATED] = "retriever"
    retrieve_by: Annotated[RankBy, EVALUATED] = "tuned"
    limit: Annotated[Count | None, EVALUATED] = None

    metrics: Annotated[tuple[str, ...], MEASURED] = ()
    """names of the figures to print, of those in metrics.json [all]"""
    gate: Annotated[str, MEASURED] = ""
    """FIGURE>=NUMBER,... of the last model; exit 9 if one fails"""
    general: Annotated[str, MEASURED] = ""
    """rows of general talk: what a model forgets of it, as `forgetting`"""
    model_name: Annotated[tuple[str, ...], MEASURED] = ()
    """the model's own name, zh,en: it is asked who it is [that of prep, if it was set]"""
    model_author: Annotated[tuple[str, ...], MEASURED] = ()
    """who made it, zh,en: it is asked [that of prep, if it was set]"""
    num_samples: Annotated[Whole, Flag("-n -k"), MEASURED] = 0
    """answers sampled at each step in addition to the greedy one: pass^k"""
    temperature: Annotated[Positive, MEASURED] = 0.7
    """of those samples"""

    judge: Annotated[str, JUDGED] = ""
    """address of an OpenAI-compatible judge of the answers, up to /v1"""
    judge_model: Annotated[str, JUDGED] = ""
    """name of the judge's model on that server"""
    judge_key: Annotated[str, JUDGED] = "OPENAI_API_KEY"
    """environment variable that holds the key of the judge"""
    judge_prices: Annotated[tuple[NonNegative, ...], JUDGED] = ()
    """of a million tokens read and written: 0.5,1.5"""
    sheet: Annotated[str, JUDGED] = ""
    """CSV to write for people to score, blind and shuffled"""
    ratings: Annotated[tuple[str, ...], REPEAT, JUDGED] = ()
    """copies of --sheet that were filled in; writes nothing"""

    engine: Engine = "unsloth"
    """unsloth, or plain transformers + peft"""
    attn_implementation: Attention = "auto"
    max_length: Count = 2048
    """tokens of prompt and answer together"""
    max_new_tokens: Count = 256
    batch_size: Annotated[Count, Flag("-b --bs")] = 16
    """prompts in a batch"""
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    seed: Seed = 0
    """of the sample and the bootstrap"""

    def in_memory(self, gpu: bool) -> InMemory:
        samples = max(1, self.num_samples)
        return InMemory(prompts=self.batch_size, samples=samples, greedy=True)


class RolloutSettings(Struct, frozen=True, kw_only=True):
    """Let a model act in an environment: it calls, sees the results, and hears from its user."""

    env: str = ""
    """the environment: bfcl:multi_turn_base, or a class in a file: shop.py:Shop"""
    tasks: str = ""
    """JSON lines of tasks, of an environment that brings none: {"prompt": ..., ...}"""
    model: str = TRAINED
    """alias, path, hub id or earlier stage that acts"""
    engine: Engine = "unsloth"
    """unsloth, or plain transformers + peft"""
    attn_implementation: Attention = "auto"
    limit: Count | None = None
    """the first N tasks of a seeded order"""
    num_samples: Annotated[Count, Flag("-n")] = 1
    """rollouts of each task"""
    temperature: NonNegative = 1.0
    """of sampling; 0 always takes the likeliest token"""
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """the likeliest tokens that together reach this"""
    max_new_tokens: Count = 256
    """tokens of an answer"""
    max_length: Count = 8192
    """tokens of a prompt, with all turns before it, and the answer together"""
    max_turns: Count = 20
    """turns with calls between two turns of the user"""
    call_seconds: Positive = 10.0
    """time limit of one call of a tool"""
    world_memory: Positive = 4.0
    """GiB of memory that each process of an environment may take (Linux)"""
    max_failures: Share = 0.1
    """share of rollouts whose world may be lost"""
    batch_size: Annotated[Count, Flag("-b --bs")] = 8
    """rollouts that go on together"""
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    seed: Seed = 0
    """of the order of tasks and the sampling"""

    def in_memory(self, gpu: bool) -> InMemory:
        return InMemory(prompts=self.batch_size, samples=1)


COMMANDS: dict[str, type[Struct]] = {
    "prep": PrepSettings,
    "retriever": RetrieverSettings,
    "sft": SftSettings,
    "pairs": PairsSettings,
    "dpo": DpoSettings,
    "grpo": GrpoSettings,
    "rollout": RolloutSettings,
    "eval": EvalSettings,
}
CPU_MODEL, GPU_MODEL = "smollm2-135m", "Qwen/Qwen2.5-1.5B-Instruct"


@functools.cache
def fields(command: str) -> dict[str, Any]:
    """Setting -> its type, with what annotates it."""
    return get_type_hints(COMMANDS[command], include_extras=True)


def plain_type(command: str, key: str) -> Any:
    """Without what annotates it: `str`, `Literal["a", "b"]`, `tuple[str, ...]`."""
    annotated = fields(command)[key]
    return annotated.__origin__ if hasattr(annotated, "__metadata__") else annotated


def default(command: str, key: str) -> Any:
    info = next(field for field in msgspec.structs.fields(COMMANDS[command]) if field.name == key)
    if info.default_factory is not msgspec.NODEFAULT:
        return info.default_factory()
    return info.default


def flag_of(command: str, key: str) -> Flag:
    return next((mark for mark in _marks(command, key) if isinstance(mark, Flag)), Flag())


def section_of(command: str, key: str) -> str:
    sections = (mark.title for mark in _marks(command, key) if isinstance(mark, Section))
    return next(sections, "")


def _marks(command: str, key: str) -> tuple[Any, ...]:
    return getattr(fields(command)[key], "__metadata__", ())


def describe(command: str, key: str) -> str:
    """The help of a setting: that of its class, of the classes it inherits from, or else of the
    nearest class above in this file."""
    helps, struct = _helps(), COMMANDS[command]
    above = itertools.takewhile(lambda name: name != struct.__name__, helps)
    names = [*(base.__name__ for base in struct.__mro__), *reversed([*above])]
    return next((helps[name][key] for name in names if key in helps.get(name, {})), "")


@functools.cache
def _helps() -> dict[str, dict[str, str]]:
    """Class -> setting -> the string under it. Python does not keep that: this file is read."""
    helps: dict[str, dict[str, str]] = {}
    for struct in ast.parse(Path(__file__).read_text(encoding="utf-8")).body:
        if isinstance(struct, ast.ClassDef):
            helps[struct.name] = {
                setting.target.id: text.value.value
                for setting, text in itertools.pairwise(struct.body)
                if isinstance(setting, ast.AnnAssign) and isinstance(setting.target, ast.Name)
                if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                if isinstance(text.value.value, str)
            }
    return helps
