"""finished prep, or an environment, + a model -> an adapter trained on its own scored answers."""

from collections.abc import Mapping
from pathlib import Path

from agentlite.config.settings import GrpoSettings
from agentlite.core import console
from agentlite.engine import deepspeed, grpo, ppo
from agentlite.engine.planning.suggest_fit import dry_run_memory
from agentlite.engine.refusals import refuse_contradictions
from agentlite.scoring.rewards.user_functions import UserFunctions, function_files
from agentlite.stages.frame import Figures
from agentlite.stages.grpo_prompts import PromptSampling
from agentlite.stages.grpo_tasks import TaskSampling
from agentlite.stages.training import train_stage
from agentlite.workspace.lineage import adapter_shape, longer_rows
from agentlite.workspace.run_folder import Result, RunTarget


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
    refuse_contradictions("grpo", settings)
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


def key_figure(figures: Mapping[str, object]) -> str:
    return f"reward {figures['first_reward']:.2f} -> {figures['last_reward']:.2f}"
