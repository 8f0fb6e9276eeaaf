"""eval without a model: whole dialogs, texts from elsewhere, gates, folders side by side, nothing
asked twice.
"""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace
from support.scripted_server import ScriptedServer

from agentlite import evaluate, prep
from agentlite.cli.main import group
from agentlite.cli.output import present
from agentlite.core.errors import UserError
from agentlite.core.records import (
    ANY_TOOL,
    Call,
    Gold,
    GoldCall,
    Message,
    Parsed,
    Record,
    Tool,
    from_row,
)
from agentlite.core.row_files import read_rows
from agentlite.rendering import Prompt
from agentlite.rendering.protocols.hermes import assistant
from agentlite.scoring.metrics.dialogs import (
    METRICS,
    DialogCalls,
    dialogs,
    end_to_end_success,
    plan_partial,
    plan_success_rate,
)
from agentlite.scoring.metrics.dialogs import step_efficiency as efficiency
from agentlite.scoring.predictions import score_reading

TOOLS = tuple(Tool(name, "", {"type": "object"}) for name in ("find", "book", "pay"))
NAMES = st.lists(
    st.lists(st.sampled_from(["find", "book", "pay"]), max_size=2), min_size=1, max_size=4
)


# --- whole dialogs ---


@given(NAMES)
def test_a_dialog_done_as_recorded_scores_1_and_one_with_nothing_done_0(
    expected: list[list[str]],
) -> None:
    done = DialogCalls(expected, expected, [True] * len(expected))
    nothing = DialogCalls(expected, [[] for _ in expected], [not names for names in expected])
    for name, metric in METRICS.items():
        if any(expected):
            assert metric(done) == 1.0, name
            assert metric(nothing) == 0.0, name


@given(NAMES, NAMES)
def test_the_metrics_of_a_dialog_stay_in_their_bounds_and_order(
    expected: list[list[str]], called: list[list[str]]
) -> None:
    if not any(expected):
        return
    called = (called + [[] for _ in expected])[: len(expected)]
    taken = DialogCalls(
        expected, called, [sorted(a) == sorted(b) for a, b in zip(expected, called, strict=True)]
    )
    values = {name: metric(taken) for name, metric in METRICS.items()}
    assert all(0 <= value <= 1 for value in values.values())
    assert values["plan_success_rate"] <= values["plan_partial"]
    assert (values["plan_success_rate"] == 1) == (values["end_to_end_success"] == 1)


def test_an_order_of_its_own_and_a_call_too_many_cost_what_they_should() -> None:
    def figures(calls: DialogCalls) -> tuple[float, float, float]:
        return plan_success_rate(calls), plan_partial(calls), efficiency(calls)

    swapped = DialogCalls([["find"], ["book"]], [["book"], ["find"]], [False, False])
    assert figures(swapped) == (0.0, 0.0, 1.0)
    at_once = DialogCalls([["find", "book"]], [["book", "find"]], [True])
    assert plan_success_rate(at_once) == end_to_end_success(at_once) == 1.0
    twice = DialogCalls([["find"], ["book"]], [["find"], ["book", "find"]], [True, False])
    assert figures(twice) == (0.0, 1.0, pytest.approx(2 / 3))
    short = DialogCalls([["find"], ["book"]], [["find"], []], [True, False])
    assert (plan_partial(short), efficiency(short)) == (0.5, 0.0)


def booked() -> Record:
    """Two calls and an answer; the second call takes either of two dates."""
    find, book = Call("find", {"to": "Oslo"}, "call_0"), Call("book", {"day": 3}, "call_1")
    messages = (
        Message("user", "Book me a trip to Oslo."),
        Message("assistant", "", (find,)),
        Message("tool", "on the 3rd or 4th", call_id="call_0"),
        Message("assistant", "", (book,)),
        Message("tool", "done", call_id="call_1"),
        Message("assistant", "Booked."),
    )
    return Record(
        messages=messages, tools=TOOLS, gold={3: Gold((GoldCall("book", {"day": [3, 4]}),))}
    )


@pytest.mark.parametrize(
    ("due", "planned"),
    [
        ({}, True),
        ({3: Gold((GoldCall(ANY_TOOL),))}, False),  # a call is due, and any tool will do
        ({1: Gold((GoldCall(ANY_TOOL),)), 3: Gold((GoldCall(ANY_TOOL),))}, False),
        ({1: Gold(), 3: Gold()}, False),  # no call is due
    ],
)
def test_a_plan_is_measured_where_calls_of_named_tools_are_due(
    due: dict[int, Gold], planned: bool
) -> None:
    record = replace(booked(), gold=due)
    steps = [
        score_reading(Prompt(record, turn, "hermes", [], "", "turn"), Parsed("", ()), "", 0)
        for turn in (1, 3, 5)
    ]
    (whole,) = dialogs(steps, {record.id: record})
    assert {*whole.metrics} == ({*METRICS} if planned else {"end_to_end_success"})


# --- texts from elsewhere ---


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("eval")
    options = {"protocol": "hermes", "limit": 60, "dev": 0.0, "test": 0.9, "max_length": 4096}
    prep("bfcl:multiple,irrelevance", run=str(run), model="smollm2-135m", **options)
    return run


