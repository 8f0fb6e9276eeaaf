"""The prompts of a prep that leave room for an answer, for the trainers that sample."""

from collections.abc import Iterable
from typing import NamedTuple

from agentlite.config.settings import DistillSettings, GrpoSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import Record
from agentlite.data.curation.sample import sample
from agentlite.data.prompt_records import Prompts
from agentlite.rendering import Prompt, prompts, settled
from agentlite.workspace.model_source import Source, load_template


class Fitting(NamedTuple):
    """The prompts that leave room for an answer, and how many do not."""

    prompts: list[Prompt]
    too_long: int

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(len(prompt.ids) for prompt in self.prompts)


def fitting_prompts(
    command: str,
    settings: GrpoSettings | DistillSettings,
    prepared: Prompts,
    source: Source,
    records: Iterable[Record],
    new_tokens: int,
) -> Fitting:
    """Of `limit` of the records. Raises UserError 2 if no prompt leaves room for `new_tokens`."""
    prompted = list(records)
    sampled = [prompted[index] for index in sample(prompted, settings.limit, settings.seed)]
    template = load_template(source.base)
    every = list(prompts(sampled, settled(prepared.protocol, template).of, template))
    room = settings.max_length - new_tokens
    fitting = [prompt for prompt in every if len(prompt.ids) <= room]
    if len(fitting) < len(every):
        console.notice(
            f"{command}: {len(every) - len(fitting)} prompts are longer than {room} tokens and "
            "left out"
        )
    if not fitting:
        raise UserError(
            f"holds no prompt of {room} tokens or fewer with tools.",
            "Raise --max-length, or run prep on rows with tools.",
            location=prepared.location,
        )
    return Fitting(fitting, len(every) - len(fitting))


def refuse_no_room(command: str, settings: GrpoSettings | DistillSettings) -> None:
    """Raises UserError 2 where an answer may fill all of max_length."""
    if settings.max_new_tokens >= settings.max_length:
        raise UserError(
            f"leaves no room for a prompt: max_length is {settings.max_length}.",
            "Lower it, or raise --max-length.",
            location=f"{command}.max_new_tokens",
        )
