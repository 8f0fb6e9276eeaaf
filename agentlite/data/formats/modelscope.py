"""MSAgent-Bench rows -> Record: calls and results between marks in one answer.

<|startofthink|>fenced JSON of a call<|endofthink|> <|startofexec|>its result<|endofexec|> a summary
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Tool
from agentlite.data.formats import sharegpt
from agentlite.data.formats.chains import Calls, PromptParts, Syntax, take_apart
from agentlite.data.formats.format import Format, Row, rest
from agentlite.data.formats.json_decode import json_or_literal, json_value
from agentlite.data.formats.tool_calls import ARGUMENTS, read_call, read_tool

# up to the next start, so that many starts without an end take no time
INSIDE = r"(?:(?!<\|startof).)*?"
STEP = re.compile(
    rf"<\|startofthink\|>(?P<call>{INSIDE})<\|endofthink\|>"
    rf"(?:\s*<\|startofexec\|>(?P<result>{INSIDE})<\|endofexec\|>)?",
    re.DOTALL,
)
MARK = re.compile(r"<\|(?:start|end)of(?:think|exec)\|>")
FENCED = re.compile(r"```(?:json)?(.*)```", re.DOTALL | re.IGNORECASE)
LISTED = re.compile(r"(?:^|(?<!\d)\d{1,3}[.、:])[ \t]*(?=[\[{])", re.MULTILINE)
# pieces of a system text that begin like JSON and are none: each costs a look at all of it
MOST_BROKEN = 100
PLUGIN, SCHEMA = '"plugin_name"', "plugin_schema_for_model"


def _is_chain(text: str, tools: bool = False) -> bool:
    return "<|startofthink|>" in text or "<|startofexec|>" in text


def _prompt(text: str) -> PromptParts:
    """A prompt's plugins and the words around them."""
    plugins, words = _extract_plugins(text)
    tools: list[Tool] = []
    listed: set[str] = set()  # whose parameters are a list
    for api in (api for plugin in plugins for api in _apis(plugin)):
        tools.append(read_tool(api, json_or_literal))
        listed |= {tools[-1].name} if isinstance(api.get("parameters"), list) else set()
    more = [plugin for plugin in plugins if rest(plugin, "name", "description", "parameters")]
    return PromptParts(tools, words, frozenset(listed), {"plugins": more})


def _extract_plugins(system: str) -> tuple[list[Row], str]:
    """What the text lists as JSON, numbered or one a line; and the text without it."""
    plugins: list[Row] = []
    kept, end, broken = [], 0, 0
    for start in LISTED.finditer(system):
        if start.start() < end or broken == MOST_BROKEN:
            continue
        try:
            _, stop = json.JSONDecoder().raw_decode(system, start.end())
        except (ValueError, RecursionError):
            broken += 1
            continue
        value = json_value(system[start.end() : stop])
        listed = value if isinstance(value, list) else [value]
        if listed and all(map(_is_described, listed)):
            plugins += listed
            kept.append(system[end : start.start()])
            end = stop
    return plugins, "\n".join(filter(None, (text.strip() for text in (*kept, system[end:]))))


def _is_described(plugin: object) -> bool:
    """Tells a tool from any other JSON in a prompt, the call that shows how to call among them."""
    if not isinstance(plugin, dict):
        return False
    described = not {"description", "parameters"}.isdisjoint(plugin)
    return isinstance(plugin.get(SCHEMA), dict) or ("name" in plugin and described)


def _apis(plugin: Row) -> list[Row]:
    schema = plugin.get(SCHEMA)
    if not isinstance(schema, dict):
        return [plugin]
    return [
        {
            "name": path.get("name") or schema.get("name") or plugin.get("plugin_name"),
            "description": path.get("description") or schema.get("description"),
            "parameters": path.get("parameters"),
        }
        for path in schema.get("paths") or [schema]
    ]


def _chain(text: str, loss: bool, calls: Calls, tools: Sequence[Tool]) -> Iterator[Message]:
    """An answer as messages; `calls` gets what a call says beside its name and parameters."""
    end = 0
    for step in STEP.finditer(text):
        value: Any = json_or_literal(_strip_fence(step["call"]))
        named = {"name": value.get("api_name"), **rest(value, "api_name", "name", "function")}
        given = read_call(named, json_or_literal)
        call = Call(given.name, given.arguments, f"call_{len(calls)}")
        calls[call.id] = rest(value, "api_name", *ARGUMENTS)
        yield Message("assistant", _without_marks(text[end : step.start()]), (call,), loss=loss)
        if step["result"] is not None:
            yield Message("tool", _strip_fence(step["result"]), call_id=call.id)
        end = step.end()
    if (kept := _without_marks(text[end:])) or not end:
        yield Message("assistant", kept, loss=loss)


def _without_marks(text: str) -> str:
    if mark := MARK.search(text):
        raise RowError("E214", f"{mark[0]} out of its place")
    return text.strip()


def _strip_fence(text: str) -> str:
    fenced = FENCED.fullmatch(text.strip())
    return (fenced[1] if fenced else text).strip()


SYNTAX = Syntax(lambda text: PLUGIN in text, _prompt, _chain, _is_chain)
FORMAT = Format(
    "ms_agent_exec",
    lambda row: take_apart(sharegpt.read(row), SYNTAX),
    shape=lambda row: sharegpt.says(row, lambda text: _is_chain(text) or PLUGIN in text),
)
