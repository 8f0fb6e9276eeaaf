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
    turns = sharegpt.turns_of(row)
    dialog = _ToolLlamaDialog()
    for number, turn in enumerate(turns, 1):
        dialog.add(turn, number)
    meta = meta_of(row, "conversations", "conversation") | (
        {"about_tools": dialog.about} if dialog.about else {}
    )
    messages = _with_question(dialog.messages)
    return Record(
        messages=tuple(messages) if dialog.has_chain else _last_trains(messages),
        tools=_with_finish(dialog),
        meta=meta,
    )


class _ToolLlamaDialog:
    """Collects messages, the tools that the system text lists, and what it says about them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.tools: tuple[Tool, ...] = ()
        self.about = ""
        self.calls: dict[str, dict[str, Any]] = {}
        self.has_chain = False  # whole in one text, and not one step of it a row

    def add(self, turn: Any, number: int) -> None:
        agent = isinstance(turn, dict) and turn.get("from") in AGENTS
        speaker = "assistant" if agent else sharegpt.speaker_of(turn, number)
        text = sharegpt.text_of(turn, number)
        if speaker == "assistant" and ms_agent.is_chain(text, tools=False):
            self.messages += ms_agent.chain(text, has_loss(turn), self.calls, self.tools)
            self.has_chain = True
        elif speaker == "assistant":
            self.messages.append(replace(self._answered(text), loss=has_loss(turn)))
        elif speaker == "tool":
            calls = self.messages[-1].calls if self.messages else ()
            self.messages.append(Message("tool", text, call_id=calls[0].id if calls else ""))
        elif speaker == "user":
            self.messages.append(
                Message("user", self._unframed(text).strip().removesuffix("Begin!").rstrip())
            )
        elif speaker == "system":
            rest = self._unframed(text)
            self.messages += [Message("system", rest)] if rest else []
        else:
            raise RowError(
                "E202",
                (
                    f"a turn of its own for {turn.get('from')!r}: here actions are text (turn "
                    f"{number})"
                ),
            )

    def _unframed(self, text: str) -> str:
        prompt = _prompt(text)
        self.tools += tuple(prompt.tools)
        self.about = str(prompt.more.get("about_tools", self.about))
        return prompt.text

    def _answered(self, text: str) -> Message:
        action = ACTION.search(text)
        thought = text[: action.start()] if action else text
        if label := LABEL.search(thought):
            raise RowError("E214", f"{label[0]} out of its place: {text[label.start() :][:60]!r}")
        thought = thought.strip().removeprefix("Thought:").strip()
        if not action:
            return Message("assistant", thought)
        if not action[1].strip():
            raise RowError("E206", "an action without a name")
        call_id = f"call_{len(self.calls)}"
        arguments = read_arguments(text[action.end() :], json_or_literal)
        call = Call(action[1].strip(), arguments, call_id)
        self.calls[call_id] = {}
        return Message("assistant", thought, (call,))


def _prompt(text: str) -> PromptParts:
    """The APIs of a prompt, what it says about them, and the author's own words."""
    if not (apis := APIS.search(text)):
        return PromptParts((), text)
    tools, end = tools_at(text, apis.end())
    before = text[: apis.start()]
    more = {}
    if about := ABOUT.search(before):
        before = before[: about.start()]
        more = {"about_tools": about[1].strip()}
    return PromptParts(tools, FRAME.sub("", before + text[end:]).strip(), more=more)


def _prompt_with_finish(text: str) -> PromptParts:
    prompt = _prompt(text)
    own = any(tool.name == FINISH.name for tool in prompt.tools)
    return prompt if own or not prompt.tools else prompt._replace(tools=[*prompt.tools, FINISH])


def _lists_apis(text: object) -> bool:
    if not isinstance(text, str) or "following apis" not in text.lower():  # faster than the search
        return False
    return bool(APIS.search(text))


def _with_finish(dialog: _ToolLlamaDialog) -> tuple[Tool, ...]:
    """Every list of APIs has Finish, and a row may call it without any."""
    called = any(call.name == FINISH.name for message in dialog.messages for call in message.calls)
    declared = any(tool.name == FINISH.name for tool in dialog.tools)
    return dialog.tools if declared or not (dialog.tools or called) else (*dialog.tools, FINISH)


def _with_question(messages: list[Message]) -> list[Message]:
    """Alpha-UMi asks in the system turn alone."""
    if (
        messages
        and messages[0].role == "system"
        and not any(message.role == "user" for message in messages)
    ):
        return [replace(messages[0], role="user"), *messages[1:]]
    return messages


def _last_trains(messages: list[Message]) -> tuple[Message, ...]:
    """Each step before the last is the last one of another row."""
    last = max(
        (i for i, message in enumerate(messages) if message.role == "assistant"), default=None
    )
    return tuple(
        replace(message, loss=False) if message.role == "assistant" and i != last else message
        for i, message in enumerate(messages)
    )


SYNTAX = Syntax(_lists_apis, lambda text, tools: False, _prompt_with_finish, ms_agent.chain)
