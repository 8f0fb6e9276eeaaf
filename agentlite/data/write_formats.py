"""Record -> a row of OpenAI's API, which other trainers read."""

from typing import Any

from agentlite.core.records import Message, Record, wire_message


def openai_row(record: Record) -> dict[str, Any]:
    """{"messages", "tools"}, and {"text"} of a plain text. `weight: 0` takes a turn out of
    training, as OpenAI's fine-tuning reads it: also one with calls whose arguments are not known,
    which are written as empty ones.
    """
    if record.is_text:
        return {"text": record.messages[0].content}
    messages = [
        wire_message(message) | ({} if _is_learned(record, index, message) else {"weight": 0})
        for index, message in enumerate(record.messages)
    ]
    tools = {"tools": [tool.schema for tool in record.tools]} if record.tools else {}
    return {"messages": messages, **tools}


def _is_learned(record: Record, index: int, message: Message) -> bool:
    if message.role != "assistant":
        return True
    return message.loss and not record.unknown_arguments(index)
