"""Finished evaluation folders of a run -> report.md: the models side by side, and what they were made of."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentlite.errors import OTHER_PLAN, UserError
from agentlite.metrics.calls import METRICS
from agentlite.rows import replacing

Json = dict[str, Any]

STAGES = ("prep", "sft", "pairs", "dpo", "grpo")
SLICES = {
    "tools": "By number of tools to choose from",
    "task": "By task",
    "source": "By source",
    "protocol": "By protocol",
}
TIMING = ("timing_precision", "recall", "f1", "balanced_accuracy", "specificity")
BFCL_SENTENCE = "Splitting BFCL into train and test shows that the pipeline works; it is no leaderboard score."


def write_report(run: Path) -> Path:
    """Writes run/report.md from what is finished in `run`, and names what is not. Raises UserError where it cannot."""
    if not run.is_dir():
        raise UserError("there is no such run.", "Name the folder that the stages wrote, with --run.", place=str(run))
    path = run / "report.md"
    blocks = [f"# Report of {_cell(run.resolve().name)}", *_evaluations(run), *_stages(run)]
    with replacing(path) as file:
        file.write(("\n\n".join(blocks) + "\n").encode("utf-8", "replace"))
    return path


def table(metrics_by_model: dict[str, Json]) -> list[list[str]]:
    """A head, then a row a model: its metrics.json as "62.5 % [53.1, 71.0] n=104", a column a metric."""
    return _table(["model"], [([model], figures) for model, figures in metrics_by_model.items()])


def _table(labels: list[str], rows: Sequence[tuple[list[str], Json]]) -> list[list[str]]:
    known = {name for _, figures in rows for name in figures["metrics"]}
    names = [name for name in METRICS if name in known] + sorted(known - METRICS.keys())
    cells = ([*label, *(share(figures["metrics"].get(name)) for name in names)] for label, figures in rows)
    return [[*labels, *names], *cells]


def share(figure: Json | None) -> str:
    """A figure in [0, 1] as a percentage with its interval and its count; "-" if there is none."""
    if figure is None:
        return "-"
    interval = f" [{100 * figure['low']:.1f}, {100 * figure['high']:.1f}]" if "low" in figure else ""
    return f"{100 * figure['mean']:.1f} %{interval} n={figure['count']}"


def _evaluations(run: Path) -> Iterator[str]:
    folders = [plan.parent for plan in run.glob("*/*/*/plan.json")]
    if not any((folder / "done.json").exists() for folder in folders):
        yield "No evaluation is finished."
    for evaluated in sorted({folder.parent for folder in folders}):
        yield from _evaluation(run, evaluated, _in_order(evaluated, folders))


def _in_order(evaluated: Path, folders: list[Path]) -> list[Path]:
    """The models as they were compared, so that the first stands first; the rest by name."""
    path = evaluated / "compare.json"
    compared = _read(path).get("models", []) if path.exists() else []
    rank = {model: index for index, model in enumerate(compared)}
    members = [folder for folder in folders if folder.parent == evaluated]
    return sorted(members, key=lambda folder: (rank.get(folder.name, len(rank)), folder.name))


def _evaluation(run: Path, evaluated: Path, folders: list[Path]) -> Iterator[str]:
    finished = [folder for folder in folders if (folder / "done.json").exists()]
    metrics = {folder.name: _read(folder / "metrics.json") for folder in finished}
    plans = {folder.name: _read(folder / "plan.json") for folder in finished}
    yield f"## Evaluation on {_cell(evaluated.name)}"
    for folder in folders:
        if folder not in finished:
            yield f"Not finished, so not read: {_cell(folder.name)}. Run `agentlite eval` again to finish it."
    if not metrics:
        return
    if _from_bfcl(run, evaluated.name, plans, metrics):
        yield BFCL_SENTENCE
    yield "Each figure is a mean with its 95 % interval and the number of prompts it was measured on."
    yield _markdown(table(metrics))
    yield from _by_slices(metrics)
    yield "### Call or no call"
    yield _markdown(_timing_table(metrics))
    yield from _differences(evaluated / "compare.json")
    yield from _problems(metrics)
    yield "### How it was measured"
    yield "\n\n".join(_described(name, plan, _read(evaluated / name / "done.json")) for name, plan in plans.items())


def _by_slices(metrics: dict[str, Json]) -> Iterator[str]:
    """A table a slice. One that has a single value repeats the whole, unless it is the number of tools."""
    for name, title in SLICES.items():
        slices = {model: figures.get("by", {}).get(name, {}) for model, figures in metrics.items()}
        rows = [
            ([value, model], slices[model][value])
            for value in sorted({value for values in slices.values() for value in values})
            for model in metrics
            if value in slices[model]
        ]
        if len({label[0] for label, _ in rows}) > (0 if name == "tools" else 1):
            yield f"### {title}"
            yield _markdown(_table([name, "model"], rows))


def _timing_table(metrics: dict[str, Json]) -> list[list[str]]:
    figures = {model: of_model.get("timing", {}) for model, of_model in metrics.items()}
    rows = (
        [model, *(share(of_model.get(name)) for name in TIMING), str(of_model.get("unreadable", "-"))]
        for model, of_model in figures.items()
    )
    return [["model", *TIMING, "unreadable"], *rows]


def _differences(path: Path) -> Iterator[str]:
    compared = _read(path) if path.exists() else {}
    if compared.get("differences"):
        yield "### Paired differences"
        if _is_current(path.parent, compared):
            yield "\n".join(f"- {in_words(row)}" for row in compared["differences"])
        else:
            models = " ".join(f"--model {model}" for model in compared["models"])
            yield f"Predictions have changed since the models were compared. Run `agentlite eval {models}` again."


def _is_current(evaluated: Path, compared: Json) -> bool:
    """Whether the models' predictions are still those that were compared."""
    digests = compared.get("predictions", {})
    done = {model: evaluated / model / "done.json" for model in digests}
    return all(path.exists() and _read(path).get("outputs", {}).get("predictions.jsonl") == digests[model]
               for model, path in done.items())  # fmt: skip


