"""A command's settings and its base model -> what a `--dry-run` says of memory on this machine."""

from typing import Any

from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.engine.planning.estimate import load_of, needed
from agentlite.engine.planning.gpus import machine_of
from agentlite.engine.planning.memory import memory
from agentlite.engine.planning.model_shape import find_shape
from agentlite.engine.planning.suggest_fit import fitting


def dry_run_memory(command: str, settings: Any, base: str, longest: int) -> dict[str, Any]:
    """GiB by term, or why that is not known; a notice of the nearest settings that fit where these
    do not.

    `longest`: tokens of the longest row, prompt and answer together; 0: unknown.
    """
    try:
        shape = find_shape(base)
    except UserError as error:
        return {"unknown": error.problem}
    machine = machine_of("auto")
    found = needed(memory(load_of(command, settings, shape, machine.gpu, longest)), machine)
    if not found.fits:
        near = [
            one.paste for one in fitting(command, settings, shape, machine, longest) if one.paste
        ]
        console.notice(
            f"{command}: {found.total} GiB are more than is safe in {found.of}; "
            f"{f'what fits: {near[0]}' if near else 'take a smaller model'}"
        )
    return {**found.terms, "total": found.total, "of": found.of, "fits": found.fits}
