"""Chains of steps in one answer: ReAct's, in rows of ms_agent, ToolLLaMA and Alpha-UMi, and those
between the marks of MSAgent-Bench -> Record.

A turn holds a thought, an action with its input, and the observation behind it, or many of them.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.formats import chains, sharegpt
from agentlite.data.formats.chains import Calls, PromptParts, Syntax
from agentlite.data.formats.format import Format, Row, as_list, omit
from agentlite.data.formats.json_decode import json_or_literal, json_value
from agentlite.data.formats.tool_calls import ARGUMENT_KEYS, read_arguments, read_call, read_tool
from agentlite.rendering.foreign_text import check_input
from agentlite.rendering.protocol import with_tool
from agentlite.rendering.protocols import react
from agentlite.rendering.protocols.toolllama import FINISH

FRAMES = (
    re.compile(
        r"Answer the following questions as best you can\..*?:[ \t]*\n(?P<apis>.*?)\n\s*Use the "
        r"following format:.*?Begin!",
        re.DOTALL,
    ),
    re.compile(
        r"尽可能地?回答以下问题。.*?[:：][ \t]*\n(?P<apis>.*?)\n\s*"
        r"请按照以下格式进行[:：].*?开始[!！]",
        re.DOTALL,
    ),
)
# a question and what its answer begins with, where a prompt ends with them
QUESTION = re.compile(r"\A(?:Question|问题)[:：]\s*")
PREFIX = re.compile(r"\n\s*(?:Thought|思考)[:：]\s*\Z")
# classic lists: names and descriptions, in brackets or not, and inputs that are plain text
CLASSIC = re.compile(r"^[ \t\[]*Name:[ \t]*(\S+?)\.?[ \t]+Description:", re.MULTILINE)
INPUT_SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}}
NUMBERED = re.compile(r"^[ \t]*(\d{1,4})\.[ \t]+([^\s:]+):", re.MULTILINE)
NAMED = re.compile(r"^([^\s:]+):(?=[ \t]*(?:Call this tool to|调用此工具))", re.MULTILINE)
PARAMETERS = re.compile(r"Parameters:|输入参数[:：]")
IN_CHINESE = re.compile(r"^\s*调用此工具与 .*? API 进行交互。\s*(?:\S+ 有什么用[?？])?")
AS_JSON = re.compile(
    r"\s*(?:Format the arguments as a JSON object\.|此工具的输入应为JSON对象。)\s*\Z"
)
LABELS = {
    "思考": "Thought",
    **dict.fromkeys(("行动", "动作"), "Action"),
    **dict.fromkeys(("行动输入", "动作输入"), "Action Input"),
    **dict.fromkeys(("观察", "观察结果"), "Observation"),
}
# a result may hold indented lines of any kind: of these, only its own label is looked for
LABEL = re.compile(
    r"^(?:(Thought|Action Input|Action|思考|行动输入|动作输入|行动|动作)"
    r"|[ \t]*(Observation|观察结果|观察))[ \t]*[:：][ \t]*",
    re.MULTILINE,
)
FINAL = re.compile(r"^(?:Final Answer|最终答案)[ \t]*[:：][ \t]*", re.MULTILINE)
LAST_THOUGHT = re.compile(
    r"I now know the final answer\.?|我现在知道(?:了)?最终答案(?:了)?。?", re.IGNORECASE
)
REACT = re.compile(
    r"^(?:Action:.*\n+Action Input:|(?:行动|动作)[:：].*\n+(?:行动|动作)输入[:：])", re.MULTILINE
)
OBSERVATION = re.compile(r"^[ \t]*(?:Observation|观察结果|观察)[ \t]*[:：]", re.MULTILINE)


def _frame(text: str) -> re.Match[str] | None:
    """The prompt of a ReAct agent in a text, which lists APIs."""
    frames = (match for frame in FRAMES if (match := frame.search(text)))
    return next((frame for frame in frames if frame["apis"].strip()), None)


def _is_chain(text: str, has_tools: bool) -> bool:
    """A lone call without any tools may be a text about agents; with its result it is a chain."""
    if "Action Input" not in text and "输入" not in text:  # faster than the search
        return False
    action = REACT.search(text)
    return bool(action and (has_tools or OBSERVATION.search(text, action.end())))


def _prompt(text: str) -> PromptParts:
    """A prompt's APIs and the words around them."""
    if not (frame := _frame(text)):
        return PromptParts((), text)
    apis = list(_apis(frame["apis"]))
    before, after = text[: frame.start()].strip(), PREFIX.sub("", text[frame.end() :].strip())
    question, chain = QUESTION.sub("", after.strip()), ""
    if REACT.search(question) and (label := LABEL.search(question)):
        question, chain = question[: label.start()].strip(), question[label.start() :]
    return PromptParts(
        [tool for tool, _ in apis],
        "\n".join(filter(None, (before, question))),
        frozenset(tool.name for tool, is_listed in apis if is_listed),
        chain=chain,
    )


