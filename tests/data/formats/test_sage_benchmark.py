"""agentlite.data.formats.sage_benchmark: what the ground truth of each task is as an answer."""

from typing import Any

import pytest
from msgspec.structs import replace
from support.damaged_rows import Row, refused, rows

from agentlite.core.errors import RowError
from agentlite.core.records import (
    ANY_ARGUMENTS,
    ANY_TOOL,
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    Task,
    Tool,
)
from agentlite.data.curation.validate import validate
from agentlite.data.formats import sage_benchmark
from agentlite.data.formats.bfcl import ANY_CALL_ANSWER, NO_CALL_ANSWER

ROWS = rows("sage_benchmark")
OPEN = {"type": "object", "properties": {}, "additionalProperties": True}
RAIN, TIDE = Tool("rain_001", "", OPEN), Tool("tide_002", "", OPEN)
ASKED = "Is it wet in Oslo?"


def unknown(*tool_ids: str) -> dict[int, Gold]:
    return {1: Gold(tuple(GoldCall(tool_id, ANY_ARGUMENTS) for tool_id in tool_ids))}


def answered(row: Row, answer: str, *tool_ids: str, task: Task, **more: Any) -> Record:
    calls = tuple(Call(tool_id, {}, f"call_{i}") for i, tool_id in enumerate(tool_ids))
    beside = {"ground_truth": row["ground_truth"], "metadata": row["metadata"]}
    expected = {
        "messages": (Message("user", ASKED), Message("assistant", answer, calls)),
        "tools": (RAIN, TIDE),
        "gold": unknown(*tool_ids),
        "split": "test",
        "meta": {"source_id": row["sample_id"], "extra": beside},
    }
    return Record(task=task, **(expected | more))


def asked(text: str, answer: str, *tool_ids: str) -> tuple[Message, ...]:
    calls = tuple(Call(tool_id, {}, f"call_{i}") for i, tool_id in enumerate(tool_ids))
    return (Message("user", text), Message("assistant", answer, calls))


SELECT, SELECT_TWO, PLAN, CALL, ANSWER, NO_ANSWER, DESCRIBED = ROWS
EXPECTED = [
    answered(SELECT, "It's about rain.", "rain_001", task="tool_selection"),
    answered(
        SELECT_TWO,
        "",
        task="tool_selection",
        messages=asked(f"我们在海边。\n\n{ASKED}", "", "tide_002", "rain_001"),
        gold=unknown("tide_002", "rain_001"),
        split="",
    ),
    answered(
        PLAN,
        "",
        task="multi_step_planning",
        messages=asked(
            '{"user": "Ann"}\n\n' + ASKED,
            "1. Look up the rain\n2. 看潮汐\n3. Look up the rain again",
            "rain_001",
            "tide_002",
            "rain_001",
        ),
        gold=unknown("rain_001", "tide_002", "rain_001"),
    ),
    answered(
        CALL, "The weather changes.\nSo I look.", "rain_001", task="timing_decision", tools=(RAIN,)
    ),
    answered(ANSWER, "Oslo is in Norway.", task="timing_decision"),
    answered(NO_ANSWER, NO_CALL_ANSWER, task="timing_decision", tools=()),
    answered(
        DESCRIBED,
        "",
        "rain_001",
        task="tool_selection",
        tools=(Tool("rain_001", "Rain: rain of today, 雨量", OPEN), TIDE),
        meta={
            "source_id": DESCRIBED["sample_id"],
            "extra": {
                key: DESCRIBED[key] for key in ("candidate_tools", "ground_truth", "metadata")
            },
        },
    ),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_the_truth_of_each_task_is_the_answer_and_is_kept_whole_in_meta(
    row: Row, expected: Record
) -> None:
    assert sage_benchmark.fits(row)
    assert sage_benchmark.read(row) == expected
    validate(expected)


def sample(kind: Any, truth: Any, **row: Any) -> Row:
    tools = ["rain_001", "tide_002"]
    return {
        "sample_id": "s",
        "task_type": kind,
        "instruction": "q",
        "candidate_tools": tools,
        "ground_truth": truth,
        **row,
    }


def planned(**truth: Any) -> Row:
    return sample(
        "task_planning",
        {"plan_steps": [{"step_id": 1, "description": "d", "tool_id": "rain_001"}], **truth},
    )


TOP = {"top_k": ["rain_001"]}
BAD: list[tuple[str, Row]] = [
    ("E201", {}),
    ("E201", sample("tool_selection", None)),
    ("E201", sample("tool_selection", TOP, candidate_tools={"a": 1})),
    ("E202", sample("tool_retrieval", TOP)),
    ("E202", sample(["tool_selection"], TOP)),
    ("E201", sample("tool_selection", {"top_k": []})),
    ("E201", sample("tool_selection", {"top_k": [1]})),
    ("E201", sample("tool_selection", TOP, split="validation")),
    ("E209", sample("tool_selection", {"top_k": ["snow_003"]})),
    ("E212", sample("tool_selection", TOP, candidate_tools=[3])),
    ("E216", sample("tool_selection", TOP, instruction=3)),
    ("E216", sample("tool_selection", TOP, instruction="")),
    ("E216", sample("tool_selection", {**TOP, "explanation": 3})),
    ("E201", planned(plan_steps=[])),
    ("E201", planned(plan_steps=["d"])),
    ("E201", planned(plan_steps=[{"description": "d"}])),
    ("E201", planned(tool_sequence=["tide_002"])),
    ("E201", sample("timing_judgment", {"should_call_tool": "yes"})),
    ("E201", sample("timing_judgment", {"should_call_tool": True}, candidate_tools=[])),
    ("E216", sample("timing_judgment", {"should_call_tool": False, "direct_answer": 3})),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: validate(sage_benchmark.read(row))) == code


@pytest.mark.parametrize(
    ("reasons", "words"),
    [(["It changes.", "I look."], "It changes.\nI look."), (None, ANY_CALL_ANSWER)],
)
def test_of_several_candidates_any_call_is_right_and_the_row_is_for_tests(
    reasons: object, words: str
) -> None:
    truth = {"should_call_tool": True, "reasoning_chain": reasons}
    record = sage_benchmark.read(sample("timing_judgment", truth, split="train"))
    assert record.messages[1] == Message("assistant", words)
    assert record.gold == {1: Gold((GoldCall(ANY_TOOL),))}
    assert (record.split, record.task) == ("test", "timing_decision")
    assert [tool.name for tool in record.tools] == ["rain_001", "tide_002"]
    validate(record)


def test_an_empty_id_is_no_call_of_any_tool() -> None:
    with pytest.raises(RowError, match="E209"):
        validate(sage_benchmark.read(sample("tool_selection", {"top_k": [""]})))


def test_a_task_without_tools_is_asked_where_its_gold_says_that_none_is_called() -> None:
    record = sage_benchmark.read(
        sample(
            "timing_judgment",
            {"should_call_tool": False, "direct_answer": "Oslo."},
            candidate_tools=[],
        )
    )
    assert record.prompted_turns == [1]
    assert replace(record, gold={}).prompted_turns == []


def test_the_steps_of_a_plan_have_their_own_numbers_or_else_those_of_their_places() -> None:
    steps = [{"tool_id": "rain_001", "description": text} for text in ("Look.", "Think.", "Say.")]
    steps[1]["step_id"] = "b"
    record = sage_benchmark.read({**PLAN, "ground_truth": {"plan_steps": steps}})
    assert record.messages[1].content == "1. Look.\nb. Think.\n3. Say."
