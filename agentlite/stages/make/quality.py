"""The dialogs that are kept -> how varied, how hard and how well verified they are."""

import contextlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from agentlite.core.errors import RowError
from agentlite.data.curation import pii
from agentlite.data.curation.minhash import text_copies
from agentlite.data.curation.traits import near_text
from agentlite.data.formats import openai
from agentlite.engine import sentence_encoder
from agentlite.environments.making.checks import made_calls
from agentlite.stages.make.search import Slot
from agentlite.workspace.model_source import Source

WORD = re.compile(r"\w+")
LONGEST_READ = 96  # tokens of a question that the encoder reads
GRAMS = (1, 2, 3)


def quality(
    rows: Sequence[Mapping[str, Any]], slots: Sequence[Slot], encoder: Source | None
) -> dict[str, Any]:
    """`rows`: those of the dialogs. `encoder`: by which the spread of the questions is measured."""
    if not rows:
        return {}
    of_users = [
        [str(message["content"]) for message in row["messages"] if message["role"] == "user"]
        for row in rows
    ]
    records = []
    for row in rows:
        with contextlib.suppress(RowError):  # prep rejects it
            records.append(openai.read({**row}))
    spread = {"spread": _spread([texts[0] for texts in of_users], encoder)} if encoder else {}
    by_id = {slot.plan.id: slot.plan for slot in slots if slot.blueprint}
    plans = [by_id[row["id"]] for row in rows]
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
                any(call.sources for call in plan.made) for plan in plans
            ),
            "agent_has_to_ask": fmean(any(turn.missing for turn in plan.turns) for plan in plans),
            "agent_has_to_refuse": fmean(
                any(turn.refused for turn in plan.turns) for plan in plans
            ),
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
