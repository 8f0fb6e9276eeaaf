"""A report's tables, and its figures and sentences as text: page and screen print the same."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agentlite.report.read_run import Json, ReportedEvaluation
from agentlite.scoring.metrics import dialogs
from agentlite.scoring.metrics.figures import COUNTS, GROUPS, TITLES, learned_sentences
from agentlite.scoring.metrics.step_metrics import METRICS, WRONG_KINDS

TABLED = ("ranking", "differences")  # of a retriever's figures
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
        return [self.head, *(list(map(share, row)) for row in self.rows)]


def by_model(title: str, figures: Mapping[str, Json], known: Iterable[str]) -> Table:
    """A row for each figure, the known ones first, and a column for each model."""
    rows = [
        [name, *(_mark_count(name, of_one.get(name, ABSENT)) for of_one in figures.values())]
        for name in in_order(known, (name for of_one in figures.values() for name in of_one))
        if name != "count"
    ]
    return Table(title, ["", *figures], rows)


def _mark_count(name: str, figure: Any) -> Any:
    """Marks a count. Wilson's interval is of shares: a count that was always 0 or 1 has none."""
    if name not in COUNTS or not is_summary(figure):
        return figure
    ends = ("low", "high") if figure.get("interval") == "wilson" else ()
    return {key: value for key, value in figure.items() if key not in ends} | {"is_count": True}


def in_order(known: Iterable[str], present: Iterable[str]) -> list[str]:
    """The names that are present: the known ones in their order, then the others."""
    names = dict.fromkeys(present)
    return list(dict.fromkeys([*(name for name in known if name in names), *names]))


# --- The tables of metrics.json, by model ---


def models(metrics: dict[str, Json]) -> Table:
    """The metrics of the steps."""
    return by_model(
        "Models", {model: figures.get("metrics", {}) for model, figures in metrics.items()}, METRICS
    )


def slices(metrics: dict[str, Json]) -> list[Table]:
    """A table per slice, but for slices of a single value: they repeat the whole. The number of
    tools is shown always.
    """
    sliced = {model: figures.get("by", {}) for model, figures in metrics.items()}
    tables = []
    for name in in_order(SLICES, sorted({name for slices in sliced.values() for name in slices})):
        values = {value for slices in sliced.values() for value in slices.get(name, {})}
        if len(values) > (0 if name == "tools" else 1):
            rows = []
            # those that begin with a number in its order, before the others: 2, 2-4, 10, no call
            for value in sorted(values, key=lambda one: (len(re.split(r"\D", one)[0]) or 99, one)):
                parts = {model: of.get(name, {}).get(value, {}) for model, of in sliced.items()}
                rows += [[value, *row] for row in models(parts).rows]
            title = SLICES.get(name, f"By {_words(name)}")
            tables.append(Table(title, [name, "", *metrics], rows, 2))
    return tables


def groups(metrics: dict[str, Json]) -> dict[str, Table]:
    """A table for every other group of figures that metrics.json holds, by its name there."""
    present = [
        name
        for figures in metrics.values()
        for name, value in figures.items()
        if name not in NOT_A_GROUP and isinstance(value, dict) and value
    ]
    tables = {}
    for group in in_order(GROUPS, present):
        flattened = {model: flat(figures.get(group) or {}) for model, figures in metrics.items()}
        title, known = GROUPS.get(group, (_words(group).capitalize(), {}))
        tables[group] = by_model(title, flattened, known)
    return tables


def flat(figures: Json) -> Json:
    """Figures of figures as one row: `{"live": {"simple": 1}}` -> `{"live simple": 1}`."""
    row: Json = {}
    for name, figure in figures.items():
        if isinstance(figure, dict) and not is_summary(figure):
            row |= {f"{_words(name)} {inner}": value for inner, value in flat(figure).items()}
        else:
            row[name] = figure
    return row


def _words(name: str) -> str:
    return name.replace("_", " ")


def wrong_answers(metrics: dict[str, Json]) -> Table | None:
    """How many answers are wrong in which way: a row per kind that occurred, and one for all of
    them; a column per model. None where that was not counted.
    """
    if not all("wrong_answers" in figures for figures in metrics.values()):
        return None
    counts = [figures["wrong_answers"] for figures in metrics.values()]
    rows: list[list[Any]] = [
        [words, *(of_model.get(kind, 0) for of_model in counts)]
        for kind, words in WRONG_KINDS.items()
        if any(kind in of_model for of_model in counts)
    ]
    rows.append(["all wrong answers", *(sum(of_model.values()) for of_model in counts)])
    rows.append(["all answers", *(figures["prompts"] for figures in metrics.values())])
    return Table("Wrong answers, by kind", ["kind", *metrics], rows)


