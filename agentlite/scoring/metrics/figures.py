"""What metrics.json and compare.json hold, the one list of their figures, and gates on them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from agentlite.core.conditions import Condition, parse_condition
from agentlite.core.errors import UserError, suggest
from agentlite.scoring.metrics import (
    bfcl,
    call_shares,
    dialogs,
    general_talk,
    kagentbench,
    step_metrics,
)
from agentlite.scoring.metrics.confidence import Summary
from agentlite.scoring.metrics.step_metrics import describe

Json = dict[str, Any]
BFCL = "bfcl"  # the metric of a step that says whether BFCL's own rules accept it
# figures of a step beside those of step_metrics
STEP_FIGURES = {
    "toolrl": "Partial credit for tools, parameter names and values (ToolRL's score).",
    "tool_n1": "All or nothing: form, tools and arguments (Tool-N1's score).",
    BFCL: "Right by the rules of the Berkeley Function Calling Leaderboard.",
}
# figures of a rollout, beside those that an environment has of its own
ROLLOUT_FIGURES = {
    "env": "The reward that the environment gives (get_reward).",
    "gold_calls": "Of the right calls of a task, the share that was made.",
    "progress": "The share of the user's turns before the first that went wrong.",
    "state": "The world ends as it does by the right calls.",
    "tool_errors": "Of the calls of a rollout, the share that failed.",
    "timeout": "Calls that ran out of time; one more if the last text was cut off.",
    "extra_calls": "Calls beyond the fewest with which the task can be done.",
}
# the score that says whether a task is done: the first that an environment has
DONE_SCORES = (BFCL, "env", "gold_calls")
# figures that are not shares, also where they lie between 0 and 1
COUNTS = ("timeout", "extra_calls")
# what can end a rollout; the figure of how often it did is ended_by_...
ENDINGS = {
    "user": "The user had nothing more to say.",
    "done": "The environment said that its episode is done.",
    "turns": "The model made calls up to the limit of turns (max_turns).",
    "length": "The dialog left no room for another answer (--max-length).",
    "unwritten": "The dialog could not be written in the model's protocol.",
    "hung": "A call did not return in time. Such a rollout scores 0.",
    "world": "The world died. Such a rollout has no score.",
    "unanswered": "The model's server gave no answer. Such a rollout has no score.",
}
HEADLINE = ("tool_selection_accuracy", "exact_call")  # in a listing
# of recorded dialogs, those that the screen shows unless it is asked for all
TITLES = {
    "tool_selection_accuracy": "right tool",
    "exact_call": "right call",
    "call_decision": "call or no call",
    "format_compliance": "readable answers",
}


# what the LLM judge thinks of the answers; None where it gave no score at all
JUDGE_FIGURES = {
    "judge_score": "The judge's points, from 0 to 5.",
    "judge_usable": "The share of answers with 4 or 5 points.",
}


class JudgeRun(Struct, frozen=True, kw_only=True):
    """Which judge it was, what it could not judge, by problem, and its tokens."""

    model: str
    url: str
    problems: dict[str, int]
    prompt_tokens: int
    completion_tokens: int


def learned_before_sentences(model: str, learned_before: Mapping[str, Any]) -> list[str]:
    """One for each stage that was trained on questions, on what that says of the figures."""
    return [
        f"{stage} was trained on rows that are not there any more: whether {model} learned "
        "these questions cannot be seen."
        if count is None
        else f"{count} of {learned_before['records']} records ask what {stage} was trained on: the "
        f"figures of {model} show what it remembers."
        for stage, count in learned_before["by_stage"].items()
    ]


class Metrics(Struct, frozen=True, kw_only=True):
    """metrics.json of one evaluated model, its keys in this order.

    A figure is None where there was nothing to measure it on; a group is absent where nobody asked
    for it. `by`: slice -> value -> `prompts`, `metrics` and `dialogs` of what has it. `problems`:
    how many texts had each. `wrong_answers`: how many answers are of each kind; absent where the
    model acted in an environment. `unanswered`: how many prompts count as wrong because their
    server never answered. `learned_before`: the number of `records`, and `by_stage` how many of
    them it was trained on, None where its rows are not known any more; absent where it learned
    none. `passes_are`: the temperature of the samples; `forgetting_is`: the file of general rows,
    and the models before and after.
    """

    prompts: int
    metrics: dict[str, Summary | None]
    dialogs: dict[str, Summary | None]
    dialogs_are: str
    timing: dict[str, Summary | int | None] | UnsetType = UNSET
    endings: dict[str, Summary] | UnsetType = UNSET
    by: dict[str, dict[str, Json]]
    problems: dict[str, int]
    wrong_answers: dict[str, int] | UnsetType = UNSET
    unanswered: int | UnsetType = UNSET
    learned_before: Json | UnsetType = UNSET
    tools: dict[str, Summary | None] | UnsetType = UNSET
    parse_problems: dict[str, Summary] | UnsetType = UNSET
    bfcl: dict[str, Summary | None] | UnsetType = UNSET
    bfcl_is: str | UnsetType = UNSET
    bfcl_not_measured: list[str] | UnsetType = UNSET
    retrieval: dict[str, Summary | int | str] | UnsetType = UNSET
    judge: dict[str, Summary | None] | UnsetType = UNSET
    judge_is: JudgeRun | UnsetType = UNSET
    passes: dict[str, Summary] | UnsetType = UNSET
    passes_are: dict[str, float] | UnsetType = UNSET
    forgetting: Mapping[str, Any] | UnsetType = UNSET
    forgetting_is: dict[str, str] | UnsetType = UNSET
    self_cognition: dict[str, Summary | None] | UnsetType = UNSET
    self_cognition_is: general_talk.Identity | UnsetType = UNSET


# The groups of figures in metrics.json: the title of each in a report, and what its figures say, in
# the order of a report; "" where a name says it.
# pass^k has as many figures as there were samples
GROUPS: dict[str, tuple[str, Mapping[str, str]]] = {
    "metrics": ("Models", {**describe(step_metrics.METRICS), **STEP_FIGURES, **ROLLOUT_FIGURES}),
    "endings": (
        "What ended the rollouts",
        {f"ended_by_{name}": text for name, text in ENDINGS.items()},
    ),
    "timing": ("Call or no call", call_shares.TIMING),
    "tools": ("Names and parameters of calls", call_shares.TOOLS),
    "dialogs": ("Whole dialogs, teacher-forced", describe(dialogs.METRICS)),
    "bfcl": ("BFCL-style subset, by groups and categories", bfcl.FIGURES),
    "forgetting": ("What was forgotten of general talk", general_talk.FORGETTING),
    "self_cognition": ("Who the model says it is", general_talk.SELF_COGNITION),
    "passes": ("All of k samples right", {}),
    "judge": ("What the judge thinks", JUDGE_FIGURES),
}
EXPLANATIONS = {
    name: text for _, figures in GROUPS.values() for name, text in figures.items() if text
}


def figures_by_name(metrics: Metrics) -> dict[str, Any]:
    """Every figure of every group as plain data, None where there was nothing to measure it on."""
    groups = msgspec.to_builtins(metrics)
    return {
        name: figure
        for group in GROUPS
        for name, figure in groups.get(group, {}).items()
        if not isinstance(figure, int)  # a count is not a figure
    }


def means(metrics: Metrics) -> dict[str, float | None]:
    """Every figure of every group with its mean, None where there was nothing to measure it on."""
    return {name: figure and figure["mean"] for name, figure in figures_by_name(metrics).items()}


def select_figures(metrics: Metrics, names: Sequence[str]) -> dict[str, Any]:
    """metrics.json as plain data: whole, or the named figures alone, in the order of the names.
    Those that were not measured are left out.
    """
    if not names:
        return dict(msgspec.to_builtins(metrics))
    figures = figures_by_name(metrics)
    return {
        "prompts": metrics.prompts,
        "metrics": {name: figures[name] for name in names if name in figures},
    }


def read_metrics(path: Path) -> Metrics:
    return msgspec.json.decode(path.read_bytes(), type=Metrics)


# --- Conditions of `--gate tool_selection_accuracy>=0.8,forgetting<=0.02` ---

NAMES = (
    *(name for _, figures in GROUPS.values() for name in figures),
    *kagentbench.PARTS,
    "overall",
)
# as seed 002 calls them
ALIASES = {
    "tool_accuracy": "tool_selection_accuracy",
    "plan_success": "plan_success_rate",
    "efficiency": "step_efficiency",
}


def parse_gate(text: str, *, own_scores: bool = False) -> list[Condition]:
    """The conditions, all of which must hold. `own_scores`: an environment may have figures of its
    own. Raises UserError 2 for text that is not a condition, or names no figure.
    """
    conditions = []
    for term in filter(None, (term.strip() for term in text.split(","))):
        condition = parse_condition(term, "--gate", "tool_selection_accuracy>=0.8")
        if not own_scores:
            condition = condition._replace(name=figure_name(condition.name, "--gate"))
        conditions.append(condition)
    return conditions


def figure_name(name: str, location: str) -> str:
    """The name that a figure has in metrics.json. Raises UserError 2 for one that no figure has."""
    name = ALIASES.get(name, name)
    if name not in NAMES and not re.fullmatch(r"pass\^\d+", name):
        raise UserError(f"no figure is called '{name}'.", suggest(name, NAMES), location=location)
    return name


def failures(conditions: Sequence[Condition], means: Mapping[str, float | None]) -> list[str]:
    """In words. `means`: of each figure; one that was not measured, or is not there, fails."""
    sentences = []
    for condition in conditions:
        mean = means.get(condition.name)
        if mean is None:
            sentences.append(f"{condition}: not measured")
        elif not condition.holds(mean):
            sentences.append(f"{condition}: it is {mean:.4g}")
    return sentences
