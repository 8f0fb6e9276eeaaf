"""Scored candidates -> pairs.jsonl and stats.json, or many weightings side by side."""

from pathlib import Path
from typing import Any

import msgspec

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.records import GOLD
from agentlite.core.row_files import write_json
from agentlite.scoring.grid_file import read_weightings
from agentlite.scoring.preference_pairs import PairRule, build_pairs, group, write_pairs
from agentlite.scoring.rewards import settle_weights
from agentlite.scoring.rewards.scorer import Tally
from agentlite.scoring.weight_sweep import (
    compare_weightings,
    report_components,
    sentences,
)
from agentlite.stages.pairs.earlier_candidates import Stored
from agentlite.stages.pairs.score import ScoredCandidates, rescore_hint, stored_scores
from agentlite.workspace.run_folder import Result

# the rule by which pairs are made
RULE = ("margin", "balance", "gold")


def rank(settings: PairsSettings, folder: Path, ranked: ScoredCandidates) -> dict[str, Any]:
    """Writes pairs.jsonl and stats.json. Returns the key figures."""
    weights = settle_weights(settings.weights, ranked.user_components)
    with console.waiting(f"pairs: ranking {len(ranked.candidates)} candidates"):
        groups = group(ranked.candidates, ranked.scores)
        pairing = build_pairs(groups, weights, pair_rule(settings))
        report = report_components(groups, weights, ranked.expected)
    write_pairs(folder / "pairs.jsonl", pairing.pairs)
    write_json(
        folder / "stats.json",
        {"weights": weights, "no_pair": pairing.reasons, "components": report},
    )
    for sentence in sentences(report):
        console.notice(f"pairs: {sentence}")
    mean = sum(pair.margin for pair in pairing.pairs) / len(pairing.pairs) if pairing.pairs else 0.0
    return {
        "steps": len(groups),
        "candidates": sum(one.model != GOLD for one in ranked.candidates),
        "pairs": len(pairing.pairs),
        "no_pair": {name: n for name, n in pairing.reasons.items() if n},
        "mean_margin": round(mean, 4),
    }


def compare_grid(settings: PairsSettings, stored: Stored) -> Result:
    """Many weightings of the same candidates side by side; nothing is written."""
    tally = Tally(settings.max_failures, stored.folder, rescore_hint(stored.folder.name))
    ranked = stored_scores(settings, stored, None, tally)
    weightings = read_weightings(settings.grid, ranked.user_components)
    groups = group(ranked.candidates, ranked.scores)
    with console.waiting(
        f"pairs: ranking {len(ranked.candidates)} candidates by {len(weightings)} weightings"
    ):
        rows = compare_weightings(groups, weightings, pair_rule(settings))
    report = report_components(groups, next(iter(weightings.values())), ranked.expected)
    figures = {
        "weightings": msgspec.to_builtins(rows),
        "components": msgspec.to_builtins(report),
        "sentences": sentences(report),
        "failed_rewards": tally.failed,
    }
    return Result("pairs", "compared", str(stored.folder), figures, [], 0.0)


def pair_rule(settings: PairsSettings) -> PairRule:
    return PairRule(settings.margin, settings.balance, "failed" if settings.gold else "never")
