"""agentlite.data.formats.kagentinstruct: one record for each prompt and response of a row."""

import pytest
from support.damaged_rows import Row

from agentlite.data.formats import kagentinstruct
from agentlite.rendering.protocols import kuaiagent


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
