"""The sections of a page: counts beside the main result, and sections that are left out."""

import base64
import json
import sys
import zlib

import pytest
from support.generated_rollouts import rollout, says, write_live, write_rollout
from support.generated_run import stage

from agentlite.core.records import Call, Message, Record, Step, to_row
from agentlite.report import write_report
from agentlite.report.page import _evaluation, _links, _statistics, _versions
from agentlite.report.prediction_viewer import pack
from agentlite.report.predictions import Answers, confusion
from agentlite.report.read_run import read_run
from agentlite.report.rollout_viewer import pack_rollouts
from agentlite.workspace.digests import file_digest


def made(folder, command, rows=None, metrics=None, **plan):
    plan = {"command": command, "settings": {}, "inputs": {}, **plan}
    stage(folder, plan, rows or {}, {}, metrics)


def evaluation(run):
    workspace = read_run(run)
    return _evaluation(workspace, workspace.evaluations[0], 10**6)


def expecting(name, turns=1):
    said = []
    for turn in range(turns):
        said += [Message("user", f"{name} {turn}"), Message("assistant", calls=(Call(name),))]
    return Record(messages=tuple(said))


def answer(*called):
    calls = [{"name": name, "arguments": "{}"} for name in called]
    return {"text": "", "calls": calls, "problem": "", "metrics": {}}


def test_the_readers_of_evaluations_and_of_stages_share_the_budget_of_a_page(tmp_path, monkeypatch):
    done = [rollout("apple", [says("No.")], {"env": 0.0})]
    write_rollout(write_live(tmp_path / "run", {"m": done}), done)
    budgets = []

    def record_budget(name, rollouts, budget):
        budgets.append(budget)
        return pack_rollouts(name, rollouts, budget)

    monkeypatch.setattr(sys.modules["agentlite.report.page"], "pack_rollouts", record_budget)
    write_report(tmp_path / "run")
    assert budgets == [2_250_000] * 2


def test_a_link_names_the_data_set_only_where_there_are_several(tmp_path):
    made(tmp_path / "eval/prep/m", "eval", metrics={"metrics": {}})
    run = read_run(tmp_path)
    names = ["bfcl", "acted", "ablations", "retrievers", "trained", "origins", "statistics"]
    empty = dict.fromkeys([*names, "commands"], ())
    one = {"evaluation": run.evaluations[0], "models": [1]}
    assert _links({**empty, "evaluations": [one]})[0] == ("models-1", "Models")
    assert _links({**empty, "evaluations": [one, one]})[0] == ("models-1", "Models on prep")


def test_the_prompts_of_an_evaluation_are_those_that_were_answered_or_the_most_of_a_model(tmp_path):
    rows = {"predictions.jsonl": [{"record_id": "a", "turn": 1, **answer()}]}
    made(tmp_path / "recorded/eval/prep/m", "eval", rows, {"metrics": {}, "prompts": 9})
    assert evaluation(tmp_path / "recorded")["prompts"] == "1 prompts"
    for name, prompts in (("m", 2), ("n", 3)):
        metrics = {"metrics": {}, "prompts": prompts, "dialogs_are": "live"}
        made(tmp_path / "live/eval/env" / name, "eval", metrics=metrics)
    assert evaluation(tmp_path / "live")["prompts"] == "3 tasks"


def test_the_twelve_tools_that_are_confused_most_are_shown_and_all_are_counted(tmp_path):
    records = [expecting(f"tool{n:02}") for n in range(14)]
    made(tmp_path / "prep", "prep", {"test.jsonl": map(to_row, records)})
    ids = [*(record.id for record in records), "of another run"]
    rows = [{"record_id": name, "turn": 1, **answer()} for name in ids]
    digest = file_digest(tmp_path / "prep/test.jsonl")
    files = {"predictions.jsonl": rows}
    made(tmp_path / "eval/prep/m", "eval", files, {"metrics": {}}, inputs={"data": digest})
    found = evaluation(tmp_path)
    assert [tool.name for tool in found["confusion"]] == [f"tool{n:02}" for n in range(12)]
    assert (found["tools"], found["unknown"], found["prompts"]) == (14, 1, "15 prompts")


def test_tools_that_are_confused_alike_are_in_the_order_of_their_names():
    records = {name: expecting(name) for name in ("b", "c", "a")}
    by_step = {Step(name, 1): {"m": [answer("x")]} for name in records}
    assert [one.name for one in confusion(Answers(records, by_step), ["m"])] == ["a", "b", "c"]


@pytest.mark.parametrize("turns", [(1, 3), (3, 1)])
def test_a_viewer_shows_a_dialog_up_to_its_last_step_in_whatever_order_they_come(turns):
    record = expecting("a", turns=3)
    by_step = {Step(record.id, turn): {"m": [answer()]} for turn in turns}
    text = pack(Answers({record.id: record}, by_step), ["m"], [], 10**6).text
    [[messages, _]] = json.loads(zlib.decompress(base64.b64decode(text)))["records"]
    assert len(messages) == 4


def test_a_table_inside_another_is_titled_by_both_and_a_single_count_has_no_bar():
    values = {
        "tools": {"calls": 3, "most_called": {"a": 4, "b": 1}},
        "by_task": {"general": 3},
        "made": {"masked": {"reasons": {}}, "removed": {"reasons": []}},
    }
    found = [(one.title, one.rows, one.bars) for one in _statistics(values)]
    assert found == [
        ("tools", [["calls", "3"]], []),
        ("tools most called", [["a", "4"], ["b", "1"]], [100.0, 25.0]),
        ("by task", [["general", "3"]], []),
        ("made", [["masked", "-"], ["removed", "none"]], []),
    ]


def test_a_plan_without_versions_names_none(tmp_path):
    made(tmp_path / "prep", "prep", versions={})
    assert _versions(read_run(tmp_path)) == []
    made(tmp_path / "sft", "sft")
    assert _versions(read_run(tmp_path)) == [("all stages", {"agentlite": "0"})]


@pytest.mark.parametrize(
    ("command", "name", "section"),
    [
        ("retriever", "metrics.json", "retrieval"),
        ("sft", "metrics.jsonl", "training"),
        ("prep", "stats.json", "data"),
    ],
)
def test_a_section_of_figures_that_were_changed_is_left_out(tmp_path, command, name, section):
    made(tmp_path / "one", command, {name: []})
    (tmp_path / "one" / name).write_text("{}\n\n")
    write_report(tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f'href="#{section}"' not in page and 'href="#commands"' in page
    assert f"{name} has changed since the stage wrote it" in page


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.0, "0"),
        (False, "false"),
        (None, "-"),
        ("", ""),
        ([], "none"),
        ({}, "-"),
        ([0, None, ""], "0, -, "),
        ({"a": 0, "b": None, "c": [False]}, "a 0, b -, c false"),
    ],
)
def test_what_is_nought_or_off_is_shown_and_only_what_is_not_known_is_a_dash(value, shown):
    """Alone, beside others, and as a cell of a table."""
    if not isinstance(value, dict):
        (alone,) = _statistics({"x": value, "y": 2})
        assert alone.rows == [["x", shown], ["y", "2"]]
    (table,) = _statistics({"by": {"one": {"x": value}, "two": {"y": 1}}})
    assert (table.head, table.rows) == (["", "x", "y"], [["one", shown, "-"], ["two", "-", "1"]])
