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

from agentlite.config.settings import DpoSettings
from agentlite.core.errors import OUT_OF_MEMORY, UserError
from agentlite.engine import adapter, trainer
from agentlite.engine.load import Loaded

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


def arguments(settings: DpoSettings, folder: Path, micro: trainer.Schedule) -> Any:
    """The configuration of TRL's trainer: a KTOConfig. Raises UserError 7 for micro-batches of one
    row, which has no other prompt.
    """
    from trl import KTOConfig

    if micro.batch_size < 2:
        raise UserError(
            "kto needs two rows in a micro-batch, and they do not fit into memory.",
            "Lower --max-length, or take --load-in-4bit.",
            location=str(folder),
            exit_code=OUT_OF_MEMORY,
        )
    shared = trainer.arguments(settings, folder, micro, with_dev=False)
    own = {
        "beta": settings.beta,
        "desirable_weight": settings.desirable_weight,
        "undesirable_weight": settings.undesirable_weight,
        "max_length": settings.max_length,
        **adapter.reference(settings),
    }
    return trainer.configuration(KTOConfig, {**own, **shared})


def make_trainer(
    loaded: Loaded, settings: DpoSettings, configuration: Any, rows: Sequence[Answer]
) -> Any:
    """A KTOTrainer over rows that are tokenised and in order already. `configuration`: its
    `arguments`.
    """
    from datasets import Dataset
    from trl import KTOTrainer

    class TokenisedAnswers(trainer.warming_up(adapter.uncast(KTOTrainer))):  # type: ignore[misc]  # untyped
        def _prepare_dataset(self, dataset: Any, *_: object, **__: object) -> Any:
            return dataset

    columns = {
        "prompt_ids": [row.prompt for row in rows],
        "completion_ids": [row.answer for row in rows],
        "KL_completion_ids": mismatched(rows),
        "label": [row.desirable for row in rows],
    }
    trl_trainer = TokenisedAnswers(
        model=adapter.adapted(loaded, settings),
        args=configuration,
        train_dataset=Dataset.from_dict(columns),
        processing_class=loaded.tokenizer,
    )
    adapter.keep_reference(trl_trainer.model)
    return trl_trainer


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
