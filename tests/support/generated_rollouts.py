"""Scripts of what models said -> a run with a live evaluation and a rollout stage; not a test."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from support.generated_run import stage

from agentlite.config.settings import EvalSettings
from agentlite.core.records import to_json
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import EndedBy, ModelTurn, Trajectory
from agentlite.stages.eval.live import live_metrics, score_rollout

BUY = {
    "type": "function",
    "function": {
        "name": "buy",
        "description": "Puts an item into the cart.",
        "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
    },
}


def says(
    words: str = "",
    call: Mapping[str, Any] | None = None,
    result: str = "",
    *,
    failed: bool = False,
    user: str | None = None,
    problem: str = "",
) -> dict[str, Any]:
    """A turn of a model: words, or a call of `buy` and its result."""
    results = ((result, failed),) if call is not None else ()
    return {"words": words, "call": call, "results": results, "user": user, "problem": problem}


def rollout(
    task: str,
    turns: Sequence[Mapping[str, Any]],
    scores: Mapping[str, float],
    *,
    sample: int = 0,
    ended: EndedBy = "user",
    problem: str = "",
    by_turn: Sequence[Mapping[str, float]] = (),
    asked: str = "",
) -> Trajectory:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a shop."},
        {"role": "user", "content": asked or f"Buy a {task}."},
    ]
    made = []
    for number, turn in enumerate(turns):
        text = turn["words"]
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if turn["call"] is not None:
            function = {"name": "buy", "arguments": to_json(turn["call"])}
            message["tool_calls"] = [{"id": "1", "type": "function", "function": function}]
            text += f'<tool_call>\n{{"name": "buy", "arguments": {to_json(turn["call"])}}}'
        messages.append(message)
        messages += [{"role": "tool", "content": result} for result, _ in turn["results"]]
        if turn["user"] is not None:
            messages.append({"role": "user", "content": turn["user"]})
        kept = {name: turn[name] for name in ("results", "user", "problem")}
        made.append(ModelTurn(task, sample, number, text, "turn", 7, **kept))
    return Trajectory(
        task,
        sample,
        "test",
        messages,
        [BUY],
        made,
        ended,
        dict(scores),
        problem,
        by_turn=[dict(one) for one in by_turn],
    )


def write_live(
    run: Path,
    models: Mapping[str, Sequence[Trajectory]],
    samples: Mapping[str, Sequence[Trajectory]] | None = None,
    env: str = "shop.py:Shop",
) -> Path:
    """eval/ENV of each model, as `eval --env` leaves it."""
    for name, done in models.items():
        drawn = (samples or {}).get(name, ())
        rows = {"trajectories.jsonl": map(msgspec.to_builtins, done)}
        if drawn:
            rows["samples.jsonl"] = map(msgspec.to_builtins, drawn)
        plan = {
            "command": "eval",
            "settings": {"env": env, "model": name},
            "inputs": {"model": name * 4},
        }
        folder = run / "eval" / env.replace(":", "-") / name
        scorer = RolloutScorer([EnvironmentTask(one.task) for one in done], {})
        scored = [score_rollout(one, scorer)[0] for one in done]
        stage(folder, plan, rows, {}, live_metrics(done, scored, drawn, EvalSettings()))
    return run


def write_rollout(run: Path, done: Sequence[Trajectory], model: str = "sft") -> Path:
    """A stage, as `rollout -n` leaves it."""
    settings = {"env": "shop.py:Shop", "model": model, "num_samples": 2}
    plan = {"command": "rollout", "settings": settings, "inputs": {}}
    rows = {"trajectories.jsonl": map(msgspec.to_builtins, done)}
    stage(run / "rollout", plan, rows, {"rollouts": len(done)})
    return run
