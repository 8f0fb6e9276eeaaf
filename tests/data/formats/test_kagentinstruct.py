"""agentlite.data.formats.kagentinstruct: one record for each prompt and response of a row."""

from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import Call, Tool
from agentlite.data.curation.validate import validate
from agentlite.data.formats import kagentinstruct
from agentlite.rendering.protocols import kuaiagent

ROWS = rows("kagentinstruct")
EXPECTED: list[list[tuple[str, str, dict[str, Any]]]] = [
    [
        (
            "Is it wet in Oslo?",
            "",
            {
                "source_id": "1",
                "query": "Is it wet in Oslo?",
                "source": "kwai-agent",
                "extra_infos": {"turn": 1},
                "sample": {"llm_name": "a model", "human_edited": False},
            },
        )
    ],
    [
        (
            "问题：上海天气",
            "Thought: 查天气\nAction: get\nAction Input: {'city': '上海'}",
            {"source_id": "2", "query": "上海天气", "source": "react"},
        ),
        (
            "Observation: it's 雨",
            "Final Answer: 雨",
            {
                "source_id": "2",
                "query": "上海天气",
                "source": "react",
                "sample": {"llm_name": "b", "human_edited": True},
            },
        ),
    ],
    [
        (
            "Do it",
            "f(1)",
            {
                "source_id": "3",
                "query": "q",
                "source": "meta-agent",
                "functions": ["def f(x): ... (no JSON)"],
                "function_names": ["f"],
            },
        )
    ],
    [
        (
            "Who are you?",
            "A helper.",
            {
                "source_id": "4",
                "query": "q",
                "source": "profile",
                "sample": {"score": 1},
                "extra": {"lang": "en"},
            },
        )
    ],
    [
        ("ab", '{"thoughts": {}}', {"query": "q", "source": "autogpt", "functions": "[]"}),
        ("ac", "{}", {"query": "q", "source": "autogpt", "functions": "[]"}),
        ("ad", "[]", {"query": "q", "source": "autogpt", "functions": "[]"}),
    ],
]


def test_functions_are_the_tools_and_the_command_is_the_call() -> None:
    record = kagentinstruct.read(ROWS[0])
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }
    assert record.tools == (Tool("weather", "", parameters),)
    assert record.messages[-1].calls == (Call("weather", {"city": "Oslo"}, "call_0"),)


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_each_sample_of_a_row_becomes_a_record_of_prompt_and_response(
    row: Row, expected: list[tuple[str, str, dict[str, Any]]]
) -> None:
    parts = kagentinstruct.parts(row)
    records = [kagentinstruct.read(part) for part in parts]
    assert all(map(kagentinstruct.fits, (row, *parts)))
    assert [
        (*(said.content for said in record.messages), record.meta) for record in records
    ] == expected
    for record in records:
        assert [message.role for message in record.messages] == ["user", "assistant"]
        validate(record)


BAD: list[tuple[str, dict[str, Any]]] = [
    ("E201", {}),
    ("E201", {"llm_prompt_response": []}),
    ("E201", {"llm_prompt_response": ["x"]}),
    ("E201", {"llm_prompt_response": {"instruction": "a", "output": "b"}}),
    ("E216", {"llm_prompt_response": [{"instruction": "a", "output": {"b": 1}}]}),
    ("E216", {"llm_prompt_response": [{"instruction": 1, "output": "b"}]}),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_stays_one_row_and_says_why(code: str, row: Row) -> None:
    (part,) = kagentinstruct.parts(row)
    assert refused(lambda: kagentinstruct.read(part)) == code


def test_a_row_of_several_samples_is_not_read_as_one() -> None:
    assert refused(lambda: kagentinstruct.read(ROWS[1])) == "E201"


def planned(answer: str) -> Row:
    form = 'GOAL: q\n{"task_name": "t", "command": {"name": "n", "args": {}}}'
    return {"instruction": FRAME.plan.replace("{form}", form), "input": "", "output": answer}


FRAME = kuaiagent.ENGLISH
ENDING = planned('{"task_name": "done", "command": {"name": "task_complete", "args": {}}}')
CALLING = planned('{"task_name": "look", "command": {"name": "f", "args": {}}}')
CONCLUDING = {"instruction": FRAME.conclude, "input": "", "output": "It is wet."}


@pytest.mark.parametrize(
    ("samples", "sizes"),
    [
        ("E", [1]),
        ("C", [1]),
        ("EC", [2]),
        ("ECC", [2, 1]),
        ("FC", [1, 1]),
        ("FEC", [1, 2]),
        ("EEC", [1, 2]),
        ("ECEC", [2, 2]),
        ("ECF", [2, 1]),
    ],
)
def test_an_end_of_a_task_and_the_one_conclusion_behind_it_are_one_part(
    samples: str, sizes: list[int]
) -> None:
    kinds = {"E": ENDING, "C": CONCLUDING, "F": CALLING}
    row = {"query": "q", "llm_prompt_response": [kinds[one] for one in samples]}
    found = [part["llm_prompt_response"] for part in kagentinstruct.parts(row)]
    assert [len(part) for part in found] == sizes
    assert [one for part in found for one in part] == row["llm_prompt_response"]
