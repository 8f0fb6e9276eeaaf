"""`tool_selection_accuracy>=0.8,forgetting<=0.02` and the figures of a model -> which conditions
fail, and why.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.core.errors import UserError, nearest
from agentlite.scoring.metrics import dialogs, kagentbench, tool_calls, tool_f1
from agentlite.scoring.metrics.bfcl import GROUPS as GROUPS_OF_BFCL
from agentlite.scoring.metrics.bfcl import RULES

COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
CONDITION = re.compile(
    r"\s*([A-Za-z_][\w.^]*)\s*(>=|<=|>|<)\s*([-+]?\d*\.?\d+(?:e[-+]?\d+)?)\s*(%?)\s*", re.ASCII
)
# of metrics.json, where a figure is looked for
GROUPS = ("metrics", "dialogs", "timing", "tools", "bfcl", "forgetting", "passes", "judge")
TIMING = ("timing_precision", "recall", "specificity", "f1", "balanced_accuracy")
SCORED = (
    "toolrl",
    "tool_n1",
    "bfcl",
    "bfcl_overall",
    *(f"bfcl_{group}" for group in GROUPS_OF_BFCL),
    *RULES,
)
BESIDES = (
    "forgetting",
    "perplexity",
    "general_questions",
    "questions_forgotten",
    "judge_score",
    "judge_usable",
)
KNOWN = (
    *tool_calls.METRICS,
    *dialogs.METRICS,
    *TIMING,
    *tool_f1.SHARES,
    *SCORED,
    *BESIDES,
    *kagentbench.WEIGHTS,
    "overall",
)


class Condition(NamedTuple):
    """A figure, by name, and where its mean has to be."""

    name: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.bound:g}"


def parse_gate(text: str) -> list[Condition]:
    """The conditions, all of which must hold. Raises UserError 2 for what is none, or of no figure
    there is.
    """
    conditions = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = CONDITION.fullmatch(part)
        if not found:
            raise UserError(
                f"'{part}' is no condition.",
                "Write NAME>=NUMBER, as in tool_selection_accuracy>=0.8.",
                location="--gate",
            )
        name, sign, bound, percent = found.groups()
        if name not in KNOWN and not re.fullmatch(r"pass\^\d+", name):
            raise UserError(
                f"no figure is called '{name}'.", nearest(name, KNOWN), location="--gate"
            )
        conditions.append(Condition(name, sign, float(bound) / (100 if percent else 1)))
    return conditions


def failures(conditions: Sequence[Condition], metrics: Mapping[str, Any]) -> list[str]:
    """In words. A figure that was not measured fails. `metrics`: what metrics.json holds."""
    known = means(metrics)
    failed = []
    for one in conditions:
        value = known.get(one.name)
        if value is None:
            failed.append(f"{one}: not measured")
        elif not COMPARE[one.sign](value, one.bound):
            failed.append(f"{one}: it is {value:.4g}")
    return failed


def means(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Every figure with its mean, None where there was nothing to measure it on."""
    known: dict[str, float | None] = {}
    for group in GROUPS:
        for name, figure in (metrics.get(group) or {}).items():
            if figure is None or isinstance(figure, dict):
                known[name] = figure["mean"] if figure else None
    return known
