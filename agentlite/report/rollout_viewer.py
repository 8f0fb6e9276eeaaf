"""Rollouts -> the packed text that the page's viewer reads."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentlite.report.explanations import EXPLANATIONS
from agentlite.report.packing import Packed, compact, pack_within
from agentlite.report.read_run import Json
from agentlite.report.rollouts import (
    RankedRollouts,
    ReportedRollout,
    ReportedTurn,
    RolloutFile,
    ShownRollout,
    calls_of,
    text_of,
)
from agentlite.scoring.metrics.model_metrics import ENDINGS

Cut = Callable[[str], str]


def pack_rollouts(name: str, rollouts: RankedRollouts, budget: int) -> Packed:
    """At most `budget` characters; the best rollouts are left out if that is needed. `name`: of the
    evaluation or the stage, with which the links begin.
    """
    fitted = pack_within(
        budget,
        len(rollouts.shown),
        lambda count, cut: _contents(name, rollouts, rollouts.shown[:count], cut),
    )
    notes = list(fitted.notes)
    if fitted.rows < rollouts.total:
        notes.append(
            f"The worst {fitted.rows:,} of {rollouts.total:,} rollouts: with the others this page "
            "would be too large."
        )
    return Packed(fitted.text, notes)


def _contents(name: str, rollouts: RankedRollouts, shown: Iterable[ShownRollout], cut: Cut) -> Json:
    """Every prompt and every tool once: rollouts of a task share them."""
    shown = list(shown)
    best = [one.best[0] for one in shown if one.best]
    models = list(dict.fromkeys(file.model for file in [*(one.file for one in shown), *best]))
    prompts: dict[str, int] = {}
    tools: dict[tuple[str, str, str], int] = {}
    kept_prompts: list[list[list[object]]] = []
    rows = []
    for one in shown:
        rollout = one.rollout
        key = compact(rollout.prompt)
        if key not in prompts:
            prompts[key] = len(prompts)
            kept_prompts.append([_message(message, cut) for message in rollout.prompt])
        offered = [tools.setdefault(_tool(tool), len(tools)) for tool in rollout.tools]
        rows.append(_row(one, models, rollouts.names, prompts[key], offered, cut))
    return {
        "name": name,
        "models": models,
        "metrics": rollouts.names,
        "endings": {ended: EXPLANATIONS[figure] for ended, figure in ENDINGS.items()},
        "prompts": kept_prompts,
        "tools": [tuple(map(cut, tool)) for tool in tools],
        "rollouts": rows,
    }


def _row(
    shown: ShownRollout,
    models: list[str],
    names: list[str],
    prompt: int,
    tools: list[int],
    cut: Cut,
) -> list[object]:
    one = shown.rollout
    faults = one.simulated_user.faults if one.simulated_user else []
    turns = [_turn(turn, answer, cut) for turn, answer in zip(one.turns, one.answers, strict=True)]
    return [
        one.task,
        *_who(shown.file, one, models),
        one.ended,
        cut(one.problem),
        one.failed,
        [one.scores.get(name) for name in names],
        one.by_turn,
        prompt,
        turns,
        tools,
        [[reply, kind, cut(reason)] for reply, kind, reason in faults],
        _best(shown, models, cut),
    ]


def _who(file: RolloutFile, one: ReportedRollout, models: list[str]) -> tuple[int, int | None]:
    """The number of its model, and its own; None for a greedy one."""
    return models.index(file.model), one.sample if file.sampled else None


def _turn(turn: ReportedTurn, answer: Mapping[str, Any], cut: Cut) -> list[object]:
    calls = [[name, cut(arguments)] for name, arguments in calls_of(answer)]
    results = [[cut(text), failed] for text, failed in turn.results]
    user = None if turn.user is None else cut(turn.user)
    words = [cut(text_of(answer)), calls, results, user]
    return [*words, cut(turn.problem), cut(turn.text), turn.ended, turn.new_tokens]


def _best(shown: ShownRollout, models: list[str], cut: Cut) -> list[object] | None:
    """Which rollout it is, where they part, and what the best one says there; None for that one."""
    if shown.best is None:
        return None
    file, best, parting = shown.best
    there = parting.turn < len(best.turns)
    turn = _turn(best.turns[parting.turn], best.answers[parting.turn], cut) if there else None
    ended = [best.ended, best.mean, shown.rollout.mean]
    return [*_who(file, best, models), parting.turn, parting.by, turn, *ended]


def _message(message: Mapping[str, Any], cut: Cut) -> list[object]:
    calls = [[name, cut(arguments)] for name, arguments in calls_of(message)]
    return [str(message.get("role", "")), cut(text_of(message)), calls]


def _tool(tool: Mapping[str, Any]) -> tuple[str, str, str]:
    function = tool.get("function")
    function = function if isinstance(function, dict) else {}
    name, description = (str(function.get(key, "")) for key in ("name", "description"))
    return name, description, compact(function.get("parameters", {}))
