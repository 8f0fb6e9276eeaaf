"""The answers of an evaluation by page, whatever the length and the state of its file."""

import json
import time
from pathlib import Path

import pytest
from support.generated_run import stage, write_run

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Message, Record, Tool, to_row
from agentlite.core.row_files import read_rows, write_rows
from agentlite.deploy.board import indexed_rows, stored_answers
from agentlite.deploy.board.indexed_rows import IndexedRows
from agentlite.deploy.board.stored_answers import PAGE, AnswerPage, StoredAnswers

PROMPTS = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "weather", ["sft"], PROMPTS)


def folder_of(run: Path) -> Path:
    return run / "eval/prep/sft"


def asked(
    stored: StoredAnswers, run: Path, wrong: str = "", text: str = "", first: int = 0
) -> AnswerPage:
    """Until nothing is left to read, as the page asks."""
    while (page := stored.page(run, folder_of(run), wrong=wrong, text=text, first=first)).more:
        pass
    return page


def test_pages_hold_every_answer_once_beside_what_was_expected(run):
    rows = [*read_rows(folder_of(run) / "predictions.jsonl")]
    records = {row["id"]: row for row in read_rows(run / "prep/test.jsonl")}
    stored, found = StoredAnswers(), []
    for first in range(0, PROMPTS, PAGE):
        found += asked(stored, run, first=first).rows
    assert [one.record for one in found] == [row["record_id"] for row in rows]
    for one, row in zip(found, rows, strict=True):
        call = records[one.record]["messages"][1]["tool_calls"][0]["function"]
        assert one.question == records[one.record]["messages"][0]["content"]
        assert one.expected and one.expected[0][0] == call["name"]
        assert [name for name, _ in one.given] == [call["name"] for call in row["calls"]]
        assert bool(one.wrong) == bool(row["wrong"])


def test_answers_are_filtered_by_kind_and_text(run):
    rows = [*read_rows(folder_of(run) / "predictions.jsonl")]
    stored = StoredAnswers()
    wrong = [n for n, row in enumerate(rows) if row["wrong"]]
    assert 0 < len(wrong) < PROMPTS
    page = asked(stored, run, "wrong")
    assert (page.found, [one.number for one in page.rows]) == (len(wrong), wrong[:PAGE])
    assert asked(stored, run, "right").found == PROMPTS - len(wrong)
    assert sum(page.answers.values()) == PROMPTS
    for kind, count in page.answers.items():
        assert asked(stored, run, kind or "right").found == count
    text = f'"name": "{rows[7]["calls"][0]["name"].upper()}"'  # as the model wrote it
    held = [n for n, row in enumerate(rows) if text.lower() in row["text"].lower()]
    assert 7 in held and [one.number for one in asked(stored, run, text=text).rows] == held[:PAGE]
    assert asked(stored, run, text="nowhere to be found").found == 0
    assert asked(stored, run, first=10**9).first == (PROMPTS - 1) // PAGE * PAGE


def test_the_first_page_is_there_before_a_long_file_is_read(run, monkeypatch):
    monkeypatch.setattr(stored_answers, "AT_ONCE", 0.0)
    monkeypatch.setattr(indexed_rows, "PIECE", 1 << 14)
    stored = StoredAnswers()
    page = stored.page(run, folder_of(run), wrong="", text="", first=0)
    assert page.more and 0 < page.found < PROMPTS and page.rows
    assert asked(stored, run).found == PROMPTS
    whole = StoredAnswers().answer(run, folder_of(run), PROMPTS - 1)  # a link into the unread part
    assert whole.number == PROMPTS - 1 and whole.messages and whole.expected


