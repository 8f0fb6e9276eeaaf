"""The table and the object of `agentlite doctor`, and its exit code."""

import json

import pytest

from agentlite.cli.commands.doctor import doctor
from agentlite.cli.doctor.finding import Finding

OK = Finding("python", "ok", "3.12")
WARNING = Finding("disk", "warning", "5 GB free", "Free some.")
PROBLEM = Finding("torch", "problem", "is old", "pip install torch")


@pytest.mark.parametrize(
    ("findings", "problems", "warnings"),
    [([OK], 0, 0), ([OK, WARNING], 0, 1), ([OK, WARNING, PROBLEM, PROBLEM], 2, 1)],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_only_a_problem_is_exit_1_and_all_that_is_wrong_has_its_way_out(
    monkeypatch, capsys, findings, problems, warnings, as_json
):
    monkeypatch.setattr("agentlite.cli.doctor.findings", lambda run: findings)
    code = 0
    try:
        doctor("runs/default", as_json, debug=False)
    except SystemExit as ended:
        code = ended.code
    assert code == bool(problems)
    out = capsys.readouterr().out
    if as_json:
        found = json.loads(out)
        assert (found["command"], found["problems"]) == ("doctor", problems)
        assert [one["state"] for one in found["findings"]] == [one.state for one in findings]
        return
    *lines, last = out.splitlines()
    assert last == f"problems: {problems}, warnings: {warnings}"
    assert [line.split()[0] for line in lines if "->" not in line] == [x.state for x in findings]
    assert [line.split("-> ")[1] for line in lines if "->" in line] == [
        one.fix for one in findings if one.fix
    ]
