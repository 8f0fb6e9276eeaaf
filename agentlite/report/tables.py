"""What was read of a run -> the tables and sentences that both reports print, so that they cannot
differ.
"""

import json
from typing import Any, NamedTuple

from agentlite.report.read_run import Evaluation, Json
from agentlite.scoring.metrics import dialogs
from agentlite.scoring.metrics.model_metrics import GROUPS
from agentlite.scoring.metrics.tool_calls import METRICS

TABLED = ("ranking", "differences", "latency_ms")  # of a retriever's figures
# of metrics.json: these have tables of their own, or none
NOT_A_GROUP = ("prompts", "metrics", "by", "problems")
SLICES = {
    "tools": "By number of tools to choose from",
    "task": "By task",
    "source": "By source",
    "protocol": "By protocol",
    "difficulty": "By difficulty: as the records say, or by the calls due",
}
BFCL_SENTENCE = (
    "Splitting BFCL into train and test shows that the pipeline works; it is no leaderboard score."
)
MEAN_SENTENCE = (
    "Each figure is a mean with its 95 % interval and the number of prompts or "
    "dialogs "
    "it was measured on."
)
NO_EVALUATION = "No evaluation is finished."
ALL_READABLE = "None: every answer could be read."
# a figure that a model's metrics.json does not name at all; one that is null there was not measured
ABSENT = "-"


class Figures(NamedTuple):
    """A table: heads of its labels, names of its figures, and a row of labels and figures each."""

    title: str
    labels: list[str]
    names: list[str]
    rows: list[tuple[list[str], list[Any]]]

    @property
    def cells(self) -> list[list[str]]:
        body = [[*labels, *map(share, figures)] for labels, figures in self.rows]
        return [[*self.labels, *self.names], *body]

    @property
    def turned(self) -> "Figures":
        """A row a figure, a column a row."""
        names = [" ".join(labels) for labels, _ in self.rows]
        columns = [[figures[index] for _, figures in self.rows] for index in range(len(self.names))]
        return Figures(
            self.title,
            [""],
            names,
            [([name], row) for name, row in zip(self.names, columns, strict=True)],
        )


def table(metrics_by_model: dict[str, Json]) -> list[list[str]]:
    """A head, then a row a model: its metrics.json as "62.5 % [53.1, 71.0] n=104", a column a
    metric.
    """
    return models(metrics_by_model).cells


def models(metrics: dict[str, Json]) -> Figures:
    return _of_metrics(
        "Models", ["model"], [([model], figures) for model, figures in metrics.items()]
    )


def slices(metrics: dict[str, Json]) -> list[Figures]:
    """A table a slice. One that has a single value repeats the whole, unless it is the number of
    tools.
    """
    found = {name for figures in metrics.values() for name in figures.get("by", {})}
    tables = []
    for name in [*(known for known in SLICES if known in found), *sorted(found - SLICES.keys())]:
        by_model = {
            model: figures.get("by", {}).get(name, {}) for model, figures in metrics.items()
        }
        rows = [
            ([value, model], by_model[model][value])
            for value in sorted({value for values in by_model.values() for value in values})
            for model in metrics
            if value in by_model[model]
        ]
        if len({labels[0] for labels, _ in rows}) > (0 if name == "tools" else 1):
            tables.append(
                _of_metrics(SLICES.get(name, f"By {_words(name)}"), [name, "model"], rows)
            )
    return tables


def groups(metrics: dict[str, Json]) -> list[Figures]:
    """A table for every other group of figures that metrics.json holds."""
    found = dict.fromkeys(
        name
        for figures in metrics.values()
        for name, value in figures.items()
        if name not in NOT_A_GROUP and isinstance(value, dict)
    )
    names = [
        *(group for group in GROUPS if group in found),
        *(name for name in found if name not in GROUPS),
    ]
    return [
        _group(name, {model: _flat(figures.get(name) or {}) for model, figures in metrics.items()})
        for name in names
    ]


def problems(metrics: dict[str, Json]) -> Figures:
    """How often each problem was met: a row a problem, a column a model."""
    counts = {model: figures.get("problems", {}) for model, figures in metrics.items()}
    kinds = sorted({kind for of_model in counts.values() for kind in of_model})
    rows = [([kind], [of_model.get(kind, 0) for of_model in counts.values()]) for kind in kinds]
    return Figures("Text that could not be read", ["problem"], list(metrics), rows)


