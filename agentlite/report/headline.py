"""The result of an evaluation in a few sentences: report.html and the screen have it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentlite.report.read_run import Json

TOOL, EXACT = "tool_selection_accuracy", "exact_call"
MANY = 4  # of more models, the others are compared with the best one only
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
    name = next((name for name in PHRASES if _model_figures(metrics, name)), None)
    if not name:
        return []
    verb, questions = PHRASES[name]
    measured = _model_figures(metrics, name)
    paired = [
        row
        for row in differences
        if row["metric"] == name and {row["first"], row["second"]} <= measured.keys()
    ]
    best, *others = ranked = _rank_models(measured, paired)
    count = measured[best]["count"]
    same = all(figure["count"] == count for figure in measured.values())

    # a reward between 0 and 1: there is nothing to count
    if any(figure.get("interval", "wilson") != "wilson" for figure in measured.values()):
        first = f"{best} has a mean {name} of {measured[best]['mean']:.2f} on {count} {questions}"
        rest = [
            f"{model} of {measured[model]['mean']:.2f}"
            + ("" if same else f" on {measured[model]['count']}")
            for model in others
        ]
    else:
        first = f"{best} {verb} {_right(measured[best])} of {count} {questions}"
        rest = [f"{model} for {_right(measured[model], not same)}" for model in others]
    sentences = [f"{first}; {', '.join(rest)}." if rest else f"{first}."]
    if len(ranked) > MANY:
        paired = [row for row in paired if best in (row["first"], row["second"])]
    sentences += _noise(measured, ranked, paired, questions.split()[0].rstrip(","))
    whole = _model_figures(metrics, EXACT)
    if name == TOOL and whole.keys() == measured.keys():
        counts = [f"{_right(whole[model], not same)} ({model})" for model in ranked]
        subject = "The whole call, with its arguments, is right for"
        sentences.append(f"{subject} {join_names(counts) if others else _right(whole[best])}.")
    # specificity: of the questions that need no tool, the share at which none was called
    timing = {model: {"metrics": of.get("timing") or {}} for model, of in metrics.items()}
    needless = [
        f"{count:.0f} of {figure['count']} ({model})"
        for model, figure in _model_figures(timing, "specificity").items()
        if (count := figure["count"] * (1 - figure["mean"])) >= 1
    ]
    if needless:
        subject = "Where no tool is needed, one is called, or the answer cannot be read, for"
        sentences.append(f"{subject} {join_names(needless)}.")
    return sentences


def _rank_models(measured: Mapping[str, Json], paired: Sequence[Json]) -> list[str]:
    """The models, the best first: by their gains over each other on the questions that all of them
    answered, since some may have answered more; by their own means if not all were compared.
    """
    gains = dict.fromkeys(measured, 0.0)
    # n models make n (n - 1) / 2 pairs
    for row in paired if len(paired) == len(measured) * (len(measured) - 1) // 2 else ():
        gains[row["first"]] -= row["mean"]
        gains[row["second"]] += row["mean"]
    # equal up to rounding: the order of the means, and then of the models, stays
    return sorted(measured, key=lambda model: (-round(gains[model], 9), -measured[model]["mean"]))


def _model_figures(metrics: Mapping[str, Json], name: str) -> dict[str, Any]:
    """The figure of each model that has it."""
    figures = {model: of.get("metrics", {}).get(name) for model, of in metrics.items()}
    return {model: figure for model, figure in figures.items() if figure and figure.get("count")}


def _right(figure: Json, counted: bool = False) -> str:
    """How many are right; of how many, where that is not said yet."""
    right = f"{figure['mean'] * figure['count']:.0f}"
    return f"{right} of {figure['count']}" if counted else right


def _noise(
    measured: Mapping[str, Json], ranked: Sequence[str], paired: Sequence[Json], questions: str
) -> list[str]:
    """What the paired differences of one figure say of the models, the better one first. Where a
    model answered more than the others, they are of fewer questions than its figure.
    """
    better: dict[str, list[str]] = {}
    alike: list[str] = []
    for row in paired:
        # the mean is what the second has over the first
        worse, winner = (row["first"], row["second"])[:: 1 if row["mean"] > 0 else -1]
        if row["beyond_noise"]:
            better.setdefault(winner, []).append(worse)
        else:
            alike.append(" and ".join(sorted((worse, winner), key=ranked.index)))
    counts = {row["count"] for row in paired}
    asked = {measured[model]["count"] for model in ranked}
    on = (
        "" if counts == asked else f" on the {min(counts, default=0)} {questions} that all answered"
    )
    if len(ranked) == 2 and not on:
        if better:
            return ["The difference is beyond noise."]
        return ["The difference is within noise: it may be chance."] if alike else []
    sentences = [
        f"{model} is better than {join_names(better[model])}{on}, beyond noise."
        for model in ranked
        if model in better
    ]
    if alike:
        sentences.append(f"Too few questions to tell {join_names(alike, ', or ')} apart{on}.")
    return sentences


def join_names(names: Sequence[str], last: str = " and ") -> str:
    """`a, b and c`"""
    *before, end = names
    return last.join([", ".join(before), end]) if before else end
