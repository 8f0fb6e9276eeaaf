"""Tables of a retriever's figures: a column per ranking method, and the gains of the best."""

from collections.abc import Mapping
from typing import Any

from agentlite.core.console import print_table
from agentlite.report.tables import Table, by_model, in_words

VIEWS = {
    "all": "All questions",
    "new tools": "Questions whose tools were never right in training",
}


def show(figures: Mapping[str, Any], stream: Any) -> None:
    """Prints them for the terminal."""
    for view in tables(figures):
        print(f"\n{view.title} ({view.rows[0][1]['count']}), in %", file=stream)
        means = [[name, *map(_percent, figures)] for name, *figures in view.rows]
        print_table([view.head, *means], stream)
    print(file=stream)
    for row in figures["differences"]:
        print(in_words(row), file=stream)


def tables(figures: Mapping[str, Any]) -> list[Table]:
    return [by_model(VIEWS[view], methods, ()) for view, methods in figures["ranking"].items()]


def best_in_words(figures: Mapping[str, Any]) -> str:
    """The first metric of the best method, the last one, at the largest pool, for a list of
    stages.
    """
    if "ranking" not in figures:
        return f"{figures['names']} tools"
    best = [*figures["ranking"]["all"].values()][-1]
    metric = [name for name in best if name.startswith("recall")][-1]
    return f"{metric.replace(' of', f' {_percent(best[metric])} % of')} tools"


def _percent(figure: Mapping[str, Any]) -> str:
    return f"{100 * figure['mean']:.1f}"
