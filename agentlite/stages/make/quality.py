"""The dialogs that are kept -> how varied, how hard and how well verified they are."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.curation import pii
from agentlite.data.curation.dedup import near_text, text_copies
from agentlite.data.formats import openai
from agentlite.engine import sentence_encoder
from agentlite.environments.making.blueprint import Blueprint
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
    plans = {slot.blueprint.id: slot.blueprint for slot in slots if slot.blueprint}
    records = [*_records(rows)]
    of_users = [[str(one["content"]) for one in _of_users(row)] for row in rows]
    personal = [pii.find(record) for record in records]
    return {
        "distinct_words": {str(size): distinct(of_users, size) for size in GRAMS},
        **({"spread": spread([one[0] for one in of_users], encoder)} if encoder else {}),
        "near_copies": len(text_copies([*map(near_text, records)])),
        "personal_data": dict(sum(personal, Counter[str]()).most_common()),
        "difficulty": _difficulty(rows, [plans[row["id"]] for row in rows]),
    }


def _records(rows: Sequence[Mapping[str, Any]]) -> Iterator[Record]:
    """Of those rows that `prep` can read; it rejects the others."""
    for row in rows:
        with contextlib.suppress(RowError):
            yield openai.read({**row})


def distinct(dialogs: Sequence[Sequence[str]], size: int) -> float | None:
    """The share of n-grams of words that are different ones. None where no text is so long."""
    grams = Counter[tuple[str, ...]]()
    for text in (text for texts in dialogs for text in texts):
        words = [one.casefold() for one in WORD.findall(text)]
        grams.update(tuple(words[at : at + size]) for at in range(len(words) - size + 1))
    return len(grams) / grams.total() if grams else None


def spread(questions: Sequence[str], encoder: Source) -> float | None:
    """The mean cosine distance of two questions: 0 where all are the same."""
    if len(questions) < 2:
        return None
    loaded = sentence_encoder.load(encoder, LONGEST_READ)
    return mean_distance(sentence_encoder.embed(loaded, questions))


def mean_distance(vectors: Any) -> float:
    """Of each row to each other one. `vectors`: of length 1."""
    total, count = vectors.sum(axis=0), len(vectors)
    return float(1 - (total @ total - count) / (count * (count - 1)))


def _difficulty(rows: Sequence[Mapping[str, Any]], plans: Sequence[Blueprint]) -> dict[str, float]:
    """Means of the dialogs, and shares of them."""
    chained = [any(call.sources for call in plan.made) for plan in plans]
    asks = [any(turn.missing for turn in plan.turns) for plan in plans]
    refuses = [any(turn.refused for turn in plan.turns) for plan in plans]
    return {
        "user_turns": fmean(len(_of_users(row)) for row in rows),
        "calls": fmean(len(made_calls(row["messages"])) for row in rows),
        "tools_on_offer": fmean(len(row["tools"]) for row in rows),
        "takes_an_earlier_result": fmean(chained),
        "agent_has_to_ask": fmean(asks),
        "agent_has_to_refuse": fmean(refuses),
    }


def _of_users(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in row["messages"] if one["role"] == "user"]
