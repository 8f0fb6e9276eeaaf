"""agentlite.data.prompt_records: the records of a file or of stdin whose steps are asked."""

import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.generated_run import stage

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Message, Record, from_row, to_row
from agentlite.data.curation.validate import validate
from agentlite.data.prompt_records import Prompts, find_prompts
from agentlite.workspace.input_files import file_digest
from agentlite.workspace.lookup import Source


def row(query: str, **more: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": query}, {"role": "assistant", "content": "a"}]
    return {"messages": turns, **more}


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in rows)


def test_each_record_of_a_file_or_of_stdin_is_asked_once_and_bears_its_source(
    tmp_path: Path,
) -> None:
    content = lines(row("one"), row("two"), row("one"))
    (tmp_path / "rows.jsonl").write_bytes(content)
    for prompts, source in (
        (Prompts("-", "", "hermes", False, content), "stdin"),
        (Prompts(str(tmp_path / "rows.jsonl"), "", "hermes", False), "rows.jsonl"),
    ):
        records = list(prompts.records())
        assert [record.messages[0].content for record in records] == ["one", "two"]
        assert {record.source for record in records} == {source}


@pytest.mark.parametrize("data", ["-", "rows.jsonl", "prep"])
def test_prompts_come_from_stdin_from_a_file_or_from_the_split_of_a_prep(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = lines(row("one"))
    messages = (Message("user", "one"), Message("assistant", "a"))
    splits = {f"{split}.jsonl": [to_row(Record(messages=messages))] for split in ("dev", "test")}
    plan = {"command": "prep", "settings": {"protocol": "react"}, "inputs": {}}
    stage(tmp_path / "prep", plan, {"train.jsonl": [], **splits}, {})
    (tmp_path / "rows.jsonl").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    source = Source("sft", "base", None, "", settings={"protocol": "hermes"})
    found = find_prompts(data, "dev", source, tmp_path)
    file = tmp_path / ("prep/dev.jsonl" if data == "prep" else data)
    digest = hashlib.sha256(content).hexdigest() if data == "-" else file_digest(file)
    assert (found.location, found.digest) == (str(file) if data == "prep" else data, digest)
    assert (found.protocol, found.prepared) == (
        ("react", True) if data == "prep" else ("hermes", False)
    )
    assert found.content == (content if data == "-" else b"")
    assert [record.messages[0].content for record in found.records()] == ["one"]


def test_the_gold_of_a_prompt_of_another_product_is_kept() -> None:
    asked = [{"role": "user", "content": "2 + 3?"}]
    verl = {"prompt": asked, "reward_model": {"style": "rule", "ground_truth": "5"}}
    gym = {"responses_create_params": {"input": asked}, "expected_answer": "5"}
    for row_of in (verl, gym):
        (record,) = Prompts("-", "", "hermes", False, lines(row_of)).records()
        assert [message.content for message in record.messages] == ["2 + 3?", "5"]


def test_a_row_that_cannot_be_asked_is_an_error_with_its_line() -> None:
    for bad in ({"messages": [{"role": "system", "content": "q"}]}, {"a": 1}, 3):
        with pytest.raises(UserError) as caught:
            list(Prompts("-", "", "hermes", False, lines(row("one"), bad)).records())
        assert caught.value.location == "stdin:2"
        assert caught.value.problem.startswith("E20")


TOOLS = [{"name": "weather", "description": "", "parameters": {"type": "object", "properties": {}}}]
ASKS = [{"role": "user", "content": "Is it wet?"}]
CALL = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
UNANSWERED: dict[str, dict[str, Any]] = {
    "a text": {"prompt": "Is it wet?", "tools": TOOLS},
    "messages as prompt": {"prompt": ASKS, "tools": TOOLS},
    "OpenAI": {"messages": ASKS, "tools": TOOLS},
    "ShareGPT": {"conversations": [{"from": "human", "value": "Is it wet?"}]},
    "no tools": {"prompt": "Is it wet?"},
    "a result": {
        "messages": [
            *ASKS,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "a", "content": "4 mm"},
        ],
        "tools": TOOLS,
    },
}


@pytest.mark.parametrize("name", UNANSWERED)
def test_a_dialog_that_waits_for_the_assistant_is_asked_there_and_has_no_gold_to_train(
    name: str,
) -> None:
    content = lines({"gold": None, "completion": None, **UNANSWERED[name], "solution": 3})
    [record] = Prompts("-", "", "hermes", False, content).records()
    turn = record.turns[-1]
    assert record.prompted_turns[-1] == turn == len(record.messages) - 1
    assert not record.has_gold(turn) and not record.messages[turn].loss
    assert record.meta["extra"] == {"solution": 3}
    assert from_row(to_row(record)) == record
    with pytest.raises(RowError, match="a prompt without an answer"):
        validate(record)


def test_a_prompt_with_its_completion_is_a_dialog_with_the_right_answer() -> None:
    content = lines({"prompt": "q", "completion": "a"})
    [record] = Prompts("-", "", "hermes", False, content).records()
    assert [message.content for message in record.messages] == ["q", "a"]
    assert record.has_gold(1)
