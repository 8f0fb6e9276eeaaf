"""The prompts of a prep that leave room for an answer, for the trainers that sample."""

from collections.abc import Sequence

from agentlite.config.settings import DistillSettings, GrpoSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import Record
from agentlite.data.curation.sample import sample
from agentlite.data.prompt_records import Prompts
from agentlite.rendering import Prompt, mixture_of, prompts
from agentlite.workspace.model_source import Source, load_template


def fitting_prompts(
    command: str,
    settings: GrpoSettings | DistillSettings,
    prepared: Prompts,
    source: Source,
    records: Sequence[Record],
    new_tokens: int,
) -> tuple[list[Prompt], int]:
    """Those of `limit` of the records that leave room for `new_tokens`, and how many do not. Raises
    UserError 2 if none does.
    """
    sampled = [records[index] for index in sample(records, settings.limit, settings.seed)]
    template = load_template(source.base)
    every = list(prompts(sampled, mixture_of(prepared.protocol, template).of, template))
    room = settings.max_length - new_tokens
    fitting = [prompt for prompt in every if len(prompt.ids) <= room]
    too_long = len(every) - len(fitting)
    if too_long:
        console.notice(f"{command}: {too_long} prompts are longer than {room} tokens and left out")
    if not fitting:
        raise UserError(
            f"holds no prompt of {room} tokens or fewer with tools.",
            "Raise --max-length, or run prep on rows with tools.",
            location=prepared.location,
        )
    return fitting, too_long