def records(workspace: Path) -> list[Record]:
    return [from_row(row) for row in read_rows(workspace / "prep" / "test.jsonl")]


def right(record: Record) -> dict[str, Any]:
    """What the record itself says, in the protocol's form."""
    (turn,) = record.prompted_turns
    return {"record_id": record.id, "turn": turn, "text": assistant(record.messages[turn])}


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def scored(workspace: Path, file: str, **options: Any) -> dict[str, Any]:
    figures = evaluate(run=str(workspace), predictions=[file], **options).figures
    return figures[Path(file).name.partition(".")[0]]


@pytest.mark.long
def test_right_texts_and_right_calls_from_elsewhere_score_1(
    workspace: Path, tmp_path: Path
) -> None:
    rows = [right(record) for record in records(workspace)]
    texts = scored(workspace, write(tmp_path / "texts.jsonl", rows))
    assert {figure["mean"] for figure in texts["metrics"].values()} == {1.0}
    calls = [
        {"id": record.id, "calls": to_builtins(record.messages[record.prompted_turns[0]].calls)}
        for record in records(workspace)
    ]
    given = scored(workspace, write(tmp_path / "calls.jsonl", calls))
    assert given["dialogs"]["end_to_end_success"]["mean"] == 1.0


@pytest.mark.parametrize("max_length", [400, 4096])
def test_a_server_that_answers_nothing_measures_nothing(workspace: Path, max_length: int) -> None:
    """Also where some prompts are too long to be asked."""
    server = ScriptedServer(lambda body: "REFUSES")
    options = {"endpoint": [server.url], "model": ["theirs"], "max_length": max_length}
    with pytest.raises(UserError, match="questions have no answer"):
        evaluate(run=str(workspace), unanswered="wrong", limit=9, **options)
    server.close()
    assert (len(server.bodies) < 9) == (max_length == 400)


