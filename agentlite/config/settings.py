"""The settings of every stage: type, default and help of each."""

import functools
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta, Struct

Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1)]
Steps = Annotated[int, Meta(ge=0)]
Engine = Literal["unsloth", "hf"]
Scheduler = Literal[
    "cosine", "linear", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt"
]


# what sampling and scoring are told, in pairs and in grpo
Temperature = Annotated[
    NonNegative, Meta(description="of sampling; 0 always takes the likeliest token")
]
TopP = Annotated[
    float, Meta(gt=0, le=1, description="the likeliest tokens that together reach this")
]
NewTokens = Annotated[Count, Meta(description="tokens of an answer")]
Weights = Annotated[
    dict[str, float],
    Meta(description="component=weight,...: weights that differ from the defaults"),
]
Rewards = Annotated[
    tuple[str, ...], Meta(description="reward components of yours: file.py:function, repeatable")
]
RewardSeconds = Annotated[
    float, Meta(gt=0, description="time limit of one call of a function of your own")
]
Failures = Annotated[
    Share, Meta(description="share of candidates a function of your own may fail for")
]
# who answers, in pairs and in eval
Address = Annotated[
    str, Meta(description="OpenAI-compatible server that has the model: http://localhost:8000/v1")
]
AddressKey = Annotated[
    str, Meta(description="environment variable that holds the key of the server")
]


# which tools a prompt offers, in prep and in eval
Brought = Annotated[
    Count | None,
    Meta(description="offer the N tools that the retriever brings, not the record's own"),
]
BroughtBy = Annotated[
    str, Meta(description="a finished retriever: its name in the workspace, or a path")
]
Method = Literal["tuned", "hybrid", "bm25", "tfidf", "keyword"]
BroughtHow = Annotated[
    Method, Meta(description="how it ranks: tuned, hybrid (tuned and bm25), bm25, tfidf, keyword")
]


