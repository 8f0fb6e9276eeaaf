"""an environment + a model -> trajectories: what it did in the world of each task; the scores."""

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from agentlite.config import this_machine
from agentlite.config.pipeline import DEFAULT_MODEL
from agentlite.config.settings import CPU_MODEL, GPU_MODEL, MakeSettings, RolloutSettings
from agentlite.core import console
from agentlite.core.errors import NETWORK, REJECTS, UserError, exceeds_share
from agentlite.core.records import digest
from agentlite.core.row_files import Appender, read_rows, write_json, write_rows
from agentlite.data.curation.split import split_of
from agentlite.engine import check_libraries
from agentlite.engine.decoding import decoding_of
from agentlite.engine.load import load_for_inference, loading_of
from agentlite.engine.local_sampler import sample
from agentlite.engine.remote import remote_source
from agentlite.engine.sampler import remote_rollout_answers, rollout_answers
from agentlite.environments.registry import Environment, environment
from agentlite.environments.rollout import (
    GOLD,
    Answers,
    RolloutAnswer,
    RolloutPrompt,
    RolloutSetup,
    gold_answers,
    roll,
)
from agentlite.environments.tasks import TASKS, EnvironmentTask, write_tasks
from agentlite.environments.trajectories import (
    LOST,
    TRAJECTORIES,
    RolloutKey,
    Trajectory,
    read_trajectories,
)
from agentlite.environments.world import WorldLimits
from agentlite.rendering import mixture_of
from agentlite.stages.frame import Work, plan_of, run_stage
from agentlite.workspace.input_files import file_digest, load_template
from agentlite.workspace.lookup import (
    Plan,
    Result,
    RunTarget,
    Source,
    find_model,
    lineage,
    system_prompt_of,
)
from agentlite.workspace.stage_folder import StageFolder

HOW_TO_GO_ON = (
    "Correct the environment and add --force; or raise call_seconds or max_failures (--set)."
)
ASK_AGAIN = "The same command goes on with these at that turn; or raise max_failures (--set)."


def run(settings: RolloutSettings, target: RunTarget) -> Result:
    """Every task is done `num_samples` times; the turns that were done are kept."""
    agent = make_agent(settings, find_actor(settings, target.run, target.old_plan), target.run)

    def work() -> Work:
        tasks = len(agent.tasks)
        stage = yield {"tasks": tasks, "rollouts": tasks * settings.num_samples}
        write_tasks(stage.folder, agent.tasks)
        rollouts = act(agent, stage, "rollout")
        write_rows(stage.folder / TRAJECTORIES, map(msgspec.to_builtins, rollouts))
        write_json(stage.folder / "stats.json", figures := _figures(rollouts))
        figures["lineage"] = actor_lineage(settings.model, target.run)
        return [TASKS, TRAJECTORIES, "stats.json"], figures

    best = ["--keep", "best"] if settings.num_samples > 1 else []
    prep = ["agentlite", "prep", "--from", target.out, *best, "--out", f"prep-{target.out}"]
    return run_stage(
        plan_of("rollout", settings, agent.inputs, protocol=agent.setup.protocol.name),
        target,
        work(),
        next_command=shlex.join(prep),
        keep=["*.jsonl"],
    )


def key_figure(figures: Mapping[str, Any]) -> str:
    means = [f"{name} {value:.2f}" for name, value in figures["scores"].items()]
    return ", ".join([f"{figures['rollouts']} rollouts", *means])


def _figures(rollouts: Sequence[Trajectory]) -> dict[str, Any]:
    """Counts, and the mean of each score over the rollouts whose world was not lost."""
    names = sorted({name for rollout in rollouts for name in rollout.scores})
    return {
        "tasks": len({rollout.task for rollout in rollouts}),
        "rollouts": len(rollouts),
        "ended": dict(Counter(rollout.ended for rollout in rollouts)),
        "turns": sum(len(rollout.turns) for rollout in rollouts),
        "calls": sum(rollout.calls for rollout in rollouts),
        "failed_calls": sum(rollout.failed_calls for rollout in rollouts),
        "scores": {
            name: fmean(rollout.scores[name] for rollout in rollouts if name in rollout.scores)
            for name in names
        },
    }


class Agent(NamedTuple):
    """A model and the tasks that it is to do. `file`: where its trajectories are kept."""

    settings: RolloutSettings
    tasks: list[EnvironmentTask]
    source: Source
    setup: RolloutSetup
    file: str = TRAJECTORIES

    @property
    def inputs(self) -> dict[str, str]:
        """Digests of the model and of the environment's files."""
        files = self.setup.environment.files.items()
        return {"model": self.source.digest, **{name: file_digest(path) for name, path in files}}


