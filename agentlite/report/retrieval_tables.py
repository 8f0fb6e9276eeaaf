"""Tables of a retriever's figures: a row per ranking method, and the gains of the best."""

from collections.abc import Mapping
from typing import Any

from agentlite.core.console import print_table
from agentlite.report.tables import Table, in_words
from agentlite.scoring.metrics.ranking import headline

VIEWS = {
    "all": "All questions",
    "new tools": "Questions whose tools were never right in training",
    "known tools": "Questions with a tool that was right in training",
    "tool_retrieval": "Task tool_retrieval",
}
BASELINES = ("bm25", "untrained")


def show(figures: dict[str, object], stream: Any) -> None:
    """Prints them for the terminal."""
    for view in tables(figures):
        print(f"\n{view.title} ({view.rows[0][1]['count']}), in %", file=stream)
        heads = [name.replace(" of ", "\nof ") for name in view.head]
        means = [[name, *map(_percent, figures)] for name, *figures in view.rows]
        print_table([["", *heads[1:]], *means], stream)
    print(file=stream)
    for row in differences(figures):
        print(in_words(row), file=stream)


def tables(figures: Mapping[str, Any]) -> list[Table]:
    """One per view: recall for every size of the pool, the other metrics for the largest. The title
    of the first names all views that hold every question."""
    ranked = figures["ranking"]
    counts = {view: _any(sizes)["mrr"]["count"] for view, sizes in ranked.items()}
    every = [view for view in ranked if counts[view] == counts["all"]]
    titles = {"all": ", ".join(VIEWS[view] for view in every)}
    titles |= {view: VIEWS[view] for view in ranked if view not in every}
    return [_table(title, ranked[view]) for view, title in titles.items()]


def _table(title: str, sizes: dict[str, Any]) -> Table:
    recall, *others = headline(_any(sizes))
    last = list(sizes)[-1]
    columns = [(size, recall) for size in sizes] + [(last, name) for name in others]
    rows = [
        [method, *(sizes[size][method][name] for size, name in columns)] for method in sizes[last]
    ]
    return Table(title, ["by", *(f"{name} of {size}" for size, name in columns)], rows)


def differences(figures: Mapping[str, Any]) -> list[dict[str, object]]:
    """The gains over the baselines on all questions, each named by its metric and the number of
    tools.
    """
    return [
        {**row, "metric": f"{row['metric']} of {row['tools']}"}
        for row in figures["differences"]
        if row["first"] in BASELINES
    ]


def best_in_words(figures: Mapping[str, Any]) -> str:
    """The best method's first metric at the largest pool, for a list of stages."""
    if not (sizes := figures.get("ranking", {}).get("all")):
        return f"{figures['names']} tools"
    size = list(sizes)[-1]
    method = figures["differences"][0]["second"]
    name = headline(sizes[size][method])[0]
    return f"{name} {_percent(sizes[size][method][name])} % of {size} tools"


def _any(sizes: dict[str, Any]) -> dict[str, Any]:
    metrics: dict[str, Any] = next(iter(next(iter(sizes.values())).values()))
    return metrics


def _percent(figure: dict[str, Any]) -> str:
    return f"{100 * figure['mean']:.1f}"
