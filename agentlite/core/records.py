"""The row types: Record and its parts, Step, Candidate, Score, Pair, Prediction; and their JSON.

In memory `tools` and `arguments` are dicts. On disk they are JSON strings: Arrow would fill every
tool with the fields of all the others.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct, field

Role = Literal["system", "user", "assistant", "tool"]
Task = Literal[
    "tool_selection",
    "multi_step_planning",
    "timing_decision",
    "tool_retrieval",
    "general",
    "self_cognition",
]
SPLITS = ("train", "dev", "test")
ANY_TOOL = ""
ANY_ARGUMENTS = None


class Tool(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A function that may be called. `parameters` is a JSON Schema of an object; `returns` says
    what comes back, {} where the data does not say it.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    returns: dict[str, Any] = {}

    @property
    def schema(self) -> dict[str, object]:
        """The OpenAI shape: what templates print and what goes to disk."""
        return {"type": "function", "function": self.function}

    @property
    def function(self) -> dict[str, object]:
        """The inner part of the OpenAI shape, with `returns` only where the data says it."""
        function = msgspec.structs.asdict(self)
        if not self.returns:
            del function["returns"]
        return function


class Call(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: dict[str, Any] = {}
    id: str = ""


class Message(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One turn. An assistant turn without `loss` is not trained; a tool turn answers `call_id`."""

    role: Role
    content: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    loss: bool = True


class GoldCall(Struct, frozen=True, forbid_unknown_fields=True):
    """An expected call; under the name ANY_TOOL, any call is right.

    `arguments` lists the accepted values of each parameter; "" among them: may be left out. It is
    ANY_ARGUMENTS where the data names the tool alone: all that fit the tool's schema are right.
    """

    name: str
    arguments: dict[str, list[Any]] | None = {}


