"""agentlite.data.formats.prompt_completion: the prompt is shown, the completion is learned."""

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.data.curation.validate import validate
from agentlite.data.formats import detected, openai, prompt_completion, to_record

ROWS = rows("prompt_completion")


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_the_dialog_of_its_prompt_and_its_completion(row: Row) -> None:
    record = prompt_completion.read(row)
    validate(record)
    assert detected(row) == "prompt_completion"
    turns = [
        [{"role": role, "content": row[key]}] if isinstance(row[key], str) else row[key]
        for key, role in (("prompt", "user"), ("completion", "assistant"))
    ]
    whole = openai.read({"messages": [*turns[0], *turns[1]], "tools": row.get("tools")})
    assert [m.content for m in record.messages] == [m.content for m in whole.messages]
    assert [m.calls for m in record.messages] == [m.calls for m in whole.messages]
    assert record.tools == whole.tools
    learned = [turn for turn in record.turns if record.messages[turn].loss]
    assert learned == [turn for turn in record.turns if turn >= len(turns[0])]


def test_other_keys_of_a_row_are_kept() -> None:
    assert prompt_completion.read(ROWS[1]).meta == {
        "source_id": "r2",
        "extra": {"difficulty": "low"},
    }


@pytest.mark.parametrize("label", [True, False])
def test_a_row_of_kto_is_refused_for_its_completion_may_be_a_bad_one(label: bool) -> None:
    assert refused(lambda: to_record({**ROWS[2], "label": label})) == "E201"
