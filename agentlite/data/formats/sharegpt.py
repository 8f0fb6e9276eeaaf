"""Rows of turns, {"conversations": [{"from", "value"}]}, and their relatives of ms-swift -> Record.

Of ShareGPT, AgentInstruct, ms_bench and ms-swift: calls are turns of their own or tags in a text.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from itertools import count
from typing import Any, Literal

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.plain_words import kind_of
from agentlite.core.records import Call, Message, Record, text_or_json, to_json
from agentlite.data.formats import openai
from agentlite.data.formats.chains import calls_in
from agentlite.data.formats.format import (
    PREFERENCE,
    Format,
    Row,
    as_list,
    dialog,
    extra_by_turn,
    meta_of,
    omit,
    refuse_unread,
    text_at,
)
from agentlite.data.formats.json_decode import json_or_literal, json_value
from agentlite.data.formats.openai import LOSS_KEYS, THOUGHT_KEYS, has_loss, merge_turns
from agentlite.data.formats.questions import history
from agentlite.data.formats.tool_calls import read_call, read_tools
from agentlite.rendering.protocol import join_texts, thought_and_words, with_thought

Speaker = Literal["system", "user", "assistant", "tool", "call"]
SPEAKERS: dict[str, Speaker] = {
    **openai.ROLES,
    **{"human": "user", "gpt": "assistant"},
    **dict.fromkeys(("caller", "conclusion", "planner"), "assistant"),  # a model each in Alpha-UMi
    **{"function_call": "call", "tool_call": "call"},
    **{"observation": "tool", "tool_response": "tool"},
    # of AmanPriyanshu's rows
    **{"reasoning": "assistant", "answer": "assistant", "tool_output": "tool"},
}
TURN_KEYS = frozenset(("from", "role", "value", "content", *LOSS_KEYS, *THOUGHT_KEYS))
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
RESULT = re.compile(r"<tool_response>((?:(?!<tool_response>).)*?)</tool_response>", re.DOTALL)
# a result in the text of an answer, or anything in a tag or a fence behind a call
CHAIN = re.compile(rf"{RESULT.pattern}|</tool_call>\s*(?:<(?!/?tool_call>)|```)", re.DOTALL)


def fits(row: Row) -> bool:
    turns = turns_of(row)
    return isinstance(turns, list) and all(
        isinstance(turn, dict) and ("from" in turn or "role" in turn) for turn in turns
    )


def read(row: Row, is_plain: bool = False) -> Record:
    """`is_plain`: texts stay as they are, calls in them too."""
    system = text_at(row, "system") if row.get("system") else ""
    turns = list(turns_of(row))
    call_keys = (*openai.TOOL_CALLS_KEYS, "tool_call_id")
    dicts = [turn for turn in turns if isinstance(turn, dict)]
    if any("role" in turn and any(turn.get(key) for key in call_keys) for turn in dicts):
        # messages as OpenAI writes them, under this format's key
        messages = [{"role": "system", "content": system}, *turns] if system else turns
        openai.refuse_other_dialog(row, "conversations", messages, "messages")
        return openai.read(
            {**omit(row, "conversations", "conversation", "system"), "messages": messages}
        )
    builder = DialogBuilder(system, is_plain)
    for number, turn in enumerate(turns, 1):
        builder.add(turn, number, turns[number:])
    tools = read_tools(row.get("tools"), json_or_literal)
    extra = extra_by_turn(turns, TURN_KEYS)
    meta = meta_of(row, "conversations", "conversation", "system", "tools", turns=extra)
    return Record(messages=merge_turns(builder.messages), tools=tools, meta=meta)


def turns_of(row: Row) -> Any:
    return row.get("conversations") or row.get("conversation")


def sender_of(turn: Any) -> Any:
    """Who a turn is from, by the key of ShareGPT or of OpenAI; None for what is no turn."""
    return turn.get("from", turn.get("role")) if isinstance(turn, dict) else None


def says(row: Row, search: Callable[[str], object], senders: Sequence[str] = ()) -> bool:
    """Whether anybody, or one of `senders`, says such a text; "system" beside the turns too."""
    if not fits(row):
        return False
    turns = [(sender_of(turn), turn.get("value", turn.get("content"))) for turn in turns_of(row)]
    return any(
        isinstance(text, str) and (not senders or sender in senders) and search(text)
        for sender, text in [("system", row.get("system")), *turns]
    )


def speaker_of(turn: object, number: int) -> Speaker:
    """Who speaks. Raises RowError E202 if the format knows no such role."""
    sender = sender_of(turn)
    if speaker := SPEAKERS.get(str(sender)):
        return speaker
    raise openai.unknown_role(sender, SPEAKERS, f"turn {number}")


def text_of(turn: Row, number: int, keys: Set[str] = TURN_KEYS) -> str:
    """What is said, the assistant's thought first. `keys`: the keys that the format reads."""
    position = f"turn {number}"
    refuse_unread(turn, keys, position)
    value = turn.get("content") if turn.get("value") is None else turn["value"]
    if isinstance(value, dict | list):
        value = to_json(value)
    if not isinstance(value, str | None):
        raise RowError("E216", f"{kind_of(value)} where text is said ({position})")
    thought = openai.thought_of(turn) if speaker_of(turn, number) in ("assistant", "call") else ""
    return join_texts((with_thought(thought, ""), value or "")) if thought else value or ""


