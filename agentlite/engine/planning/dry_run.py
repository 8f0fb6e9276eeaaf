"""What a `--dry-run` says about memory: the need by term, and settings that would fit."""

from pathlib import Path

from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.engine.planning.estimate import load_of, machine_left, needed, whole
from agentlite.engine.planning.gpus import machine_of
from agentlite.engine.planning.memory import memory
from agentlite.engine.planning.model_shape import find_shape, with_teacher
from agentlite.engine.planning.suggest_fit import fitting


def dry_run_memory(
    command: str, settings: object, base: str, longest: int, run: Path | None = None
) -> dict[str, object]:
    """GiB by term, or why they are not known. Where the settings do not fit, a notice names the
    nearest that do.

    `longest`: tokens of the longest row, prompt and answer together; 0: unknown. `run`: where the
    teacher is, if the settings name one.
    """
    try:
        shape = with_teacher(find_shape(base), settings, run or Path())
    except UserError as error:
        return {"unknown": error.problem}
    machine = machine_of("auto")
    load = load_of(command, settings, shape, machine.gpu, longest, whole(machine))
    need = needed(memory(load), machine_left(settings, machine))
    if not need.fits:
        rows = fitting(command, settings, shape, machine, longest)
        fitting_settings = next((row.paste for row in rows if row.paste), "")
        console.notice(
            f"{command}: {need.total} GiB are more than is safe in {need.of}; "
            f"{f'what fits: {fitting_settings}' if fitting_settings else 'take a smaller model'}"
        )
    return {**need.terms, "total": need.total, "of": need.of, "fits": need.fits}
