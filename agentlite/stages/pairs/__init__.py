"""A model's answers, stored candidates, rollouts or preference rows -> preference pairs."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import GOLD, to_row
from agentlite.core.row_files import write_json, write_rows
from agentlite.engine import check_libraries
from agentlite.engine.remote import judge_component
from agentlite.environments.trajectories import is_rollout
from agentlite.scoring.preference_pairs import PairRule, build_pairs, constant, group, write_pairs
from agentlite.scoring.rewards.scorer import Tally
from agentlite.scoring.rewards.user_functions import UserFunctions
from agentlite.stages.frame import Figures, Work, run_stage
from agentlite.stages.pairs.preference_files import take_recorded
from agentlite.stages.pairs.rollouts import rollout_candidates
from agentlite.stages.pairs.sample import sampled_candidates
from agentlite.stages.pairs.score import RULE, CandidateSource, score_candidates
from agentlite.stages.pairs.stored import CANDIDATES, stored_candidates
from agentlite.workspace import stage_folder
from agentlite.workspace.stage_folder import Result, RunTarget, longer_rows, stored_settings

OUTPUTS = ("records.jsonl", "candidates.jsonl", "scores.jsonl", "pairs.jsonl", "stats.json")


def inherit(settings: PairsSettings, run: Path) -> dict[str, tuple[object, str]]:
    """The length of the rows of the data; with --from, that of the candidates, and the rule by
    which the first pairs were chosen.
    """
    name = settings.candidates
    if not name:
        return longer_rows("pairs", settings.data, run)
    stored = stored_settings(name, run)
    rule = {key: (stored[key], name) for key in RULE if key in stored}
    return {**longer_rows("pairs", name, run), **rule}


def run(settings: PairsSettings, target: RunTarget) -> Result:
    """Samples candidates, or takes those that are there; scores them; and pairs the best of each
    step with the worst. Recorded preferences are pairs already.
    """
    if settings.preferences:
        return take_recorded(settings, target)
    # first of all: a user function that cannot be imported costs no sampling
    with (
        console.stdout_to_stderr(),
        UserFunctions(
            settings.rewards, settings.reward_seconds, settings.reward_memory
        ) as user_functions,
    ):
        earlier = target.folder
        if settings.candidates:
            earlier = stage_folder.find_stage(settings.candidates, target.run)
        user_functions |= judge_component(settings, earlier)
        if not settings.candidates:
            source = sampled_candidates(settings, target, user_functions)
        elif target.folder.resolve() == earlier.resolve():
            raise UserError(
                "would write over the candidates' own folder.",
                "Give another one: --out NAME.",
                location="--out",
            )
        elif is_rollout(earlier):
            source = rollout_candidates(settings, earlier, user_functions)
        else:
            source = stored_candidates(settings, earlier, user_functions)
        loads = not (settings.candidates or settings.endpoint)
        return run_stage(
            source.plan,
            target,
            _pair(source, settings, target, earlier),
            next_command=lambda figures: _next(figures, target.out),
            before_work=lambda: check_libraries(settings.engine) if loads else None,
            is_open=lambda figures: (
                settings.unanswered == "ask" and bool(figures.get("unanswered"))
            ),
            keep=[CANDIDATES],
        )


def key_figure(figures: Mapping[str, object]) -> str:
    return f"{figures['pairs']} pairs at {figures['steps']} steps"


def _pair(
    source: CandidateSource, settings: PairsSettings, target: RunTarget, earlier: Path
) -> Work:
    """Candidates, their scores, and of each step the best with the worst. `earlier`: the folder
    that keeps the candidates.
    """
    candidates, scorer, figures, scores = yield from source.finding
    again = shlex.quote(settings.candidates or target.out)
    tally = Tally(
        settings.max_failures,
        earlier,
        "Every candidate is kept. Fix the function, or name another judge; `agentlite pairs --from "
        f"{again} --out NAME` scores them again.",
        "rollouts" if source.part else "candidates",
    )
    folder, rule = target.folder, PairRule(settings.margin, settings.gold)
    if scorer:
        scores = score_candidates(folder, candidates, scorer, tally)
    count = sum(candidate.model != GOLD for candidate in candidates)
    with console.waiting(f"pairs: ranking {count} candidates"):
        steps = group(candidates, scores)
        pairs, reasons = build_pairs(steps, source.weights, rule)
    counts = {"steps": len(steps), "candidates": count}
    if source.part:
        parted, unparted = source.part(pairs)
        reasons |= unparted
        records = {record.id: record for record, _ in parted}
        write_rows(folder / "records.jsonl", map(to_row, records.values()))
        pairs = [pair for _, pair in parted]
        counts = {"tasks": len(steps), "rollouts": count, "steps": len(steps)}
    write_pairs(folder / "pairs.jsonl", pairs)
    write_json(folder / "stats.json", {"weights": source.weights, "no_pair": reasons})
    if same := constant(steps, source.weights):
        problem = "the same for all candidates of a step, so that their weights decide nothing"
        console.notice(f"pairs: {problem}: {', '.join(same)}")
    margins = [pair.margin for pair in pairs]
    return [name for name in OUTPUTS if (folder / name).exists()], {
        **counts,
        "pairs": len(pairs),
        "no_pair": {name: n for name, n in reasons.items() if n},
        "mean_margin": round(sum(margins) / len(margins), 4) if margins else 0.0,
        "failed_rewards": tally.failed,
        **figures,
    }


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
    names = [] if out == "pairs" else ["--data", out, "--out", f"dpo-{out}"]
    return shlex.join(["agentlite", "dpo", *names])