def _apis(text: str) -> Iterator[tuple[Tool, bool]]:
    """The APIs, and whether their parameters are a list. A number out of order is no API."""
    if classic := list(CLASSIC.finditer(text)):
        # names and descriptions: each has one parameter, which has no name of its own
        for match, entry in chains.with_text_behind(classic, text.removesuffix("]")):
            description = entry.strip().rstrip(",").rstrip()
            tool = {"name": match[1], "description": description, "parameters": INPUT_SCHEMA}
            yield read_tool(tool), True
        return
    starts: list[re.Match[str]] = []
    # a description may hold a list of its own: "1. by name: ..." behind the API 4 is none
    for match in NUMBERED.finditer(text):
        starts += [match] if int(match[1]) == len(starts) + 1 else []
    starts = starts or list(NAMED.finditer(text))
    if not starts:
        raise RowError("E211", "a ReAct prompt without numbered APIs")
    for match, entry in chains.with_text_behind(starts, text):
        name = match[match.lastindex or 0]
        if not (labels := [*PARAMETERS.finditer(entry)]):
            raise RowError("E211", f"the API {name} has no Parameters")
        parameters = AS_JSON.sub("", entry[labels[-1].end() :]).strip()
        # without the words that the protocols put before it; those that name the API otherwise than
        # the tool are the author's own
        template_words = react.ENGLISH.about.format(name=name).strip()
        description = entry[: labels[-1].start()].strip().removeprefix(template_words).strip()
        description = "" if description == "." else IN_CHINESE.sub("", description).strip()
        tool = {"name": name, "description": description, "parameters": parameters}
        yield read_tool(tool, json_or_literal), parameters.startswith("[")


def _chain(text: str, loss: bool, calls: Calls, tools: Sequence[Tool]) -> Iterator[Message]:
    """A turn of thoughts, actions and observations as messages; `calls` gets those it makes."""
    final = FINAL.search(text)
    head, answer = (text[: final.start()], text[final.end() :].strip()) if final else (text, "")
    if observation := OBSERVATION.search(answer):
        raise RowError("E214", f"{observation[0].strip()} behind the final answer")
    labels, call_count = [*LABEL.finditer(head)], len(calls)
    texts, action, open_id = [head[: labels[0].start()] if labels else head], "", ""
    for number, (match, piece) in enumerate(chains.with_text_behind(labels, head), 1):
        name, piece = match[1] or match[2], piece.strip()
        label = LABELS.get(name, name)
        if label == "Thought":
            texts.append(piece)
        # an action waits for its input, and then for its result, before another may come
        elif label == "Action" and not action and not open_id:
            action = piece
        elif label == "Action Input" and action:
            (call,) = chains.number_calls([Call(action, _arguments(action, piece, tools))], calls)
            for value in call.arguments.values() if loss else ():
                check_input(value)
            yield Message("assistant", _join_thoughts(texts), (call,), loss=loss)
            texts, action, open_id = [], "", call.id
        elif label == "Observation" and open_id:
            if not piece and number == len(labels) and not final:
                return  # a stop string: the result is a turn of its own, or not known
            yield Message("tool", piece, call_id=open_id)
            open_id = ""
        else:
            raise RowError("E214", f"{label} out of its place in a chain: {piece[:60]!r}")
    if action:
        raise RowError("E214", f"the action {action!r} has no input")
    content = _join_thoughts([*texts, answer])
    if content or len(calls) == call_count or final:
        yield Message("assistant", content, loss=loss)


