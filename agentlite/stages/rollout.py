"""an environment + a model -> trajectories: what it did in the world of each task; the scores."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from agentlite.config import gpu_profiles, resolve
from agentlite.config.settings import CPU_MODEL, GPU_MODEL, RolloutSettings
from agentlite.core import console
from agentlite.core.errors import REJECTS, UserError
from agentlite.core.records import digest
from agentlite.core.row_files import Appender, write_json, write_rows
from agentlite.data.curation.split import split_of
from agentlite.engine import check_libraries
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import loading_of
from agentlite.environments.gold import GOLD, gold_answers, gold_turns
from agentlite.environments.kinds import Environment, environment
from agentlite.environments.rollout import RolloutSetup, roll
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import (
    RolloutKey,
    Trajectory,
    read_trajectories,
    read_turns,
)
from agentlite.environments.world import WorldLimits
from agentlite.rendering import choose, settled
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.lineage import lineage, setting_of, system_of
from agentlite.workspace.model_source import Source, find_model, load_template
from agentlite.workspace.run_folder import Plan, Result, RunTarget, StageFolder

TURNS, TRAJECTORIES = "turns.jsonl", "trajectories.jsonl"
# how it is done, not what comes out
NOT_OF_THE_PLAN = ("batch_size", "max_failures", "world_memory")


def run(settings: RolloutSettings, target: RunTarget) -> Result:
    """Every task is done `num_samples` times. Raises UserError 2, 3, 4, 5, 7, 74 or 75; the turns
    that were done are kept.
    """
    tasks_file = Path(settings.tasks) if settings.tasks else None
    acting = environment(settings.env, tasks_file, settings.extra_tools)
    tasks = _chosen(settings, acting)
    source = find_model(_written_for(settings), target.run, target.begun)
    setup = _setup(settings, acting, source, target.run)
    plan = Plan(
        "rollout",
        {**resolve.plain_settings(settings, NOT_OF_THE_PLAN), "protocol": setup.protocol.name},
        {"model": source.digest, **_files(acting)},
        run_folder.versions(),
    )
    count = len(tasks) * settings.num_samples
    if target.dry_run:
        status = "new" if target.force else run_folder.compare(target.folder, plan)
        figures = {"folder": status, "tasks": len(tasks), "rollouts": count}
        return Result("rollout", "dry run", str(target.folder), figures, [], 0.0)
    with (
        console.stdout_to_stderr(),
        run_folder.open_stage(target.folder, plan, force=target.force) as stage,
    ):
        if stage.status != "done":
            if settings.model != GOLD:
                check_libraries(settings.engine)
            done = _roll(settings, setup, source, tasks, stage)
            write_rows(stage.folder / TRAJECTORIES, map(msgspec.to_builtins, done))
            write_json(stage.folder / "stats.json", figures := _figures(done))
            is_gold = settings.model == GOLD
            models = {"lineage": [GOLD] if is_gold else lineage(settings.model, target.run)}
            stage.finish([TRAJECTORIES, "stats.json"], {**figures, **models})
            (stage.folder / TURNS).unlink(missing_ok=True)  # each is in its trajectory
        best = " --keep best" if settings.num_samples > 1 else ""
        learn = f"agentlite prep --from {target.out}{best} --out prep-{target.out}"
        return stage.result(target.next(learn))


def key_figure(figures: Mapping[str, Any]) -> str:
    means = [f"{name} {value:.2f}" for name, value in figures["scores"].items()]
    return ", ".join([f"{figures['rollouts']} rollouts", *means])


def _chosen(settings: RolloutSettings, acting: Environment) -> list[EnvironmentTask]:
    """The tasks, or the first of a seeded order of them. Raises UserError 2 where there is none, or
    two have one id.
    """
    tasks = list(acting.tasks())
    location = settings.tasks or f"--env {settings.env}"
    if not tasks:
        raise UserError("holds no task.", "Write one line for each.", location=location)
    twice = [name for name, times in Counter(task.id for task in tasks).items() if times > 1]
    if twice:
        raise UserError(
            f"{len(twice)} tasks are there twice, {twice[0]} among them.",
            'Leave one of each out, or give each its own "id".',
            location=location,
        )
    if settings.split != "all":
        tasks = [
            one for task in tasks if (one := _with_split(settings, task)).split == settings.split
        ]
    if settings.model == GOLD and (
        unknown := next((one for one in tasks if one.gold is None), None)
    ):
        raise UserError(
            f"the right calls of task {unknown.id} are not known.",
            'Write them under "gold", a list of calls for each turn of the user: '
            '[[{"name": ..., "arguments": {...}}]].',
            location=location,
        )
    order = sorted(tasks, key=lambda task: digest(f"{settings.seed} {task.id}"))
    return order[: settings.limit]


def _with_split(settings: RolloutSettings, task: EnvironmentTask) -> EnvironmentTask:
    """The split does not depend on --seed, so that other rollouts never reach the test tasks."""
    fractions = {"test": settings.test, "dev": settings.dev}
    return task._replace(split=split_of(task.group or task.id, fractions, seed=0))


def _written_for(settings: RolloutSettings) -> str:
    """The model in whose protocol the dialogs are written."""
    if settings.model != GOLD:
        return settings.model
    return GPU_MODEL if gpu_profiles.has_gpu() else CPU_MODEL


def _setup(
    settings: RolloutSettings, acting: Environment, source: Source, run: Path
) -> RolloutSetup:
    """Raises UserError 2 where an answer leaves no room for a prompt."""
    name = _written_for(settings)
    room = settings.max_length - settings.max_new_tokens
    if room <= 0:
        raise UserError(
            f"leaves no room for a prompt: max_length is {settings.max_length}.",
            "Lower it, or raise --max-length.",
            location="rollout.max_new_tokens",
        )
    template = load_template(source.base)
    trained = setting_of(name, "protocol", run)
    mixture = settled(trained, template) if trained else choose("auto", template)
    # of a model that was trained in several: the one it has seen most of
    heaviest = max(mixture.weights, key=lambda name: mixture.weights[name])
    return RolloutSetup(
        acting,
        mixture.protocols[heaviest],
        template,
        # no model reads the dialogs of the gold: how long one may be is for prep to say
        sys.maxsize if settings.model == GOLD else room,
        settings.max_turns,
        WorldLimits(settings.call_seconds, settings.world_memory),
        system_of(name, run),
    )


def _files(acting: Environment) -> dict[str, str]:
    """The content of the environment's files; BFCL's come with a package, whose version is in the
    plan's settings by its name.
    """
    if acting.tasks_file is None:
        return {}
    return {
        "env": file_digest(Path(acting.named.file)),
        "tasks": file_digest(acting.tasks_file),
    }


def _roll(
    settings: RolloutSettings,
    setup: RolloutSetup,
    source: Source,
    tasks: Sequence[EnvironmentTask],
    stage: StageFolder,
) -> list[Trajectory]:
    """All trajectories, in the order of the tasks: those that are there and those that are missing,
    which are appended turn by turn. Raises UserError 4 where too many worlds are lost.
    """
    from agentlite.engine.act import answers
    from agentlite.engine.load import load_for_inference

    path = stage.folder / TRAJECTORIES
    stage.set_aside_changed(TRAJECTORIES)
    order = [
        (task, RolloutKey(task.id, number))
        for task in tasks
        for number in range(settings.num_samples)
    ]
    stage.expect(TRAJECTORIES, len(order))
    decoding = Decoding(
        settings.max_new_tokens, settings.temperature, settings.top_p, settings.seed
    ).under(setup.template)
    with Appender(path) as ended, Appender(stage.folder / TURNS) as turns:
        done = {one.key: one for one in read_trajectories(path)}
        waiting = [(task, key.sample) for task, key in order if key not in done]
        there = f", {len(done)} there already" if done else ""
        console.notice(
            f"rollout: {len(order)} rollouts of {settings.model} in {settings.env}{there}"
        )
        if not waiting:
            return [done[key] for _, key in order]
        if settings.model == GOLD:
            ask = partial(
                gold_answers, {task.id: gold_turns(task) for task in tasks}, protocol=setup.protocol
            )
        else:
            loaded = load_for_inference(source, loading_of(settings))
            ask = partial(answers, loaded, protocol=setup.protocol, decoding=decoding)
        with console.progress("rollout", len(order)) as advance:
            for one in roll(
                setup,
                waiting,
                read_turns(stage.folder / TURNS),
                ask,
                settings.batch_size,
            ):
                if isinstance(one, Trajectory):
                    ended.append(msgspec.to_builtins(one))
                    done[one.key] = one
                    _refuse_lost(settings, done, len(order))
                    advance(len(done))
                else:
                    turns.append(msgspec.to_builtins(one))
    return [done[key] for _, key in order]


def _refuse_lost(
    settings: RolloutSettings, done: Mapping[RolloutKey, Trajectory], count: int
) -> None:
    """Ends the run where more worlds are lost than may be."""
    lost = [one for one in done.values() if one.ended == "world"]
    if len(lost) > settings.max_failures * count:
        raise UserError(
            f"{len(lost)} of {len(done)} rollouts have lost their world; the first: "
            f"{lost[0].problem} (task {lost[0].task}).",
            "Correct the environment and add --force; or raise --call-seconds or --max-failures.",
            location=settings.env,
            exit_code=REJECTS,
        )


def _figures(done: Sequence[Trajectory]) -> dict[str, Any]:
    """Counts, and the mean of each score over the rollouts whose world was not lost."""
    names = sorted({name for one in done for name in one.scores})
    scored = [one for one in done if one.scores]
    return {
        "tasks": len({one.task for one in done}),
        "rollouts": len(done),
        "ended": dict(Counter(one.ended for one in done)),
        "turns": sum(len(one.turns) for one in done),
        "calls": sum(one.calls for one in done),
        "failed_calls": sum(one.failed_calls for one in done),
        "scores": {
            name: fmean(one.scores[name] for one in scored if name in one.scores) for name in names
        },
    }
