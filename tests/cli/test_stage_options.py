"""A stage's options: what of its result goes to stdout."""

import json

import pytest
from click.testing import CliRunner

from agentlite.cli import output
from agentlite.cli.main import group
from agentlite.stages import api
from agentlite.stages.prep import write
from agentlite.workspace.lookup import Result

AS_TABLE = "prep: up to date, f\n"
ROWS, AS = ["--rows", "-"], ["--as", "openai"]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ([], ""),
        (["--rows", "parquet"], ""),
        (ROWS, output.OWN_SHAPE),
        (AS, "openai"),
        ([*ROWS, *AS], "openai"),
    ],
    ids=str,
)
def test_stdout_holds_the_records_or_the_object_or_the_table(
    words, shape, as_json, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = Result("prep", "up to date", "f", {}, [], 1.0)
    monkeypatch.setattr(api, "execute", lambda *_: result)
    monkeypatch.setattr(write, "read_splits", lambda _: ["row"])
    monkeypatch.setattr(output, "from_row", str)
    monkeypatch.setattr(write, "openai_row", lambda row: f"{row}, openai")
    monkeypatch.setattr(output, "_print_result", lambda _, in_full: print(AS_TABLE, end=""))
    words = ["prep", "rows.jsonl", *words, *(["--json"] if as_json else [])]
    done = CliRunner().invoke(group, words, standalone_mode=False)
    assert done.exception is None
    if shape:
        assert done.stdout == ('"row"\n' if shape == output.OWN_SHAPE else '"row, openai"\n')
    elif as_json:
        assert json.loads(done.stdout)["status"] == "up to date"
    else:
        assert done.stdout == AS_TABLE
    assert done.stderr == (AS_TABLE if shape and not as_json else "")


def test_weights_that_are_given_twice_are_put_together():
    words = ["pairs", "--weights", "a=1", "--weights", "b=2", "--print-config", "--json"]
    done = CliRunner().invoke(group, words, standalone_mode=False)
    assert json.loads(done.stdout)["settings"]["weights"] == {"a": 1, "b": 2}
