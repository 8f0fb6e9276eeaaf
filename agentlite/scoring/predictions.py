"""Answers of a model, or of another system, at the steps of records -> scored predictions."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentlite.core.records import (
    Call,
    GreedyAnswer,
    Parsed,
    Prediction,
    Record,
    Step,
    digest,
    to_json,
)
from agentlite.core.row_files import Appender, Row, read_rows
from agentlite.rendering import Prompt, Protocol
from agentlite.scoring.metrics import step_metrics
from agentlite.scoring.metrics.bfcl import category_of, is_right
from agentlite.scoring.metrics.dialogs import Dialog
from agentlite.scoring.metrics.figures import BFCL
from agentlite.scoring.metrics.summarize import Scores, scores
from agentlite.scoring.read_turn import read_turn, reference_of
from agentlite.scoring.rewards import COMPONENTS, Attempt

# an end of turn as most templates write one; the ends of calls look alike
TURN_END = (
    r"<[|｜](?![^<>]*(?:call|tool|section|think))[^<>|｜]*(?:end|eo[tms])[^<>|｜]*[|｜]>"
    r"|</s>|<eos>|<end_of_turn>|<turn\|>"
)
CUT_OFF = "not finished within max_new_tokens"
DIFFICULTY = ("difficulty", "level")  # where the meta of a record says it


class ExternalAnswer(NamedTuple):
    """The answer of another system at a step: its text, or its calls where it gives them apart."""

    text: str
    calls: tuple[Call, ...] | None = None


def prompt_key(prompt: Prompt) -> str:
    """Names a prompt by its tokens: an answer to another one is not an answer to this."""
    return digest(",".join(map(str, prompt.ids)))


def to_prediction(prompt: Prompt, answer: GreedyAnswer, protocol: Protocol) -> Prediction:
    """The answer as the protocol reads it. One that was not finished cannot be read."""
    if not answer.prompt or answer.problem:
        problem = step_metrics.UNANSWERED if answer.problem else step_metrics.TOO_LONG
        return score_reading(prompt, Parsed("", (), problem), finished=False)
    parsed = read_turn(answer.text, protocol, prompt.record, prompt.turn)
    finished = answer.ended != "cut"
    if not finished and not parsed.problem:
        parsed = Parsed(parsed.content, parsed.calls, CUT_OFF)
    reference = reference_of(protocol, prompt.record, prompt.turn)
    return score_reading(prompt, parsed, answer.text, answer.new_tokens, finished, reference)


def external_prediction(
    prompt: Prompt, answer: ExternalAnswer | None, protocol: Protocol, ends: Sequence[str] = ()
) -> Prediction:
    """None: another system has no answer to the prompt, which is a problem and scores 0. One that
    gives only its calls is not judged by its words. `ends`: the tokens that end a turn, or fill up
    what is behind it, in the template of the data.
    """
    if answer is None:
        return score_reading(prompt, Parsed("", (), step_metrics.NO_PREDICTION))
    any_end = re.compile(rf"(?:{'|'.join([TURN_END, *map(re.escape, filter(None, ends))])})\Z")
    while end := any_end.search(answer.text.rstrip()):  # decoded with its special tokens
        answer = answer._replace(text=answer.text[: end.start()])
    reference = reference_of(protocol, prompt.record, prompt.turn)
    parsed = (
        read_turn(answer.text, protocol, prompt.record, prompt.turn)
        if answer.calls is None
        else Parsed(answer.text or reference, answer.calls)
    )
    return score_reading(prompt, parsed, answer.text, reference=reference)


def score_reading(
    prompt: Prompt,
    parsed: Parsed,
    text: str = "",
    new_tokens: int = 0,
    finished: bool = True,
    reference: str = "",
) -> Prediction:
    """Scores a reading at its step. `reference`: the words that the record has there."""
    record, gold = prompt.record, prompt.record.gold_at(prompt.turn)
    metrics = step_metrics.score_step(parsed, gold, record.tools)
    if gold.names_tools or not gold.calls:
        attempt = Attempt(
            parsed,
            gold,
            record.tools,
            finished,
            text,
            messages=record.messages[: prompt.turn],
            reference=reference,
        )
        metrics["toolrl"] = COMPONENTS["arguments"](attempt)
        metrics["tool_n1"] = COMPONENTS["exact"](attempt)
    if category := category_of(record):
        calls = () if parsed.problem else parsed.calls
        metrics[BFCL] = float(is_right(category, calls, gold, record.tools))
    return Prediction(
        record.id,
        prompt.turn,
        text,
        parsed.problem,
        parsed.calls,
        metrics,
        slices(record, prompt.protocol),
        new_tokens,
        step_metrics.wrong_kind(parsed, gold, record.tools, finished=finished),
    )


def slices(record: Record, protocol: str) -> dict[str, str]:
    """What a report slices by. The difficulty is as the record says, or by its expected calls."""
    tool_count = len(record.tools)
    call_count = sum(len(record.gold_at(turn).calls) for turn in record.turns)
    difficulties = [record.meta[key] for key in DIFFICULTY if isinstance(record.meta.get(key), str)]
    several_calls = "2-4 calls" if call_count < 5 else "5+ calls"
    by_calls = several_calls if call_count > 1 else "1 call" if call_count else "no call"
    return {
        "tools": str(tool_count) if tool_count < 2 else "2-4" if tool_count < 5 else "5+",
        "task": record.task,
        "source": record.source,
        "protocol": protocol,
        "difficulty": next(iter(difficulties), "") or by_calls,
    }


def read_answers(path: Path, keys: Mapping[Step, str]) -> dict[Step, GreedyAnswer]:
    """The answers there are to these very prompts, by step. `keys`: see prompt_key."""
    if not path.exists():
        return {}
    with Appender(path):  # cuts a torn last line
        pass
    answers = (msgspec.convert(row, GreedyAnswer) for row in read_rows(path))
    return {
        answer.step: answer
        for answer in answers
        if answer.step in keys and answer.prompt in ("", keys[answer.step])
    }


def to_prediction_row(prediction: Prediction) -> Row:
    calls = [{"name": call.name, "arguments": to_json(call.arguments)} for call in prediction.calls]
    return {**msgspec.structs.asdict(prediction), "calls": calls}


def read_predictions(path: Path) -> Iterator[Prediction]:
    for row in read_rows(path):
        calls = tuple(
            Call(call["name"], json.loads(call["arguments"])) for call in row.pop("calls")
        )
        yield Prediction(calls=calls, **row)


def read_scores(folder: Path) -> Scores:
    """The metrics of each step and each dialog, from the folder of an evaluated model."""
    return scores(
        list(read_predictions(folder / "predictions.jsonl")),
        [Dialog(**row) for row in read_rows(folder / "dialogs.jsonl")],
    )
