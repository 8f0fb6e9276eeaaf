"""A model's answers, stored candidates, rollouts or preference rows -> preference pairs."""

from collections.abc import Mapping
from pathlib import Path

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.engine import check_libraries
from agentlite.engine.remote import judge_component
from agentlite.environments.trajectories import is_rollout
from agentlite.scoring.rewards.scorer import UserFunctions
from agentlite.stages.frame import Figures, run_stage
from agentlite.stages.pairs.preference_files import take_preferences
from agentlite.stages.pairs.sample import from_model
from agentlite.stages.pairs.score import CANDIDATES, RULE, dpo_command
from agentlite.stages.pairs.stored import from_rollouts, from_stored
from agentlite.workspace.lookup import Result, RunTarget, find_stage, max_length_of, stored_settings


def inherit(settings: PairsSettings, run: Path) -> dict[str, tuple[object, str]]:
    """The length of the rows of the data; with --from, that of the candidates, and the rule by
    which the first pairs were chosen.
    """
    name = settings.candidates
    if not name:
        return max_length_of("pairs", settings.data, run)
    stored = stored_settings(name, run)
    rule = {key: (stored[key], name) for key in RULE if key in stored}
    return {**max_length_of("pairs", name, run), **rule}


def run(settings: PairsSettings, target: RunTarget) -> Result:
    """Samples candidates, or takes those that are there; scores them; and pairs the best of each
    step with the worst. Recorded preferences are pairs already.
    """
    if settings.preferences:
        return take_preferences(settings, target)
    # first of all: a user function that cannot be imported costs no sampling
    functions = UserFunctions(settings.rewards, settings.reward_seconds, settings.reward_memory)
    with console.stdout_to_stderr(), functions as user_functions:
        candidates_folder = target.folder
        if settings.candidates:
            candidates_folder = find_stage(settings.candidates, target.run)
        user_functions |= judge_component(settings, candidates_folder)
        if not settings.candidates:
            plan, work = from_model(settings, target, user_functions)
        elif target.folder.resolve() == candidates_folder.resolve():
            raise UserError(
                "would write over the candidates' own folder.",
                "Give another one: --out NAME.",
                location="--out",
            )
        elif is_rollout(candidates_folder):
            plan, work = from_rollouts(settings, candidates_folder, user_functions)
        else:
            plan, work = from_stored(settings, candidates_folder, user_functions)
        loads_model = not (settings.candidates or settings.endpoint)
        asks_again = settings.unanswered == "ask"
        return run_stage(
            plan,
            target,
            work,
            next_command=lambda figures: _next(figures, target.out),
            before_work=lambda: check_libraries(settings.engine) if loads_model else None,
            is_open=lambda figures: asks_again and bool(figures.get("unanswered")),
            keep=[CANDIDATES],
        )


def key_figure(figures: Mapping[str, object]) -> str:
    return f"{figures['pairs']} pairs at {figures['steps']} steps"


def _next(figures: Figures, out: str) -> str:
    """The command that learns from the pairs; without one, what helps to get some."""
    if not figures["pairs"]:
        reasons = ", ".join(f"{reason} {count}" for reason, count in figures["no_pair"].items())
        cause = f" ({reasons})" if reasons else ""
        console.notice(
            f"pairs: no pair was made{cause}. To get some, sample more (-n, --temperature), lower "
            "--margin, take other --weights, or add --gold"
        )
        return ""
    return dpo_command(out)
