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
    figures = _model_figures(metrics, name)
    pairs = [
        row
        for row in differences
        if row["metric"] == name and {row["first"], row["second"]} <= figures.keys()
    ]
    best, *others = ranking = _rank_models(figures, pairs)
    count = figures[best]["count"]
    with_total = any(figure["count"] != count for figure in figures.values())

    # a reward between 0 and 1: there is nothing to count
    if any(figure.get("interval", "wilson") != "wilson" for figure in figures.values()):
        opening = f"{best} has a mean {name} of {figures[best]['mean']:.2f} on {count} {questions}"
        clauses = [
            f"{model} of {figures[model]['mean']:.2f}"
            + (f" on {figures[model]['count']}" if with_total else "")
            for model in others
        ]
    else:
        opening = f"{best} {verb} {_count_text(figures[best])} of {count} {questions}"
        clauses = [f"{model} for {_count_text(figures[model], with_total)}" for model in others]
    sentences = [f"{opening}; {', '.join(clauses)}." if clauses else f"{opening}."]
    if len(ranking) > MANY:
        pairs = [row for row in pairs if best in (row["first"], row["second"])]
    sentences += _noise_sentences(figures, ranking, pairs, questions.split()[0].rstrip(","))
    exact = _model_figures(metrics, EXACT)
    if name == TOOL and exact.keys() == figures.keys():
        counts = [f"{_count_text(exact[model], with_total)} ({model})" for model in ranking]
        subject = "The whole call, with its arguments, is right for"
        sentences.append(f"{subject} {join_names(counts) if others else _count_text(exact[best])}.")
    # specificity: of the questions that need no tool, the share at which none was called
    timing = {model: {"metrics": groups.get("timing") or {}} for model, groups in metrics.items()}
    needless_calls = [
        f"{count:.0f} of {figure['count']} ({model})"
        for model, figure in _model_figures(timing, "specificity").items()
        if (count := figure["count"] * (1 - figure["mean"])) >= 1
    ]
    if needless_calls:
        subject = "Where no tool is needed, one is called, or the answer cannot be read, for"
        sentences.append(f"{subject} {join_names(needless_calls)}.")
    return sentences


def _rank_models(figures: Mapping[str, Json], pairs: Sequence[Json]) -> list[str]:
    """The models, the best first: by their gains over each other on the questions that all of them
    answered, since some may have answered more; by their own means if not all were compared.
    """
    gains = dict.fromkeys(figures, 0.0)
    # n models make n (n - 1) / 2 pairs
    for row in pairs if len(pairs) == len(figures) * (len(figures) - 1) // 2 else ():
        gains[row["first"]] -= row["mean"]
        gains[row["second"]] += row["mean"]
    # equal up to rounding: the order of the means, and then of the models, stays
    return sorted(figures, key=lambda model: (-round(gains[model], 9), -figures[model]["mean"]))


def _model_figures(metrics: Mapping[str, Json], name: str) -> dict[str, Any]:
    """The figure of each model that has it."""
    figures = {model: groups.get("metrics", {}).get(name) for model, groups in metrics.items()}
    return {model: figure for model, figure in figures.items() if figure and figure.get("count")}


def _count_text(figure: Json, with_total: bool = False) -> str:
    """How many are right; of how many, where that is not said yet."""
    right = f"{figure['mean'] * figure['count']:.0f}"
    return f"{right} of {figure['count']}" if with_total else right


def _noise_sentences(
    figures: Mapping[str, Json], ranking: Sequence[str], pairs: Sequence[Json], questions: str
) -> list[str]:
    """What the paired differences of one figure say of the models, the better one first. Where a
    model answered more than the others, they are of fewer questions than its figure.
    """
    worse_by_better: dict[str, list[str]] = {}
    ties: list[str] = []
    for row in pairs:
        # the mean is what the second has over the first
        worse, better = (row["first"], row["second"])[:: 1 if row["mean"] > 0 else -1]
        if row["beyond_noise"]:
            worse_by_better.setdefault(better, []).append(worse)
        else:
            ties.append(" and ".join(sorted((worse, better), key=ranking.index)))
    common_counts = {row["count"] for row in pairs}
    common_scope = f" on the {min(common_counts, default=0)} {questions} that all answered"
    scope = "" if common_counts == {figures[model]["count"] for model in ranking} else common_scope
    if len(ranking) == 2 and not scope:
        if worse_by_better:
            return ["The difference is beyond noise."]
        if ties and not pairs[0]["mean"]:
            return ["The difference is zero."]
        return ["The difference is within noise: it may be chance."] if ties else []
    sentences = [
        f"{model} is better than {join_names(worse_by_better[model])}{scope}, beyond noise."
        for model in ranking
        if model in worse_by_better
    ]
    if ties:
        sentences.append(f"Too few questions to tell {join_names(ties, ', or ')} apart{scope}.")
    return sentences


def join_names(names: Sequence[str], joint: str = " and ") -> str:
    """`a, b and c`"""
    *first, last = names
    return joint.join([", ".join(first), last]) if first else last