class PrepSettings(Struct, frozen=True, kw_only=True):
    """Raw agent dialogs -> checked, de-duplicated records in train, dev and test."""

    sources: Annotated[
        tuple[str, ...], Meta(description="files, - for stdin, or bfcl:<category>,<category>")
    ] = ()
    format: Annotated[str, Meta(description="of the raw rows; auto looks at each row")] = "auto"
    repair: Annotated[
        tuple[str, ...], Meta(description="mend rows that are no JSON: literal, json; counted")
    ] = ()
    retry_rejects: Annotated[
        str, Meta(description="an edited rejects.jsonl: its rows in the places of theirs")
    ] = ""
    model: Annotated[
        str,
        Meta(description="whose tokenizer and template the rows must fit (a GPU: Qwen2.5-1.5B)"),
    ] = ""
    protocol: Annotated[
        str,
        Meta(
            description=(
                "how calls are written; several, with weights: hermes=2,react; auto: chat or hermes"
            )
        ),
    ] = "auto"
    dev: Annotated[Share, Meta(description="share of the records watched during training")] = 0.1
    test: Annotated[Share, Meta(description="share of the records kept for eval")] = 0.2
    split_by: Annotated[tuple[str, ...], Meta(description="what never stands on two sides")] = (
        "query",
        "near",
        "parent",
        "calls",
    )
    personal: Annotated[
        Literal["off", "report", "mask", "drop"],
        Meta(description="off, report, mask or drop: keys, mails, phones, cards"),
    ] = "report"
    duplicates: Annotated[
        tuple[str, ...], Meta(description="which copies are left out: equal, calls, near")
    ] = ("equal",)
    near: Annotated[
        Share, Meta(description="Jaccard index from which texts are near copies, or leaks")
    ] = 0.8
    contradictions: Annotated[
        Literal["report", "drop"],
        Meta(description="rows that call otherwise in the same place: report, drop"),
    ] = "report"
    holdout: Annotated[
        tuple[str, ...], Meta(description="files of which nothing may be learned; repeat it")
    ] = ()
    mix: Annotated[
        tuple[str, ...],
        Meta(description="NAME=SOURCE+...:RATIO, as general=chat.jsonl:0.2; repeat it"),
    ] = ()
    task_weights: Annotated[
        dict[str, float], Meta(description="TASK=WEIGHT,...: their shares of what is drawn")
    ] = {}
    limit: Annotated[
        Count | None, Meta(description="a seeded sample of N rows, even over the sources")
    ] = None
    coreset_strategy: Annotated[
        str, Meta(description="loss_topk, diversity, hybrid or random, of train")
    ] = ""
    coreset_target_size: Annotated[
        Count | None, Meta(description="train records that it chooses")
    ] = None
    coreset_loss: Annotated[
        Literal["model", "proxy"], Meta(description="by a forward pass, or by length and variety")
    ] = "model"
    coreset_model: Annotated[
        str, Meta(description="whose loss: alias, path, hub id or stage [that of model]")
    ] = ""
    replay: Annotated[
        str, Meta(description="folder of a buffer of earlier train records, to learn again beside")
    ] = ""
    continual_buffer_size: Annotated[Count, Meta(description="records it keeps")] = 2048
    continual_replay_ratio: Annotated[
        Share, Meta(description="of them for each new train record")
    ] = 0.25
    remove_tool: Annotated[
        Share, Meta(description="train rows also taught with the right tool gone")
    ] = 0.0
    mask_names: Annotated[
        Share, Meta(description="train rows also taught with other names of tools")
    ] = 0.0
    max_length: Annotated[
        Count, Meta(description="tokens of a rendered row; longer ones are rejected")
    ] = 2048
    long_rows: Annotated[
        Literal["reject", "cut", "filter"],
        Meta(description="what becomes of a longer row; cut: by whole steps"),
    ] = "reject"
    distractors: Annotated[
        int, Meta(ge=0, description="foreign tools added to train rows that have one tool")
    ] = 0
    join: Annotated[
        Count, Meta(description="train rows of one turn put together in one dialog")
    ] = 1
    join_tokens: Annotated[
        Count | None, Meta(description="tokens of joined rows, added up [max_length]")
    ] = None
    retrieve: Brought = None
    retriever: BroughtBy = "retriever"
    retrieve_by: BroughtHow = "tuned"
    max_rejects: Annotated[
        Share, Meta(description="share of rejected rows above which prep stops")
    ] = 0.01
    no_call_answer: Annotated[str, Meta(description="said where BFCL wants no call")] = (
        "None of the available tools can answer this."
    )
    no_call_answer_zh: Annotated[
        str, Meta(description="said where the right tool is gone, to Chinese")
    ] = "现有的工具都无法完成这个请求。"
    model_name: Annotated[
        tuple[str, ...], Meta(min_length=1, description="{{NAME}} of self-cognition; zh,en")
    ] = ("agentlite",)
    model_author: Annotated[
        tuple[str, ...], Meta(min_length=1, description="{{AUTHOR}} of the same; zh,en")
    ] = ("its developers",)
    rows: Annotated[
        Literal["jsonl", "parquet", "-"],
        Meta(description="how records are stored; - : also to stdout"),
    ] = "jsonl"
    workers: Annotated[
        int, Meta(ge=0, description="processes; 0: one a processor. The outcome is the same")
    ] = 1
    seed: Annotated[int, Meta(description="of the split, the sample and the shuffles")] = 0


class TrainerSettings(Struct, frozen=True, kw_only=True):
    """What every trainer is told."""

    data: Annotated[
        str, Meta(description="a finished prep: its name in the workspace, or a path")
    ] = "prep"
    model: Annotated[
        str, Meta(description="alias, path, hub id or earlier stage to start from")
    ] = "sft"
    engine: Annotated[Engine, Meta(description="unsloth, or plain transformers + peft + trl")] = (
        "unsloth"
    )
    max_length: Annotated[
        Count, Meta(description="tokens of a training row, prompt and answer together")
    ] = 2048
    full: Annotated[
        bool, Meta(description="train all weights, not an adapter: the result is a whole model")
    ] = False
    deepspeed: Annotated[
        str, Meta(description="a DeepSpeed JSON, under torchrun: deepspeed/zero3.json (hf)")
    ] = ""
    lora_r: Annotated[Count, Meta(description="rank of the adapter")] = 16
    lora_alpha: Annotated[Count, Meta(description="scale of the adapter")] = 32
    lora_dropout: Annotated[Share, Meta(description="share of the adapter's inputs dropped")] = 0.0
    lora_target_modules: Annotated[
        tuple[str, ...], Meta(description="layers with an adapter; all adds embeddings")
    ] = ("all-linear",)
    num_epochs: Annotated[float, Meta(gt=0, description="times through the rows")] = 3.0
    max_steps: Annotated[Count | None, Meta(description="optimizer steps [as num_epochs says]")] = (
        None
    )
    batch_size: Annotated[Count, Meta(description="rows in a micro-batch")] = 2
    gradient_accumulation: Annotated[Count, Meta(description="micro-batches in a step")] = 4
    learning_rate: Annotated[NonNegative, Meta(description="highest learning rate")]
    warmup_ratio: Annotated[Share, Meta(description="share of the steps in which it rises")] = 0.1
    lr_scheduler: Annotated[
        Scheduler, Meta(description="how it falls: cosine, linear, constant, ...")
    ] = "cosine"
    load_in_4bit: Annotated[bool, Meta(description="base model in 4 bit (CUDA)")] = False
    load_in_8bit: Annotated[bool, Meta(description="base model in 8 bit (CUDA)")] = False
    save_steps: Annotated[
        Count, Meta(description="steps between checkpoints; a dev loss is taken at each")
    ] = 50
    seed: Annotated[
        int, Meta(description="of initial weights, the order of rows and what is sampled")
    ] = 0
    trl: Annotated[
        dict[str, Any], Meta(description="anything else the TRL configuration knows, unchanged")
    ] = {}
    peft: Annotated[
        dict[str, Any], Meta(description="anything else PEFT's LoraConfig knows, unchanged")
    ] = {}


class SftSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter to say what the assistant says in the records of prep."""

    model: Annotated[
        str, Meta(description="alias, path, hub id or earlier stage [the model of prep]")
    ] = ""
    learning_rate: Annotated[NonNegative, Meta(description="highest learning rate")] = 2e-4
    segment_weights: Annotated[
        Literal["none", "react", "hermes", "qwen", "alpha_umi", "agentflan"],
        Meta(description="how dear calls are beside words: a table of ms-swift's loss_scale"),
    ] = "none"
    packing: Annotated[bool, Meta(description="several rows in one sequence (CUDA)")] = False
    batch_tokens: Annotated[
        Count, Meta(description="of a micro-batch, in place of batch_size, with packing")
    ] = 8192

    @property
    def packed_rows(self) -> int:
        """Full sequences in a micro-batch, where rows are packed."""
        return max(1, self.batch_tokens // self.max_length)


class PairsSettings(Struct, frozen=True, kw_only=True):
    """Sample several answers at every step, score them, pair the best with the worst."""

    data: Annotated[str, Meta(description="a finished prep; or a file of rows, or - for stdin")] = (
        "prep"
    )
    split: Annotated[Literal["train", "dev", "test"], Meta(description="which records of prep")] = (
        "train"
    )
    model: Annotated[str, Meta(description="alias, path, hub id or earlier stage that answers")] = (
        "sft"
    )
    endpoint: Address = ""
    endpoint_key: AddressKey = "OPENAI_API_KEY"
    candidates: Annotated[
        str, Meta(description="a finished pairs or grpo: rank its candidates, without a model")
    ] = ""
    grid: Annotated[
        tuple[str, ...], Meta(description="weightings to set side by side: a file; writes nothing")
    ] = ()
    engine: Annotated[Engine, Meta(description="unsloth, or plain transformers + peft")] = "unsloth"
    limit: Annotated[
        Count | None, Meta(description="a seeded sample of N records, even over the sources")
    ] = None
    num_samples: Annotated[Count, Meta(description="candidates a step")] = 4
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    max_new_tokens: NewTokens = 256
    weights: Weights = {}
    rewards: Rewards = ()
    reward_seconds: RewardSeconds = 10.0
    max_failures: Failures = 0.1
    max_length: Annotated[Count, Meta(description="tokens of prompt and answer together")] = 2048
    batch_size: Annotated[Count, Meta(description="prompts sampled at once")] = 8
    margin: Annotated[NonNegative, Meta(description="least difference of the totals of a pair")] = (
        0.05
    )
    balance: Annotated[
        bool, Meta(description="choose pairs so that chosen ones are no longer than rejected")
    ] = False
    gold: Annotated[bool, Meta(description="the gold is chosen where every candidate fails")] = (
        False
    )
    load_in_4bit: Annotated[bool, Meta(description="base model in 4 bit (CUDA)")] = False
    load_in_8bit: Annotated[bool, Meta(description="base model in 8 bit (CUDA)")] = False
    seed: Annotated[int, Meta(description="of the sample of records and of what is drawn")] = 0


class DpoSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter to prefer the chosen answers of pairs to the rejected ones."""

    data: Annotated[
        str, Meta(description="a finished pairs: its name in the workspace, or a path")
    ] = "pairs"
    model: Annotated[
        str, Meta(description="alias, path, hub id or earlier stage [the one that was sampled]")
    ] = ""
    learning_rate: Annotated[NonNegative, Meta(description="highest learning rate")] = 5e-6
    beta: Annotated[float, Meta(gt=0, description="how dear it is to move away from the start")] = (
        0.1
    )
    loss_type: Annotated[
        Literal["sigmoid", "hinge", "ipo"], Meta(description="sigmoid, hinge or ipo")
    ] = "sigmoid"
    label_smoothing: Annotated[
        float, Meta(ge=0, lt=0.5, description="share of pairs thought to be swapped")
    ] = 0.0
    reference_free: Annotated[
        bool, Meta(description="the reference's log-probabilities count as zero")
    ] = False
    sft_weight: Annotated[
        NonNegative, Meta(description="of the loss of saying the chosen answer, added to that")
    ] = 0.0


