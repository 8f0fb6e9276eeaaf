"""ToolLLaMA and Alpha-UMi rows -> Record: a chain of steps of which the last is trained."""

import re
from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.formats import ms_agent, sharegpt
from agentlite.data.formats.chains import PromptParts, Syntax
from agentlite.data.formats.extra_fields import meta_of
from agentlite.data.formats.inline_text import sentences, tools_at
from agentlite.data.formats.openai import has_loss
from agentlite.data.formats.tool_calls import json_or_literal, read_arguments
from agentlite.rendering.protocols.toolllama import FINISH

EXAMPLE = r"""{"id": "Step 1: Is it wet in Oslo?", "conversations": [{"from": "system", "value": "You are AutoGPT, you can use many tools(functions) to do the following task.\nSpecifically, you have access to the following APIs: [{'name': 'rain_for_weather', 'description': '', 'parameters': {'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city'], 'optional': []}}]"}, {"from": "user", "value": "\nIs it wet in Oslo?\nBegin!\n"}, {"from": "assistant", "value": "\nThought: I look it up.\nAction: rain_for_weather\nAction Input: {\"city\": \"Oslo\"}"}]}"""  # noqa: E501  (a row is one line)
FIELDS = {"conversations": list}
AGENTS = (
    "caller",
    "conclusion",
    "planner",
)  # Alpha-UMi has a model for each: the assistant of its rows
APIS = re.compile(
    r"(?:Specifically, )?you have access to the following APIs:\s*(?=\[)", re.IGNORECASE
)
ABOUT = re.compile(r"You have access of the following tools:(.*)", re.DOTALL)
FRAME = sentences(
    r"You are AutoGPT, you can use many tools\(functions\) to do the following task\.",
    r"First I will give you the task description, and your task start\..{0,3000}?Let's Begin!",
    r"Task description: You should use functions to help handle the real time user "
    r"querys\..{0,1500}?"
    r"use only subfunctions' names\.",
)
ACTION = re.compile(r"^Action:(.*)\n+Action Input:", re.MULTILINE)
LABEL = re.compile(r"^(?:Action|Action Input|Observation):", re.MULTILINE)


def fits(row: dict[str, Any]) -> bool:
    turns = row["conversations"]
    return all(isinstance(turn, dict) and "from" in turn for turn in turns) and any(
        turn["from"] in AGENTS or (turn["from"] == "system" and _lists_apis(turn.get("value")))
        for turn in turns
    )


def read(row: dict[str, Any]) -> Record:
    messages: list[Message] = []
    tools: tuple[Tool, ...] = ()
    about: dict[str, object] = {}  # what the system text says about the tools
    calls: dict[str, dict[str, Any]] = {}
    has_chain = False  # whole in one text, and not one step of it a row
    for number, turn in enumerate(sharegpt.turns_of(row), 1):
        agent = isinstance(turn, dict) and turn.get("from") in AGENTS
        speaker = "assistant" if agent else sharegpt.speaker_of(turn, number)
        text = sharegpt.text_of(turn, number)
        if speaker == "assistant" and ms_agent.is_chain(text, tools=False):
            messages += ms_agent.chain(text, has_loss(turn), calls, tools)
            has_chain = True
        elif speaker == "assistant":
            messages.append(_step(text, has_loss(turn), calls))
        elif speaker == "tool":
            answered = messages[-1].calls if messages else ()
            messages.append(Message("tool", text, call_id=answered[0].id if answered else ""))
        elif speaker == "call":
            reason = f"a turn of its own for {turn.get('from')!r}: here actions are text"
            raise RowError("E202", f"{reason} (turn {number})")
        else:
            prompt = _prompt(text)
            tools += tuple(prompt.tools)
            about |= prompt.more
            if speaker == "user":
                question = prompt.text.strip().removesuffix("Begin!").rstrip()
                messages.append(Message("user", question))
            elif prompt.text:
                messages.append(Message("system", prompt.text))
    roles = [message.role for message in messages]
    if roles[:1] == ["system"] and "user" not in roles:  # Alpha-UMi asks in the system turn alone
        messages[0] = replace(messages[0], role="user")
    if not has_chain:  # each step before the last is the last one of another row
        *earlier, _ = [turn for turn, role in enumerate(roles) if role == "assistant"] or [-1]
        for turn in earlier:
            messages[turn] = replace(messages[turn], loss=False)
    # every list of APIs has Finish, and a row may call it without any
    called = any(call.name == FINISH.name for message in messages for call in message.calls)
    if (tools or called) and all(tool.name != FINISH.name for tool in tools):
        tools = (*tools, FINISH)
    meta = meta_of(row, "conversations", "conversation")
    return Record(messages=tuple(messages), tools=tools, meta=meta | about)


def _step(text: str, loss: bool, calls: dict[str, dict[str, Any]]) -> Message:
    """A thought and, unless it is the answer, an action, which is added to the calls."""
    action = ACTION.search(text)
    thought = text[: action.start()] if action else text
    if label := LABEL.search(thought):
        raise RowError("E214", f"{label[0]} out of its place: {text[label.start() :][:60]!r}")
    thought = thought.strip().removeprefix("Thought:").strip()
    if not action:
        return Message("assistant", thought, loss=loss)
    if not action[1].strip():
        raise RowError("E206", "an action without a name")
    arguments = read_arguments(text[action.end() :], json_or_literal)
    call = Call(action[1].strip(), arguments, f"call_{len(calls)}")
    calls[call.id] = {}
    return Message("assistant", thought, (call,), loss=loss)


def _prompt(text: str) -> PromptParts:
    """The APIs of a prompt, what it says about them, and the author's own words."""
    if not (apis := APIS.search(text)):
        return PromptParts((), text)
    tools, end = tools_at(text, apis.end())
    before, more = text[: apis.start()], {}
    if about := ABOUT.search(before):
        before = before[: about.start()]
        more = {"about_tools": about[1].strip()} if about[1].strip() else {}
    return PromptParts(tools, FRAME.sub("", before + text[end:]).strip(), more=more)


def _prompt_with_finish(text: str) -> PromptParts:
    prompt = _prompt(text)
    own = any(tool.name == FINISH.name for tool in prompt.tools)
    return prompt if own or not prompt.tools else prompt._replace(tools=[*prompt.tools, FINISH])


def _lists_apis(text: object) -> bool:
    if not isinstance(text, str) or "following apis" not in text.lower():  # faster than the search
        return False
    return bool(APIS.search(text))


SYNTAX = Syntax(_lists_apis, lambda text, tools: False, _prompt_with_finish, ms_agent.chain)
