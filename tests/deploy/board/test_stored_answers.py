"""The answers of an evaluation by page, whatever the length and the state of its file."""

import json
import time
from pathlib import Path

import pytest
from support.generated_run import stage, write_run

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Message, Record, Tool, to_row
from agentlite.core.row_files import read_rows, write_rows
from agentlite.deploy.board import indexed_rows, stored_answers, stored_questions
from agentlite.deploy.board.indexed_rows import IndexedRows
from agentlite.deploy.board.stored_answers import (
    PAGE,
    AnswerPage,
    ChatStart,
    StillReading,
    StoredAnswers,
    WholeAnswer,
)
from agentlite.scoring.metrics.wrong_answers import KINDS
from agentlite.workspace.digests import file_digest

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


def answered(stored: StoredAnswers, run: Path, number: int) -> WholeAnswer:
    """Until the file is read as far as that."""
    while isinstance(one := stored.answer(run, folder_of(run), number), StillReading):
        pass
    return one


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


def test_a_mistake_of_a_kind_that_is_not_known_is_one_all_the_same(tmp_path):
    run = write_run(tmp_path / "weather", ["sft"], 4)
    path = folder_of(run) / "predictions.jsonl"
    rows = [
        {**row, "wrong": "of a later version" if number == 2 else ""}
        for number, row in enumerate(read_rows(path))
    ]
    write_rows(path, rows)
    stored = StoredAnswers()
    page = asked(stored, run, "wrong")
    assert [(one.number, one.wrong) for one in page.rows] == [(2, "of a later version")]
    assert page.answers == {"": 3, KINDS[-1]: 1} and asked(stored, run, KINDS[-1]).found == 1


@pytest.mark.parametrize("piece", [1, 300, 1 << 18])
def test_a_search_finds_the_rows_whose_texts_hold_it_and_no_others(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(indexed_rows, "PIECE", piece)
    texts = [
        "Zürich",
        "ZÜRICH\n",
        'a "b" \\ c',
        "tab\there",
        "😀 Oslo",
        "oslo",
        "OSLO oslo",
        "",
        "{}",
    ]
    run = write_run(tmp_path / "weather", ["sft"], 40)
    path = folder_of(run) / "predictions.jsonl"
    rows = [{**row, "text": texts[n % len(texts)]} for n, row in enumerate(read_rows(path))]
    write_rows(path, rows)
    lines = path.read_bytes().splitlines(keepends=True)
    # a line that is not a row stands between rows, and is not found
    path.write_bytes(b"".join([lines[0], b'{"text": "oslo zurich zwischen"}\n', *lines[1:]]))
    stored = StoredAnswers()
    for text in [*texts[:-1], "zürich", "ÜR", "slo", 'b"', "\\", "\n", "zwischen", "Oslo!", "😀"]:
        wanted = json.dumps(text, ensure_ascii=False)[1:-1].lower()
        held = [n for n, line in enumerate(lines) if wanted in line.decode().lower()]
        page = asked(stored, run, text=text)
        assert (page.found, [one.number for one in page.rows]) == (len(held), held[:PAGE]), text
        wrong = [n for n in held if rows[n]["wrong"]]
        assert [one.number for one in asked(stored, run, "wrong", text).rows] == wrong[:PAGE]


def test_the_first_page_is_there_before_a_long_file_is_read(run, monkeypatch):
    monkeypatch.setattr(stored_answers, "AT_ONCE", 0.0)
    monkeypatch.setattr(indexed_rows, "PIECE", 1 << 14)
    stored = StoredAnswers()
    page = stored.page(run, folder_of(run), wrong="", text="", first=0)
    assert page.more and 0 < page.found < PROMPTS and page.rows
    assert asked(stored, run).found == PROMPTS
    stored = StoredAnswers()  # a link into the part that was not read yet
    looks = [stored.answer(run, folder_of(run), PROMPTS - 1)]
    while isinstance(looks[-1], StillReading):
        looks.append(stored.answer(run, folder_of(run), PROMPTS - 1))
    shares = [look.reading for look in looks if isinstance(look, StillReading)]
    assert len(shares) > 2 and sorted(shares) == shares and 0 < max(shares) <= 1
    whole = looks[-1]
    assert isinstance(whole, WholeAnswer)
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
    whole = answered(stored, run, 0)
    assert whole.messages == [] and whole.expected is None and "any more" in whole.unknown
    with pytest.raises(UserError, match="not in the workspace"):
        stored.question(run, folder_of(run), page.rows[0].record, 1)


def test_questions_in_parquet_are_those_in_jsonl(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_questions, "COPIED", 3)
    run = write_run(tmp_path / "weather", ["sft"], 20)
    known = [answered(StoredAnswers(), run, number) for number in range(20)]
    rows = [*read_rows(run / "prep/test.jsonl")]
    (run / "prep/test.jsonl").unlink()
    write_rows(run / "prep/test.parquet", rows)
    digest = file_digest(run / "prep/test.parquet")
    for folder, change in (
        (run / "prep", lambda done: done["outputs"].update({"test.parquet": digest})),
        (folder_of(run), lambda plan: plan["inputs"].update(data=digest)),
    ):
        path = folder / ("done.json" if folder.name == "prep" else "plan.json")
        content = json.loads(path.read_bytes())
        change(content)
        path.write_text(json.dumps(content), encoding="utf-8")
    monkeypatch.setattr(stored_answers, "AT_ONCE", 0.0)  # a piece at each look
    stored = StoredAnswers()
    page = asked(stored, run)
    assert not page.unknown and all(one.expected is not None for one in page.rows)
    assert [answered(stored, run, number) for number in range(20)] == known
    write_rows(run / "prep/test.parquet", rows[:1])  # replaced: read anew
    page = asked(stored, run)
    assert [one.expected is not None for one in page.rows] == [True] + [False] * 19
    (run / "prep/test.parquet").write_bytes(b"PAR1 harmed PAR1")
    page = asked(stored, run)
    assert "test.parquet cannot be read" in page.unknown and page.rows[0].expected is None
    assert answered(stored, run, 0).unknown == page.unknown
    with pytest.raises(UserError, match="cannot be read"):
        stored.question(run, folder_of(run), rows[0]["id"], 1)


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
    assert isinstance(asked, ChatStart)
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