class GrpoSettings(TrainerSettings, frozen=True, kw_only=True):
    """Train an adapter on answers it samples itself, each against the others of its group."""

    split: Annotated[Literal["train", "dev"], Meta(description="which records of prep")] = "train"
    limit: Annotated[
        Count | None, Meta(description="a seeded sample of N records, even over the sources")
    ] = None
    learning_rate: Annotated[NonNegative, Meta(description="highest learning rate")] = 1e-5
    batch_size: Annotated[Count, Meta(description="answers in a micro-batch")] = 4
    group_size: Annotated[int, Meta(ge=2, description="answers to a prompt")] = 4
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    max_new_tokens: NewTokens = 256
    weights: Weights = {}
    rewards: Rewards = ()
    reward_seconds: RewardSeconds = 10.0
    max_failures: Failures = 0.1
    beta: Annotated[
        NonNegative, Meta(description="weight of the divergence from the start (KL)")
    ] = 0.1
    loss_type: Annotated[
        Literal["grpo", "dr_grpo", "bnpo", "dapo", "cispo"], Meta(description="as TRL names it")
    ] = "dapo"
    scale_rewards: Annotated[
        Literal["group", "batch", "none"], Meta(description="what advantages are divided by")
    ] = "group"
    skip_solved: Annotated[
        bool, Meta(description="leave out prompts whose first group all score the same")
    ] = False
    max_flat_steps: Annotated[
        int,
        Meta(
            ge=0,
            description="end after so many steps in which each group scores the same; 0: never",
        ),
    ] = 20
    vllm: Annotated[bool, Meta(description="sample with vLLM (CUDA; must be installed)")] = False


class EvalSettings(Struct, frozen=True, kw_only=True):
    """Ask models at every step of the test records, score what they say, set them side by side."""

    model: Annotated[
        tuple[str, ...], Meta(description="as in sft; repeat it to compare [sft]")
    ] = ()
    endpoint: Address = ""
    endpoint_key: AddressKey = "OPENAI_API_KEY"
    predictions: Annotated[
        tuple[str, ...], Meta(description="texts made elsewhere, to score without a model")
    ] = ()
    compare: Annotated[
        tuple[str, ...], Meta(description="finished folders, to set side by side; writes nothing")
    ] = ()
    gate: Annotated[
        str, Meta(description="FIGURE>=NUMBER,... of the last model; exit 9 if one fails")
    ] = ""
    general: Annotated[
        str, Meta(description="rows of general talk: what a model forgets of it, as `forgetting`")
    ] = ""
    kagent: Annotated[
        str, Meta(description="rows of KAgentBench, to score --predictions by; writes nothing")
    ] = ""
    judge: Annotated[
        str, Meta(description="address of an OpenAI-compatible judge of the answers, up to /v1")
    ] = ""
    judge_model: Annotated[str, Meta(description="what the judge is called there")] = ""
    judge_key: Annotated[
        str, Meta(description="environment variable that holds the key of the judge")
    ] = "OPENAI_API_KEY"
    judge_prices: Annotated[
        tuple[float, ...], Meta(description="of a million tokens read and written: 0.5,1.5")
    ] = ()
    sheet: Annotated[
        str, Meta(description="CSV to write for people to score, blind and shuffled")
    ] = ""
    ratings: Annotated[
        tuple[str, ...], Meta(description="copies of --sheet that were filled in; writes nothing")
    ] = ()
    num_samples: Annotated[
        int, Meta(ge=0, description="answers drawn at each step beside the greedy one: pass^k")
    ] = 0
    temperature: Annotated[float, Meta(gt=0, description="of what is drawn")] = 0.7
    data: Annotated[
        str, Meta(description="a finished prep: its name in the workspace, or a path")
    ] = "prep"
    split: Annotated[Literal["train", "dev", "test"], Meta(description="which records")] = "test"
    retrieve: Brought = None
    retriever: BroughtBy = "retriever"
    retrieve_by: BroughtHow = "tuned"
    engine: Annotated[Engine, Meta(description="unsloth, or plain transformers + peft")] = "unsloth"
    limit: Annotated[
        Count | None, Meta(description="a seeded sample of N records, even over the sources")
    ] = None
    max_length: Annotated[Count, Meta(description="tokens of prompt and answer together")] = 2048
    max_new_tokens: Annotated[Count, Meta(description="tokens of an answer")] = 256
    batch_size: Annotated[Count, Meta(description="prompts in a batch")] = 16
    load_in_4bit: Annotated[bool, Meta(description="base model in 4 bit (CUDA)")] = False
    load_in_8bit: Annotated[bool, Meta(description="base model in 8 bit (CUDA)")] = False
    seed: Annotated[int, Meta(description="of the sample and the bootstrap")] = 0


