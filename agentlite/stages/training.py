"""The frame of the trainer stages: from a model and settings to an adapter in a finished folder."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agentlite.config.settings import DistillSettings, DpoSettings, Engine, TrainerSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.engine import check_libraries, coordinate, deepspeed
from agentlite.engine.load import loading_of, refuse_unusable
from agentlite.engine.refusals import refuse_unfit
from agentlite.engine.trackers import check_trackers
from agentlite.stages.frame import Figures, plan_of, run_stage
from agentlite.workspace.lineage import (
    adapter_shape,
    lineage,
    longer_rows,
    refuse_circle,
    refuse_other_adapter,
    setting_of,
)
from agentlite.workspace.model_source import Source, trained_files
from agentlite.workspace.run_folder import Result, RunTarget, StageFolder


def train_stage(
    command: str,
    settings: TrainerSettings,
    target: RunTarget,
    source: Source,
    *,
    protocol: str,
    inputs: Mapping[str, str],
    check: Callable[[], None],
    dry_run: Callable[[], Figures],
    train: Callable[[Path], Figures],
    outputs: Sequence[str] = (),
    keep: Sequence[str] = (),
    forget: Sequence[str] = (),
    evaluate: str = "",
) -> Result:
    """Refuses what does not go together, then trains in the frame of a stage.

    `inputs`: digests of what is read, without the model. `check` builds what the libraries are
    configured with, before anything is read, where settings are passed on to them. `train` fills
    the folder and returns the figures; `outputs` are the files it writes next to the weights and
    metrics.jsonl. `dry_run`, `keep` and `forget`: see `frame.run_stage`. `evaluate`: options of the
    command that is suggested next.
    """
    inputs = {**inputs, "model": source.digest, **deepspeed.inputs(settings)}
    plan = plan_of(command, settings, inputs, protocol=protocol)
    refuse_circle(settings.model, target)
    refuse_other_adapter(command, settings, source, target.run)
    refuse_unfit(command, settings, source)
    refuse_unusable(loading_of(settings))
    check_trackers(settings.report_to)
    # only these can be refused; without them the rows are read first, which takes no libraries
    passes_on = bool(settings.trl or settings.peft)
    if target.dry_run and passes_on:
        check_if_installed(command, settings.engine, check)

    def work(stage: StageFolder) -> tuple[list[str], Figures]:
        coordinate.go()  # the checks above were the first process's alone; the others may begin
        if passes_on:
            check()
        models = [*lineage(settings.model, target.run), stage.folder.name]
        figures = train(stage.folder)
        files = [*trained_files(stage.folder, source.base), "metrics.jsonl", *outputs]
        return files, {**figures, "lineage": models}

    names = shlex.join(["--model", source.name, "--model", target.out])
    return run_stage(
        plan,
        target,
        dry_run=dry_run,
        before_work=lambda: check_libraries(settings.engine),
        work=work,
        keep=["checkpoints/checkpoint-*", *keep],
        forget=forget,
        next_command=f"agentlite eval {names}{evaluate}",
    )


def inherited_from_data(
    command: str, settings: DpoSettings | DistillSettings, run: Path
) -> dict[str, tuple[object, str]]:
    """The model of the data and the length of its rows, and the shape of the adapter that is
    continued.
    """
    model = settings.model or str(setting_of(settings.data, "model", run) or "")
    return {
        **({"model": (model, settings.data)} if model else {}),
        **longer_rows(command, settings.data, run),
        **adapter_shape(model, run),
        **deepspeed.inherited(command, settings),
    }


def check_if_installed(command: str, engine: Engine, check: Callable[[], None]) -> None:
    """For a dry run, which needs no library. Raises what `check` raises."""
    try:
        check_libraries(engine)
    except UserError as error:
        return console.notice(f"{command}: trl and peft are not checked: {error.problem}")
    with console.stdout_to_stderr():
        check()


def evaluated_on(data: str) -> str:
    """The option of eval that names the prep a stage was trained on."""
    return "" if data == "prep" else f" --data {shlex.quote(data)}"


def refuse_longer(
    lengths: Mapping[str, int], max_length: int, what: str, or_else: str = ""
) -> None:
    """Raises UserError 2 if something is longer than `max_length`, and names the longest.

    `lengths`: in tokens, by file and line; `what`: it is a row, a pair or an answer; `or_else`:
    what helps as well.
    """
    longer = [length for length in lengths.values() if length > max_length]
    if longer:
        location = max(lengths, key=lengths.__getitem__)
        are = f"1 {what} is" if len(longer) == 1 else f"{len(longer)} of {len(lengths)} {what}s are"
        raise UserError(
            f"{are} longer than max_length ({max_length}). The longest has {max(longer)} tokens.",
            f"Raise it: --max-length {max(longer)}{or_else and ', ' + or_else}.",
            location=location,
        )