def rollout_settings(settings: msgspec.Struct, **changed: object) -> RolloutSettings:
    """Those that another command shares with rollouts, with these changed."""
    shared = {
        name: getattr(settings, name)
        for name in RolloutSettings.__struct_fields__
        if hasattr(settings, name)
    }
    return RolloutSettings(**{**shared, **changed})


def find_actor(settings: RolloutSettings, run: Path, plan: Plan | None) -> Source:
    """The model that acts, or that servers have; of the gold, the one whose template it takes."""
    base = protocol_model(settings.model, behind_servers=bool(settings.endpoint))
    if settings.endpoint:
        name = "" if settings.model in (GOLD, DEFAULT_MODEL) else settings.model
        return remote_source(name, settings, find_model(base, run))
    return find_model(base, run, plan)


def make_agent(settings: RolloutSettings, source: Source, run: Path) -> Agent:
    """Refuses an environment, tasks or settings that cannot be used; loads no model."""
    tasks_file = Path(settings.tasks) if settings.tasks else None
    env = environment(settings.env, tasks_file, settings.extra_tools, env_keep=settings.env_keep)
    tasks = _choose_tasks(settings, env)
    template = load_template(source.base)
    # no model reads the dialogs of the gold: how long one may be is for prep to say. A call is a
    # turn of its own there, so the limit of turns would cut what a model does in one
    is_gold = settings.model == GOLD
    setup = RolloutSetup(
        env,
        mixture_of(str(source.settings.get("protocol") or ""), template).heaviest,
        template,
        sys.maxsize if is_gold else settings.max_length - settings.max_new_tokens,
        sys.maxsize if is_gold else settings.max_turns,
        WorldLimits(settings.call_seconds, settings.world_memory),
        system_prompt_of(source.name, run),
    )
    return Agent(settings, tasks, source, setup)


def protocol_model(model: str, *, behind_servers: bool = False) -> str:
    """The model in whose protocol the dialogs of another are written: its own, unless that is the
    gold, or known to servers alone.
    """
    if model != GOLD and not behind_servers:
        return model
    return GPU_MODEL if this_machine.has_gpu() else CPU_MODEL


def actor_lineage(model: str, run: Path) -> list[str]:
    """The lineage of a model that acts. The gold has none, also where a stage is called so."""
    return [GOLD] if model == GOLD else lineage(model, run)


def _choose_tasks(settings: RolloutSettings, env: Environment) -> list[EnvironmentTask]:
    """The tasks of the split, or the first of a seeded order of them."""
    all_tasks = list(env.tasks())
    location = settings.tasks or f"--env {settings.env}"
    if not all_tasks:
        raise UserError("holds no task.", "Write one line for each.", location=location)
    by_id: dict[str, EnvironmentTask] = {}
    for task in all_tasks:
        if (first := by_id.setdefault(task.id, task)) is not task:
            first_at = f"first at {first.location}" if first.location else "first"
            raise UserError(
                f"task {task.id} appears twice, {first_at}.",
                'Leave one of them out, or give each its own "id".',
                location=task.location or location,
            )
    split = "" if settings.split == "all" else settings.split
    tasks = [
        msgspec.structs.replace(task, split=split)
        for task in all_tasks
        if not split or split_of_task(settings, task) == split
    ]
    if not tasks:
        raise UserError(
            f"none of {len(all_tasks)} tasks is in split {settings.split}.",
            "Raise the share of the split with --dev or --test, or take all: --split all.",
            location=location,
        )
    without_gold = next((task for task in tasks if task.gold is None), None)
    if settings.model == GOLD and without_gold:
        raise UserError(
            f"the right calls of task {without_gold.id} are not known.",
            'Write them under "gold", a list of calls for each turn of the user: '
            '[[{"name": ..., "arguments": {...}}]].',
            location=without_gold.location or location,
        )
    return sorted(tasks, key=lambda task: digest(f"{settings.seed} {task.id}"))[: settings.limit]


def split_of_task(settings: RolloutSettings | MakeSettings, task: EnvironmentTask) -> str:
    """The split does not depend on --seed, so that other rollouts, and dialogs that are made, never
    reach the test tasks.
    """
    return split_of(task.group or task.id, {"test": settings.test, "dev": settings.dev}, seed=0)


