"""The result of an evaluation in a few sentences: report.html, report.md and the screen have it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentlite.report.read_run import Json

TOOL, EXACT = "tool_selection_accuracy", "exact_call"
# without a question that needs a tool: what is said of the others
PHRASES = {
    TOOL: ("picks the right tool for", "questions that need one"),
    "call_decision": ("is right to call a tool, or not to, for", "questions"),
    "bfcl": ("completes", "tasks, by BFCL's verdict"),
    "env": ("completes", "tasks"),
}


def headline(metrics: Mapping[str, Json], differences: Iterable[Json]) -> list[str]:
    """Sentences on the figure that matters most, the best model first: how often it is right, what
    is beyond noise, and how many calls are right as a whole. [] where it was not measured.

    `metrics`: of each model, as in metrics.json; `differences`: those of compare.json.
    """
    name = next((name for name in PHRASES if _measured(metrics, name)), None)
    if not name:
        return []
    verb, questions = PHRASES[name]
    measured = _measured(metrics, name)
    best, *others = sorted(measured, key=lambda model: -measured[model]["mean"])
    count = measured[best]["count"]

    # a reward between 0 and 1: there is nothing to count
    if any(figure.get("interval", "wilson") != "wilson" for figure in measured.values()):
        first = f"{best} has a mean {name} of {measured[best]['mean']:.2f} on {count} {questions}"
        rest = [f"{model} of {measured[model]['mean']:.2f}" for model in others]
    else:
        same = all(figure["count"] == count for figure in measured.values())
        first = f"{best} {verb} {_right(measured[best])} of {count} {questions}"
        rest = [
            f"{model} for {_right(measured[model])}"
            + ("" if same else f" of {measured[model]['count']}")
            for model in others
        ]
    sentences = [f"{first}; {', '.join(rest)}." if rest else f"{first}."]
    sentences += _noise(name, [best, *others], differences)
    whole = _measured(metrics, EXACT)
    if name == TOOL and whole.keys() == measured.keys():
        counts = [f"{_right(whole[model])} ({model})" for model in [best, *others]]
        subject = "The whole call, with its arguments, is right for"
        sentences.append(f"{subject} {listed(counts) if others else _right(whole[best])}.")
    return sentences


def _measured(metrics: Mapping[str, Json], name: str) -> dict[str, Any]:
    """The figure of each model that has it."""
    figures = {model: of.get("metrics", {}).get(name) for model, of in metrics.items()}
    return {model: figure for model, figure in figures.items() if figure and figure.get("count")}


def _right(figure: Json) -> str:
    return f"{figure['mean'] * figure['count']:.0f}"


def _noise(name: str, ranked: Sequence[str], differences: Iterable[Json]) -> list[str]:
    """What the paired differences of one figure say of the models, the better one first."""
    better: dict[str, list[str]] = {}
    alike: list[tuple[str, str]] = []
    for row in differences:
        if row["metric"] != name or not {row["first"], row["second"]} <= {*ranked}:
            continue
        pair = sorted((row["first"], row["second"]), key=ranked.index)
        if row["beyond_noise"]:
            better.setdefault(pair[0], []).append(pair[1])
        else:
            alike.append((pair[0], pair[1]))
    if len(ranked) == 2:
        if better:
            return ["The difference is beyond noise."]
        return ["The difference is within noise: it may be chance."] if alike else []
    sentences = [
        f"{model} is better than {listed(better[model])}, beyond noise."
        for model in ranked
        if model in better
    ]
    if alike:
        pairs = listed([f"{first} and {second}" for first, second in alike], ", or ")
        sentences.append(f"Too few questions to tell {pairs} apart.")
    return sentences


def listed(names: Sequence[str], last: str = " and ") -> str:
    """`a, b and c`"""
    *before, end = names
    return last.join([", ".join(before), end]) if before else end
