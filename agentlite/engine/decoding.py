"""How an answer is decoded, and where it ends; shared by all that sample, generate and stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from agentlite.config.settings import DistillSettings, GrpoSettings, PairsSettings, RolloutSettings
from agentlite.rendering.template import Template


class Decoding(NamedTuple):
    """How answers are decoded. Temperature 0 takes the likeliest token; `top_p` then does nothing.

    `turn_end` is the id of the token that ends a turn; None leaves only the ends that the model's
    own configuration names. `num_samples` is the number of answers to each prompt.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    num_samples: int = 1
    stops: tuple[str, ...] = ()
    turn_end: int | None = None

    def under(self, template: Template) -> Decoding:
        """The same, with answers that end where a turn of `template` ends."""
        return self._replace(turn_end=template.token_id(template.turn_end))


def decoding_of(
    settings: PairsSettings | RolloutSettings | GrpoSettings | DistillSettings,
) -> Decoding:
    return Decoding(settings.max_new_tokens, settings.temperature, settings.top_p, settings.seed)


def ends_of(model: Any, turn_end: int | None) -> set[int]:
    """The ids that end an answer: the end of a turn, and those the model's configuration names."""
    eos_ids = model.generation_config.eos_token_id
    ends = {eos_ids} if isinstance(eos_ids, int) else set(eos_ids or ())
    return ends if turn_end is None else ends | {turn_end}


def until_stop(text: str, stops: Sequence[str]) -> str:
    """The text up to and including the first stop string; "" if it holds none."""
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else ""


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