def share(figure: Any) -> str:
    """A figure in [0, 1] as a percentage, another as a number, each with its interval and its
    count.
    """
    if figure is None:
        return "not measured"
    if not is_summary(figure):
        return figure if isinstance(figure, str) else short(figure)
    return " ".join(filter(None, (mean(figure), interval(figure))))


def mean(figure: Json) -> str:
    return f"{100 * figure['mean']:.1f} %" if is_share(figure) else short(figure["mean"])


def interval(figure: Json) -> str:
    """`[53.1, 71.0] n=104`, or as much of it as is known."""
    known = [f"n={figure['count']}"] if "count" in figure else []
    if "low" not in figure:
        return " ".join(known)
    ends = [
        f"{100 * figure[end]:.1f}" if is_share(figure) else short(figure[end])
        for end in ("low", "high")
    ]
    return " ".join([f"[{', '.join(ends)}]", *known])


def is_summary(figure: Any) -> bool:
    return isinstance(figure, dict) and "mean" in figure


def is_share(figure: Json) -> bool:
    """Whether it can be a share of something, which a perplexity cannot."""
    return all(0 <= figure.get(key, 0) <= 1 for key in ("mean", "low", "high"))


def differences(evaluation: Evaluation) -> list[Json]:
    """Those of compare.json, unless the predictions have changed since."""
    return list(evaluation.compared.get("differences", [])) if evaluation.is_current else []


def outdated(evaluation: Evaluation) -> str:
    """What to say where the models were compared, but not as they are now; "" otherwise."""
    if evaluation.is_current or not evaluation.compared.get("differences"):
        return ""
    named = " ".join(f"--model {model}" for model in evaluation.compared["models"])
    return (
        "Predictions have changed since the models were compared. Run `agentlite eval "
        f"{named}` "
        "again."
    )


def gain(row: Json) -> str:
    return f"{100 * row['mean']:+.1f} points"


def reach(row: Json) -> str:
    return f"[{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"


def verdict(row: Json) -> str:
    asked = f"{row['count']} {'dialogs' if row['metric'] in dialogs.METRICS else 'prompts'}"
    said = (
        f"beyond noise, on {asked}"
        if row["beyond_noise"]
        else f"within noise: {asked} cannot tell them apart"
    )
    return said + (f" (McNemar p = {row['mcnemar']:.2g})" if row.get("mcnemar") is not None else "")


def in_words(row: Json) -> str:
    return (
        f"{row['metric']}: {row['second']} over {row['first']} {gain(row)} {reach(row)}, "
        f"{verdict(row)}."
    )


def short(value: Any) -> str:
    """A digest by its first 12 digits, a figure by 4, anything else as JSON has it, without quotes
    around text.
    """
    if isinstance(value, str):
        return value[:12] if len(value) >= 16 and set(value) <= set("0123456789abcdef") else value
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def listed(values: Json) -> str:
    """A line of them all, but for what has tables of its own; a lineage as a chain."""
    shown = {
        **values,
        **({"lineage": " -> ".join(values["lineage"])} if values.get("lineage") else {}),
    }
    return ", ".join(
        f"{key} {short(value)}"
        for key, value in shown.items()
        if value not in (None, "") and key not in TABLED
    )


def _of_metrics(title: str, labels: list[str], rows: list[tuple[list[str], Json]]) -> Figures:
    known = {name for _, figures in rows for name in figures.get("metrics", {})}
    names = [name for name in METRICS if name in known] + sorted(known - METRICS.keys())
    return Figures(
        title,
        labels,
        names,
        [
            (label, [figures.get("metrics", {}).get(name, ABSENT) for name in names])
            for label, figures in rows
        ],
    )


def _group(name: str, by_model: dict[str, Json]) -> Figures:
    found = dict.fromkeys(
        name for figures in by_model.values() for name in figures if name != "count"
    )
    group = GROUPS.get(name)
    known = [one for one in group.names if group.all_shown or one in found] if group else []
    names = [*known, *(one for one in found if one not in known)]
    rows = [
        ([model], [figures.get(name, ABSENT) for name in names])
        for model, figures in by_model.items()
    ]
    return Figures(group.title if group else _words(name).capitalize(), ["model"], names, rows)


def _flat(figures: Json) -> Json:
    """Figures of figures as one row: `{"live": {"simple": 1}}` -> `{"live simple": 1}`."""
    flat: Json = {}
    for name, figure in figures.items():
        if isinstance(figure, dict) and not is_summary(figure):
            flat |= {f"{_words(name)} {inner}": value for inner, value in _flat(figure).items()}
        else:
            flat[name] = figure
    return flat


def _words(name: str) -> str:
    return name.replace("_", " ")
