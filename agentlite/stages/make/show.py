"""A finished make -> its first dialogs as text, for `make dialogs --show N`."""

from collections.abc import Iterator
from pathlib import Path

from agentlite.core.records import plain
from agentlite.core.row_files import read_rows
from agentlite.data.formats.tool_calls import read_call
from agentlite.environments.making.dialog import DIALOGS


def shown(folder: Path, count: int) -> Iterator[str]:
    """A heading for each dialog, the tools on offer, and a line for each message and each call."""
    for _, row in zip(range(count), read_rows(folder / DIALOGS), strict=False):
        meta = row["meta"]
        yield f"── {row['id']}  {meta['kind']}  verified by {', '.join(meta['verified'])}"
        yield f"   tools: {', '.join(tool['function']['name'] for tool in row['tools'])}"
        for message in row["messages"]:
            mark = "" if message.get("loss", True) else "  (not learned)"
            if words := message.get("content"):
                yield f"{message['role']:>9}  {words}{mark}"
            for call in map(read_call, message.get("tool_calls", ())):
                yield f"{'calls':>9}  {call.name} {plain(call.arguments)}{mark}"
        yield ""