class Gold(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The expected calls of a turn, with their accepted values, which messages cannot hold. Empty:
    no call is expected.

    `optimal_steps`: in how many steps the whole dialog can be done, where that is known. `known`:
    False at a turn that nobody has answered: its message is a stand-in, and is never trained.
    """

    calls: tuple[GoldCall, ...] = ()
    optimal_steps: int | None = None
    known: bool = True

    @property
    def names_tools(self) -> bool:
        """Whether calls are expected and each names its tool. Where any tool will do, a call has no
        name or argument to be compared with.
        """
        return bool(self.calls) and all(call.name != ANY_TOOL for call in self.calls)


class Record(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """One dialog with its tools. `gold` is by turn: the index of an assistant message."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    gold: dict[int, Gold] = {}
    source: str = ""
    task: Task = "general"
    parent: str = ""
    split: str = ""
    meta: dict[str, Any] = {}

    @cached_property
    def id(self) -> str:
        """The content, hashed: the same dialog has the same id on any machine."""
        content = (self.messages, [tool.function for tool in self.tools], self.gold)
        return digest(canonical(msgspec.to_builtins(content, str_keys=True)))

    @property
    def is_text(self) -> bool:
        """Whether this is plain text, learned whole, and no dialog."""
        roles = [message.role for message in self.messages]
        return bool(self.meta.get("whole")) and roles == ["assistant"]

    @property
    def turns(self) -> list[int]:
        """The assistant turns: the steps at which a model can be asked to go on."""
        return [i for i, message in enumerate(self.messages) if message.role == "assistant"]

    @property
    def prompted_turns(self) -> list[int]:
        """The steps that are asked and judged: where there are tools to choose from, or gold that
        says what is right without any, and the turn is one to learn; and those without gold.
        """
        return [
            turn
            for turn in self.turns
            if ((self.tools or turn in self.gold) and self.messages[turn].loss)
            or not self.has_gold(turn)
        ]

    def has_gold(self, turn: int) -> bool:
        """Whether it is known what is right at a turn."""
        return turn not in self.gold or self.gold[turn].known

    def unknown_arguments(self, turn: int) -> list[int]:
        """Which calls of an assistant turn, by index, have arguments that the data does not say:
        their `{}` is a stand-in, nothing to learn.
        """
        gold = self.gold.get(turn, Gold()).calls
        unknown = {call.name for call in gold if call.arguments is ANY_ARGUMENTS}
        return [
            i
            for i, call in enumerate(self.messages[turn].calls)
            if call.name in unknown and not call.arguments
        ]

    def gold_at(self, turn: int) -> Gold:
        """The calls expected at a turn: its own, where `gold` is silent."""
        if turn in self.gold:
            return self.gold[turn]
        return Gold(tuple(map(gold_call, self.messages[turn].calls)))


def gold_call(call: Call) -> GoldCall:
    """The gold that a call itself is: its values are the only ones accepted."""
    return GoldCall(call.name, {key: [gold_value(value)] for key, value in call.arguments.items()})


def gold_value(value: object) -> Any:
    """A value as the only accepted one, in BFCL's form: a key of an object has a list of them.
    {"city": "Oslo"} -> {"city": ["Oslo"]}"""
    if isinstance(value, dict):
        return {key: [gold_value(inner)] for key, inner in value.items()}
    return [gold_value(inner) for inner in value] if isinstance(value, list) else value


def choices_of(answer: dict[str, Any]) -> dict[str, list[Any]]:
    """The accepted values of each key of an accepted object. One whose values are not all lists is
    plain, as data sets write them: its own values are the only ones accepted.
    """
    if all(isinstance(choices, list) for choices in answer.values()):
        return answer
    return {key: [gold_value(value)] for key, value in answer.items()}


class Step(NamedTuple):
    """An assistant turn of a record: a position at which a model can be asked to continue."""

    record_id: str
    turn: int


class CandidateKey(NamedTuple):
    """What distinguishes one candidate from every other."""

    record_id: str
    turn: int
    protocol: str
    model: str
    sample: int


class AtStep(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """What was said or is to be said at a step of a record."""

    record_id: str
    turn: int

    @property
    def step(self) -> Step:
        return Step(self.record_id, self.turn)


class Sampled(AtStep, frozen=True):
    """One of several samples of a model at a step under a protocol."""

    protocol: str
    model: str
    sample: int

    @property
    def key(self) -> CandidateKey:
        return CandidateKey(self.record_id, self.turn, self.protocol, self.model, self.sample)


class Parsed(Struct, frozen=True):
    """Model text, read back: the text beside the calls, the calls, and what was wrong with it (""
    if nothing). `trailing`: what follows the first call without being a call.
    """

    content: str
    calls: tuple[Call, ...] = ()
    problem: str = ""
    trailing: str = ""


# by the end of the turn, by a stop string of the protocol, by the limit
Ending = Literal["turn", "stop", "cut"]
# stands for a model's name where the gold itself is a candidate; no stage is called so
GOLD = "(gold)"


class Candidate(Sampled, frozen=True):
    """What a model said. `trained`: optimizer steps before it."""

    text: str
    ended: Ending
    new_tokens: int
    trained: int = 0


class Score(Sampled, frozen=True):
    """What a candidate earns, unweighted: each component in [0, 1] and the count of each penalty.
    `error`: why a reward function gave no value; such a candidate is counted and left out.
    """

    components: dict[str, float]
    feedback: str = ""
    error: str = ""


class TrainedAnswer(Candidate, frozen=True, kw_only=True):
    """A candidate that grpo drew and learned from, with its score."""

    components: dict[str, float]
    feedback: str = ""
    error: str = ""

    @property
    def candidate(self) -> Candidate:
        return Candidate(*self.key, self.text, self.ended, self.new_tokens, self.trained)

    @property
    def score(self) -> Score:
        return Score(*self.key, self.components, self.feedback, self.error)


class Side(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One half of a pair: a candidate with its weighted total."""

    text: str
    ended: Ending
    model: str
    sample: int
    total: float


class PreferencePair(AtStep, frozen=True):
    """Two candidates of one step, the better one first."""

    protocol: str
    chosen: Side
    rejected: Side

    @property
    def margin(self) -> float:
        return self.chosen.total - self.rejected.total


class GreedyAnswer(AtStep, frozen=True):
    """What a model said, greedily, at a step. `prompt`: a digest of the tokens it was asked with,
    "" if it was not. `problem`: why its server never answered, where that counts as wrong.
    """

    prompt: str
    text: str
    ended: Ending
    new_tokens: int = 0
    problem: str = ""


class Prediction(AtStep, frozen=True):
    """An answer, read: its calls, or what was wrong with it; its metrics; and what a report slices
    by. `wrong`: the kind of mistake that it is, "" if it is right (WRONG_KINDS of step_metrics).
    """

    text: str
    problem: str
    calls: tuple[Call, ...]
    metrics: dict[str, float]
    slices: dict[str, str]
    new_tokens: int = 0
    wrong: str = ""


def digest(text: str) -> str:
    """16 hex digits of sha256: short to read, long enough for any data set of a home machine."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def canonical(value: object) -> str:
    """JSON with sorted keys and no blanks: equal values have equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def call_key(call: Call) -> str:
    """Equal for calls of one name with equal arguments, as JSON has it: the order of keys does not
    matter, and 1.0 is 1.
    """

    def plain_numbers(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain_numbers(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [plain_numbers(inner) for inner in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return canonical([call.name, plain_numbers(call.arguments)])


def to_row(record: Record) -> dict[str, object]:
    """The OpenAI shape on disk: every foreign dict (tools, arguments, gold, meta) as JSON text."""
    return {
        "id": record.id,
        "parent": record.parent,
        "source": record.source,
        "task": record.task,
        "split": record.split,
        "messages": [message_row(message) for message in record.messages],
        "tools": to_json([tool.schema for tool in record.tools]),
        "gold": to_json(msgspec.to_builtins(record.gold, str_keys=True)),
        "meta": to_json(record.meta),
    }


def from_row(row: dict[str, Any]) -> Record:
    """The record of a row. Raises msgspec.ValidationError with the path of what does not fit."""
    return Record(
        messages=tuple(read_message(message) for message in row["messages"]),
        tools=tuple(msgspec.convert(tool["function"], Tool) for tool in json.loads(row["tools"])),
        gold=msgspec.convert(json.loads(row["gold"]), dict[int, Gold], strict=False),
        meta=json.loads(row["meta"]),
        **{key: row[key] for key in ("parent", "source", "task", "split")},
    )


def to_json(value: object) -> str:
    """JSON as a model reads it: keys in their own order, a blank after comma and colon."""
    return json.dumps(value, ensure_ascii=False)


def text_or_json(value: object) -> str:
    return value if isinstance(value, str) else to_json(value)


def wire_calls(calls: Sequence[Call]) -> list[dict[str, object]]:
    """Calls as OpenAI writes them."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": to_json(call.arguments)},
        }
        for call in calls
    ]


def wire_message(message: Message) -> dict[str, Any]:
    """A turn as OpenAI's API has it, where silent calls have null for their words."""
    row = message_row(message)
    row.pop("loss", None)
    return row | ({"content": message.content or None} if message.calls else {})


def message_row(message: Message) -> dict[str, Any]:
    """A turn on disk."""
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        row["tool_calls"] = wire_calls(message.calls)
    if message.call_id:
        row["tool_call_id"] = message.call_id
    if not message.loss:
        row["loss"] = False
    return row


def read_message(row: Mapping[str, Any]) -> Message:
    """A turn that `wire_message` or `message_row` wrote; Parquet has None for an absent field."""
    calls = tuple(
        Call(call["function"]["name"], json.loads(call["function"]["arguments"]), call["id"] or "")
        for call in row.get("tool_calls") or ()
    )
    call_id, loss = row.get("tool_call_id") or "", row.get("loss")
    return Message(row["role"], row["content"] or "", calls, call_id, loss is None or loss)
