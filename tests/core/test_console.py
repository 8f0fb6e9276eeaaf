"""Off a terminal a wait is told after two seconds and then every thirty; what is quick says
nothing.
"""

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


def test_what_is_left_is_reckoned_from_the_first_word_on(clock, capsys):
    """Not from the start: loading took a minute here, and an earlier run had done half."""
    with console.progress("training", 100) as advance:
        clock[0] += 60.0
        advance(50)
        clock[0] += 40.0
        advance(70)
    assert capsys.readouterr().err == "training 50/100\ntraining 70/100, 60 s left\n"


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
