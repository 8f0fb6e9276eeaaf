"""ms_bench rows -> Record: general chat as ShareGPT turns, from which only its name tells them."""

import re
from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.formats import sharegpt
from agentlite.data.formats.extra_fields import meta_of

EXAMPLE = '{"conversations": [{"from": "system", "value": "You are a helpful assistant."}, {"from": "user", "value": "Why is rain wet?"}, {"from": "assistant", "value": "Because it is water."}]}'  # noqa: E501  (a row is one line)
FILTERED = ("moss", "human:", "assistant:", "user:")
DEFAULT_SYSTEM = re.compile(
    r"you are an? (?:very )?helpful (?:ai )?assistant ?[.!。]?", re.IGNORECASE
)


def read(row: dict[str, Any]) -> Record:
    """Raises RowError F301 for a row that ms-swift's filter leaves out."""
    record = sharegpt.read(row)
    messages = record.messages
    for word in FILTERED:
        if any(word in message.content.lower() for message in messages):
            raise RowError(
                "F301", f"the text has {word!r} in it: left out, as ms-swift does for ms_bench"
            )
    if (
        messages
        and messages[0].role == "system"
        and DEFAULT_SYSTEM.fullmatch(messages[0].content.strip())
    ):
        messages = messages[1:]
    return replace(
        record,
        messages=messages,
        meta=meta_of(row, "conversations", "conversation", "system", "tools"),
    )
