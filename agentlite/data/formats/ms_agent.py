"""ms_agent rows -> Record: ShareGPT turns whose answers are whole ReAct chains."""

import re
from collections.abc import Iterator
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.formats import sharegpt
from agentlite.data.formats.extra_fields import meta_of
from agentlite.data.formats.openai import has_loss
from agentlite.data.formats.tool_calls import json_or_literal, read_arguments, read_tool

EXAMPLE = (
    '{"id": "1", "conversations": [{"from": "system", "value": "Answer the following questions as '
    "best you can. You "
    "have access to the following APIs:\\n1. weather: Call this tool to interact with the weather "
    "API. What is the "
    'weather API useful for? The weather of today. Parameters: [{\\"name\\": \\"city\\", '
    '\\"description\\": \\"a '
    'town\\", \\"required\\": \\"True\\"}]\\n\\nUse the following format:\\n\\nThought: you should '
    "always think about "
    'what to do\\n...\\nFinal Answer: the final answer to the original input question\\nBegin!"}, '
    '{"from": "user", "value": "Is it wet in Oslo?"}, {"from": "assistant", "value": "Action: '
    "weather\\nAction Input: "
    "{'city': 'Oslo'}\\nObservation: 4 mm\\nThought: I now know the final answer\\nFinal Answer: "
    'Yes."}]}'
)
FRAME = re.compile(
    r"Answer the following questions as best you can\..*?:[ \t]*\n(?P<apis>.*?)\n\s*Use the "
    r"following format:.*?Begin!",
    re.DOTALL,
)
API = re.compile(r"^[ \t]*(\d{1,4})\.[ \t]+([^\s:]+):", re.MULTILINE)
BOILERPLATE = re.compile(
    r"^\s*Call this tool to interact with the .*? API\.(?:\s*What is the .*? API useful "
    r"for\?)?[\s.]*"
)
LABEL = re.compile(r"^(Thought|Action Input|Action|Observation):[ \t]*", re.MULTILINE)
FINAL = re.compile(r"^Final Answer:[ \t]*", re.MULTILINE)
KNOWN = re.compile(r"I now know the final answer\.?", re.IGNORECASE)
REACT = re.compile(r"^Action:.*\n+Action Input:", re.MULTILINE)


def fits(row: dict[str, Any]) -> bool:
    return sharegpt.fits(row) and any(
        _is_react(turn) for turn in [*sharegpt.turns_of(row), {"value": row.get("system")}]
    )


def read(row: dict[str, Any]) -> Record:
    """Raises RowError E202, E206, E208, E211, E212 or, for a chain that cannot be taken apart,
    E214.
    """
    if not sharegpt.fits(row):
        raise RowError("E201", "conversations are no list of turns")
    messages: list[Message] = []
    tools: list[Tool] = []
    system_turns = [{"from": "system", "value": row["system"]}] if row.get("system") else []
    turns = [*system_turns, *sharegpt.turns_of(row)]
    for number, turn in enumerate(turns, 1 - len(system_turns)):
        speaker, text = sharegpt.speaker_of(turn, number), sharegpt.text_of(turn, number)
        if speaker == "system":
            tools += _apis(text)
            rest = FRAME.sub("", text).strip()
            messages += [Message("system", rest)] if rest else []
        elif speaker == "assistant":
            messages += _chain(
                text, has_loss(turn), sum(len(message.calls) for message in messages)
            )
        elif speaker == "user":
            messages.append(Message("user", text))
        else:
            raise RowError(
                "E214",
                f"a turn of its own for {turn.get('from')!r} beside a ReAct prompt (turn {number})",
            )
    return Record(
        messages=tuple(messages),
        tools=tuple(tools),
        meta=meta_of(row, "conversations", "conversation", "system"),
    )


def _is_react(turn: dict[str, Any]) -> bool:
    text = turn.get("value", turn.get("content"))
    return isinstance(text, str) and bool(FRAME.search(text) or REACT.search(text))


def _apis(system: str) -> Iterator[Tool]:
    """The numbered APIs of a ReAct prompt. A number out of its order is part of a description."""
    if not (frame := FRAME.search(system)):
        return
    text = frame["apis"]
    starts: list[re.Match[str]] = []
    for match in API.finditer(text):
        starts += [match] if int(match[1]) == len(starts) + 1 else []
    if not starts:
        raise RowError("E211", "a ReAct prompt without numbered APIs")
    ends = [match.start() for match in starts[1:]] + [len(text)]
    for match, end in zip(starts, ends, strict=True):
        described, _, parameters = text[match.end() : end].rpartition("Parameters:")
        if not described:
            raise RowError("E211", f"the API {match[2]} has no Parameters")
        description = BOILERPLATE.sub("", described).strip()
        yield read_tool(
            {"name": match[2], "description": description, "parameters": parameters},
            json_or_literal,
        )


def _chain(text: str, loss: bool, calls: int) -> Iterator[Message]:
    """One turn with thoughts, actions and observations, as the messages it stands for; `calls`:
    made before it.
    """
    final = FINAL.search(text)
    head, answer = (text[: final.start()], text[final.end() :].strip()) if final else (text, "")
    before, *pieces = LABEL.split(head)
    texts, action, waiting = [before.strip()], "", ""
    for label, piece in zip(pieces[::2], map(str.strip, pieces[1::2]), strict=True):
        if label == "Thought":
            texts.append(piece)
        elif label == "Action" and not action and not waiting:
            action = piece
        elif label == "Action Input" and action:
            call = Call(action, read_arguments(piece, json_or_literal), f"call_{calls}")
            yield Message("assistant", _joined(texts), (call,), loss=loss)
            texts, action, waiting, calls = [], "", call.id, calls + 1
        elif label == "Observation" and waiting:
            yield Message("tool", piece, call_id=waiting)
            waiting = ""
        else:
            raise RowError("E214", f"{label} out of its place in a chain: {piece[:60]!r}")
    if action:
        raise RowError("E214", f"the action {action!r} has no input")
    content = _joined([*texts, answer])
    if content or not calls or final:
        yield Message("assistant", content, loss=loss)


def _joined(thoughts: list[str]) -> str:
    return "\n".join(filter(None, (KNOWN.sub("", thought).strip() for thought in thoughts)))