def test_harmed_lines_are_counted_and_passed_over(tmp_path):
    run = write_run(tmp_path / "weather", ["sft"], 8)
    path = folder_of(run) / "predictions.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    harmed = [b"\xff\xfe\n", b"[1]\n", b"\n", lines[0][:50] + b"\n", b"[" * 100_000 + b"\n"]
    path.write_bytes(b"".join([*lines[:4], *harmed, *lines[4:], lines[0][:60]]))
    page = asked(StoredAnswers(), run)
    assert (page.found, page.unread) == (8, len(harmed) + 1)
    assert [one.record for one in page.rows] == [json.loads(line)["record_id"] for line in lines]


def test_a_file_that_is_replaced_is_read_anew(tmp_path):
    run = write_run(tmp_path / "weather", ["sft"], 8)
    stored, path = StoredAnswers(), folder_of(run) / "predictions.jsonl"
    assert asked(stored, run).found == 8
    rows = [*read_rows(path)][:3]
    write_rows(path, rows)
    page = asked(stored, run)
    assert [one.record for one in page.rows] == [row["record_id"] for row in rows]
    path.unlink()
    with pytest.raises(UserError, match="no answers"):
        asked(stored, run)


def test_answers_whose_questions_are_gone_are_still_shown(tmp_path):
    run = write_run(tmp_path / "weather", ["sft"], 4)
    (run / "prep/test.jsonl").unlink()
    stored = StoredAnswers()
    page = asked(stored, run)
    assert len(page.rows) == 4 and all(one.expected is None for one in page.rows)
    assert stored.answer(run, folder_of(run), 0).messages == []
    with pytest.raises(UserError, match="not in the workspace"):
        stored.question(run, folder_of(run), page.rows[0].record, 1)


def test_a_question_is_the_dialog_up_to_the_answer_with_its_tools_and_the_model(tmp_path):
    call = Call("weather", {"city": "Oslo"}, "a")
    turns = (
        Message("system", "Be brief."),
        Message("user", "Rain?"),
        Message("assistant", calls=(call,)),
        Message("tool", "4 mm", call_id="a"),
        Message("assistant", "Yes."),
    )
    record = Record(messages=turns, tools=(Tool("weather", "Rain in a city."),))
    run = tmp_path / "weather"
    stage(
        run / "prep",
        {"command": "prep", "settings": {}, "inputs": {}},
        {"train.jsonl": [to_row(record)]},
        {},
    )
    # of a trainer, whose answers name the split and no digest
    plan = {"command": "grpo", "settings": {"data": "prep", "model": "base"}, "inputs": {}}
    stage(run / "grpo", plan, {"rollouts.jsonl": []}, {})
    stored = StoredAnswers()
    asked = stored.question(run, run / "grpo", record.id, 4)
    assert asked.model == "grpo"
    assert [one["role"] for one in asked.messages] == ["system", "user", "assistant", "tool"]
    assert asked.messages[2]["tool_calls"][0]["function"]["name"] == "weather"
    assert asked.messages[3]["tool_call_id"] == asked.messages[2]["tool_calls"][0]["id"]
    assert asked.tools[0]["function"]["name"] == "weather"
    for turn in (1, 3, 5, -1):  # no turn of the assistant's
        with pytest.raises(UserError):
            stored.question(run, run / "grpo", record.id, turn)


@pytest.mark.parametrize("name", ["../secret", "..", ".", "", "prep/../../secret"])
def test_a_plan_leads_to_no_file_outside_its_workspace(tmp_path, name):
    secret = Record(messages=(Message("user", "a"), Message("assistant", "b")))
    for folder in ("secret", "weather/prep"):
        (tmp_path / folder).mkdir(parents=True)
    write_rows(tmp_path / "secret/train.jsonl", [to_row(secret)])
    write_rows(tmp_path / "train.jsonl", [to_row(secret)])
    run = tmp_path / "weather"
    for settings in ({"data": name}, {"data": "prep", "split": f"../../{name}/train"}):
        stage(run / "grpo", {"command": "grpo", "settings": settings, "inputs": {}}, {}, {})
        with pytest.raises(UserError):
            StoredAnswers().question(run, run / "grpo", secret.id, 1)


def test_memory_grows_by_a_few_bytes_for_each_row(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "' + b"x" * 1000 + b'"}\n' * 1)
    path.write_bytes(path.read_bytes() * 5000)
    rows = IndexedRows(path)
    while rows.look(time.monotonic()):
        pass
    kept = rows._starts.itemsize * len(rows) + rows._lengths.itemsize * len(rows)
    assert len(rows) == 5000 and kept == 60_000
    assert (rows.row(4999) or {})["text"].startswith("x") and rows.row(5000) is None
