"""Record -> a row as other trainers read it: the way out, for every format that holds calls."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from agentlite.core.records import Call, Message, Record, plain, wire_message
from agentlite.rendering.protocol import thought_and_words

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
    messages = [
        wire_message(message) | ({"weight": 0} if _is_silent(message) else {})
        for message in record.messages
    ]
    tools = {"tools": [tool.schema for tool in record.tools]} if record.tools else {}
    return {"messages": messages, **tools}


def sharegpt(record: Record) -> Row:
    """{"conversations", "tools"} from human, gpt, function_call and observation; parallel calls are
    one list.
    """
    turns: list[Row] = []
    for message in record.messages:
        silent = {"loss": False} if _is_silent(message) else {}
        if message.content or not message.calls:
            said = {"from": SHAREGPT[message.role], "value": message.content}
            turns.append(said | silent)
        if message.calls:
            turns.append({"from": "function_call", "value": _called(message), **silent})
    return {"conversations": turns, "tools": plain([tool.function for tool in record.tools])}


def ms_swift(record: Record) -> Row:
    """ms-swift's agent rows: a tool_call turn for every call, a tool_response for every result,
    tools as one text.
    """
    turns: list[Row] = []
    for message in record.messages:
        silent = {"loss": False} if _is_silent(message) else {}
        if message.content or not message.calls:
            role = "tool_response" if message.role == "tool" else message.role
            turns.append({"role": role, "content": message.content, **silent})
        for call in message.calls:
            turns.append({"role": "tool_call", "content": plain(_named(call)), **silent})
    return {"tools": plain([tool.schema for tool in record.tools]), "messages": turns}


def llamafactory(record: Record) -> Row:
    """LLaMA-Factory's sharegpt with tools: questions and results in odd places, answers and calls
    in even ones.

    What is said beside calls is a thought before them, in <think>; the results of parallel calls
    are one JSON list. It has no turns that are not trained.
    """
    system = "\n\n".join(m.content for m in record.messages if m.role == "system")
    turns: list[Row] = []
    for role, group in groupby(record.messages, key=lambda message: message.role):
        messages = list(group)
        if role == "tool":
            results = [message.content for message in messages]
            value = plain(results) if len(results) > 1 else results[0]
            turns.append({"from": "observation", "value": value})
        for message in messages if role in ("user", "assistant") else ():
            turn = {"from": SHAREGPT[role], "value": message.content}
            if message.calls:
                said = "\n\n".join(filter(None, thought_and_words(message.content)))
                thought = f"<think>{said}</think>" if said else ""
                turn = {"from": "function_call", "value": thought + _called(message)}
            turns.append(turn)
    tools = plain([tool.function for tool in record.tools])
    return {"conversations": turns, "system": system, "tools": tools}


SHAPES: dict[str, Callable[[Record], Row]] = {
    "openai": openai,
    "sharegpt": sharegpt,
    "ms-swift": ms_swift,
    "llamafactory": llamafactory,
}
ALL_TRAINED = ("llamafactory",)  # shapes that cannot say that a turn is not to be learned
SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}


def _is_silent(message: Message) -> bool:
    """Whether it is an assistant turn that is not trained."""
    return message.role == "assistant" and not message.loss


def _called(message: Message) -> str:
    """Its calls as a JSON list; a single one alone."""
    calls = [_named(call) for call in message.calls]
    return plain(calls if len(calls) > 1 else calls[0])


def _named(call: Call) -> Row:
    return {"name": call.name, "arguments": call.arguments}