def act(agent: Agent, stage: StageFolder, command: str) -> list[Trajectory]:
    """All trajectories, in the order of the tasks: those that are stored and those that are
    missing. Raises UserError where no prompt fits, and where too many worlds are lost.

    trajectories.jsonl gets a rollout when it ends, trajectories.answers.jsonl each answer when it
    comes. A run that was killed plays those that had not ended again, in fresh worlds with the
    answers that it has. The file of answers goes when all have ended.
    """
    settings, path = agent.settings, stage.folder / agent.file
    answers_path = path.with_suffix(".answers.jsonl")
    stage.set_aside_changed(agent.file)
    order = [
        (task, RolloutKey(task.id, number))
        for task in agent.tasks
        for number in range(settings.num_samples)
    ]
    with (
        Appender(path) as rollout_log,
        Appender(answers_path) as answer_log,
        console.progress(command, len(order)) as advance,
    ):
        stored = {rollout.key: rollout for rollout in read_trajectories(path)}
        # those without an answer go on where they were: their answers are kept
        rollouts = {
            key: stored[key]
            for _, key in order
            if key in stored and stored[key].ended != "unanswered"
        }
        if waiting := [(task, key.sample) for task, key in order if key not in rollouts]:
            stage.reopen()
            # one without an answer has a row already, and gets another
            stage.expect_rows(agent.file, len(stored) + len(waiting))
            note = f", {len(rollouts)} there already" if rollouts else ""
            console.notice(
                f"{command}: {len(order)} rollouts of {settings.model} in {settings.env}{note}"
            )
            turns = count(1)
            answers = keep_answers(
                _answers(agent),
                answer_log,
                lambda: advance(len(rollouts), f"{next(turns):,} turns"),
            )
            servers = settings.requests.concurrency * len(settings.endpoint)
            for rollout in roll(agent.setup, waiting, answers, max(settings.batch_size, servers)):
                rollout_log.append(msgspec.to_builtins(rollout))
                rollouts[rollout.key] = rollout
                lost = [rollout for rollout in rollouts.values() if rollout.ended in LOST]
                if exceeds_share(len(lost), len(order), settings.max_failures):
                    raise lost_error(agent, lost, len(rollouts))
            advance(len(rollouts))
    if all(rollout.ended == "length" and not rollout.turns for rollout in rollouts.values()):
        raise UserError(
            f"every task's first prompt, with its tools, is longer than {agent.setup.room} tokens.",
            f"Raise --max-length, as in --max-length {4 * settings.max_length} --force; or offer "
            "fewer tools.",
            location=settings.env,
        )
    answers_path.unlink()
    return [rollouts[key] for _, key in order]


def keep_answers(answers: Answers, file: Appender, on_answer: Callable[[], None]) -> Answers:
    """Writes each answer down with a digest of what it answers, and calls `on_answer`. Those that
    are there already are given first, and nobody is asked for them: a run that was stopped goes on.
    """
    stored = {
        row["to"]: msgspec.convert(row["answer"], RolloutAnswer) for row in read_rows(file.path)
    }

    def answer_prompts(prompts: Sequence[RolloutPrompt]) -> Iterator[RolloutAnswer]:
        # of all that the answer depends on: a world that says something else is answered anew
        digests = [digest(f"{prompt.key} {prompt.turn} {prompt.ids}") for prompt in prompts]
        if answered := [index for index, key in enumerate(digests) if key in stored]:
            # the others are asked next time, beside the prompts that follow on these
            yield from (stored[digests[index]]._replace(prompt=index) for index in answered)
            return
        for answer in answers(prompts):
            if not answer.problem:
                content = answer._replace(log_probabilities=())
                file.append({"to": digests[answer.prompt], "answer": content})
            yield answer
            on_answer()

    return answer_prompts


def _answers(agent: Agent) -> Answers:
    """What answers a batch of prompts: the model, which is loaded, or the gold."""
    protocol = agent.setup.protocol
    if agent.settings.model == GOLD:
        return gold_answers(agent.tasks, protocol, agent.setup.template)
    settings, source = agent.settings, agent.source
    decoding = decoding_of(settings)
    if source.endpoints:
        return partial(remote_rollout_answers, source=source, protocol=protocol, decoding=decoding)
    check_libraries(settings.engine)
    decoding = decoding.under(agent.setup.template)
    loaded = load_for_inference(source, loading_of(settings))
    return partial(rollout_answers, partial(sample, loaded), protocol=protocol, decoding=decoding)


def lost_error(agent: Agent, lost: Sequence[Trajectory], count: int) -> UserError:
    """What ends a run of which too many worlds or answers are lost; `count`: its rollouts."""
    loss, fix, exit_code = (
        ("no answer to a turn", ASK_AGAIN, NETWORK)
        if lost[0].ended == "unanswered"
        else ("lost their world", HOW_TO_GO_ON, REJECTS)
    )
    location = " ".join(agent.settings.endpoint) if exit_code == NETWORK else agent.settings.env
    task = next(task.name for task in agent.tasks if task.id == lost[0].task)
    problem = f"{len(lost)} of {count} rollouts have {loss}; the first: {lost[0].problem} "
    return UserError(f"{problem}(task {task}).", fix, location=location, exit_code=exit_code)