def _arguments(action: str, text: str, tools: Sequence[Tool]) -> dict[str, Any]:
    """An object, or the one argument of a tool with a single parameter."""
    tool = next((tool for tool in tools if tool.name == action), None)
    # Action Input: Oslo -> {"city": "Oslo"}, where `city` is all that the tool takes
    arguments = react.arguments_of_text(text, tool) if tool else None
    return arguments or read_arguments(text, json_or_literal)


def _join_thoughts(thoughts: list[str]) -> str:
    return "\n".join(filter(None, (LAST_THOUGHT.sub("", thought).strip() for thought in thoughts)))


def _result(text: str) -> str | None:
    """The result that a user's turn is."""
    label = OBSERVATION.match(text)
    return text[label.end() :].strip() if label else None


SYNTAX = Syntax(_frame, _prompt, _chain, _is_chain, _result)

# --- ToolLLaMA and Alpha-UMi: a chain of steps of which the last is trained ---

AGENTS = ("caller", "conclusion", "planner")
APIS = re.compile(
    r"(?:Specifically, )?you have access to the following APIs:\s*(?=\[)", re.IGNORECASE
)
ABOUT = re.compile(r"You have access of the following tools:(.*)", re.DOTALL)
TASK_FRAME = chains.sentences_pattern(
    r"You are AutoGPT, you can use many tools\(functions\) to do the following task\.",
    r"First I will give you the task description, and your task start\..{0,3000}?Let's Begin!",
    r"Task description: You should use functions to help handle the real time user querys\."
    r".{0,1500}?use only subfunctions' names\.",
)


def read_toolllama(row: Row) -> Record:
    record = sharegpt.read(row)
    has_chain = any(_is_chain(record.messages[turn].content, False) for turn in record.turns)
    record = chains.take_apart(record, TOOLLLAMA_SYNTAX)
    messages = [*record.messages]
    # each step before the last is the last one of another row, unless all are in one text
    earlier_turns = () if has_chain else record.turns[:-1]
    for index, message in enumerate(messages):
        if message.role == "user":
            messages[index] = replace(
                message, content=message.content.strip().removesuffix("Begin!").rstrip()
            )
        elif index in earlier_turns:
            messages[index] = replace(message, loss=False)
    roles = [message.role for message in messages]
    if roles[:1] == ["system"] and "user" not in roles:  # Alpha-UMi asks in the system turn alone
        messages[0] = replace(messages[0], role="user")
    # every list of APIs has Finish, and a row may call it without any
    calls_finish = any(call.name == FINISH.name for message in messages for call in message.calls)
    tools = with_tool(record.tools, FINISH) if record.tools or calls_finish else ()
    return replace(record, messages=tuple(messages), tools=tuple(tools))


def _lists_apis(text: str) -> bool:
    return "following apis" in text.lower() and bool(APIS.search(text))  # faster than the search


def _task_prompt(text: str) -> PromptParts:
    """The APIs of a prompt, what it says about them, and the author's own words."""
    if not (apis := APIS.search(text)):
        return PromptParts((), text)
    tools, end = chains.tools_at(text, apis.end())
    before, meta = text[: apis.start()], {}
    if about := ABOUT.search(before):
        before = before[: about.start()]
        meta = {"about_tools": about[1].strip()} if about[1].strip() else {}
    words = TASK_FRAME.sub("", before + text[end:]).strip()
    return PromptParts(with_tool(tools, FINISH) if tools else (), words, meta=meta)


TOOLLLAMA_SYNTAX = Syntax(_lists_apis, _task_prompt, _chain)
MS_AGENT = Format(
    "ms_agent",
    lambda row: chains.take_apart(sharegpt.read(row), SYNTAX),
    shape=lambda row: sharegpt.says(row, lambda text: _frame(text) or REACT.search(text)),
)
TOOLLLAMA = Format(
    "toolllama",
    read_toolllama,
    shape=lambda row: (
        sharegpt.says(row, lambda text: True, AGENTS)
        or sharegpt.says(row, _lists_apis, ("system",))
    ),
)

# --- MSAgent-Bench: between marks, each call with its result behind it ---

