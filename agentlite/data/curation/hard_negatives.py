"""Variants of train records that are hard: the right tool removed, or names masked."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.json_schema import schema_at
from agentlite.core.records import (
    ANY_ARGUMENTS,
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    Tool,
    digest,
)
from agentlite.data.curation.traits import expected_tools, first_query
from agentlite.data.curation.validate import validate
from agentlite.data.formats.sage import is_id_alone

# What such a tool cannot do, nobody knows.
DOES_MUCH = re.compile(
    r"search|google|bing|browse|web|wiki|lookup|look_up|python|code|shell|bash|terminal|exec|command|script|sql|query|http"
    r"|request|api|llm|gpt|chat|ask|answer|assistant|agent|搜索|检索|查询|浏览|代码|执行|问答",
    re.IGNORECASE,
)
# words that say nothing about what a tool is for
COMMON = re.compile(
    "get|set|list|find|fetch|retrieve|calculate|compute|calc|create|make|add|update|delete|remove"
    "|check|show|read|write|send|by|for|of|the|a|an|to|in|on|from|with|and|or|is"
)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[\u4e00-\u9fff]")
# the Jaccard index of two descriptions' words from which one tool may stand in for the other
ALIKE = 0.3
# keywords of JSON Schema that name parameters, or hold schemas that do
NAMING = re.compile(
    "allOf|anyOf|oneOf|not|if|then|else|dependencies|dependentRequired|dependentSchemas"
    r"|patternProperties|propertyNames|[$]ref|[$]defs|definitions"
)
KEPT_META = ("protocol", "joined", "cut_from", "bfcl_id")
AnyCall = TypeVar("AnyCall", Call, GoldCall)


def make_variants(
    records: Iterable[Record],
    kinds: Mapping[str, tuple[float, Callable[[Record], Record | str]]],
    seed: int,
) -> tuple[list[Record], dict[str, Counter[str]]]:
    """Variants of a share of the records; and by kind, how many of the chosen records became one,
    or why not. `kinds`: the share, and what makes the variant of a record or says why there is
    none. Which records are chosen depends on seed, kind and id alone.
    """
    variants: list[Record] = []
    counts: dict[str, Counter[str]] = {
        kind: Counter() for kind, (share, _) in kinds.items() if share
    }
    for record in records:
        for kind, (share, make) in kinds.items():
            if int(digest(f"{seed} {kind} {record.id}"), 16) >= share * 2**64:
                continue
            made = make(record)
            try:
                if isinstance(made, Record):
                    validate(made)
            except RowError as error:
                made = f"{error.code} would reject it"
            if isinstance(made, Record):
                variants.append(made)
            counts[kind]["made" if isinstance(made, Record) else made] += 1
    return variants, counts


def without_right_tool(record: Record, expected: Iterable[str], answer: str) -> Record | str:
    """The dialog up to its first call, without the expected tools, and the answer in place of the
    call; or why not.

    Not made where another offered tool could do it. That is assumed of a tool that is expected for
    the same question in any record (`expected`), does much (a search, a shell), takes all the
    arguments of an expected call, or shares a telling word of its name or much of its description
    with the right one.
    """
    turn = next((turn for turn in record.prompted_turns if record.expected(turn).calls), None)
    if turn is None:
        return "no call is expected"
    if any(message.calls for message in record.messages[:turn]):
        return "a call is given before"
    gone = set(expected) | expected_tools(record)
    right = [tool for tool in record.tools if tool.name in gone]
    left = tuple(tool for tool in record.tools if tool.name not in gone)
    if not left:
        return "no other tool on offer"
    calls = record.expected(turn).calls
    if any(_could_do(tool, right, calls) for tool in left):
        return "another tool could do it"
    gold = {at: before for at, before in record.gold.items() if at < turn} | {turn: Gold()}
    return variant(
        record,
        "right tool removed",
        tools=left,
        task="timing_decision",
        gold=gold,
        messages=(*record.messages[:turn], Message("assistant", answer)),
    )


def with_masked_names(record: Record, seed: int) -> Record | str:
    """The dialog with other names for tools and their parameters, in tools, calls and gold alike;
    or why not.

    What stands in a text stays: a dialog that speaks of a tool by its name is left alone. So a
    model has to read the descriptions: where a tool has no more than an id, none could know it.
    Parameters inside of parameters keep their names.
    """
    if not expected_tools(record):
        return "no call is expected"
    if any(map(is_id_alone, record.tools)):
        return "a tool has a name only"
    telling = {tool.name for tool in record.tools if _is_telling(tool.name)}
    if any(name in message.content for name in telling for message in record.messages):
        return "a text names a tool"
    if any(NAMING.fullmatch(keyword) for tool in record.tools for keyword in tool.parameters):
        return "a schema names parameters elsewhere"
    chance = random.Random(digest(f"{seed} masked {record.id}"))

    def numbered(word: str, names: Iterable[str]) -> dict[str, str]:
        known = sorted(names)
        numbers = chance.sample(range(10 * len(known)), len(known))
        return {name: f"{word}_{number}" for name, number in zip(known, numbers, strict=True)}

    names = numbered("tool", (tool.name for tool in record.tools))
    inner = {
        tool.name: numbered("parameter", schema_at(tool.parameters, "properties"))
        for tool in record.tools
    }

    def rename_calls(calls: Iterable[AnyCall]) -> tuple[AnyCall, ...]:
        """Gold may name a tool that is not on offer: that stays as it is."""
        return tuple(
            replace(
                call,
                name=names.get(call.name, call.name),
                arguments=call.arguments
                if call.arguments is ANY_ARGUMENTS
                else _renamed(call.arguments, inner.get(call.name, {})),
            )
            for call in calls
        )

    def rename_tool(tool: Tool) -> Tool:
        parameters, new = dict(tool.parameters), inner[tool.name]
        if "properties" in parameters:
            parameters["properties"] = _renamed(parameters["properties"], new)
        if "required" in parameters:
            parameters["required"] = [new.get(name, name) for name in parameters["required"]]
        return replace(tool, name=names[tool.name], parameters=parameters)

    return variant(
        record,
        "names masked",
        tools=tuple(map(rename_tool, record.tools)),
        messages=tuple(
            replace(message, calls=rename_calls(message.calls)) for message in record.messages
        ),
        gold={
            turn: replace(gold, calls=rename_calls(gold.calls))
            for turn, gold in record.gold.items()
        },
    )


def variant(record: Record, made: str, **changes: object) -> Record:
    """The record with these changes. The entries of meta about the messages or the tools no longer
    hold for it; those about how it is written still do, and `bfcl_id`: gold of BFCL may break its
    schema.
    """
    meta = {key: record.meta[key] for key in KEPT_META if key in record.meta}
    return replace(record, parent=record.id, meta={**meta, "made": made}, **changes)


def expected_by_query(records: Iterable[Record]) -> Mapping[str, set[str]]:
    """The tools that are expected for a question in any of the records."""
    expected: dict[str, set[str]] = {}
    for record in records:
        expected.setdefault(first_query(record), set()).update(expected_tools(record))
    return expected


def _could_do(tool: Tool, right: Sequence[Tool], calls: Sequence[GoldCall]) -> bool:
    takes = schema_at(tool.parameters, "properties").keys()
    return bool(
        DOES_MUCH.search(tool.name)
        or any(call.arguments and call.arguments.keys() <= takes for call in calls)
        or any(_are_alike(tool, other) for other in right)
    )


def _are_alike(tool: Tool, other: Tool) -> bool:
    if _words(tool.name) & _words(other.name):
        return True
    one, two = _words(tool.description), _words(other.description)
    return len(one & two) >= ALIKE * max(1, len(one | two))


def _words(text: str) -> set[str]:
    """The telling ones: of a name in snake or camel case too, without the s of a plural; of
    Chinese, its characters.
    """
    words = map(str.lower, WORD.findall(text))
    return {word.removesuffix("s") for word in words if not COMMON.fullmatch(word)}


def _is_telling(name: str) -> bool:
    """Whether a name in a text is the tool's, and no word that is a name as well: `weather`."""
    return not (name.isascii() and name.isalpha() and name.islower())


def _renamed(arguments: Mapping[str, object], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in arguments.items()}