def in_words(row: Json) -> str:
    points = f"{100 * row['mean']:+.1f} points [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"
    noise = f"within noise: {row['count']} prompts cannot tell them apart"
    verdict = f"beyond noise, on {row['count']} prompts" if row["beyond_noise"] else noise
    return _cell(f"{row['metric']}: {row['second']} over {row['first']} {points}, {verdict}.")


def _problems(metrics: dict[str, Json]) -> Iterator[str]:
    problems = {model: figures.get("problems", {}) for model, figures in metrics.items()}
    kinds = sorted({kind for counts in problems.values() for kind in counts})
    yield "### Text that could not be read"
    if not kinds:
        yield "None: every answer could be read."
        return
    rows = ([kind, *(str(counts.get(kind, 0)) for counts in problems.values())] for kind in kinds)
    yield _markdown([["problem", *metrics], *rows])


def _stages(run: Path) -> Iterator[str]:
    """The stages of the run, finished or not, in the order they are run in."""
    plans = {plan.parent: _read(plan) for plan in sorted(run.glob("*/plan.json"))}
    order = {folder: STAGES.index(c) for folder, plan in plans.items() if (c := plan.get("command")) in STAGES}
    if order:
        yield "## What the models were made of"
    for folder in sorted(order, key=lambda folder: (order[folder], folder.name)):
        done = _read(folder / "done.json") if (folder / "done.json").exists() else None
        yield _described(folder.name, plans[folder], done)


def _described(name: str, plan: Json, done: Json | None) -> str:
    """A stage in a few lines: settings, inputs by digest (its lineage), versions, what came out."""
    parts = {key: plan.get(key) for key in ("settings", "inputs", "versions")}
    if done is not None:
        parts["figures"] = done.get("figures")
    lines = [f"- {key}: {_listed(value)}" for key, value in parts.items() if value]
    if done is not None and "seconds" in done:
        lines.append(f"- seconds: {done['seconds']:.0f}")
    return "\n".join([f"**{_cell(name)}**{'' if done is not None else ' (not finished)'}", "", *lines])


def _listed(value: Any) -> str:
    if not isinstance(value, dict):
        return _cell(_short(value))
    shown = {**value, **({"lineage": " -> ".join(value["lineage"])} if value.get("lineage") else {})}
    return _cell(", ".join(f"{key} {_short(inner)}" for key, inner in shown.items() if inner not in (None, "")))


def _short(value: Any) -> str:
    """A digest by its first 12 digits, a figure by 4, anything else as JSON has it, without quotes around text."""
    if isinstance(value, str):
        return value[:12] if len(value) >= 16 and set(value) <= set("0123456789abcdef") else value
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _from_bfcl(run: Path, evaluated: str, plans: dict[str, Json], metrics: dict[str, Json]) -> bool:
    """Whether anything that says where the prompts came from says BFCL."""
    named = [*plans.values(), *(figures.get("by", {}).get("source", {}) for figures in metrics.values())]
    preps = [plan for name in (evaluated, "prep") if (plan := run / name / "plan.json").exists()]
    return "bfcl:" in json.dumps([*named, *(_read(plan).get("settings", {}) for plan in preps[:1])])


def _read(path: Path) -> Json:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        fix = "A finished stage has it: run that stage again with --force."
        raise UserError(f"cannot be read ({error}).", fix, place=str(path), exit_code=OTHER_PLAN) from error
    if not isinstance(content, dict):
        raise UserError("is no JSON object.", "Run the stage that wrote it again with --force.", place=str(path))
    return content


def _markdown(rows: Iterable[list[str]]) -> str:
    head, *body = ([_cell(text) for text in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def _cell(text: str) -> str:
    """Text that stays in its cell and shows as it is."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
