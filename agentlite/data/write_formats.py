"""Record -> a row as other trainers read it: the way out, for every format that holds calls."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from agentlite.core.records import Call, Message, Record, plain, wire_message

Row = dict[str, Any]


def learned_elsewhere(record: Record) -> Record:
    """The record with the turns taken out of training that other trainers would learn wrong: those
    with calls whose arguments are not known, which are written as empty ones.
    """
    messages = (
        replace(message, loss=message.loss and not record.unknown_arguments(index))
        for index, message in enumerate(record.messages)
    )
    return replace(record, messages=tuple(messages))


def shaped(record: Record, shape: str) -> Row:
    """A row of SHAPES[shape]; plain text is {"text"} for all of them."""
    return {"text": record.messages[0].content} if record.is_text else SHAPES[shape](record)


def openai(record: Record) -> Row:
    """{"messages", "tools"} of OpenAI's API; `weight: 0` takes a turn out of training, as its
    fine-tuning reads it.
    """
    row: Row = {"messages": [_openai_message(message) for message in record.messages]}
    return {**row, "tools": [tool.schema for tool in record.tools]} if record.tools else row


def sharegpt(record: Record) -> Row:
    """{"conversations", "tools"} from human, gpt, function_call and observation; parallel calls are
    one list.
    """
    turns = [turn for message in record.messages for turn in _sharegpt_turns(message)]
    return {
        "conversations": turns,
        "tools": plain([tool.function for tool in record.tools]),
    }


def ms_swift(record: Record) -> Row:
    """ms-swift's agent rows: a tool_call turn for every call, a tool_response for every result,
    tools as one text.
    """
    messages = [turn for message in record.messages for turn in _swift_messages(message)]
    return {"tools": plain([tool.schema for tool in record.tools]), "messages": messages}


def llamafactory(record: Record) -> Row:
    """LLaMA-Factory's sharegpt with tools: questions and results in odd places, answers and calls
    in even ones.

    A thought stands before the calls, in <think>; the results of parallel calls are one JSON list.
    It has no turns that are not trained.
    """
    system = "\n\n".join(m.content for m in record.messages if m.role == "system")
    turns: list[Row] = []
    for role, group in groupby(record.messages, key=lambda message: message.role):
        messages = list(group)
        if role == "tool":
            results = [message.content for message in messages]
            turns.append(
                {"from": "observation", "value": plain(results) if len(results) > 1 else results[0]}
            )
        elif role != "system":
            turns += map(_factory_turn, messages)
    return {
        "conversations": turns,
        "system": system,
        "tools": plain([tool.function for tool in record.tools]),
    }


SHAPES: dict[str, Callable[[Record], Row]] = {
    "openai": openai,
    "sharegpt": sharegpt,
    "ms-swift": ms_swift,
    "llamafactory": llamafactory,
}


ALL_TRAINED = ("llamafactory",)  # shapes that cannot say that a turn is not to be learned


def _openai_message(message: Message) -> Row:
    row = wire_message(message)
    return row if message.loss or message.role != "assistant" else {**row, "weight": 0}


SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}


def _sharegpt_turns(message: Message) -> list[Row]:
    """The text of a turn, and then its calls, if there are any."""
    silent = {} if message.loss or message.role != "assistant" else {"loss": False}
    messages = {"from": SHAREGPT[message.role], "value": message.content, **silent}
    if not message.calls:
        return [messages]
    calls = [_named(call, call.arguments) for call in message.calls]
    called = {
        "from": "function_call",
        "value": plain(calls if len(calls) > 1 else calls[0]),
        **silent,
    }
    return [messages, called] if message.content else [called]


def _swift_messages(message: Message) -> list[Row]:
    silent = {} if message.loss or message.role != "assistant" else {"loss": False}
    role = "tool_response" if message.role == "tool" else message.role
    messages = (
        [{"role": role, "content": message.content, **silent}]
        if message.content or not message.calls
        else []
    )
    return messages + [
        {"role": "tool_call", "content": plain(_named(call, call.arguments)), **silent}
        for call in message.calls
    ]


def _factory_turn(message: Message) -> Row:
    if not message.calls:
        return {"from": SHAREGPT[message.role], "value": message.content}
    calls = [_named(call, call.arguments) for call in message.calls]
    called = plain(calls if len(calls) > 1 else calls[0])
    return {
        "from": "function_call",
        "value": f"<think>{message.content}</think>{called}" if message.content else called,
    }


def _named(call: Call, arguments: object) -> Row:
    return {"name": call.name, "arguments": arguments}
