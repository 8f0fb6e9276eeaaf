"""finished prep, or an environment, + a model -> an adapter trained on its own scored answers."""

import os
from collections.abc import Mapping
from functools import partial

from agentlite.config.settings import GrpoSettings
from agentlite.core import console
from agentlite.engine import grpo, ppo
from agentlite.engine.refusals import ppo_cases, refuse, sampling_cases, vllm_cases
from agentlite.scoring.rewards.scorer import UserFunctions, function_files
from agentlite.stages.grpo_prompts import PromptSampling
from agentlite.stages.grpo_tasks import TaskSampling
from agentlite.stages.training import Training, inherit_settings, train_stage
from agentlite.workspace.lookup import Result, RunTarget

inherit = partial(inherit_settings, "grpo")
Sampling = PromptSampling | TaskSampling


def run(settings: GrpoSettings, target: RunTarget) -> Result:
    """Answers to recorded prompts, or rollouts of the tasks of an environment, are sampled, scored
    and learned from; what each is compared with is the engine's.
    """
    refuse("grpo", sampling_cases(settings), ppo_cases(settings), vllm_cases(settings))
    os.environ.update({grpo.LEVERS[name]: "1" for name in settings.vllm_levers})
    functions = UserFunctions(settings.rewards, settings.reward_seconds, settings.reward_memory)
    names = [function.name for function in functions.code.functions]
    sampling: Sampling = (
        TaskSampling(settings, target) if settings.env else PromptSampling(settings, names, target)
    )
    return train_stage(
        "grpo",
        settings,
        target,
        sampling.source,
        train(settings, sampling, functions),
        protocol=sampling.protocol,
        inputs={**sampling.inputs, **function_files(settings.rewards)},
        outputs=sampling.outputs,
        keep=sampling.keep,
        eval_options=sampling.eval_options,
    )


def train(settings: GrpoSettings, sampling: Sampling, functions: UserFunctions) -> Training:
    """Reads the prompts or tasks, and yields what is known of the steps; then trains."""
    with functions as user_functions:
        figures, longest = sampling.read(user_functions)
        plan = grpo.schedule(settings, sampling.count)
        counts = {sampling.unit: sampling.count, "steps": plan.steps}
        folder = yield {**counts, sampling.sample_unit: plan.rows, **figures}, longest
        console.notice(f"grpo: {sampling.count} {sampling.unit}, groups of {settings.group_size}")
        make_trainer = ppo.make_trainer if settings.advantage == "value" else None
        new_task = partial(begin_task, sampling)
        with sampling:
            figures = grpo.train(sampling.source, settings, folder, new_task, make_trainer)
        return {sampling.unit: sampling.count, **figures, **sampling.figures()}


def begin_task(sampling: Sampling) -> grpo.GrpoTask:
    """What the engine learns from, made anew for each trainer: a trainer goes on from the last
    checkpoint, so that the log is cut back to it, and counted again.
    """
    sampling.__exit__()
    sampling.__enter__()
    return grpo.GrpoTask(
        sampling.count, sampling.sample, sampling.weights, sampling.halt, sampling.is_live
    )


def key_figure(figures: Mapping[str, object]) -> str:
    return f"reward {figures['first_reward']:.2f} -> {figures['last_reward']:.2f}"
