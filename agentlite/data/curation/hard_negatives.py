"""Makes hard negatives of train records: the right tool removed, or names masked."""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

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
from agentlite.data.curation.variants import first_call, variant
from agentlite.data.formats.sage_tools import is_id_alone

# What such a tool cannot do, nobody knows.
DOES_MUCH = re.compile(
    r"search|google|bing|browse|web|wiki|lookup|look_up|python|code|shell|bash|terminal|exec|command|script|sql|query|http"
    r"|request|api|llm|gpt|chat|ask|answer|assistant|agent|搜索|检索|查询|浏览|代码|执行|问答",
    re.IGNORECASE,
)
COMMON = frozenset(  # words that say nothing about what a tool is for
    (
        "get",
        "set",
        "list",
        "find",
        "fetch",
        "retrieve",
        "calculate",
        "compute",
        "calc",
        "create",
        "make",
        "add",
        "update",
        "delete",
        "remove",
        "check",
        "show",
        "read",
        "write",
        "send",
        "by",
        "for",
        "of",
        "the",
        "a",
        "an",
        "to",
        "in",
        "on",
        "from",
        "with",
        "and",
        "or",
        "is",
    )
)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[\u4e00-\u9fff]")
# the Jaccard index of two descriptions' words from which one tool may stand in for the other
ALIKE = 0.3
NAMING = frozenset(  # keywords of JSON Schema that name parameters, or hold schemas that do
    (
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "propertyNames",
        "$ref",
        "$defs",
        "definitions",
    )
)


def without_right_tool(record: Record, expected: Iterable[str], answer: str) -> Record | str:
    """The dialog up to its first call, without the expected tools, and the answer in place of the
    call; or why not.

    Not made where another offered tool could do it. That is assumed of a tool that is expected for
    the same question in any record (`due`), does much (a search, a shell), takes all the arguments
    of an expected call, or shares a telling word of its name or much of its description with the
    right one.
    """
    turn = first_call(record)
    if isinstance(turn, str):
        return turn
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
    names = {tool.name for tool in record.tools}
    if any(
        _is_telling(name) and name in message.content
        for name in names
        for message in record.messages
    ):
        return "a text names a tool"
    if any(NAMING & tool.parameters.keys() for tool in record.tools):
        return "a schema names parameters elsewhere"
    chance = random.Random(digest(f"{seed} masked {record.id}"))
    tools = dict(zip(sorted(names), _numbered("tool", len(names), chance), strict=True))
    inner = {tool.name: _parameter_names(tool, chance) for tool in record.tools}
    return variant(
        record,
        "names masked",
        tools=tuple(_masked_tool(tool, tools, inner[tool.name]) for tool in record.tools),
        messages=tuple(_masked_message(message, tools, inner) for message in record.messages),
        gold={turn: _masked_gold(gold, tools, inner) for turn, gold in record.gold.items()},
    )


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
        or any(_alike(tool, other) for other in right)
    )


def _alike(tool: Tool, other: Tool) -> bool:
    if _words(tool.name) & _words(other.name):
        return True
    one, two = _words(tool.description), _words(other.description)
    return len(one & two) >= ALIKE * max(1, len(one | two))


def _words(text: str) -> set[str]:
    """The telling ones: of a name in snake or camel case too, without the s of a plural; of
    Chinese, its characters.
    """
    return {
        word.removesuffix("s") for word in map(str.lower, WORD.findall(text)) if word not in COMMON
    }


def _is_telling(name: str) -> bool:
    """Whether a name in a text is the tool's, and no word that is a name as well: `weather`."""
    return not (name.isascii() and name.isalpha() and name.islower())


def _numbered(word: str, count: int, chance: random.Random) -> list[str]:
    return [f"{word}_{number}" for number in chance.sample(range(10 * count), count)]


def _parameter_names(tool: Tool, chance: random.Random) -> dict[str, str]:
    known = sorted(schema_at(tool.parameters, "properties"))
    return dict(zip(known, _numbered("parameter", len(known), chance), strict=True))


def _masked_tool(tool: Tool, tools: Mapping[str, str], names: Mapping[str, str]) -> Tool:
    parameters = dict(tool.parameters)
    if "properties" in parameters:
        parameters["properties"] = _renamed(parameters["properties"], names)
    if "required" in parameters:
        parameters["required"] = [names.get(name, name) for name in parameters["required"]]
    return replace(tool, name=tools[tool.name], parameters=parameters)


def _masked_message(
    message: Message, tools: Mapping[str, str], inner: Mapping[str, Mapping[str, str]]
) -> Message:
    calls = (
        Call(tools[call.name], _renamed(call.arguments, inner[call.name]), call.id)
        for call in message.calls
    )
    return replace(message, calls=tuple(calls))


def _masked_gold(
    gold: Gold, tools: Mapping[str, str], inner: Mapping[str, Mapping[str, str]]
) -> Gold:
    """Gold may name a tool that is not on offer: that stays as it is."""
    calls = (
        replace(
            call,
            name=tools.get(call.name, call.name),
            arguments=call.arguments
            if call.arguments is ANY_ARGUMENTS
            else _renamed(call.arguments, inner.get(call.name, {})),
        )
        for call in gold.calls
    )
    return replace(gold, calls=tuple(calls))


def _renamed(arguments: Mapping[str, object], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in arguments.items()}
