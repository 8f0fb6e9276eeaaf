"""Records -> the prompts that leave room for an answer, for the stages that sample."""

from collections.abc import Sequence

from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import Record
from agentlite.rendering import Mixture, Prompt, prompts
from agentlite.rendering.template import Template


def fitting_prompts(
    command: str,
    records: Sequence[Record],
    mixture: Mixture,
    template: Template,
    room: int,
    location: str,
) -> tuple[list[Prompt], int]:
    """Those of at most `room` tokens, and how many are longer. Raises UserError if none fits."""
    with console.waiting(f"{command}: writing the prompts of {len(records)} records"):
        every = list(prompts(records, mixture.of, template))
    fitting = [prompt for prompt in every if len(prompt.ids) <= room]
    too_long = len(every) - len(fitting)
    if too_long:
        console.notice(f"{command}: {too_long} prompts are longer than {room} tokens and left out")
    if not fitting:
        raise UserError(
            f"holds no prompt of {max(0, room)} tokens or fewer with tools.",
            "Raise --max-length, or run prep on rows with tools.",
            location=location,
        )
    return fitting, too_long