@pytest.mark.long
def test_what_is_missing_scores_0_and_is_told(workspace: Path, tmp_path: Path, capsys: Any) -> None:
    rows = [right(record) for record in records(workspace)]
    found = scored(workspace, write(tmp_path / "half.jsonl", rows[::2]))
    assert found["problems"] == {"no prediction": len(rows) // 2}
    assert f"{len(rows) // 2} of {len(rows)} steps have no row" in capsys.readouterr().err
    share = 1 - (len(rows) // 2) / len(rows)
    assert found["dialogs"]["end_to_end_success"]["mean"] == pytest.approx(share)


@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "told", "line"),
    [
        (b'{"text": "x"}\n', "names no record", 1),
        (b'{"record_id": "none", "text": "x"}\n', r"names no record of the data \('none'\)", 1),
        (b'\n{"record_id": "ID", "text": "\xff"}\n', "not UTF-8: byte ff", 2),
        (
            b'{"record_id": "ID", "text": "x"}\n{"record_id": "ID", "text": "y"}\n',
            "appears twice",
            2,
        ),
        (b'{"record_id": "ID", "turn": 7, "text": "x"}\n', "is not asked at turn 7", 1),
        (b'{"record_id": "ID"}\n', "no text and no calls", 1),
        (b'{"record_id": "ID", "calls": {"name": "f"}}\n', "no text and no calls", 1),
        (
            b'{"record_id": "ID", "calls": [{"name": "f", "arguments": "[1]"}]}\n',
            "arguments are a list, not an object",
            1,
        ),
        (b'{"record_id": "ID", "calls": [{"arguments": {}}]}\n', "a call without a name", 1),
        (b'["record_id"]\n', "a row is a JSON object", 1),
        (b'{"record_id": \n', "not JSON", 1),
    ],
)
def test_a_row_from_elsewhere_that_is_none_is_named(
    content: bytes, told: str, line: int, workspace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(content.replace(b"ID", records(workspace)[0].id.encode()))
    with pytest.raises(UserError, match=told) as error:
        evaluate(run=str(workspace), predictions=[str(path)], force=True)
    assert error.value.location == f"{path}:{line}"
    assert error.value.exit_code == 2


@pytest.mark.long
def test_the_gate_is_that_of_the_last_model_and_figures_come_before_it(
    workspace: Path, tmp_path: Path
) -> None:
    good = write(tmp_path / "good.jsonl", [right(record) for record in records(workspace)])
    bad = write(
        tmp_path / "bad.jsonl",
        [{**right(record), "text": "I cannot."} for record in records(workspace)],
    )
    gate = "tool_selection_accuracy>=0.99"
    assert evaluate(run=str(workspace), predictions=[bad, good], gate=gate).failed == []
    found = evaluate(run=str(workspace), predictions=[good, bad], gate=gate)
    assert found.failed == ["tool_selection_accuracy>=0.99: it is 0"]
    assert found.figures["good"]["prompts"] == len(records(workspace))


@pytest.mark.long
def test_only_the_named_figures_are_printed_and_every_one_is_stored(
    workspace: Path, tmp_path: Path
) -> None:
    write(tmp_path / "some.jsonl", [right(record) for record in records(workspace)])
    names = ["plan_success_rate", "exact_call", "f1", "judge_score"]  # the last was not measured
    ask = {"run": str(workspace), "predictions": [str(tmp_path / "some.jsonl")]}
    found = evaluate(**ask, metrics=names).figures["some"]
    assert list(found["metrics"]) == names[:3] and found["metrics"]["exact_call"]["mean"] == 1.0
    stored = json.loads((workspace / "eval/prep/some/metrics.json").read_bytes())
    whole = evaluate(**ask)
    assert whole.status == "up to date" and whole.figures["some"] == stored
    words = ["eval", "--run", str(workspace), "--predictions", str(tmp_path / "some.jsonl")]
    words += ["--metrics", "f1,exact_call"]
    result = CliRunner().invoke(group, words)
    assert result.exit_code == 0 and "exact_call" in result.output
    assert "tool_selection_accuracy" not in result.output
    seed = evaluate(**ask, metrics=["tool_accuracy", "plan_success", "efficiency"])
    figures = ["tool_selection_accuracy", "plan_success_rate", "step_efficiency"]
    assert list(seed.figures["some"]["metrics"]) == figures
    with pytest.raises(UserError, match="no figure is called 'exact_cal'") as refused:
        evaluate(**ask, metrics=["exact_cal"])
    assert refused.value.location == "--metrics" and "exact_call" in refused.value.fix


# --- opinions ---


def graded(body: dict[str, Any]) -> str:
    """5 for whatever calls a tool, and 1 for the rest."""
    calls = "<tool_call>" in body["messages"][-1]["content"].rpartition("<answer")[2]
    return json.dumps({"reason": "so", "score": 5 if calls else 1})


@pytest.mark.long
def test_a_judge_scores_the_answers_once(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "secret-of-the-judge")
    file = write(tmp_path / "graded.jsonl", [right(record) for record in records(workspace)])
    server = ScriptedServer(graded)
    how = {"judge": server.url, "judge_model": "m", "judge_key": "JUDGE_KEY"}
    found = scored(workspace, file, **how)
    server.close()
    expected = sum(
        bool(record.messages[record.prompted_turns[0]].calls) for record in records(workspace)
    )
    count = len(records(workspace))
    assert found["judge"]["judge_usable"]["mean"] == pytest.approx(expected / count)
    assert scored(workspace, file, **how)["judge"] == found["judge"]  # nobody answers any more
    folder = workspace / "eval" / "prep" / "graded"
    assert all(b"secret-of-the-judge" not in path.read_bytes() for path in folder.iterdir())
    (failed,) = evaluate(
        run=str(workspace), predictions=[file], gate="judge_score>=4.9", **how
    ).failed
    assert failed.startswith("judge_score>=4.9: it is ")


@pytest.mark.long
def test_sheets_go_out_blind_and_come_back(workspace: Path, tmp_path: Path, capsys: Any) -> None:
    rows = [right(record) for record in records(workspace)][:12]
    files = [write(tmp_path / "first.jsonl", rows), write(tmp_path / "second.jsonl", rows)]
    sheet = tmp_path / "sheet.csv"
    evaluate(run=str(workspace), predictions=files, sheet=str(sheet), limit=6)
    text = sheet.read_text(encoding="utf-8-sig")
    lines = [*csv.reader(io.StringIO(text, newline=""))]
    assert len(lines) == 13
    with pytest.raises(UserError, match="is there already"):
        evaluate(run=str(workspace), predictions=files, sheet=str(sheet), limit=6)
    assert not any(cell in ("first", "second") for line in lines for cell in line)
    for name, score in (("ann", "5"), ("bob", "4")):
        filled = [[*line[:4], score, ""] if n else line for n, line in enumerate(lines)]
        with open(tmp_path / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(filled)
    found = evaluate(
        run=str(workspace),
        sheet=str(sheet),
        ratings=[str(tmp_path / "ann.csv"), str(tmp_path / "bob.csv")],
    )
    assert {
        model: figures["metrics"]["score"]["mean"]
        for model, figures in found.figures["models"].items()
    } == {"first": 4.5, "second": 4.5}
    present(found, as_json=False, show=0, shape="")
    assert "agreement, ordinal" in capsys.readouterr().out


def test_rows_of_kagentbench_are_scored(tmp_path: Path) -> None:
    gold = [{"golden_result": "I am a helper."}]
    asked = [{"id": str(n), "type": "profile", "golden_result_list": gold} for n in range(3)]
    said = [
        {"id": row["id"], "type": "profile", "model_predict": "I am a helper."} for row in asked
    ]
    found = evaluate(
        run=str(tmp_path),
        kagent=write(tmp_path / "bench.jsonl", asked),
        predictions=[write(tmp_path / "said.jsonl", said)],
        gate="profile>=0.9,overall>=0",
    )
    assert found.failed == ["overall>=0: not measured"]
    profile = found.figures["models"]["said"]["metrics"]["profile"]
    assert profile["mean"] == pytest.approx(1.0, abs=1e-6)