class DialogBuilder:
    """Collects messages. There are no ids: results answer the calls before in their order."""

    def __init__(self, system: str = "", is_plain: bool = False) -> None:
        self.is_plain = is_plain
        self.messages = [Message("system", system)] if system else []
        self.open_calls: list[Call] = []
        self.new_ids = map("call_{}".format, count())

    def add(self, turn: Any, number: int, following: list[object]) -> None:
        """Adds a turn, which errors call by its `number`. `following`: the turns behind it.

        Raises RowError: E202 for a speaker that is not known, E201 for a loss that cannot be, E206
        for a call, and E216 for a content, that cannot be read.
        """
        speaker, text = speaker_of(turn, number), text_of(turn, number)
        sender = sender_of(turn)
        if sender == "reasoning":
            text = with_thought(text, "")
        elif sender in ("tool_call", "answer"):  # which may stand in tags of the same name
            text = text.strip().removeprefix(f"<{sender}>").removesuffix(f"</{sender}>")
        if self.is_plain and speaker in ("tool", "call"):
            raise RowError("E202", f"a {speaker} turn in a format that has none (turn {number})")
        last_message = self.messages[-1] if self.messages else Message("system")
        if speaker == "call":  # LLaMA-Factory's may think first; its fields may be keys of the turn
            thought, text = thought_and_words(text or to_json(omit(turn, *TURN_KEYS)))
            rows = as_list(json_or_literal(text))
            calls = [read_call(row, json_or_literal) for row in rows]
            goes_on = last_message.role == "assistant"
            if goes_on and last_message.loss != has_loss(turn):
                reason = "words and the calls after them are one turn, but differ in their loss"
                raise RowError("E201", reason, "Give all of them the same loss.")
            self._add_answer(with_thought(thought, ""), calls, has_loss(turn), goes_on)
        elif speaker == "assistant":
            blocks: list[str] = []
            # a whole chain is split later
            if not self.is_plain and not CHAIN.search(text):
                # also: no search from every tag to the end
                if text.rfind("<tool_call>") > text.rfind("</tool_call>"):
                    raise RowError("E206", "a <tool_call> that is not closed")
                blocks = CALL.findall(text)
            calls = [call for block in blocks for call in calls_in(block)]
            words = CALL.sub("", text).strip() if calls else text
            self._add_answer(words, calls, has_loss(turn), openai.is_thought(last_message))
        elif speaker == "tool":
            for result in self._results(text, following):
                call_id = self.open_calls.pop(0).id if self.open_calls else ""
                self.messages.append(Message("tool", result, call_id=call_id))
        else:
            self.messages.append(Message(speaker, text))

    def _results(self, text: str, following: list[object]) -> list[str]:
        """A turn may answer several calls: in tagged blocks, or as a JSON list of results."""
        is_closed = text.rfind("<tool_response>") < text.rfind("</tool_response>")
        if is_closed and not RESULT.sub("", text).strip():
            return [*map(str.strip, RESULT.findall(text))]
        # ["4 mm", "12:34"] answers two calls; where more results follow, it is what one tool gave
        has_more = any(SPEAKERS.get(str(sender_of(turn))) == "tool" for turn in following[:1])
        if not has_more and len(self.open_calls) > 1 and text.lstrip().startswith("["):
            with contextlib.suppress(RowError):
                results = json_value(text)
                if len(results) == len(self.open_calls):
                    return [*map(text_or_json, results)]
        return [text]

    def _add_answer(self, words: str, calls: Iterable[Call], loss: bool, goes_on: bool) -> None:
        """Words and calls, of a turn of their own or of the one before them, which goes on."""
        self.open_calls = [replace(call, id=next(self.new_ids)) for call in calls]
        if goes_on:
            last_message = self.messages.pop()
            words = join_texts((last_message.content, words))
            self.open_calls = [*last_message.calls, *self.open_calls]
        self.messages.append(Message("assistant", words, tuple(self.open_calls), loss=loss))


# --- AgentInstruct and Agent-FLAN: turns with a loss mark ---


def is_agentinstruct(row: Row) -> bool:
    turns = turns_of(row) if fits(row) and not row.get("tools") else []
    speakers = [SPEAKERS.get(str(sender_of(turn))) for turn in turns]
    if not {*speakers} <= {"system", "user", "assistant"} or any("loss" not in t for t in turns):
        return False
    # their users have a loss of null; some answer has one of true or false
    are_marked = [isinstance(turn["loss"], bool) for turn in turns]
    return ("assistant", True) in zip(speakers, are_marked, strict=True)


# --- ms_bench: general chat, which only its name tells from other turns ---

FILTER_WORDS = ("moss", "human:", "assistant:", "user:")
DEFAULT_SYSTEM = re.compile(
    r"you are an? (?:very )?helpful (?:ai )?assistant ?[.!。]?", re.IGNORECASE
)


