"""Single answers as token ids -> an adapter that says the desirable ones more often, by KTO.

TRL's KTOTrainer, with b for beta and c for the log-ratio of policy and reference of an answer:

    desirable    desirable_weight (1 - S(b (c - z)))
    undesirable  undesirable_weight (1 - S(b (z - c)))

z is how far the policy is from the reference in general: the mean log-ratio, at least 0, over the
prompts of the micro-batch, each before an answer to another prompt. No gradient goes through it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core.errors import OUT_OF_MEMORY, UserError
from agentlite.engine import trainer

OURS_OF_TRL = {
    "beta": "beta",
    "loss_type": "loss_type",
    "desirable_weight": "desirable_weight",
    "undesirable_weight": "undesirable_weight",
    "precompute_ref_log_probs": "reference_free",
}


class Answer(NamedTuple):
    """The ids of a prompt and of an answer to it, with the end of its turn."""

    prompt: list[int]
    answer: list[int]
    desirable: bool

    @property
    def tokens(self) -> int:
        return len(self.prompt) + len(self.answer)

    @property
    def longest(self) -> int:
        return self.tokens


def refuse_single_rows(folder: Path, micro: trainer.Schedule) -> None:
    """Raises UserError 7 for micro-batches of one row, which has no other prompt."""
    if micro.batch_size < 2:
        raise UserError(
            "kto needs two rows in a micro-batch, and they do not fit into memory.",
            "Lower --max-length, or take --load-in-4bit.",
            location=str(folder),
            exit_code=OUT_OF_MEMORY,
        )


def columns(rows: Sequence[Answer]) -> dict[str, list[Any]]:
    """As TRL's KTOTrainer takes them."""
    return {
        "prompt_ids": [row.prompt for row in rows],
        "completion_ids": [row.answer for row in rows],
        "KL_completion_ids": mismatched(rows),
        "label": [row.desirable for row in rows],
    }


def mismatched(rows: Sequence[Answer]) -> list[list[int]]:
    """For each row the answer of the nearest row before it, in a circle, that has another prompt;
    its own where there is no other prompt.
    """
    return [
        next(
            (
                rows[place - back].answer
                for back in range(1, len(rows))
                if rows[place - back].prompt != row.prompt
            ),
            row.answer,
        )
        for place, row in enumerate(rows)
    ]
