"""How each kind of error ends the command: its exit code, where its words go, and nothing more."""

import errno
import json
import os
import sys
from typing import Any

import click
import pytest

from agentlite.cli import main as command_line
from agentlite.cli.main import main
from agentlite.core import console, errors
from agentlite.core.errors import UserError
from agentlite.core.user_code import one_line
from agentlite.engine.watch import Stopped


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """What a command raises, or its words -> exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "stderr", sys.stderr)  # put back after main has wrapped it
    monkeypatch.setenv("NO_COLOR", "1")

    def run(error: BaseException | None, *words: str) -> tuple[int, str, str]:
        def fail(*_: Any, **__: Any) -> None:
            if error:
                raise error

        monkeypatch.setattr(sys, "argv", ["agentlite", *words])
        if error:
            monkeypatch.setattr(command_line, "group", fail)
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0), *capsys.readouterr()
        return 0, *capsys.readouterr()

    return run


# they set a terminal's title, clear it, colour it, go back, and turn the writing round
OBEYED = "\x1b]0;title\x07 \x1b[2J \x9b31m \r\b\x7f\0 \u202etxt.exe\u2066"


@pytest.mark.parametrize(
    "error",
    [
        UserError(f"fails: {OBEYED}", f"Fix {OBEYED}", location=OBEYED),
        OSError(errno.ENOENT, OBEYED, OBEYED),
        ZeroDivisionError(OBEYED),
    ],
)
def test_no_error_notice_or_table_holds_what_a_terminal_obeys(
    error: Exception, run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A template, a server or a tool may say it."""
    _, _, said = run(error)
    console.notice(OBEYED)
    console.print_table([["tool"], [OBEYED]])
    shown = [said, *capsys.readouterr(), one_line(OBEYED)]
    assert all("txt.exe" in text and text.replace("\n", "").isprintable() for text in shown)


STOPPED = "Stopped. The same command again carries on.\n"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UserError("is wrong."), 2, "Error: is wrong.\n"),
        (UserError("is wrong.", "Fix it.", exit_code=9), 9, "Error: is wrong.\nFix it.\n"),
        (UserError("is wrong.", location="a"), 2, "Error: a: is wrong.\n"),
        (KeyboardInterrupt(), 130, STOPPED),
        (click.Abort(), 130, STOPPED),
        (Stopped(15), 143, STOPPED),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            74,
            "Error: the system says: No space left on device.\nFree some space, or give another "
            "folder (--run FOLDER); then run the command again.\n",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/a/b"),
            74,
            "Error: /a/b: the system says: Permission denied.\nRepair what it names, or "
            "give another folder (--run FOLDER); then run it again.\n",
        ),
        (OSError(errno.EBADF, "x"), 1, "Error: OSError: [Errno 9] x\nThis is a fault of"),
        (ValueError("x"), 1, "Error: ValueError: x\nThis is a fault of agentlite or of a library"),
    ],
    ids=repr,
)
def test_an_error_has_its_exit_code_and_its_words_on_stderr(run, error, code, text):
    found, out, err = run(error, "runs")
    assert (found, out) == (code, "") and text in err and "Traceback" not in err


@pytest.mark.parametrize("error", [UserError("is wrong."), ValueError("x")])
def test_debug_shows_where_an_error_comes_from(run, error):
    with pytest.raises(type(error)) as raised:
        run(error, "runs", "--debug")
    assert raised.value is error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evla"], "no command 'evla'. Did you mean 'eval'?"),
        (["-"], "no command '-'. Known: prep, "),
        (["--", "--foo"], "no command '--foo'. Known: prep, "),
        (["sft", "--no-such"], "No such option '--no-such'"),
        (["sft", "rows.jsonl"], "Files are read by `agentlite prep FILE`"),
        (["prep", "--show", "many"], '"many" does not fit INT'),
    ],
)
def test_a_mistake_in_the_words_is_exit_2(run, words, message):
    code, out, err = run(None, *words)
    assert (code, out) == (2, "") and message in err.replace("No such option: --no-such", message)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            UserError("is wrong.", "Fix it.", location="a.jsonl:3", exit_code=4),
            {"code": "rejects", "location": "a.jsonl:3", "problem": "is wrong.", "fix": "Fix it."},
        ),
        (Stopped(15), {"code": "stopped", "problem": "stopped."}),
        (ValueError("x"), {"code": "fault", "location": "", "problem": "ValueError: x"}),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            {"code": "disk", "problem": "the system says: No space left on device."},
        ),
    ],
    ids=repr,
)
def test_with_json_an_error_is_the_one_object_on_stdout(run, error, expected):
    code, out, err = run(error, "runs", "--json")
    (object_,) = map(json.loads, out.splitlines())
    assert object_["error"].items() >= {**expected, "exit_code": code}.items()
    assert object_["error"].keys() == {"code", "location", "problem", "fix", "exit_code"}
    assert err, "a person reads it as before"


def test_no_part_of_an_error_that_is_printed_as_json_holds_a_secret(run, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hunter2hunter2")
    error = UserError("a hunter2hunter2.", "b hunter2hunter2", location="c/hunter2hunter2")
    _, out, _ = run(error, "runs", "--json")
    found = json.loads(out)["error"]
    assert [found[key] for key in ("problem", "fix", "location")] == [
        "a (hidden).",
        "b (hidden)",
        "c/(hidden)",
    ]


def test_each_exit_code_has_a_name():
    codes = {
        value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)
    }
    assert codes == {*errors.NAMES}


def test_a_reader_that_has_gone_ends_the_command_like_any_other(run, monkeypatch):
    pairs: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "dup2", lambda *given: pairs.append(given))
    assert run(BrokenPipeError(), "runs")[0] == 141
    assert [number for _, number in pairs] == [1]
