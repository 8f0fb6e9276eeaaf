"""KAgentBench: planning, tool use, reflection, concluding, profile, and the overall.

It scores as the benchmark's own script does, to compare with published figures, the script's
defects included: ReAct's whole input is one argument, ModelScope's answers have no thought, an
empty text is read as the one before it, and a gold that repeats the last task gets no reflection.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from agentlite.core.errors import UserError, need
from agentlite.core.records import plain
from agentlite.core.row_files import read_rows
from agentlite.scoring.metrics.confidence import Summary, bootstrap, draw_resamples, summary
from agentlite.scoring.metrics.kagentbench_texts import (
    ANSWERS,
    NONE,
    READERS,
    ParsedText,
    rouge_l,
)

Kind = Literal["plantooluse", "reflextion", "conclusion", "profile"]  # the benchmark's own spelling
WEIGHTS = {
    "planning": 0.25,
    "tool_use": 0.35,
    "reflection": 0.10,
    "concluding": 0.20,
    "profile": 0.10,
}


class StepTask(Struct, frozen=True):
    """The action of a step, as the gold has it; `golden_result`: the text that is expected at the
    others.
    """

    thought: Any = NONE
    tool_name: Any = NONE
    tool_args: dict[str, Any] = {}
    golden_result: Any = ""


class Answer(Struct, frozen=True):
    """What a model said to each prompt of a query: a text by template, or one for a profile."""

    id: str | int
    type: Kind
    model_predict: dict[str, Any] | str


class Row(Struct, frozen=True):
    """A query with its gold and what a model said to it."""

    id: str | int
    type: Kind
    golden_result_list: list[StepTask]
    funcs: list[Any] = []
    memory_last_task: Any = None
    model_predict: dict[str, Any] | str = {}


AnyRow = TypeVar("AnyRow", Row, Answer)


def read(benchmark: Path, predictions: Path) -> list[Row]:
    """The rows of the benchmark, each with its prediction. Raises UserError for one that is
    missing, twice, unknown.
    """
    need("KAgentBench's ROUGE", ["nltk"], "pip install 'agentlite[kagent]'", "--kagent")
    questions, answers = _by_id(benchmark, Row), _by_id(predictions, Answer)
    if odd := sorted(questions.keys() ^ answers.keys()):
        kind, name = odd[0]
        raise UserError(
            f"{name} ({kind}) stands in one of the two files only, and {len(odd) - 1} more.",
            f"Predict all rows of {benchmark}, and no others.",
            location=str(predictions),
        )
    for (kind, name), answer in answers.items():
        texts = answer.model_predict
        is_profile, is_text = kind == "profile", isinstance(texts, str)
        if is_profile != is_text or not (is_text or {*texts} <= {*READERS}):
            raise UserError(
                f"model_predict of {name} ({kind}) is {'one text' if is_profile else 'an object'}.",
                f"An object has texts by template: {', '.join(READERS)}.",
                location=str(predictions),
            )
    return [
        msgspec.structs.replace(row, model_predict=answers[key].model_predict)
        for key, row in questions.items()
    ]


def _by_id(path: Path, kind: type[AnyRow]) -> dict[tuple[str, str], AnyRow]:
    """By type and id."""
    rows: dict[tuple[str, str], AnyRow] = {}
    for number, raw in enumerate(read_rows(path), 1):
        try:
            row = msgspec.convert(raw, kind)
            problem = f"{row.id} ({row.type}) appears twice."
        except msgspec.ValidationError as error:
            row, problem = None, f"{error}."
        if row is None or (key := (row.type, str(row.id))) in rows:
            fix = "Give each row of KAgentBench once."
            raise UserError(problem, fix, location=f"{path}:{number}")
        rows[key] = row
    return rows


def score(rows: Sequence[Row], seed: int) -> dict[str, Summary | None]:
    """Each part over the queries that have it, and the overall; None where nothing, or not all, was
    measured.
    """
    values = {
        name: [measure(row) for row in rows if row.type == kind]
        for name, (kind, measure) in PARTS.items()
    }
    parts = {name: summary(values[name], seed) if values[name] else None for name in PARTS}
    if not all(values.values()):
        return {**parts, "overall": None}
    # queries are drawn again within their kind; planning and tool use together, as they are of the
    # same ones
    weighted: dict[Kind, list[float]] = {}
    for name, (kind, _) in PARTS.items():
        before = weighted.get(kind, [0.0] * len(values[name]))
        each = zip(before, values[name], strict=True)
        weighted[kind] = [sofar + WEIGHTS[name] * value for sofar, value in each]
    draws = (draw_resamples(sorted(kind), seed + n) for n, kind in enumerate(weighted.values()))
    estimates = (sum(map(fmean, resample)) for resample in zip(*draws, strict=True))
    mean = overall({name: fmean(values[name]) for name in PARTS})
    return {**parts, "overall": bootstrap(mean, estimates, sum(map(len, weighted.values())))}


def overall(parts: Mapping[str, float]) -> float:
    """The sum of the parts by the published weights."""
    return sum(weight * parts[name] for name, weight in WEIGHTS.items())


def reflection(row: Row) -> float:
    """Thought and arguments, .3 to .7; nothing for a gold that repeats the last task."""
    task = row.memory_last_task
    last = (task.get("tool_name"), task.get("tool_args")) if isinstance(task, dict) else None

    def agreement(parsed: ParsedText, gold: StepTask) -> float:
        if gold.thought == NONE or last == (gold.tool_name, gold.tool_args):
            return 0.0
        return 0.3 * _thought(parsed, gold) + 0.7 * _arguments(parsed, gold)

    return _over_prompts(row, agreement)


def concluding(row: Row) -> float:
    assert isinstance(row.model_predict, dict)
    texts = row.model_predict.items()
    answers = [ANSWERS.get(template, str)(_text(said)) for template, said in texts]
    return fmean([_nearest(row, answer) for answer in answers]) if answers else 0.0


PARTS: dict[str, tuple[Kind, Callable[[Row], float]]] = {
    "planning": ("plantooluse", lambda row: _over_prompts(row, _thought)),
    "tool_use": ("plantooluse", lambda row: _over_prompts(row, _arguments)),
    "reflection": ("reflextion", reflection),
    "concluding": ("conclusion", concluding),
    "profile": ("profile", lambda row: _nearest(row, row.model_predict)),
}


def _over_prompts(row: Row, agreement: Callable[[ParsedText, StepTask], float]) -> float:
    """The mean over the prompts of how well the answer agrees with the nearest gold that calls the
    same tool.
    """
    assert isinstance(row.model_predict, dict)
    best, last = [], ParsedText()
    for template, text in row.model_predict.items():
        if template != "ReACT" or text:
            last = READERS[template](_text(text), row.funcs)
        golds = [gold for gold in row.golden_result_list if NONE != gold.tool_name == last.tool]
        best.append(max((agreement(last, gold) for gold in golds), default=0.0))
    return fmean(best) if best else 0.0


def _thought(parsed: ParsedText, gold: StepTask) -> float:
    return rouge_l(gold.thought, parsed.thought) if gold.thought != NONE else 0.0


def _arguments(parsed: ParsedText, gold: StepTask) -> float:
    """The mean over the arguments of the gold; what is given beside them costs nothing, but where
    there are none.
    """
    expected, given = gold.tool_args, parsed.arguments
    if not expected or not given:
        return float(expected == given)
    return fmean(
        rouge_l(value, given[name]) if name in given else 0.0 for name, value in expected.items()
    )


def _nearest(row: Row, answer: object) -> float:
    return max(
        (rouge_l(gold.golden_result, answer) for gold in row.golden_result_list), default=0.0
    )


def _text(said: object) -> str:
    return said if isinstance(said, str) else plain(said)