def rankings(figures: Json) -> list[Table]:
    """Of a retriever's figures: a column per ranking method."""
    return [by_model(VIEWS[view], methods, ()) for view, methods in figures["ranking"].items()]


def learned_before(metrics: dict[str, Json]) -> list[str]:
    """Sentences on the models that were trained on records which measure them."""
    return [
        sentence
        for model, figures in metrics.items()
        if (learned := figures.get("learned_before"))
        for sentence in learned_sentences(model, learned)
    ]


# --- Figures as text ---


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
    ends = [figure[end] for end in ("low", "high") if "low" in figure]
    shown = [f"{100 * end:.1f}" if is_share(figure) else short(end) for end in ends]
    known = [f"[{', '.join(shown)}]"] if shown else []
    known += [f"n={figure['count']}"] if "count" in figure else []
    return " ".join(known)


def is_summary(figure: object) -> bool:
    return isinstance(figure, dict) and "mean" in figure


def is_share(figure: Json) -> bool:
    """Whether it lies in [0, 1] with its interval. A count is not a share wherever it lies."""
    return not figure.get("is_count") and all(
        0 <= figure.get(key, 0) <= 1 for key in ("mean", "low", "high")
    )


def short(value: object) -> str:
    """The first 12 digits of a digest, 4 digits of a figure, anything else as JSON, text without
    quotes.
    """
    if isinstance(value, str):
        return value[:12] if len(value) >= 16 and set(value) <= set("0123456789abcdef") else value
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def list_values(values: Json) -> str:
    """One line with all values but those that have tables; a lineage as a chain."""
    chain = {"lineage": " -> ".join(values["lineage"])} if values.get("lineage") else {}
    return ", ".join(
        f"{key} {short(value)}"
        for key, value in {**values, **chain}.items()
        if value not in (None, "") and key not in TABLED
    )


# --- Differences between models, as text ---


def differences(evaluation: ReportedEvaluation) -> list[Json]:
    """The differences in compare.json, those of the main figures first; [] if the predictions have
    changed since.
    """
    rows = evaluation.compared.get("differences", []) if evaluation.is_current else []
    rank = {name: number for number, name in enumerate(METRICS)}
    return sorted(rows, key=lambda row: rank.get(row["metric"], len(rank)))


def gain(row: Json) -> str:
    return f"{row['mean']:+.2f}" if row["metric"] in COUNTS else f"{100 * row['mean']:+.1f} points"


def reach(row: Json) -> str:
    scale, digits = (1, 2) if row["metric"] in COUNTS else (100, 1)
    return f"[{scale * row['low']:+.{digits}f}, {scale * row['high']:+.{digits}f}]"


def verdict(row: Json) -> str:
    count = f"{row['count']} {'dialogs' if row['metric'] in dialogs.METRICS else 'prompts'}"
    noise = f"beyond noise, on {count}"
    if not row["beyond_noise"]:
        noise = f"within noise: {count} cannot tell them apart"
    if "p_holm" not in row:
        return noise
    chance = row["p_holm"]
    return f"{noise} ({'p < 0.001' if chance < 0.001 else f'p = {chance:.2g}'})"


def in_words(row: Json) -> str:
    models = f"{row['second']} over {row['first']}"
    return f"{row['metric']}: {models} {gain(row)} {reach(row)}, {verdict(row)}."


# --- An ablation's table.json, as text ---


def cell_rows(table: Json) -> list[list[str]]:
    """A head, the model that all cells start from, and a row for each cell, in the order of the
    grid.
    """
    metrics, first = table["metrics"], table["cells"][0]["name"]
    titles = [TITLES.get(metric, metric) for metric in metrics]
    over = [f"{title}, points over {first}" for title in titles]
    rows = [["cell", "what differs", *titles, *over, "time", "GiB"]]
    for cell in [table["start"], *table["cells"]]:
        shares = [share(cell["figures"].get(metric)) for metric in metrics]
        if not cell["figures"]:
            shares = [cell["state"], *(ABSENT for _ in metrics[1:])]
        gains = [_cell_gain(cell["differences"].get(metric)) for metric in metrics]
        seconds, gib = cell.get("seconds", 0), cell.get("gib", 0)
        took = f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
        spent = [took if seconds else ABSENT, f"{gib or ABSENT}"]
        rows.append([cell["name"], cell["differs"] or "the first", *shares, *gains, *spent])
    return rows


def _cell_gain(row: Json | None) -> str:
    beyond = ", beyond noise" if row and row["beyond_noise"] else ""
    return f"{100 * row['mean']:+.1f} {reach(row)}{beyond}" if row else ABSENT


def failed_cells(table: Json) -> list[str]:
    """A sentence for each cell that failed: why, and at which command."""
    return [
        f"{cell['name']}: failed, {cell['note'].rstrip('.')} ({cell['command']})."
        for cell in table["cells"]
        if cell["state"] == "failed"
    ]
