"""agentlite.data.formats.foreign_rows: rows that cannot be read say what they are and what helps;
a dialog that is written as text is read.
"""

import json
import shutil
import subprocess
from typing import Any

import pytest
from support.damaged_rows import rows
from support.samples import DATA

from agentlite.core.errors import RowError
from agentlite.data.formats import DIALOG_KEYS, detected, samples, to_record
from agentlite.data.formats.foreign_rows import FOREIGN, foreign_row

Row = dict[str, Any]
USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}
TALK = [USER, ANSWER]
DIALOG = {"messages": TALK}
# rows of other tools, each with what its hint makes of it, where the hint is a command
ROWS: dict[str, tuple[Row, list[Row]]] = {
    "batch": ({"custom_id": "1", "method": "POST", "url": "/v1", "body": DIALOG}, [DIALOG]),
    "batch_output": ({"custom_id": "1", "response": {"body": {}}, "error": None}, []),
    "trl_preference": ({"prompt": "Hi", "chosen": "Hello.", "rejected": "No."}, []),
    "openai_preference": (
        {"input": DIALOG, "preferred_output": [ANSWER], "non_preferred_output": [ANSWER]},
        [],
    ),
    "proxy": (
        {"request": {"messages": [USER]}, "response": {"choices": [{"message": ANSWER}]}},
        [DIALOG],
    ),
    "langsmith": ({"inputs": {"messages": [USER]}, "outputs": DIALOG}, [DIALOG]),
    "opentelemetry": ({"gen_ai.input.messages": [], "gen_ai.output.messages": []}, []),
    "tau": ({"task_id": 1, "reward": 1.0, "traj": TALK}, [DIALOG]),
    "tau2": ({"info": {}, "tasks": [], "simulations": [{"id": "s", **DIALOG}]}, [DIALOG]),
    "viewer": ({"features": [], "rows": [{"row_idx": 0, "row": DIALOG}]}, [DIALOG]),
    "langfuse": ({"input": [USER], "output": ANSWER, "metadata": {}}, [DIALOG]),
    **{
        f"wrapped_{key}": ({key: [DIALOG, DIALOG]}, [DIALOG, DIALOG])
        for key in ("data", "rows", "examples", "train", "dialogs", "items")
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_another_tool_says_what_helps_and_where(name: str) -> None:
    row, _ = ROWS[name]
    with pytest.raises(RowError) as caught:
        samples(row)
    assert (caught.value.code, caught.value.at in row) == ("E202", True)
    assert caught.value.hint and caught.value.hint.endswith((".", "keys"))


def test_each_kind_of_row_has_an_example_here() -> None:
    assert {foreign_row(row) for row, _ in ROWS.values()} == {*FOREIGN}


@pytest.mark.skipif(not shutil.which("jq"), reason="needs jq")
@pytest.mark.parametrize("name", [name for name, (_, made) in ROWS.items() if made])
def test_the_command_of_a_hint_makes_rows_that_are_read(name: str) -> None:
    row, made = ROWS[name]
    known = foreign_row(row)
    assert known
    command = known.hint.split("`jq -c ", 1)[1].split(" FILE", 1)[0].strip("'")
    written = subprocess.run(
        ["jq", "-c", command], input=json.dumps(row), capture_output=True, text=True, check=True
    )
    assert [json.loads(line) for line in written.stdout.splitlines()] == made
    assert detected(made[0]) == "openai"


@pytest.mark.parametrize("name", sorted(path.stem for path in (DATA / "formats").glob("*.jsonl")))
def test_a_dialog_that_is_written_as_text_is_the_same(name: str) -> None:
    """As columns of Parquet often are."""
    for row in rows(name):
        texts = {
            key: json.dumps(row[key], ensure_ascii=False)
            for key in DIALOG_KEYS
            if isinstance(row.get(key), list)
        }
        read, parts = samples(row)
        assert samples({**row, **texts}) == (read, parts)


@pytest.mark.parametrize("text", ["[{'role': 'user', 'content': 'Hi", '[{"role": "user"}'])
def test_a_dialog_as_text_that_is_cut_is_refused(text: str) -> None:
    with pytest.raises(RowError) as caught:
        samples({"messages": text})
    assert (caught.value.code, caught.value.at) == ("E201", "messages")


def test_a_question_that_begins_like_a_list_is_a_text() -> None:
    question = '[{"role": "user"}, what is this?'
    _, (row,) = samples({"prompt": question, "completion": "A list that is not closed."})
    assert to_record(row).messages[0].content == question
