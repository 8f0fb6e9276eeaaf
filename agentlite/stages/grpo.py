"""finished prep, or an environment, + a model -> an adapter trained on its own scored answers."""

import math
from collections.abc import Mapping
from pathlib import Path

from agentlite.config.settings import GrpoSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.engine import deepspeed, grpo, ppo
from agentlite.engine.planning.dry_run import dry_run_memory
from agentlite.scoring.rewards.user_functions import UserFunctions, function_files
from agentlite.stages.frame import Figures
from agentlite.stages.grpo_prompts import PromptSampling
from agentlite.stages.grpo_tasks import TaskSampling
from agentlite.stages.training import train_stage
from agentlite.stages.training_prompts import refuse_no_room
from agentlite.workspace.lineage import adapter_shape, longer_rows
from agentlite.workspace.run_folder import Result, RunTarget

# what PPO has no part of, and the values that leave it alone
OF_GROUPS: dict[str, object] = {
    "env": "",
    "vllm": False,
    "rest_epochs": None,
    "full": False,
    "loss_type": "dapo",
    "scale_rewards": "group",
}


def inherit(settings: GrpoSettings, run: Path) -> dict[str, tuple[object, str]]:
    """The length of prep's rows, and the shape of the adapter that is continued."""
    return {
        **({} if settings.env else longer_rows("grpo", settings.data, run)),
        **adapter_shape(settings.model, run),
        **deepspeed.inherited("grpo", settings),
    }


def run(settings: GrpoSettings, target: RunTarget) -> Result:
    """Answers to recorded prompts, or rollouts of the tasks of an environment, are sampled, scored
    and learned from; what each is compared with is the engine's.
    """
    _refuse_sizes(settings)
    if settings.advantage == "value":
        _refuse_for_ppo(settings)
    engine = ppo if settings.advantage == "value" else grpo
    functions = UserFunctions(settings.rewards, settings.reward_seconds, settings.reward_memory)
    names = [named.function for named in functions.code.named]
    sampling: TaskSampling | PromptSampling = (
        TaskSampling(settings, target) if settings.env else PromptSampling(settings, names, target)
    )

    def train(folder: Path) -> Figures:
        with functions as components:
            sampling.read(components)
            console.notice(
                f"grpo: {sampling.count} {sampling.what}, groups of {settings.group_size}"
            )
            with sampling.log(folder) as log:
                figures = engine.train(sampling.source, settings, folder, log.task)
        return {sampling.unit: log.count, **figures, **log.figures(), **sampling.left_out}

    def dry_run() -> Figures:
        """How many steps and answers there would be, and how much memory they take."""
        with functions as components:
            sampling.read(components)
        planned = grpo.schedule(settings, sampling.count)
        return {
            sampling.unit: sampling.count,
            "steps": planned.steps,
            sampling.sampled: planned.rows,
            **sampling.left_out,
            **sampling.longest,
            "memory_gib": dry_run_memory(
                "grpo", settings, sampling.source.base, sampling.longest_row
            ),
        }

    return train_stage(
        "grpo",
        settings,
        target,
        sampling.source,
        protocol=sampling.protocol,
        inputs={**sampling.inputs, **function_files(settings.rewards)},
        check=lambda: engine.check(settings),
        dry_run=dry_run,
        train=train,
        outputs=sampling.outputs,
        keep=sampling.keep,
        forget=sampling.forget,
        evaluate=sampling.evaluate,
    )


def _refuse_sizes(settings: GrpoSettings) -> None:
    """A step is whole groups, and an answer leaves room for its prompt."""
    answers = settings.batch_size * settings.gradient_accumulation
    if answers % settings.group_size:
        fits = [str(size) for size in range(2, answers + 1) if answers % size == 0]
        raise UserError(
            f"a step holds {answers} answers (batch_size x gradient_accumulation), no whole groups "
            "of it.",
            f"Take one of {', '.join(fits)}.",
            location="grpo.group_size",
        )
    refuse_no_room("grpo", settings)


def _refuse_for_ppo(settings: GrpoSettings) -> None:
    """PPO has no part of groups, and its rounds are whole steps."""
    for key, fixed in OF_GROUPS.items():
        if getattr(settings, key) != fixed:
            raise UserError(
                "does not go with --advantage value.",
                "Leave one of the two out.",
                location=f"grpo.{key}",
            )
    answers = settings.batch_size * settings.gradient_accumulation
    rows = math.lcm(answers, settings.group_size)
    if settings.rollouts % rows:
        near = max(1, round(settings.rollouts / rows)) * rows
        raise UserError(
            f"a round of {settings.rollouts} answers is not whole steps of {answers} and whole "
            f"groups of {settings.group_size}.",
            f"Take a multiple of {rows}, such as {near}.",
            location="grpo.rollouts",
        )


def key_figure(figures: Mapping[str, object]) -> str:
    return f"reward {figures['first_reward']:.2f} -> {figures['last_reward']:.2f}"
