"""finished prep + a model -> an adapter trained on its own scored answers, by GRPO."""

import math
from collections.abc import Mapping
from pathlib import Path

from agentlite.config.settings import GrpoSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import to_row
from agentlite.core.row_files import write_rows
from agentlite.data.prompt_records import Prompts, find_prompts
from agentlite.engine import deepspeed, grpo, ppo
from agentlite.engine.planning.dry_run import dry_run_memory
from agentlite.scoring.rewards import refuse_without_gold, settle_weights
from agentlite.scoring.rewards.scorer import Scorer, reading
from agentlite.scoring.rewards.user_functions import UserFunctions, function_files
from agentlite.stages.grpo_live import train_live
from agentlite.stages.grpo_rollouts import Rollouts
from agentlite.stages.training import evaluated_on, train_stage
from agentlite.stages.training_prompts import Fitting, fitting_prompts, refuse_no_room
from agentlite.workspace.lineage import adapter_shape, longer_rows
from agentlite.workspace.model_source import Source, find_model
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
    """Trains, or carries on. Raises UserError 2, 3, 4, 5, 6, 7, 74 or 75; Stopped after a
    signal.
    """
    _refuse_sizes(settings)
    if settings.advantage == "value":
        _refuse_for_ppo(settings)
    if settings.env:
        return train_live("grpo", settings, target)
    engine = ppo if settings.advantage == "value" else grpo
    weights = settle_weights(
        settings.weights, [text.rpartition(":")[2] for text in settings.rewards]
    )
    source = find_model(settings.model, target.run, target.begun)
    prepared = find_prompts(settings.data, settings.split, settings.model, source, target.run)

    def train(folder: Path) -> dict[str, object]:
        with console.waiting("grpo: writing the prompts"):
            fitting = _fitting(settings, prepared, source, weights)
        records = {prompt.record.id: prompt.record for prompt in fitting.prompts}
        write_rows(folder / "records.jsonl", map(to_row, records.values()))
        console.notice(f"grpo: {len(fitting.prompts)} prompts, groups of {settings.group_size}")
        with UserFunctions(
            settings.rewards, settings.reward_seconds, settings.reward_memory
        ) as functions:
            scorer = Scorer(records, reading(prepared.protocol, source.base), functions)
            with Rollouts(folder, settings, scorer, fitting.prompts) as rollouts:
                figures = engine.train(
                    source, settings, folder, lambda loaded: rollouts.task(loaded, source)
                )
        return {
            "prompts": len(rollouts.prompts),
            **figures,
            "failed_rewards": rollouts.failed,
            "too_long": fitting.too_long,
        }

    def dry_run() -> dict[str, object]:
        """How many steps and answers there would be, and of how long prompts."""
        fitting = _fitting(settings, prepared, source, weights)
        planned = grpo.schedule(settings, len(fitting.prompts))
        return {
            "prompts": len(fitting.prompts),
            "steps": planned.steps,
            "answers": planned.rows,
            "too_long": fitting.too_long,
            "longest_prompt": fitting.longest,
            "memory_gib": dry_run_memory(
                "grpo", settings, source.base, fitting.longest + settings.max_new_tokens
            ),
        }

    return train_stage(
        "grpo",
        settings,
        target,
        source,
        protocol=prepared.protocol,
        inputs={"data": prepared.digest, **function_files(settings.rewards)},
        check=lambda: engine.check(settings),
        dry_run=dry_run,
        train=train,
        outputs=("records.jsonl", "rollouts.jsonl"),
        keep=("rollouts.jsonl",),
        evaluate=evaluated_on(settings.data),
    )


def _refuse_sizes(settings: GrpoSettings) -> None:
    """Raises UserError 2 where a step is not whole groups, or an answer leaves no room."""
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
    """Raises UserError 2 for what PPO does not have, and for a round that is not whole steps."""
    for key, fixed in OF_GROUPS.items():
        if getattr(settings, key) != fixed:
            raise UserError(
                "does not go with --advantage value.",
                "Leave one of the two out.",
                location=f"grpo.{key}",
            )
    rows = math.lcm(settings.batch_size * settings.gradient_accumulation, settings.group_size)
    if settings.rollouts % rows:
        near = max(1, round(settings.rollouts / rows)) * rows
        raise UserError(
            f"a round of {settings.rollouts} answers is not whole steps of "
            f"{settings.batch_size * settings.gradient_accumulation} and whole groups of "
            f"{settings.group_size}.",
            f"Take a multiple of {rows}, such as {near}.",
            location="grpo.rollouts",
        )


def key_figure(figures: Mapping[str, object]) -> str:
    return f"reward {figures['first_reward']:.2f} -> {figures['last_reward']:.2f}"


def _fitting(
    settings: GrpoSettings, prepared: Prompts, source: Source, weights: Mapping[str, float]
) -> Fitting:
    """Raises UserError 2 also where `weights` need gold that is not there."""
    prompted = [record for record in prepared.records() if record.prompted_turns]
    refuse_without_gold(prompted, weights, prepared.location)
    return fitting_prompts("grpo", settings, prepared, source, prompted, settings.max_new_tokens)
