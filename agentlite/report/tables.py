"""A report's tables, and its figures and sentences as text: page and screen print the same."""

import json
import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from agentlite.report.read_run import Json, ReportedEvaluation
from agentlite.scoring.metrics import dialogs
from agentlite.scoring.metrics.figures import COUNTS, GROUPS, TITLES
from agentlite.scoring.metrics.step_metrics import METRICS, WRONG_KINDS

TABLE_KEYS = ("ranking", "differences")  # of a retriever's figures
VIEWS = {"all": "All questions", "new tools": "Questions whose tools were never right in training"}
# the keys of metrics.json that are not groups of figures
NOT_A_GROUP = ("metrics", "by", "wrong_answers", "learned_before")
SLICES = {
    "tools": "By number of tools to choose from",
    "ended": "By what ended the rollout",
    "difficulty": "By difficulty: as the records say, or by the expected calls",
}
NO_EVALUATION = "No evaluation is finished."
# a figure that a model's metrics.json does not name at all; one that is null there was not measured
ABSENT = "-"


class Table(NamedTuple):
    """Rows of as many labels as `labels` says, and then of figures: numbers, summaries as
    metrics.json has them, or text.
    """

    title: str
    head: list[str]
    rows: list[list[Any]]
    labels: int = 1

    @property
    def cells(self) -> list[list[str]]:
        return [self.head, *(list(map(figure_text, row)) for row in self.rows)]


def table_by_model(title: str, figures: Mapping[str, Json], known_names: Iterable[str]) -> Table:
    """A row for each figure, the known ones first, and a column for each model."""
    rows = [
        [name, *(_mark_count(name, row.get(name, ABSENT)) for row in figures.values())]
        for name in order_names(known_names, chain(*figures.values()))
        if name != "count"
    ]
    return Table(title, ["", *figures], rows)


def _mark_count(name: str, figure: Any) -> Any:
    """Marks a count. Wilson's interval is of shares: a count that was always 0 or 1 has none."""
    if name not in COUNTS or not is_summary(figure):
        return figure
    ends = ("low", "high") if figure.get("interval") == "wilson" else ()
    return {key: value for key, value in figure.items() if key not in ends} | {"is_count": True}


def order_names(known_names: Iterable[str], names: Iterable[str]) -> list[str]:
    """Each name once: the known ones in their order, then the others."""
    distinct = dict.fromkeys(names)
    return list(dict.fromkeys([*(name for name in known_names if name in distinct), *distinct]))


# --- The tables of metrics.json, by model ---


def models(metrics: dict[str, Json]) -> Table:
    """The metrics of the steps."""
    return table_by_model(
        "Models", {model: figures.get("metrics", {}) for model, figures in metrics.items()}, METRICS
    )


def slices(metrics: dict[str, Json]) -> list[Table]:
    """A table per slice, but for slices of a single value: they repeat the whole. The number of
    tools is shown always.
    """
    by_model = {model: figures.get("by", {}) for model, figures in metrics.items()}
    tables = []
    for name in order_names(SLICES, sorted({*chain(*by_model.values())})):
        values = {value for by in by_model.values() for value in by.get(name, {})}
        if len(values) > (0 if name == "tools" else 1):
            rows = []
            # those that begin with a number in its order, before the others: 2, 2-4, 10, no call
            for value in sorted(values, key=lambda v: (len(re.split(r"\D", v)[0]) or 99, v)):
                value_metrics = {m: by.get(name, {}).get(value, {}) for m, by in by_model.items()}
                rows += [[value, *row] for row in models(value_metrics).rows]
            title = SLICES.get(name, f"By {_in_words(name)}")
            tables.append(Table(title, [name, "", *metrics], rows, 2))
    return tables


def groups(metrics: dict[str, Json]) -> dict[str, Table]:
    """A table for every other group of figures that metrics.json holds, by its name there."""
    names = [
        name
        for figures in metrics.values()
        for name, value in figures.items()
        if name not in NOT_A_GROUP and isinstance(value, dict) and value
    ]
    tables = {}
    for group in order_names(GROUPS, names):
        flat = {model: flatten(figures.get(group) or {}) for model, figures in metrics.items()}
        title, known_names = GROUPS.get(group, (_in_words(group).capitalize(), {}))
        tables[group] = table_by_model(title, flat, known_names)
    return tables


def flatten(figures: Json) -> Json:
    """Figures of figures as one row: `{"live": {"simple": 1}}` -> `{"live simple": 1}`."""
    row: Json = {}
    for name, figure in figures.items():
        if isinstance(figure, dict) and not is_summary(figure):
            row |= {f"{_in_words(name)} {inner}": value for inner, value in flatten(figure).items()}
        else:
            row[name] = figure
    return row


def _in_words(name: str) -> str:
    return name.replace("_", " ")


def wrong_answers(metrics: dict[str, Json]) -> Table | None:
    """How many answers are wrong in which way: a row per kind that occurred, and one for all of
    them; a column per model. None where that was not counted.
    """
    if not all("wrong_answers" in figures for figures in metrics.values()):
        return None
    counts = [figures["wrong_answers"] for figures in metrics.values()]
    rows: list[list[Any]] = [
        [words, *(kinds.get(kind, 0) for kinds in counts)]
        for kind, words in WRONG_KINDS.items()
        if any(kind in kinds for kinds in counts)
    ]
    rows.append(["all wrong answers", *(sum(kinds.values()) for kinds in counts)])
    rows.append(["all answers", *(figures["prompts"] for figures in metrics.values())])
    return Table("Wrong answers, by kind", ["kind", *metrics], rows)