# up to the next start, so that many starts without an end take no time
INSIDE = r"(?:(?!<\|startof).)*?"
STEP = re.compile(
    rf"<\|startofthink\|>(?P<call>{INSIDE})<\|endofthink\|>"
    rf"(?:\s*<\|startofexec\|>(?P<result>{INSIDE})<\|endofexec\|>)?",
    re.DOTALL,
)
MARK = re.compile(r"<\|(?:start|end)of(?:think|exec)\|>")
FENCED = re.compile(r"```(?:json)?(.*)```", re.DOTALL | re.IGNORECASE)
# 1. {"plugin_name": ..., or the same without its number at the start of a line
PLUGIN_STARTS = re.compile(r"(?:^|(?<!\d)\d{1,3}[.、:])[ \t]*(?=[\[{])", re.MULTILINE)
# pieces of a system text that begin like JSON and are none: each costs a look at all of it
MOST_BROKEN = 100
PLUGIN, SCHEMA = '"plugin_name"', "plugin_schema_for_model"


def _has_marks(text: str, has_tools: bool = False) -> bool:
    return "<|startofthink|>" in text or "<|startofexec|>" in text


def _plugin_prompt(text: str) -> PromptParts:
    """A prompt's plugins and the words around them."""
    plugins, words = _extract_plugins(text)
    apis = [api for plugin in plugins for api in _plugin_apis(plugin)]
    tools = [read_tool(api, json_or_literal) for api in apis]
    are_lists = [isinstance(api.get("parameters"), list) for api in apis]
    loose_tools = frozenset(t.name for t, loose in zip(tools, are_lists, strict=True) if loose)
    unread = [plugin for plugin in plugins if omit(plugin, "name", "description", "parameters")]
    return PromptParts(tools, words, loose_tools, {"plugins": unread})


def _extract_plugins(system: str) -> tuple[list[Row], str]:
    """What the text lists as JSON, numbered or one a line; and the text without it."""
    plugins: list[Row] = []
    texts, end, failures = [], 0, 0
    for start in PLUGIN_STARTS.finditer(system):
        if start.start() < end or failures == MOST_BROKEN:
            continue
        try:
            _, value_end = json.JSONDecoder().raw_decode(system, start.end())
        except (ValueError, RecursionError):
            failures += 1
            continue
        values = as_list(json_value(system[start.end() : value_end]))
        if values and all(map(_is_tool_description, values)):
            plugins += values
            texts.append(system[end : start.start()])
            end = value_end
    return plugins, "\n".join(filter(None, (text.strip() for text in (*texts, system[end:]))))


def _is_tool_description(plugin: object) -> bool:
    """Tells a tool from any other JSON in a prompt, the call that shows how to call among them."""
    if not isinstance(plugin, dict):
        return False
    has_description = not {"description", "parameters"}.isdisjoint(plugin)
    return isinstance(plugin.get(SCHEMA), dict) or ("name" in plugin and has_description)


def _plugin_apis(plugin: Row) -> list[Row]:
    # {"plugin_schema_for_model": {"name", "description", "paths": [{"name", "parameters"}]}}
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


def _marked_chain(text: str, loss: bool, calls: Calls, tools: Sequence[Tool]) -> Iterator[Message]:
    """An answer as messages; `calls` gets what a call says beside its name and parameters."""
    end = 0
    for step in STEP.finditer(text):
        value: Any = json_or_literal(_strip_fence(step["call"]))
        call_row = {"name": value.get("api_name"), **omit(value, "api_name", "name", "function")}
        (call,) = chains.number_calls([read_call(call_row, json_or_literal)], calls)
        calls[call.id] = omit(value, "api_name", *ARGUMENT_KEYS)
        yield Message("assistant", _without_marks(text[end : step.start()]), (call,), loss=loss)
        if step["result"] is not None:
            yield Message("tool", _strip_fence(step["result"]), call_id=call.id)
        end = step.end()
    if (words := _without_marks(text[end:])) or not end:
        yield Message("assistant", words, loss=loss)


def _without_marks(text: str) -> str:
    if mark := MARK.search(text):
        raise RowError("E214", f"{mark[0]} out of its place")
    return text.strip()


def _strip_fence(text: str) -> str:
    fenced = FENCED.fullmatch(text.strip())
    return (fenced[1] if fenced else text).strip()


MODELSCOPE_SYNTAX = Syntax(lambda text: PLUGIN in text, _plugin_prompt, _marked_chain, _has_marks)
MS_AGENT_EXEC = Format(
    "ms_agent_exec",
    lambda row: chains.take_apart(sharegpt.read(row), MODELSCOPE_SYNTAX),
    shape=lambda row: sharegpt.says(row, lambda text: _has_marks(text) or PLUGIN in text),
)
