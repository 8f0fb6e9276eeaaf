"""A model's answers, stored candidates, rollouts or preference rows -> preference pairs."""

import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import RowError
from agentlite.core.records import GOLD, to_row
from agentlite.core.row_files import write_json, write_rows
from agentlite.environments.trajectories import is_rollout
from agentlite.scoring.grid_file import read_weightings
from agentlite.scoring.preference_pairs import PairRule, build_pairs, group, write_pairs
from agentlite.scoring.rewards.user_functions import UserFunctions
from agentlite.scoring.weight_sweep import compare_weightings, report_components, sentences
from agentlite.stages.frame import Figures, Files, run_stage
from agentlite.stages.pairs.preference_files import take_recorded
from agentlite.stages.pairs.rollouts import Rollouts
from agentlite.stages.pairs.sample import Sampling
from agentlite.stages.pairs.score import RULE, CandidateSource
from agentlite.stages.pairs.stored import StoredCandidates
from agentlite.workspace import run_folder
from agentlite.workspace.lineage import longer_rows, setting_of
from agentlite.workspace.run_folder import Result, RunTarget, StageFolder


def inherit(settings: PairsSettings, run: Path) -> dict[str, tuple[object, str]]:
    """The length of the rows of the data; with --from and --grid, that of the candidates, and the
    rule by which the first pairs were chosen.
    """
    if not (settings.candidates or settings.grid):
        return longer_rows("pairs", settings.data, run)
    name = settings.candidates or "pairs"
    rule = {key: setting_of(name, key, run) for key in RULE}
    return {
        **longer_rows("pairs", name, run),
        **{key: (value, name) for key, value in rule.items() if value is not None},
    }


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
        source: CandidateSource
        if settings.candidates and is_rollout(
            run_folder.find_stage(settings.candidates, target.run)
        ):
            source = Rollouts(settings, target, user_functions)
        elif settings.candidates or settings.grid:
            source = StoredCandidates(settings, target, user_functions)
        else:
            source = Sampling(settings, target, user_functions)
        if settings.grid:
            return _compare_grid(settings, source)
        return run_stage(
            source.plan,
            target,
            dry_run=source.dry_run,
            work=lambda stage: _pair(settings, source, stage),
            next_command=lambda figures: _next(figures, target.out, source.advice),
            before_work=source.before_work,
            is_open=source.is_open,
            keep=source.keep,
        )


def key_figure(figures: Mapping[str, object]) -> str:
    return f"{figures['pairs']} pairs at {figures['steps']} steps"


def _pair(
    settings: PairsSettings, source: CandidateSource, stage: StageFolder
) -> tuple[Files, Figures]:
    folder = stage.folder
    scored = source.scored(stage)
    weights = scored.settle(settings.weights)
    count = sum(candidate.model != GOLD for candidate in scored.candidates)
    with console.waiting(f"pairs: ranking {count} {source.what}"):
        groups = group(scored.candidates, scored.scores)
        pairing = build_pairs(groups, weights, _rule(settings))
        report = report_components(groups, weights, scored.expected)
    pairs, no_pair = pairing.pairs, pairing.reasons
    counts: dict[str, Any] = {"steps": len(groups), "candidates": count}
    if scored.part:  # what was ranked are whole dialogs: each pair is the turn at which two part
        parted, reasons = [], Counter({name: n for name, n in no_pair.items() if n})
        for pair in pairs:
            try:
                parted.append(scored.part(pair))
            except RowError as error:
                reasons[
                    error.reason if error.code == "E219" else f"not written ({error.code})"
                ] += 1
        records = {record.id: record for record, _ in parted}
        write_rows(folder / "records.jsonl", map(to_row, records.values()))
        pairs, no_pair = [pair for _, pair in parted], dict(reasons)
        counts = {"tasks": len(groups), "rollouts": len(scored.candidates), "steps": len(groups)}
    write_pairs(folder / "pairs.jsonl", pairs)
    write_json(
        folder / "stats.json", {"weights": weights, "no_pair": no_pair, "components": report}
    )
    for sentence in sentences(report):
        console.notice(f"pairs: {sentence}")
    margins = [pair.margin for pair in pairs]
    return source.outputs(folder), {
        **counts,
        "pairs": len(pairs),
        "no_pair": {name: n for name, n in no_pair.items() if n},
        "mean_margin": round(sum(margins) / len(margins), 4) if margins else 0.0,
        **scored.figures,
    }


def _compare_grid(settings: PairsSettings, source: CandidateSource) -> Result:
    """Many weightings of the same candidates side by side; nothing is written."""
    scored = source.scored(None)
    weightings = read_weightings(settings.grid, scored.settle)
    groups = group(scored.candidates, scored.scores)
    count = f"{len(scored.candidates)} {source.what}"
    with console.waiting(f"pairs: ranking {count} by {len(weightings)} weightings"):
        rows = compare_weightings(groups, weightings, _rule(settings))
    report = report_components(groups, next(iter(weightings.values())), scored.expected)
    figures = {
        "weightings": msgspec.to_builtins(rows),
        "components": msgspec.to_builtins(report),
        "sentences": sentences(report),
        "failed_rewards": scored.figures["failed_rewards"],
    }
    return Result("pairs", "compared", str(source.folder), figures, [], 0.0)


def _rule(settings: PairsSettings) -> PairRule:
    return PairRule(settings.margin, settings.balance, "failed" if settings.gold else "never")


def _next(figures: Figures, out: str, advice: str) -> str:
    """The command that learns from the pairs; without one, `advice` on how to get some."""
    if not figures["pairs"]:
        reasons = ", ".join(f"{reason} {count}" for reason, count in figures["no_pair"].items())
        cause = f" ({reasons})" if reasons else ""
        console.notice(f"pairs: no pair was made{cause}. To get some, {advice}")
        return ""
    names = [] if out == "pairs" else ["--data", out, "--out", f"dpo-{out}"]
    return shlex.join(["agentlite", "dpo", *names])
