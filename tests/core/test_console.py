"""Off a terminal a wait is told after two seconds and then every thirty; what is quick says
nothing.
"""

import io
import os
import subprocess
import sys
import threading

import pytest
from support import processes

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


def test_what_is_left_is_reckoned_from_the_first_word_on(clock, capsys):
    """Not from the start: loading took a minute here, and an earlier run had done half."""
    with console.progress("training", 100) as advance:
        clock[0] += 60.0
        advance(50)
        clock[0] += 40.0
        advance(70)
        clock[0] += 60.0
        advance(100)
    told = capsys.readouterr().err.splitlines()
    assert told == ["training 50/100", "training 70/100, 60 s left", "training 100/100"]


def test_where_the_end_is_not_known_the_count_is_told(clock, capsys):
    with console.progress("rows read:", None) as advance:
        advance(50)
        clock[0] += 3.0
        advance(100)
    assert capsys.readouterr().err == "rows read: 100\n"


def test_what_cannot_say_how_far_it_is_says_that_it_is_at_work(monkeypatch, capsys):
    monkeypatch.setattr(console, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(console, "EVERY_SECONDS", 0.02)
    with console.waiting("comparing"):
        for _ in range(500):
            if len(told := capsys.readouterr().err.splitlines()) > 2 or any(
                "so far" in line for line in told
            ):
                break
            console.time.sleep(0.01)
    assert "so far" in told[-1]


def test_a_short_wait_says_nothing(capsys):
    with console.waiting("comparing"):
        pass
    assert capsys.readouterr().err == ""


def test_a_name_in_brackets_is_text_in_a_table(capsys):
    console.print_table([["model", "n"], ["org/name[4bit]", "1"], ["[red]x", "2"]])
    told = capsys.readouterr().out
    assert "org/name[4bit]" in told
    assert "[red]x" in told


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Gone(io.StringIO):
    """A stream whose reader has gone away."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise ValueError("I/O operation on closed file")


@pytest.mark.parametrize(
    ("terminal", "variable", "rank", "drawn"),
    [
        (True, "xterm", "0", True),
        (True, "dumb", "0", False),
        (False, "xterm", "0", False),
        (True, "xterm", "1", False),
    ],
)
def test_a_bar_is_drawn_on_a_terminal_by_the_first_process(
    terminal, variable, rank, drawn, monkeypatch
):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", variable)
    monkeypatch.setenv("RANK", rank)
    with console.progress("training", 2) as advance:
        advance(2, "loss 0.5")
    text = stream.getvalue()
    assert ("\x1b[" in text) == drawn
    assert ("training" in text) == (rank == "0")
    if drawn:
        assert "loss 0.5" in text and "2/2" in text
        assert text.endswith("\x1b[2K")  # the bar is gone when the work is done


@pytest.mark.parametrize(("rank", "shown"), [("0", "said\n"), ("1", ""), ("10", "")])
def test_of_several_processes_the_first_speaks(rank, shown, monkeypatch, capsys):
    monkeypatch.setenv("RANK", rank)
    console.notice("said")
    assert capsys.readouterr() == ("", shown)


def test_a_note_is_shown_behind_the_count(clock, capsys):
    with console.progress("training", 2) as advance:
        advance(2, "loss 0.5")
    assert capsys.readouterr().err == "training 2/2  loss 0.5\n"


def test_a_wait_is_named_after_two_seconds_and_then_every_thirty(monkeypatch, capsys):
    """The first word says no time; it would always be two seconds."""
    pauses: list[float] = []
    now = [100.0]

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            now[0] += timeout or 0.0
            return len(pauses) > 3

    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        console, "threading", type("T", (), {"Event": Event, "Thread": threading.Thread})
    )
    with console.waiting("comparing"):
        pass
    assert pauses == [2.0, 30.0, 30.0, 30.0]
    assert capsys.readouterr().err == (
        "comparing\ncomparing, 32 s so far\ncomparing, 62 s so far\n"
    )


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
    ],
)
def test_secrets_are_hidden_and_other_words_are_not(text, shown, monkeypatch):
    for name, value in {
        "A_TOKEN": " secret-of-mine\n",
        "B_KEY": "secret-of-mine-and-more",
        "C_SECRET": "eight888",
        "D_PASSWORD": "seven77",
        "TOKEN_NAME": "not-a-secret-here",
    }.items():
        monkeypatch.setenv(name, value)
    assert console.hidden(text) == shown


@pytest.mark.parametrize("name", ["TOKEN", "KEY", "SECRET", "PASSWORD"])
def test_a_variable_named_like_a_secret_holds_one(name, monkeypatch):
    monkeypatch.setenv(f"MY_{name}", "open-sesame")
    assert console.hidden("say open-sesame") == "say (hidden)"


def test_stderr_hides_secrets_and_may_be_closed(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "open-sesame")
    stream = io.StringIO()
    forgiving = console.Forgiving(stream)
    assert forgiving.write("say open-sesame") == len("say open-sesame")
    assert stream.getvalue() == "say (hidden)" and forgiving.getvalue() == "say (hidden)"
    closed = console.Forgiving(Gone())
    assert closed.write("abc") == 3
    closed.flush()


STREAMS = """
import os, sys
from agentlite.core import console

for number in map(int, sys.argv[1]):
    os.close(number)
console.open_streams()
for number, name in enumerate(("stdin", "stdout", "stderr")):
    if str(number) in sys.argv[1]:
        assert os.get_inheritable(number), name
        assert getattr(sys, name).encoding == "utf-8", name
        assert os.path.samestat(os.fstat(number), os.stat(os.devnull)), name
        getattr(sys, name).write("Kraków\\n") if number else sys.stdin.read()
with open(sys.argv[2], "w") as file:
    file.write(str(file.fileno() > 2))
os._exit(0)
"""


@pytest.mark.parametrize("closed", ["0", "1", "2", "012"])
def test_a_closed_stream_is_opened_to_nobody_for_us_and_our_children(closed, tmp_path):
    processes.run([sys.executable, "-c", STREAMS, closed, str(tmp_path / "said")], timeout=60)
    assert (tmp_path / "said").read_text() == "True"


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


@pytest.mark.parametrize(
    ("cell", "colour"),
    [
        ("ok", "32"),
        ("done", "32"),
        ("half done, step 2", "33"),
        ("warning", "33"),
        ("running, step 2", "36"),
        ("problem", "31"),
        ("failed", "31"),
        ("broken: x", ""),
        ("broken, plan.json", "31"),
        ("doner", ""),
    ],
)
def test_a_state_has_its_colour_on_a_terminal(cell, colour, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLORTERM", "")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    console.print_table([["", ""], [cell, "1"]], stream)
    line = stream.getvalue()
    assert line.startswith(f"\x1b[{colour}m{cell}" if colour else cell), repr(line)


def test_a_row_has_the_colour_that_it_is_given_before_that_of_its_state(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLORTERM", "")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    rows = [["a", "b"], ["ok", "1"], ["x", "2"], ["failed", "3"]]
    console.print_table(rows, stream, words=2, colours=["", "yellow", "green"])
    lines = stream.getvalue().splitlines()[1:]
    assert [line.partition("m")[0] for line in lines] == ["\x1b[32", "\x1b[33", "\x1b[32"]


def test_a_closed_stdout_is_no_error_where_it_would_be_redirected(monkeypatch):
    def closed(number: int) -> int:
        raise OSError

    done = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", closed)
        with console.stdout_to_stderr():
            done.append(True)
    assert done


def test_words_stand_left_and_numbers_right(capsys):
    rows = [["name", "of", "n"], ["a", "b", "5"], ["long", "c", "1234"]]
    console.print_table(rows)
    one = capsys.readouterr().out.splitlines()
    assert one == ["name  of     n", "a      b     5", "long   c  1234"]
    console.print_table(rows, words=2)
    two = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert two == ["name  of     n", "a     b      5", "long  c   1234"]
    console.print_table([["name", ""], ["a", "5"]])
    assert capsys.readouterr().out.splitlines() == ["name", "a     5"]


def test_a_table_without_a_heading_has_no_line_for_it_and_folds_at_120(capsys):
    console.print_table([["", ""], ["a", "x" * 200]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a") and len(lines) == 2
    assert max(map(len, lines)) == 120 and "".join(lines).count("x") == 200


def test_the_banner_of_a_library_is_only_shown_where_it_fails(capsys):
    with console.unheard():
        print("Unsloth: 2x faster")
        print("a warning", file=sys.stderr)
    assert capsys.readouterr() == ("", "a warning\n")

    @console.unheard()
    def fail():
        print("no CUDA")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert capsys.readouterr() == ("", "no CUDA\n")
    print("as before")
    assert capsys.readouterr().out == "as before\n"
