"""Figures of the dialogs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from agentlite.core.records import plain
from agentlite.environments.synthesis.checks import made_calls
from agentlite.environments.synthesis.dialog import MadeDialog
from agentlite.stages.make.search import Slot


def not_found(slots: Sequence[Slot]) -> dict[str, int]:
    """Dialogs without a blueprint, by kind."""
    return dict(Counter(slot.kind for slot in slots if slot.blueprint is None))


def dialog_figures(slots: Sequence[Slot], made: Sequence[MadeDialog]) -> dict[str, Any]:
    """How many are kept, of which kinds, and what is wrong with the others."""
    kept = [dialog.row for dialog in made if dialog.is_kept]
    filtered = Counter[str]()
    for dialog in made:
        filtered.update(sorted({fault.kind for fault in dialog.faults}))
    messages = [message for row in kept for message in row["messages"]]
    calls = made_calls(messages)
    return {
        "wanted": len(slots),
        "kept": len(kept),
        "kinds": dict(Counter(row["meta"]["kind"] for row in kept)),
        "not_found": not_found(slots),
        "filtered": dict(filtered.most_common()),
        "verified": dict(Counter(name for row in kept for name in row["meta"]["verified"])),
        "turns": sum(message["role"] == "user" for message in messages),
        "calls": len(calls),
        "tools_called": len({call.name for call in calls}),
        "longest": max((len(plain([row["messages"], row["tools"]])) for row in kept), default=0),
    }
