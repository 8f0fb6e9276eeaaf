"""Tokens of servers: every reply counts once, over all runs, and a budget ends the questions."""

import time
from pathlib import Path
from typing import Any

import pytest

from agentlite.core import endpoint_pool
from agentlite.core.endpoint_pool import Question, ask_all
from agentlite.core.errors import USAGE, UserError
from agentlite.core.openai_client import Endpoint, Reply

PAIR = [Endpoint(f"http://{name}/v1", "m", concurrency=2) for name in "ab"]


def questions(count: int) -> list[Question]:
    return [Question([{"role": "user", "content": str(number)}], {}) for number in range(count)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The questions that were asked; number 3 fails everywhere."""
    numbers: list[int] = []

    def ask(endpoint: Endpoint, messages: Any, *_: Any) -> Reply:
        text = messages[0]["content"]
        if text == "Say yes.":
            return Reply("yes", "", 1000, 1000)
        numbers.append(int(text))
        return Reply("", "answered 500", silent=True) if text == "3" else Reply(text, "", 20, 5)

    monkeypatch.setattr(endpoint_pool, "ask", ask)
    return numbers


def test_replies_are_counted_and_failures_and_probes_are_not(
    tmp_path: Path, asked: list[int]
) -> None:
    for runs in (1, 2):  # the second adds to the first, and to a line that a kill has torn
        if runs == 2:
            with (tmp_path / endpoint_pool.USAGE_FILE).open("a") as file:
                file.write('{"model": "m", "tok')
        with endpoint_pool.counted(tmp_path, None) as usage:
            assert len(list(ask_all(PAIR, questions(9)))) == 9
        of_model = {"replies": 8 * runs, "tokens_read": 160 * runs, "tokens_written": 40 * runs}
        assert usage.figures() == {"m": of_model}
        assert usage.tokens == 200 * runs and usage.note == f"{200 * runs} tokens"
        assert usage.file and usage.file.file.closed
    list(ask_all(PAIR, questions(9)))  # outside, nothing counts
    assert usage.tokens == 400


def test_nothing_is_written_where_nothing_is_asked(tmp_path: Path) -> None:
    with endpoint_pool.counted(tmp_path, 1) as usage:
        assert list(ask_all(PAIR, [])) == []
    assert usage.figures() == {} and usage.note == "" and not [*tmp_path.iterdir()]


@pytest.mark.parametrize("budget", [1, 25, 26, 50, 175, 399, 400, 10_000])
def test_a_budget_ends_the_questions_and_gives_those_under_way(
    tmp_path: Path, asked: list[int], budget: int
) -> None:
    given: list[int] = []
    ended = None
    with endpoint_pool.counted(tmp_path, budget) as usage:
        try:
            given.extend(number for number, _ in ask_all(PAIR, questions(17)))
        except UserError as error:
            ended = error
    needed = -(-budget // 25)
    if needed <= 12:  # otherwise the 4 under way can be the rest
        assert ended and ended.exit_code == USAGE and f"{usage.tokens:,} tokens" in ended.problem
        assert needed <= sum(number != 3 for number in given) <= needed + 4
    assert {*asked} - {*given} <= {3}, "whatever was answered is given"
    if ended:
        # used up at the start: nobody is asked
        before = len(asked)
        with endpoint_pool.counted(tmp_path, budget), pytest.raises(UserError):
            list(ask_all(PAIR, questions(1)))
        assert len(asked) == before
    assert budget < 10_000 or len(given) == 17


def test_a_budget_that_is_used_up_while_the_caller_works_asks_nothing_more(
    tmp_path: Path, asked: list[int]
) -> None:
    with endpoint_pool.counted(tmp_path, 75) as usage:
        replies = ask_all([PAIR[0]._replace(concurrency=4)], questions(17))
        next(replies)
        while usage.tokens < 75:  # of the four under way one fails
            time.sleep(0.001)
        with pytest.raises(UserError):
            list(replies)
    assert sorted(asked) == [0, 1, 2, 3]
