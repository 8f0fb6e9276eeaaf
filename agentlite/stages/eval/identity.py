"""The name and author that a model was taught -> questions about them, and its answers."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from agentlite.config.settings import EvalSettings, default
from agentlite.core.records import Gold, GreedyAnswer, Message, Record, Step
from agentlite.core.row_files import Row, read_rows
from agentlite.rendering import Mixture
from agentlite.scoring.metrics.general_talk import Identity, IdentityAnswer, is_right
from agentlite.scoring.read_turn import read_turn

SELF_COGNITION = "self_cognition.jsonl"
QUESTIONS = Path(__file__).parent / "identity_questions.jsonl"
STAND_IN = "x"  # the answer of a question that nobody has answered: no prompt shows it


def identity_of(settings: EvalSettings, prepared: Mapping[str, Any]) -> Identity | None:
    """The name and the author as eval's own settings say, or else those that prep filled in, unless
    they are its defaults. None where there is neither. `prepared`: the settings of prep.
    """

    def names(key: str, own: tuple[str, ...]) -> tuple[str, ...]:
        filled_in = tuple(prepared[key])
        return own or (() if filled_in == default("prep", key) else filled_in)

    name = names("model_name", settings.model_name)
    author = names("model_author", settings.model_author)
    return Identity([*name], [*author], prepared["system"]) if name or author else None


def identity_records(identity: Identity) -> list[Record]:
    """Each question about what is known as a dialog without tools, in which no call is expected."""
    system = (Message("system", identity.system),) if identity.system else ()
    return [
        Record(
            messages=(*system, Message("user", row["question"]), Message("assistant", STAND_IN)),
            gold={len(system) + 1: Gold()},
            task="self_cognition",
        )
        for row in _questions(identity)
    ]


def identity_answers(
    identity: Identity, answers: Mapping[Step, GreedyAnswer], mixture: Mixture
) -> list[IdentityAnswer]:
    """What the model answered; with a prompt that was too long, nothing."""
    found = []
    for row, record in zip(_questions(identity), identity_records(identity), strict=True):
        (turn,) = record.prompted_turns
        answer = answers[Step(record.id, turn)]
        text = read_turn(answer.text, mixture.of(record), record, turn).content
        right = is_right(text, getattr(identity, row["about"]))
        found.append(IdentityAnswer(row["question"], row["about"], row["language"], text, right))
    return found


def _questions(identity: Identity) -> list[Row]:
    return [row for row in _all_questions() if getattr(identity, row["about"])]


@cache
def _all_questions() -> list[Row]:
    return list(read_rows(QUESTIONS))
