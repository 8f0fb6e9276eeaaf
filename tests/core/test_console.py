"""Off a terminal a wait is told after two seconds and then every thirty; what is quick says
nothing.
"""

import io
import os
import re
import subprocess
import sys

import pytest

from agentlite.core import console


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that a test sets."""
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_after_two_seconds_then_every_thirty_and_at_the_end(clock, capsys):
    with console.progress("reading", 100) as advance:
        for done in range(1, 101):
            clock[0] += 1.0
            advance(done)
    told = [line.split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == [
        "reading 2/100",
        "reading 32/100",
        "reading 62/100",
        "reading 92/100",
        "reading 100/100",
    ]


class Gone(io.StringIO):
    """A stream whose reader has gone away."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise ValueError("I/O operation on closed file")


@pytest.mark.parametrize(("rank", "shown"), [("0", "said\n"), ("1", ""), ("10", "")])
def test_of_several_processes_the_first_speaks(rank, shown, monkeypatch, capsys):
    monkeypatch.setenv("RANK", rank)
    console.notice("said")
    assert capsys.readouterr() == ("", shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("my secret-of-mine.", "my (hidden)."),
        ("seven77 stays", "seven77 stays"),  # too short: it may be a word
        ("eight888 goes", "(hidden) goes"),
        ("secret-of-mine-and-more", "(hidden)"),  # the longer of two that begin alike
        ("not-a-secret-here", "not-a-secret-here"),
        ("https://me:pw@host/x", "https://(hidden)@host/x"),
        ("https://host/a@b", "https://host/a@b"),
        ("mail me@host", "mail me@host"),
        ("hf_" + "a" * 20, "(hidden)"),
        ("hf_" + "a" * 19, "hf_" + "a" * 19),
        ("sk-" + "a" * 16, "(hidden)"),
        ("sk-" + "a" * 15, "sk-" + "a" * 15),
        ("Bearer abcdefgh", "Bearer (hidden)"),
        ("Bearer abcdefg", "Bearer abcdefg"),
        ("nine99999 goes", "(hidden) goes"),
    ],
)
def test_secrets_are_hidden_and_other_words_are_not(text, shown, monkeypatch):
    for name, value in {
        "A_TOKEN": " secret-of-mine\n",
        "B_KEY": "secret-of-mine-and-more",
        "C_SECRET": "eight888",
        "D_PASSWORD": "seven77",
        "E_PASSWORD": "nine99999",
        "TOKEN_NAME": "not-a-secret-here",
    }.items():
        monkeypatch.setenv(name, value)
    assert console.redact(text) == shown


def test_stderr_hides_secrets_and_may_be_closed(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "open-sesame")
    stream = io.StringIO()
    forgiving = console.SafeStderr(stream)
    assert forgiving.write("say open-sesame") == len("say open-sesame")
    assert stream.getvalue() == "say (hidden)" and forgiving.getvalue() == "say (hidden)"
    closed = console.SafeStderr(Gone())
    assert closed.write("abc") == 3
    closed.flush()


@pytest.mark.parametrize(
    ("terminal", "no_color", "codes"), [(True, "", "1 31 36"), (True, "1", "1"), (False, "", "")]
)
def test_rows_are_coloured_on_a_terminal_that_wants_it(terminal, no_color, codes, monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", console.SafeStderr(stream))
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")
    lines = ["my rows.jsonl:3: E206 [bold]no", '  | {"a": 1' + " " * 200, "  |  ^^^", "  = help: x"]
    for line in lines:
        console.row_notice(line)
    written = stream.getvalue()
    seen = {code for codes in re.findall(r"\x1b\[([\d;]+)m", written) for code in codes.split(";")}
    assert seen - {"0"} == set(codes.split())
    assert re.sub(r"\x1b\[[\d;]+m", "", written).splitlines() == lines


def test_what_a_library_prints_ends_on_stderr_and_stdout_is_itself_again(capfd):
    print("before")
    with console.stdout_to_stderr():
        print("from Python")
        os.write(1, b"from below\n")
        subprocess.run(["echo", "from a child"], check=True)
    print("after")
    os.write(1, b"after, from below\n")
    subprocess.run(["echo", "after, from a child"], check=True)
    out, err = capfd.readouterr()
    assert out == "before\nafter\nafter, from below\nafter, from a child\n"
    assert sorted(err.splitlines()) == ["from Python", "from a child", "from below"]


def test_words_stand_left_and_numbers_right(capsys):
    rows = [["name", "of", "n"], ["a", "b", "5"], ["long", "c", "1234"]]
    console.print_table(rows)
    one = capsys.readouterr().out.splitlines()
    assert one == ["name  of     n", "a      b     5", "long   c  1234"]
    console.print_table(rows, text_columns=2)
    two = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert two == ["name  of     n", "a     b      5", "long  c   1234"]
    console.print_table([["name", ""], ["a", "5"]])
    assert capsys.readouterr().out.splitlines() == ["name", "a     5"]
