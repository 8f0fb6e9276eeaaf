"""The answers of a model -> scores from 0 to 5 by an LLM judge, or sheets for people."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import UNSET

from agentlite.core import console
from agentlite.core.endpoint_pool import refuse_unanswered
from agentlite.core.openai_client import Endpoint
from agentlite.core.records import Prediction, Record, plain
from agentlite.scoring.judge.human_ratings import write_sheet
from agentlite.scoring.judge.llm_judge import USABLE, Item, Prices, judge
from agentlite.scoring.metrics.confidence import Summary, summary
from agentlite.scoring.metrics.model_metrics import JUDGED, JudgeRun


def items(predictions: Sequence[Prediction], records: Mapping[str, Record]) -> list[Item]:
    """What is judged of the answers of a model."""
    return [
        item_at(f"{one.record_id} {one.turn}", records[one.record_id], one.turn, one.text)
        for one in predictions
    ]


def item_at(name: str, record: Record, turn: int, answer: str) -> Item:
    """What is judged of an answer at a turn of a record: what the user said last and the tools on
    offer, the answer, and what the record itself says; of a call whose arguments are not known, the
    name.
    """
    before = record.messages[:turn]
    question = next((message.content for message in reversed(before) if message.role == "user"), "")
    tools = ", ".join(tool.name for tool in record.tools)
    message, unknown = record.messages[turn], record.unknown_arguments(turn)
    calls = (
        plain({"name": call.name} | ({} if i in unknown else {"arguments": call.arguments}))
        for i, call in enumerate(message.calls)
    )
    reference = "\n".join(filter(None, [message.content, *calls]))
    return Item(name, f"{question}\n\nTools: {tools}", answer, reference)


def judge_metrics(
    predictions: Sequence[Prediction],
    records: Mapping[str, Record],
    endpoint: Endpoint,
    file: Path,
    seed: int,
    prices: Prices | None = None,
    *,
    leave_out: bool = False,
    begin: Callable[[int], None] = lambda rows: None,
) -> tuple[dict[str, Summary | None], JudgeRun]:
    """The judge's mean score and the share of usable answers; what went wrong, and what it cost.

    Raises UserError 8 where the judge says nothing about some answers, and these are not to be left
    out. `leave_out`, `begin`: see `judge`.
    """
    answers = items(predictions, records)
    with console.progress(f"judging by {endpoint.model}", len(answers)) as advance:
        result = judge(
            answers,
            endpoint,
            file,
            prices=prices,
            leave_out=leave_out,
            begin=begin,
            advance=advance,
        )
    if not leave_out:
        effect = "leaves them out of the judge's figures"
        refuse_unanswered(result.unanswered, len(answers), "--judge", effect)
    for problem, count in result.problems.items():
        console.notice(f"eval: the judge gave no score to {count} answers: {problem}")
    scores = [float(score) for score in result.scores.values()]
    usable = [float(score >= USABLE) for score in scores]
    metrics = {
        name: summary(values, seed) if values else None
        for name, values in zip(JUDGED, (scores, usable), strict=True)
    }
    return metrics, JudgeRun(
        model=endpoint.model,
        url=endpoint.url,
        problems=result.problems,
        prompt_tokens=result.prompt_tokens,
        completion_tokens=result.completion_tokens,
        cost=UNSET if result.cost is None else result.cost,
    )


def write_sheets(
    predictions: Mapping[str, Sequence[Prediction]],
    records: Mapping[str, Record],
    sheet: Path,
    seed: int,
) -> None:
    """One blind sheet for the answers of all models."""
    write_sheet(
        {model: items(answers, records) for model, answers in predictions.items()}, sheet, seed
    )
    console.notice(
        f"eval: {sheet} is to be scored: copy it for each rater; {sheet.stem}.key.json says whose "
        "they are"
    )