def read_ms_bench(row: Row) -> Record:
    """Raises RowError F301 for a row that ms-swift's filter leaves out."""
    record = read(row)
    messages = record.messages
    texts = [message.content.lower() for message in messages]
    if word := next((word for word in FILTER_WORDS if any(word in text for text in texts)), ""):
        raise RowError("F301", f"a text holds {word!r}: left out, as ms-swift does for ms_bench")
    first_message = messages[0] if messages else Message("user")
    if first_message.role == "system" and DEFAULT_SYSTEM.fullmatch(first_message.content.strip()):
        messages = messages[1:]
    return replace(record, messages=messages)


# --- ms-swift: messages with weights, query and response, or human and assistant ---

SWIFT_ROLES = ("tool_call", "tool_response", "reasoning", "answer", "tool_output")
SWIFT_KEYS = frozenset(("role", "content", "tool_calls", *LOSS_KEYS, *THOUGHT_KEYS))
BUILDER_KEYS = frozenset(("from", "role", "content", *THOUGHT_KEYS))  # of a turn, by DialogBuilder
OTHER_DIALOG_KEYS = ("conversations", "conversation", "query", "response", "history")
ROW_KEYS = ("messages", *OTHER_DIALOG_KEYS, "system", "tools")


def is_ms_swift(row: Row) -> bool:
    if openai.fits(row):
        # what messages of OpenAI do not have
        has_own_keys = any(
            turn["role"] in SWIFT_ROLES
            or turn.get("loss_scale") is not None
            or turn.get("channel") not in (None, *openai.CHANNELS)
            for turn in row["messages"]
        )
        if has_own_keys or _preference_key(row):
            return True
    is_exchange = all(isinstance(row.get(key), str) for key in ("query", "response"))
    return is_exchange or _has_exchanges(row)


def read_ms_swift(row: Row) -> Record:
    if key := _preference_key(row):
        reason = f"{key}: a preference, of which one side is not to be imitated"
        raise RowError("E201", reason, PREFERENCE.format("the better answer"), key)
    system, tools = text_at(row, "system"), read_tools(row.get("tools"), json_or_literal)
    if isinstance(row.get("messages"), list):
        messages, extra = _read_turns(row, system)
        return Record(messages=messages, tools=tools, meta=meta_of(row, *ROW_KEYS, turns=extra))
    if _has_exchanges(row):
        exchanges = [(text_at(turn, "human"), text_at(turn, "assistant")) for turn in turns_of(row)]
    else:
        exchanges = [*history(row), (text_at(row, "query"), row["response"])]
    return Record(messages=dialog(system, exchanges), tools=tools, meta=meta_of(row, *ROW_KEYS))


def _read_turns(row: Row, system: str) -> tuple[tuple[Message, ...], dict[str, list[Row]]]:
    """`loss: false` and `loss_scale: 0` take a turn out. Any other scale is kept in meta, as are
    keys that are not known, by the number of the message that a turn is in.
    """
    turns = row["messages"]
    for key in OTHER_DIALOG_KEYS:
        openai.refuse_other_dialog(row, "messages", turns, key)
    builder = DialogBuilder(system)
    extra: dict[str, list[Row]] = {}
    for number, turn in enumerate(turns, 1):
        position, speaker = f"message {number}", speaker_of(turn, number)
        if turn.get("tool_calls"):
            raise RowError("E206", f"tool_calls, where calls are turns of their own ({position})")
        refuse_unread(turn, SWIFT_KEYS, position)
        content, scale = turn.get("content"), turn.get("loss_scale")
        if speaker not in ("tool", "call") and not isinstance(content, str | None):
            raise RowError("E216", f"content is {kind_of(content)}, not text ({position})")
        if not isinstance(scale, int | float | None):
            raise RowError("E201", f"loss_scale is {kind_of(scale)}, not a number ({position})")
        fields = {key: turn[key] for key in turn if key in BUILDER_KEYS or speaker == "call"}
        fields["loss"] = has_loss(turn) and scale != 0
        builder.add(fields, number, turns[number:])
        if unread := omit(turn, *SWIFT_KEYS):
            # several turns may have become one message: the last of all so far
            extra.setdefault(str(len(builder.messages) - 1), []).append(unread)
    return tuple(builder.messages), extra


def _preference_key(row: Row) -> str:
    """The key that makes the row one for DPO or KTO; "" if there is none."""
    if isinstance(row.get("label"), bool):
        return "label"
    keys = ("rejected_response", "rejected_messages")
    return next((key for key in keys if row.get(key) is not None), "")


def _has_exchanges(row: Row) -> bool:
    turns = turns_of(row)
    return isinstance(turns, list) and all(
        isinstance(turn, dict) and turn.keys() == {"human", "assistant"} for turn in turns
    )


SHAREGPT = Format("sharegpt", read, shape=fits)
AGENTINSTRUCT = Format("agentinstruct", partial(read, is_plain=True), shape=is_agentinstruct)
# by its name only
MS_BENCH = Format("ms_bench", read_ms_bench, shape=lambda row: False)
MS_SWIFT = Format("ms_swift", read_ms_swift, shape=is_ms_swift)
