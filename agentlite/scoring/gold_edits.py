"""The recorded turn of a step -> the same turn with one thing wrong, of a given kind."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from itertools import islice
from random import Random
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from agentlite.core.json_schema import Schema, fits, schema_at, takes
from agentlite.core.records import Call, Gold, Message, Parsed, Record, Tool, canonical
from agentlite.scoring.metrics.wrong_answers import WrongKind, wrong_kind

REFUSAL = "I am sorry, but I cannot help with that."  # where no answer of the data can be taken
CALL_ID = "call_0"  # of a call where the record has none
MOST = 64  # changed turns of a step that are looked at
NUMBER = re.compile(r"(?<![\w.])-?\d{1,12}(?:\.\d{1,6})?(?![\w.])", re.ASCII)
LARGEST = 10**15  # of a number that is written in another unit
NAME = re.compile(r"(?<=[\w,;:] )[A-Z][\w'-]*(?: [A-Z][\w'-]*)*")  # not a sentence's first word
Edit = Callable[["EditStep"], Iterator[Message]]
T = TypeVar("T")


class Elsewhere(NamedTuple):
    """What the records say in all places: the arguments of calls by tool; values by tool and
    parameter, under the tool "" those of every tool; and the answers without a call.
    """

    arguments: dict[str, list[dict[str, Any]]]
    values: dict[tuple[str, str], list[Any]]
    answers: list[str]


class EditStep(NamedTuple):
    """A step that is edited; `random` draws the values from elsewhere."""

    record: Record
    turn: int
    elsewhere: Elsewhere
    random: Random

    @property
    def message(self) -> Message:
        return self.record.messages[self.turn]

    @property
    def gold(self) -> Gold:
        return self.record.expected(self.turn)

    def shuffled(self, values: Iterable[T]) -> list[T]:
        listed = list(values)
        self.random.shuffle(listed)
        return listed

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.record.tools if tool.name == name), None)

    def schema(self, call: Call) -> Schema:
        tool = self.tool(call.name)
        return tool.parameters if tool else {}

    def with_call(self, index: int, call: Call) -> Message:
        """The turn with another call in the place of one."""
        calls = self.message.calls
        return replace(self.message, calls=(*calls[:index], call, *calls[index + 1 :]))

    def with_arguments(self, index: int, arguments: dict[str, Any]) -> Message:
        return self.with_call(index, replace(self.message.calls[index], arguments=arguments))

    def arguments(self) -> list[tuple[int, str]]:
        """Every argument of the turn, as the index of its call and its name."""
        return self.shuffled(
            (index, name)
            for index, call in enumerate(self.message.calls)
            for name in call.arguments
        )


def elsewhere(records: Iterable[Record]) -> Elsewhere:
    """Every value once, in the order of the records."""
    arguments: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    values: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    answers: dict[str, None] = {}
    for record in records:
        for turn in record.turns:
            message = record.messages[turn]
            if not record.has_gold(turn) or record.unknown_arguments(turn):
                continue
            if not message.calls and message.content.strip() and record.tools:
                answers[message.content] = None
            for call in message.calls:
                arguments[call.name][canonical(call.arguments)] = call.arguments
                for name, value in call.arguments.items():
                    for tool in (call.name, ""):
                        values[tool, name][canonical(value)] = value
    return Elsewhere(
        {name: [*found.values()] for name, found in arguments.items()},
        {key: [*found.values()] for key, found in values.items()},
        [*answers],
    )


def applies(kind: WrongKind, message: Message) -> bool:
    """Whether a kind is about a turn like this: with a call, or without one."""
    return bool(message.calls) != (kind == "unwanted_call")


def edited_turns(kind: WrongKind, step: EditStep) -> Iterator[Message]:
    """Turns that are wrong in this way and in no other that comes before it. Empty where none can
    be made.
    """
    gold, tools = step.gold, step.record.tools
    for message in islice(EDITS[kind](step), MOST) if applies(kind, step.message) else ():
        if wrong_kind(Parsed(message.content, message.calls), gold, tools) == kind:
            yield message


def _without_call(step: EditStep) -> Iterator[Message]:
    for answer in [*step.shuffled(step.elsewhere.answers)[:3], REFUSAL]:
        yield Message("assistant", answer)


def _with_unwanted_call(step: EditStep) -> Iterator[Message]:
    for tool in step.shuffled(step.record.tools):
        for arguments in _plausible_arguments(tool, step):
            yield Message("assistant", calls=(Call(tool.name, arguments, CALL_ID),))


def _with_neighbouring_tool(step: EditStep) -> Iterator[Message]:
    """The tool that is most like the expected one, with the arguments that it takes as well."""
    expected = {call.name for call in step.gold.calls}
    others = [tool for tool in step.record.tools if tool.name not in expected]
    for index, call in step.shuffled(enumerate(step.message.calls)):
        tool = step.tool(call.name)
        for other in sorted(others, key=lambda one: -_likeness(tool, one) if tool else 0.0):
            kept = {
                name: value
                for name, value in call.arguments.items()
                if takes(other.parameters, name)
                and fits(value, schema_at(other.parameters, "properties", name))
            }
            for arguments in _plausible_arguments(other, step, kept):
                yield step.with_call(index, Call(other.name, arguments, call.id))


def _with_other_number_of_calls(step: EditStep) -> Iterator[Message]:
    """One call of several is left out, or a single one is made twice."""
    calls = step.message.calls
    for index, call in step.shuffled(enumerate(calls)):
        if len(calls) > 1:
            yield replace(step.message, calls=(*calls[:index], *calls[index + 1 :]))
        else:
            other_id = call.id[:-1] + ("2" if call.id.endswith("1") else "1") if call.id else ""
            yield replace(step.message, calls=(call, replace(call, id=other_id)))


def _without_parameter(required: bool) -> Edit:
    def edit(step: EditStep) -> Iterator[Message]:
        for index, left_out in step.arguments():
            call = step.message.calls[index]
            if (left_out in (step.schema(call).get("required") or ())) == required:
                kept = {name: one for name, one in call.arguments.items() if name != left_out}
                yield step.with_arguments(index, kept)

    return edit


def _with_extra_parameter(step: EditStep) -> Iterator[Message]:
    """One that the tool has and the question does not ask for."""
    for index, call in step.shuffled(enumerate(step.message.calls)):
        tool = step.tool(call.name)
        for name in step.shuffled(schema_at(step.schema(call), "properties")):
            if tool and name not in call.arguments:
                for value in _plausible_values(tool.name, name, tool.parameters, step):
                    yield step.with_arguments(index, {**call.arguments, name: value})


def _with_wrong_type(step: EditStep) -> Iterator[Message]:
    for index, name in step.arguments():
        call = step.message.calls[index]
        for value in _retyped(call.arguments[name]):
            yield step.with_arguments(index, {**call.arguments, name: value})


def _with_other_value(is_text: bool) -> Edit:
    """A value of the same parameter in another row, one from elsewhere in the dialog, or the own
    value in part or in another unit. It fits the schema wherever the right one does.
    """

    def edit(step: EditStep) -> Iterator[Message]:
        for index, name in step.arguments():
            call = step.message.calls[index]
            own, schema = call.arguments[name], step.schema(call)
            if isinstance(own, str) != is_text:
                continue
            others = [
                *step.elsewhere.values.get((call.name, name), ()),
                *_in_dialog(step, is_text),
                *_choices(schema_at(schema, "properties", name)),
                *_altered(own),
            ]
            own_fits = fits(call.arguments, schema)
            for value in step.shuffled(others):
                arguments = {**call.arguments, name: value}
                if not own_fits or fits(arguments, schema):
                    yield step.with_arguments(index, arguments)

    return edit


# The kinds of mistakes that an edit can make. An answer that cannot be read, was cut off or was
# never given is not a matter of what the turn says.
EDITS: dict[WrongKind, Edit] = {
    "unwanted_call": _with_unwanted_call,
    "no_call": _without_call,
    "wrong_tool": _with_neighbouring_tool,
    "number_of_calls": _with_other_number_of_calls,
    "missing_required": _without_parameter(required=True),
    "missing_optional": _without_parameter(required=False),
    "extra_parameter": _with_extra_parameter,
    "wrong_type": _with_wrong_type,
    "other_text": _with_other_value(is_text=True),
    "other_value": _with_other_value(is_text=False),
}


def _likeness(tool: Tool, other: Tool) -> float:
    """By name and parameters: 0 to 2."""
    names, others = (schema_at(one.parameters, "properties").keys() for one in (tool, other))
    shared = len(names & others) / max(1, len(names | others))
    return shared + SequenceMatcher(None, tool.name, other.name).ratio()


def _plausible_arguments(
    tool: Tool, step: EditStep, kept: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Arguments that fit the tool: those of a call of it elsewhere, or what it requires beside
    those that are kept.
    """
    if not kept:
        known = step.elsewhere.arguments.get(tool.name, ())
        yield from (one for one in step.shuffled(known)[:4] if fits(one, tool.parameters))
    arguments = dict(kept or {})
    for name in tool.parameters.get("required") or ():
        if name not in arguments:
            arguments[name] = next(_plausible_values(tool.name, name, tool.parameters, step), None)
    if fits(arguments, tool.parameters):
        yield arguments


