"""The tables and sentences that both reports print, so that they cannot differ."""

import json
import math
import re
import shlex
from typing import Any, NamedTuple

import msgspec

from agentlite.report.read_run import Evaluation, Json
from agentlite.scoring.metrics import dialogs
from agentlite.scoring.metrics.model_metrics import COUNTS, GROUPS, LearnedBefore
from agentlite.scoring.metrics.tool_calls import METRICS
from agentlite.scoring.metrics.wrong_answers import IN_WORDS, KINDS

TABLED = ("ranking", "differences", "latency_ms")  # of a retriever's figures
# the keys of metrics.json that are not groups of figures
NOT_A_GROUP = ("prompts", "metrics", "by", "problems", "wrong_answers", "learned_before")
SLICES = {
    "tools": "By number of tools to choose from",
    "task": "By task",
    "source": "By source",
    "protocol": "By protocol",
    "user_turn": "By turn of the user's",
    "ended": "By what ended the rollout",
    "difficulty": "By difficulty: as the records say, or by the expected calls",
}
BFCL_SENTENCE = (
    "Splitting BFCL into train and test shows that the pipeline works; it is not a leaderboard "
    "score."
)
MEAN_SENTENCE = (
    "Each figure is a mean with its 95 % interval and the number of prompts or dialogs it was "
    "measured on."
)
ROLLOUTS_SENTENCE = (
    "The worst ones first. The best rollout of a task has the highest mean of its scores, then the "
    "fewest turns; each other one shows the turn at which it leaves that one."
)
NO_EVALUATION = "No evaluation is finished."
ALL_READABLE = "None: every answer could be read."
WRONG_SENTENCE = (
    "An answer with several mistakes counts once, as the first kind in this order that it has."
)
# a figure that a model's metrics.json does not name at all; one that is null there was not measured
ABSENT = "-"


class Figures(NamedTuple):
    """A table: the heads of its labels, the names of its figures, and each row's labels and
    figures.
    """

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
        """The same table with rows and columns exchanged."""
        # a name for each row's labels, and for each figure its values down the rows
        names = [" ".join(labels) for labels, _ in self.rows]
        columns = [[figures[index] for _, figures in self.rows] for index in range(len(self.names))]
        return Figures(
            self.title,
            [""],
            names,
            [([name], row) for name, row in zip(self.names, columns, strict=True)],
        )


def table(metrics_by_model: dict[str, Json]) -> list[list[str]]:
    """A head, then a row per model and a column per metric, as "62.5 % [53.1, 71.0] n=104"."""
    return models(metrics_by_model).cells


def models(metrics: dict[str, Json]) -> Figures:
    return _of_metrics(
        "Models", ["model"], [([model], figures) for model, figures in metrics.items()]
    )


