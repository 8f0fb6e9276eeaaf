"""Figures of the dialogs: counts, and how varied and how hard those are that are kept."""

import contextlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import plain
from agentlite.data.curation import pii
from agentlite.data.curation.minhash import text_copies
from agentlite.data.curation.traits import near_text
from agentlite.data.formats import openai
from agentlite.engine import sentence_encoder
from agentlite.environments.synthesis.checks import made_calls
from agentlite.environments.synthesis.dialog import MadeDialog
from agentlite.stages.make.search import Slot
from agentlite.workspace.model_source import Source

WORD = re.compile(r"\w+")
LONGEST_READ = 96  # tokens of a question that the encoder reads
GRAMS = (1, 2, 3)


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


def quality(
    rows: Sequence[Mapping[str, Any]], plans: Mapping[str, Slot], encoder: Source | None
) -> dict[str, Any]:
    """`rows`: of the dialogs that are kept. `encoder`: by which the spread of the questions is
    measured.
    """
    of_users = [
        [str(message["content"]) for message in row["messages"] if message["role"] == "user"]
        for row in rows
    ]
    records = []
    for row in rows:
        with contextlib.suppress(RowError):  # prep rejects it
            records.append(openai.read({**row}))
    spread = {"spread": _spread([texts[0] for texts in of_users], encoder)} if encoder else {}
    kept = [plans[row["id"]].plan for row in rows]
    return {
        "distinct_words": {str(size): _distinct(of_users, size) for size in GRAMS},
        **spread,
        "near_copies": len(text_copies([*map(near_text, records)])),
        "personal_data": dict(sum(map(pii.find, records), Counter[str]()).most_common()),
        "difficulty": {
            "user_turns": fmean(map(len, of_users)),
            "calls": fmean(len(made_calls(row["messages"])) for row in rows),
            "tools_on_offer": fmean(len(row["tools"]) for row in rows),
            "takes_an_earlier_result": fmean(
                any(call.sources for call in plan.made) for plan in kept
            ),
            "agent_has_to_ask": fmean(any(turn.missing for turn in plan.turns) for plan in kept),
            "agent_has_to_refuse": fmean(any(turn.refused for turn in plan.turns) for plan in kept),
        },
    }


def _distinct(dialogs: Sequence[Sequence[str]], size: int) -> float | None:
    """The share of n-grams of words that are different ones. None where no text is so long."""
    grams = Counter[tuple[str, ...]]()
    for text in (text for texts in dialogs for text in texts):
        words = [word.casefold() for word in WORD.findall(text)]
        grams.update(tuple(words[at : at + size]) for at in range(len(words) - size + 1))
    return len(grams) / grams.total() if grams else None


def _spread(questions: Sequence[str], encoder: Source) -> float | None:
    """The mean cosine distance of two questions: 0 where all are the same."""
    if len(questions) < 2:
        return None
    loaded = sentence_encoder.load(encoder, LONGEST_READ)
    vectors: Any = sentence_encoder.embed(loaded, questions)  # of length 1
    total, count = vectors.sum(axis=0), len(vectors)
    return float(1 - (total @ total - count) / (count * (count - 1)))