def _plausible_values(tool: str, name: str, schema: Schema, step: EditStep) -> Iterator[Any]:
    """Values that fit a parameter: of the same one elsewhere, of one with the same name, of its
    schema, from the dialog.
    """
    declared = schema_at(schema, "properties", name)
    values = step.elsewhere.values
    found = [
        *step.shuffled(values.get((tool, name), ())[:MOST]),
        *step.shuffled(values.get(("", name), ())[:MOST]),
        *step.shuffled(_choices(declared)),
        *([declared["default"]] if "default" in declared else []),
        *_in_dialog(step, is_text=True),
        *_in_dialog(step, is_text=False),
        *(name, 1, 1.5, True, [], [name], [1], {}),
    ]
    return (value for value in found if fits(value, declared))


def _choices(schema: Schema) -> list[Any]:
    choices = schema.get("enum")
    return choices if isinstance(choices, list) else []


def _in_dialog(step: EditStep, is_text: bool) -> list[Any]:
    """Texts, or numbers and other values, from earlier calls, the other arguments of this turn and
    the words of the user.
    """
    before = step.record.messages[: step.turn]
    found: list[Any] = [
        value
        for message in (*before, step.message)
        for call in message.calls
        for value in call.arguments.values()
        if isinstance(value, str) == is_text
    ]
    words = " ".join(message.content for message in before if message.role == "user")
    if is_text:
        return step.shuffled([*found, *NAME.findall(words)[:MOST]])
    numbers = [float(text) if "." in text else int(text) for text in NUMBER.findall(words)]
    return step.shuffled([*found, *numbers[:MOST]])


def _retyped(value: Any) -> Iterator[Any]:
    """The value as another type would hold it."""
    if isinstance(value, str):
        yield [value]
        yield {"value": value}
    elif isinstance(value, list):
        yield ", ".join(map(_as_text, value))
        yield {"value": value}
    else:
        yield _as_text(value)
        yield [value]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _altered(value: Any) -> Iterator[Any]:
    """The value in part, or in another unit: 5 for 0.05, 11 for 23 o'clock."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float) and abs(value) < LARGEST:
        yield from (value * 100, value / 100, value * 1000, value + 1)
        if isinstance(value, int):
            yield from (value // 100, value - 12 if value > 12 else value + 12)
    elif isinstance(value, str):
        head, comma, _ = value.partition(",")
        words = value.split()
        yield from ([head.strip()] if comma else []) + ([words[0]] if len(words) > 1 else [])
    elif isinstance(value, list):
        if len(value) > 1:
            yield value[:-1]
        for index, element in enumerate(value):
            for other in _altered(element):
                yield [*value[:index], other, *value[index + 1 :]]
    elif isinstance(value, dict):
        for key, inner in value.items():
            for other in _altered(inner):
                yield {**value, key: other}
