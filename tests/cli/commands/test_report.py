"""`agentlite report` renews the page, says the result in words, and opens a browser where there is
a screen.
"""

import json
import webbrowser

import pytest
from filelock import FileLock, Timeout
from support.generated_run import stage, write_run

from agentlite.cli.main import main
from agentlite.workspace.folder_lock import TURN


@pytest.fixture
def report(monkeypatch, capsys):
    """The command line; returns its exit code and what it printed."""

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["agentlite", "report", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        return code, capsys.readouterr()

    return call


@pytest.fixture
def opened(monkeypatch):
    """The addresses that a browser was asked to open."""
    addresses = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    return addresses


@pytest.mark.long
def test_the_page_is_written_anew_and_the_result_is_said(report, opened, tmp_path):
    run = write_run(tmp_path / "weather", ["base", "sft"], 12)
    code, shown = report("--run", run)
    assert code == 0
    first, *_, last = shown.out.splitlines()
    assert "picks the right tool for" in first
    assert last == f"report: {run}/report.html (one file: open it in any browser)"
    assert first in (run / "report.md").read_text("utf-8") and (run / "report.html").exists()
    assert not opened  # no terminal


@pytest.mark.parametrize(
    ("arguments", "screen", "count"), [([], ":0", 1), ([], "", 0), (["--no-browser"], ":0", 0)]
)
def test_a_browser_opens_where_there_is_a_terminal_and_a_screen(
    report, opened, tmp_path, monkeypatch, arguments, screen, count
):
    run = write_run(tmp_path / "weather", ["base"], 3)
    monkeypatch.setattr("agentlite.cli.browser.sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("agentlite.cli.browser.sys.platform", "linux")
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert report("--run", run, *arguments)[0] == 0
    assert opened == [(run / "report.html").as_uri()] * count


@pytest.mark.long
def test_json_is_one_object(report, opened, tmp_path):
    run = write_run(tmp_path / "weather", ["base"], 3)
    code, shown = report("--run", run, "--json")
    found = json.loads(shown.out)
    assert code == 0 and found["command"] == "report" and found["page"] == f"{run}/report.html"
    assert list(found["sentences"]) == ["prep"] and not opened


def test_a_workspace_without_an_evaluation_has_a_report(report, tmp_path):
    stage(tmp_path / "run" / "sft", {"command": "sft", "settings": {}, "inputs": {}}, {}, {})
    code, shown = report("--run", tmp_path / "run")
    assert code == 0 and shown.out.startswith("No evaluation is finished.\n")


def test_an_evaluation_of_which_nothing_was_read_is_no_result(report, tmp_path):
    plan = {"command": "eval", "settings": {}, "inputs": {}}
    for name in ("prep", "other"):
        stage(tmp_path / "run/eval" / name / "m", plan, {}, {}, {"metrics": {}})
        (tmp_path / "run/eval" / name / "m/done.json").unlink()
    assert report("--run", tmp_path / "run")[1].out.startswith("No evaluation is finished.\n")


@pytest.mark.parametrize("names", [["prep"], ["other", "prep"]])
def test_results_have_the_name_of_their_data_where_there_are_several(report, tmp_path, names):
    plan = {"command": "eval", "settings": {}, "inputs": {}}
    metrics = {"metrics": {"env": {"mean": 0.5, "count": 4}}}
    for name in names:
        stage(tmp_path / "run/eval" / name / "m", plan, {}, {}, metrics)
    *lines, _ = report("--run", tmp_path / "run")[1].out.splitlines()
    titles = [f"{name}:" for name in names] if len(names) > 1 else []
    assert [line for line in lines if line.endswith(":")] == titles
    assert lines.count("m completes 2 of 4 tasks.") == len(names)


def test_a_report_is_written_while_no_other_command_writes_into_the_workspace(
    report, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    stage(run / "sft", {"command": "sft", "settings": {}, "inputs": {}}, {}, {})
    held = []

    def written(folder):
        with pytest.raises(Timeout):
            FileLock(folder / TURN).acquire(timeout=0)
        held.append(folder)
        return folder / "report.md"

    monkeypatch.setattr("agentlite.cli.commands.report.write_report", written)
    assert report("--run", run, "--no-browser")[0] == 0 and held == [run]
    FileLock(run / TURN).acquire(timeout=0).lock.release()


@pytest.mark.parametrize(
    ("name", "problem"),
    [("none", "no such workspace"), ("empty", "holds no stage"), ("file", "is a file")],
)
def test_without_a_stage_nothing_is_written(report, tmp_path, name, problem):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    code, shown = report("--run", tmp_path / name)
    assert code == 2 and problem in shown.err and not shown.out
    assert not list((tmp_path / "empty").iterdir())