def rankings(figures: Json) -> list[Table]:
    """Of a retriever's figures: a column per ranking method."""
    return [table_by_model(VIEWS[v], methods, ()) for v, methods in figures["ranking"].items()]


# --- Figures as text ---


def figure_text(figure: Any) -> str:
    """A figure in [0, 1] as a percentage, any other as a number, with its interval and count."""
    if figure is None:
        return "not measured"
    if not is_summary(figure):
        return figure if isinstance(figure, str) else value_text(figure)
    return " ".join(filter(None, (mean(figure), interval(figure))))


def mean(figure: Json) -> str:
    return f"{100 * figure['mean']:.1f} %" if is_share(figure) else value_text(figure["mean"])


def interval(figure: Json) -> str:
    """`[53.1, 71.0] n=104`, or as much of it as is known."""
    ends = [figure[end] for end in ("low", "high") if "low" in figure]
    end_texts = [f"{100 * end:.1f}" if is_share(figure) else value_text(end) for end in ends]
    parts = [f"[{', '.join(end_texts)}]"] if end_texts else []
    parts += [f"n={figure['count']}"] if "count" in figure else []
    return " ".join(parts)


def is_summary(figure: object) -> bool:
    return isinstance(figure, dict) and "mean" in figure


def is_share(figure: Json) -> bool:
    """Whether it lies in [0, 1] with its interval. A count is not a share wherever it lies."""
    return not figure.get("is_count") and all(
        0 <= figure.get(key, 0) <= 1 for key in ("mean", "low", "high")
    )


def value_text(value: object) -> str:
    """The first 12 digits of a digest, 4 digits of a figure, anything else as JSON, text without
    quotes.
    """
    if isinstance(value, str):
        return value[:12] if len(value) >= 16 and set(value) <= set("0123456789abcdef") else value
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def list_values(values: Json) -> str:
    """One line with all values but those that have tables; a lineage as a chain."""
    lineage = {"lineage": " -> ".join(values["lineage"])} if values.get("lineage") else {}
    return ", ".join(
        f"{key} {value_text(value)}"
        for key, value in {**values, **lineage}.items()
        if value not in (None, "") and key not in TABLE_KEYS
    )


# --- Differences between models, as text ---


def differences(evaluation: ReportedEvaluation) -> list[Json]:
    """The differences in compare.json, those of the main figures first; [] if the predictions have
    changed since.
    """
    rows = evaluation.comparison.get("differences", []) if evaluation.is_current else []
    rank = {name: number for number, name in enumerate(METRICS)}
    return sorted(rows, key=lambda row: rank.get(row["metric"], len(rank)))


def gain(row: Json) -> str:
    return f"{row['mean']:+.2f}" if row["metric"] in COUNTS else f"{100 * row['mean']:+.1f} points"


def gain_interval(row: Json) -> str:
    scale, digits = (1, 2) if row["metric"] in COUNTS else (100, 1)
    return f"[{scale * row['low']:+.{digits}f}, {scale * row['high']:+.{digits}f}]"


def verdict(row: Json) -> str:
    count = f"{row['count']} {'dialogs' if row['metric'] in dialogs.METRICS else 'prompts'}"
    noise = f"beyond noise, on {count}"
    if not row["beyond_noise"]:
        noise = f"within noise: {count} cannot tell them apart"
    if "p_holm" not in row:
        return noise
    p = row["p_holm"]
    return f"{noise} ({'p < 0.001' if p < 0.001 else f'p = {p:.2g}'})"


def difference_sentence(row: Json) -> str:
    models = f"{row['second']} over {row['first']}"
    return f"{row['metric']}: {models} {gain(row)} {gain_interval(row)}, {verdict(row)}."


# --- An ablation's table.json, as text ---


def cell_rows(table: Json) -> list[list[str]]:
    """A head, the model that all cells start from, and a row for each cell, in the order of the
    grid.
    """
    metrics, first = table["metrics"], table["cells"][0]["name"]
    titles = [TITLES.get(metric, metric) for metric in metrics]
    gain_titles = [f"{title}, points over {first}" for title in titles]
    rows = [["cell", "what differs", *titles, *gain_titles, "time", "GiB"]]
    for cell in [table["start"], *table["cells"]]:
        shares = [figure_text(cell["figures"].get(metric)) for metric in metrics]
        if not cell["figures"]:
            shares = [cell["state"], *(ABSENT for _ in metrics[1:])]
        gains = [_cell_gain(cell["differences"].get(metric)) for metric in metrics]
        seconds, gib = cell.get("seconds", 0), cell.get("gib", 0)
        duration = f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
        costs = [duration if seconds else ABSENT, f"{gib or ABSENT}"]
        rows.append([cell["name"], cell["differs"] or "the first", *shares, *gains, *costs])
    return rows


def _cell_gain(row: Json | None) -> str:
    beyond = ", beyond noise" if row and row["beyond_noise"] else ""
    return f"{100 * row['mean']:+.1f} {gain_interval(row)}{beyond}" if row else ABSENT


def failure_sentences(table: Json) -> list[str]:
    """A sentence for each cell that failed: why, and at which command."""
    return [
        f"{cell['name']}: failed, {cell['note'].rstrip('.')} ({cell['command']})."
        for cell in table["cells"]
        if cell["state"] == "failed"
    ]