def slices(metrics: dict[str, Json]) -> list[Figures]:
    """A table per slice, but for slices of a single value: they repeat the whole. The number of
    tools is shown always.
    """
    present = {name for figures in metrics.values() for name in figures.get("by", {})}
    tables = []
    for name in [*(name for name in SLICES if name in present), *sorted(present - SLICES.keys())]:
        by_model = {
            model: figures.get("by", {}).get(name, {}) for model, figures in metrics.items()
        }
        rows = [
            ([value, model], by_model[model][value])
            for value in sorted({one for values in by_model.values() for one in values}, key=_order)
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
    present = dict.fromkeys(
        name
        for figures in metrics.values()
        for name, value in figures.items()
        if name not in NOT_A_GROUP and isinstance(value, dict) and value
    )
    names = [
        *(name for name in GROUPS if name in present),
        *(name for name in present if name not in GROUPS),
    ]
    return [
        _group(name, {model: _flat(figures.get(name) or {}) for model, figures in metrics.items()})
        for name in names
    ]


def learned_before(metrics: dict[str, Json]) -> list[str]:
    """Sentences on the models that were trained on records which measure them."""
    return [
        sentence
        for model, figures in metrics.items()
        if (learned := figures.get("learned_before"))
        for sentence in msgspec.convert(learned, LearnedBefore).sentences(model)
    ]


def problems(metrics: dict[str, Json]) -> Figures:
    """How often each problem occurred: a row per problem, a column per model."""
    counts = {model: figures.get("problems", {}) for model, figures in metrics.items()}
    kinds = sorted({kind for of_model in counts.values() for kind in of_model})
    rows = [([kind], [of_model.get(kind, 0) for of_model in counts.values()]) for kind in kinds]
    return Figures("Text that could not be read", ["problem"], list(metrics), rows)


def wrong_answers(metrics: dict[str, Json]) -> Figures | None:
    """How many answers are wrong in which way: a row per kind that occurred, and one for all of
    them; a column per model. None where that was not counted.
    """
    counts = {model: figures.get("wrong_answers") for model, figures in metrics.items()}
    if all(of_model is None for of_model in counts.values()):
        return None
    kinds = [kind for kind in KINDS if any(kind in (one or ()) for one in counts.values())]
    rows: list[tuple[list[str], list[Any]]] = [
        ([IN_WORDS[kind]], [ABSENT if one is None else one.get(kind, 0) for one in counts.values()])
        for kind in kinds
    ]
    totals = [ABSENT if one is None else sum(one.values()) for one in counts.values()]
    prompts = [figures.get("prompts", ABSENT) for figures in metrics.values()]
    rows += [(["all wrong answers"], totals), (["all answers"], prompts)]
    return Figures("Wrong answers, by kind", ["kind"], list(metrics), rows)


def share(figure: Any) -> str:
    """A figure in [0, 1] as a percentage, any other as a number, with its interval and count."""
    if figure is None:
        return "not measured"
    if not is_summary(figure):
        return figure if isinstance(figure, str) else short(figure)
    return " ".join(filter(None, (mean(figure), interval(figure))))


def mean(figure: Json) -> str:
    return f"{100 * figure['mean']:.1f} %" if is_share(figure) else short(figure["mean"])


def interval(figure: Json) -> str:
    """`[53.1, 71.0] n=104`, or as much of it as is known."""
    count = [f"n={figure['count']}"] if "count" in figure else []
    if "low" not in figure:
        return " ".join(count)
    ends = [
        f"{100 * figure[end]:.1f}" if is_share(figure) else short(figure[end])
        for end in ("low", "high")
    ]
    return " ".join([f"[{', '.join(ends)}]", *count])


def is_summary(figure: object) -> bool:
    return isinstance(figure, dict) and "mean" in figure


def is_share(figure: Json) -> bool:
    """Whether it lies in [0, 1] with its interval. A count is not a share wherever it lies."""
    return not figure.get("is_count") and all(
        0 <= figure.get(key, 0) <= 1 for key in ("mean", "low", "high")
    )


def differences(evaluation: Evaluation) -> list[Json]:
    """The differences in compare.json, those of the main figures first; [] if the predictions have
    changed since.
    """
    rows = evaluation.compared.get("differences", []) if evaluation.is_current else []
    order = [*METRICS]
    return sorted(
        rows,
        key=lambda row: order.index(row["metric"]) if row["metric"] in METRICS else len(order),
    )


def outdated(evaluation: Evaluation) -> str:
    """A sentence if the models were compared, but not as they are now; "" otherwise."""
    if evaluation.is_current or not evaluation.compared.get("differences"):
        return ""
    named = " ".join(f"--model {shlex.quote(model)}" for model in evaluation.compared["models"])
    return (
        "Predictions have changed since the models were compared. Run `agentlite eval "
        f"{named}` again."
    )


def gain(row: Json) -> str:
    return f"{row['mean']:+.2f}" if row["metric"] in COUNTS else f"{100 * row['mean']:+.1f} points"


def reach(row: Json) -> str:
    if row["metric"] in COUNTS:
        return f"[{row['low']:+.2f}, {row['high']:+.2f}]"
    return f"[{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"


def verdict(row: Json) -> str:
    count = f"{row['count']} {'dialogs' if row['metric'] in dialogs.METRICS else 'prompts'}"
    sentence = (
        f"beyond noise, on {count}"
        if row["beyond_noise"]
        else f"within noise: {count} cannot tell them apart"
    )
    if "p_holm" not in row:
        return sentence
    chance = row["p_holm"]
    return f"{sentence} ({'p < 0.001' if chance < 0.001 else f'p = {chance:.2g}'})"


def in_words(row: Json) -> str:
    return (
        f"{row['metric']}: {row['second']} over {row['first']} {gain(row)} {reach(row)}, "
        f"{verdict(row)}."
    )


def short(value: object) -> str:
    """The first 12 digits of a digest, 4 digits of a figure, anything else as JSON, text without
    quotes.
    """
    if isinstance(value, str):
        return value[:12] if len(value) >= 16 and set(value) <= set("0123456789abcdef") else value
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def listed(values: Json) -> str:
    """One line with all values but those that have tables; a lineage as a chain."""
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
    present = {name for _, figures in rows for name in figures.get("metrics", {})}
    names = [name for name in METRICS if name in present] + sorted(present - METRICS.keys())
    return Figures(
        title,
        labels,
        names,
        [
            (
                label,
                [_counted(name, figures.get("metrics", {}).get(name, ABSENT)) for name in names],
            )
            for label, figures in rows
        ],
    )


def _counted(name: str, figure: Any) -> Any:
    """Marks a count. Wilson's interval is of shares: a count that was always 0 or 1 has none."""
    if name not in COUNTS or not is_summary(figure):
        return figure
    ends = ("low", "high") if figure.get("interval") == "wilson" else ()
    return {key: value for key, value in figure.items() if key not in ends} | {"is_count": True}


def _order(value: str) -> tuple[float, str]:
    """Values that begin with a number are in its order: 2, 2-4, 10."""
    number = re.match(r"\d{1,9}", value)
    return (float(number[0]) if number else math.inf, value)


def _group(name: str, by_model: dict[str, Json]) -> Figures:
    present = dict.fromkeys(
        name for figures in by_model.values() for name in figures if name != "count"
    )
    group = GROUPS.get(name)
    first = [name for name in group.names if group.all_shown or name in present] if group else []
    names = [*first, *(name for name in present if name not in first)]
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