class RetrieverSettings(Struct, frozen=True, kw_only=True):
    """Train a model to bring the few tools, of many, that a question needs; and an index of
    them.
    """

    data: Annotated[
        str, Meta(description="a finished prep: its name in the workspace, or a path")
    ] = "prep"
    tools: Annotated[
        tuple[str, ...], Meta(description="files of further tools: SAGE's agent_tools, or OpenAI's")
    ] = ()
    model: Annotated[
        str, Meta(description="sentence-transformers model: alias, path, hub id or stage")
    ] = "all-minilm-l6-v2"
    max_length: Annotated[
        Count, Meta(description="tokens that are read of a question, or of a tool")
    ] = 96
    negatives: Annotated[
        int, Meta(ge=0, description="wrong tools beside each right one, that look right")
    ] = 1
    num_epochs: Annotated[
        Positive | None, Meta(description="times through the pairs [1; a static model: 10]")
    ] = None
    max_steps: Annotated[
        Steps | None, Meta(description="steps; 0: only an index [as num_epochs says]")
    ] = None
    batch_size: Annotated[
        Count, Meta(description="pairs in a step; the others' tools are wrong ones too")
    ] = 32
    learning_rate: Annotated[
        NonNegative | None, Meta(description="highest one [2e-4; a static model: 0.02]")
    ] = None
    warmup_ratio: Annotated[Share, Meta(description="share of the steps in which it rises")] = 0.1
    lr_scheduler: Annotated[
        Scheduler, Meta(description="how it falls: cosine, linear, constant, ...")
    ] = "linear"
    scale: Annotated[
        float, Meta(gt=0, description="what cosines are multiplied by: 1 / temperature")
    ] = 20.0
    save_steps: Annotated[
        Count, Meta(description="steps between checkpoints; a dev loss is taken at each")
    ] = 50
    sizes: Annotated[
        tuple[Count, ...], Meta(description="tools to search among, beside all there are")
    ] = (100, 500, 1000)
    top: Annotated[
        tuple[Count, ...],
        Meta(min_length=1, description="how many are brought, when it is measured"),
    ] = (1, 5, 10)
    seed: Annotated[
        int, Meta(description="of the wrong tools, the order of pairs and the bootstrap")
    ] = 0
    trl: Annotated[
        dict[str, Any], Meta(description="anything else sentence-transformers' arguments know")
    ] = {}

    @property
    def epochs(self) -> float:
        """As they were said, or as the model's kind has them once that is known."""
        return self.num_epochs or 1.0


COMMANDS: dict[str, type[Struct]] = {
    "prep": PrepSettings,
    "retriever": RetrieverSettings,
    "sft": SftSettings,
    "pairs": PairsSettings,
    "dpo": DpoSettings,
    "grpo": GrpoSettings,
    "eval": EvalSettings,
}
CPU_MODEL, GPU_MODEL = "smollm2-135m", "Qwen/Qwen2.5-1.5B-Instruct"


@functools.cache
def fields(command: str) -> dict[str, Any]:
    """Setting -> its annotated type."""
    return get_type_hints(COMMANDS[command], include_extras=True)


def describe(command: str, key: str) -> str:
    return next(
        (
            m.description
            for m in fields(command)[key].__metadata__
            if isinstance(m, Meta) and m.description
        ),
        "",
    )


def default(command: str, key: str) -> Any:
    info = next(field for field in msgspec.structs.fields(COMMANDS[command]) if field.name == key)
    if info.default_factory is not msgspec.NODEFAULT:
        return info.default_factory()
    return info.default
