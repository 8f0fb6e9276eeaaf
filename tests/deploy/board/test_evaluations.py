"""The figures of all evaluations on one page, and what a comparison says of them."""

import json
import shutil
from typing import Any

import pytest
from support.boards import asked, serving
from support.generated_run import stage, write_run
from support.processes import environment

from agentlite.deploy.board import board_server, evaluations
from agentlite.deploy.board.board_server import BoardServer
from agentlite.deploy.board.evaluations import Evaluations
from agentlite.deploy.board.workspaces import Workspaces


def read(server: BoardServer, path: str) -> Any:
    status, content, _ = asked(server, path)
    assert status == 200, content
    return json.loads(content)


@pytest.mark.long
def test_evaluations_of_all_workspaces_have_their_figures_with_intervals(tmp_path):
    write_run(tmp_path / "a", ["base", "sft"], 6)
    write_run(tmp_path / "b", ["sft"], 6)  # the same prompts
    workspaces = Workspaces([tmp_path])
    while workspaces.look():
        pass
    models, waiting = Evaluations(workspaces).look()
    assert waiting == 0
    names = {(one.run, one.data, one.model) for one in models}
    assert names == {
        (str(tmp_path / "a"), "prep", "base"),
        (str(tmp_path / "a"), "prep", "sft"),
        (str(tmp_path / "b"), "prep", "sft"),
    }
    for one in models:
        mean, low, high, count = one.figures["exact_call"]
        assert 0 <= low <= mean <= high <= 1 and count == one.prompts == 6
        assert one.answers
    assert len({one.questions for one in models}) == 1


def test_an_evaluation_is_read_once_until_it_changes(tmp_path, monkeypatch):
    run = write_run(tmp_path / "a", ["base", "sft"], 6)
    (run / "eval/prep/base/metrics.json").write_text("{")  # small: the board sees the harm
    workspaces = Workspaces([tmp_path])
    while workspaces.look():
        pass
    found = Evaluations(workspaces)
    assert [one.model for one in found.look()[0]] == ["sft"]
    reads: list[str] = []
    monkeypatch.setattr(evaluations, "_read", lambda name, seen: reads.append(name))
    found.look()
    assert reads == []
    shutil.rmtree(run / "eval/prep/sft")
    workspaces.look()
    assert found.look() == ([], 0)


def test_an_evaluation_that_has_changed_is_read_again(tmp_path):
    run = write_run(tmp_path / "a", ["sft"], 6)
    workspaces = Workspaces([tmp_path])
    workspaces.look(10)
    found = Evaluations(workspaces)
    assert [one.prompts for one in found.look()[0]] == [6]
    write_run(run, ["sft"], 7)
    workspaces.look(10)
    assert [one.prompts for one in found.look()[0]] == [7]


def test_figures_of_a_harmed_file_are_those_that_are_whole_and_not_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluations, "MOST_FIGURES", 3)
    whole = {"mean": 0.5, "low": 0.4, "high": 0.6, "count": 9}
    harmed = {"a": {**whole, "low": None}, "b": {**whole, "high": "x"}, "c": [1], "d": "e"}
    known = {"f": whole, "g": {**whole, "count": "many"}, "h": whole, "i": whole}
    plan = {"command": "eval", "settings": {}, "inputs": {}}
    metrics = {"metrics": {**harmed, **known}, "dialogs": [1], "prompts": "x"}
    stage(tmp_path / "eval/prep/sft", plan, {}, {}, metrics)
    workspaces = Workspaces([tmp_path])
    workspaces.look(10)
    (one,), _ = Evaluations(workspaces).look()
    expected = (0.5, 0.4, 0.6, 9)
    assert one.figures == {"f": expected, "g": (*expected[:3], 0), "h": expected}
    assert (one.prompts, one.questions, one.answers) == (0, "", False)
    monkeypatch.setattr(evaluations, "LONGEST_FILE", 10)
    assert Evaluations(workspaces).look()[0][0].figures == {}


def test_what_takes_long_is_read_in_pieces(tmp_path, monkeypatch):
    write_run(tmp_path / "a", ["base", "sft"], 6)
    monkeypatch.setattr(evaluations, "AT_ONCE", 0.0)
    with serving([tmp_path]) as server:
        assert read(server, "api/evaluations") == {"models": [], "waiting": 2}
        monkeypatch.setattr(evaluations, "AT_ONCE", 10.0)
        assert read(server, "api/evaluations")["waiting"] == 0


@pytest.mark.parametrize("names", [[], ["{run}/eval/prep/sft"], ["x", "y"], ["/etc", "/etc"]])
def test_a_comparison_needs_two_evaluations_of_the_board(tmp_path, names):
    run = write_run(tmp_path / "a", ["base", "sft"], 6)
    with serving([tmp_path]) as server:
        words = "&".join(f"id={name.replace('{run}', str(run))}" for name in names)
        assert asked(server, f"api/compare?{words}")[0] in (400, 404)


def test_as_many_evaluations_are_compared_as_the_page_may_name(tmp_path, monkeypatch):
    run = write_run(tmp_path / "a", ["sft"], 6)
    compared: list[list[str]] = []

    def answer_of(words: list[str]) -> Any:
        compared.append(words)
        return {"figures": {"differences": []}}

    monkeypatch.setattr(board_server, "answer_of", answer_of)
    with serving([tmp_path]) as server:
        for count, status in ((1, 400), (2, 200), (16, 200), (17, 400)):
            words = "&".join([f"id={run}/eval/prep/sft"] * count)
            assert asked(server, f"api/compare?{words}")[0] == status
    assert [len(words) for words in compared] == [1 + 2 + 1, 1 + 16 + 1]


@pytest.mark.long
def test_a_comparison_says_what_the_command_line_says(tmp_path, monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    ids = [f"{tmp_path / name}/eval/prep/{model}" for name, model in (("a", "base"), ("b", "sft"))]
    write_run(tmp_path / "a", ["base", "other"], 6)
    write_run(tmp_path / "b", ["sft"], 6)
    write_run(tmp_path / "c", ["sft"], 7)
    for path in tmp_path.glob("*/eval/prep/*/predictions.jsonl"):
        (path.parent / "dialogs.jsonl").write_bytes(b"")
    with serving([tmp_path]) as server:
        found = read(server, f"api/compare?id={ids[0]}&id={ids[1]}")
        assert found["command"] == f"agentlite eval --compare={ids[0]} --compare={ids[1]}"
        [exact] = [one for one in found["differences"] if one["metric"] == "exact_call"]
        assert exact["count"] == 6 and exact["low"] <= exact["mean"] <= exact["high"]
        other = f"{tmp_path}/c/eval/prep/sft"
        status, content, _ = asked(server, f"api/compare?id={ids[0]}&id={other}")
        assert status == 404 and b"different questions" in content
