"""Tokens of servers: every reply counts once, over all runs, and a budget ends the questions."""

import threading
from pathlib import Path
from typing import Any

import pytest

from agentlite.core import endpoint_pool, server_usage
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
            with (tmp_path / server_usage.USAGE_FILE).open("a") as file:
                file.write('{"model": "m", "tok')
        with server_usage.counted(tmp_path, None) as usage:
            assert len(list(ask_all(PAIR, questions(9)))) == 9
        of_model = {"replies": 8 * runs, "tokens_read": 160 * runs, "tokens_written": 40 * runs}
        assert usage.figures() == {"m": of_model}
        assert usage.tokens == 200 * runs and usage.note == f"{200 * runs} tokens"
        assert usage.file and usage.file.file.closed
    list(ask_all(PAIR, questions(9)))  # outside, nothing counts
    assert usage.tokens == 400


def test_replies_that_were_under_way_when_the_budget_was_used_up_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(4, timeout=30)

    def ask(*_: Any) -> Reply:
        together.wait()
        return Reply("x", "", 20, 5)

    monkeypatch.setattr(endpoint_pool, "ask", ask)
    given: list[int] = []
    problems: list[str] = []

    def work() -> None:
        with server_usage.counted(tmp_path, 25):
            try:
                given.extend(number for number, _ in ask_all(PAIR, questions(40)))
            except UserError as error:
                problems.append(error.problem)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "waits for questions that are not asked"
    assert sorted(given) == [0, 1, 2, 3]
    assert problems == ["is used up: the servers have read and written 100 tokens."]


def test_tokens_are_counted_for_the_model_whose_server_replied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_has_a_question, b_has_replied = threading.Event(), threading.Event()

    def ask(endpoint: Endpoint, *_: Any) -> Reply:
        if endpoint.model == "a":
            a_has_a_question.set()
            b_has_replied.wait(20)
            return Reply("yes", "", 300, 40)
        a_has_a_question.wait(20)  # or b's thread may answer all before a's has begun
        b_has_replied.set()
        return Reply("yes", "", 20, 5)

    monkeypatch.setattr(endpoint_pool, "ask", ask)
    two = [one._replace(model=model, concurrency=1) for one, model in zip(PAIR, "ba", strict=True)]
    with server_usage.counted(tmp_path, None) as usage:
        assert len(list(ask_all(two, questions(9)))) == 9
    found = usage.figures()
    assert [*found] == ["a", "b"] and sum(one["replies"] for one in found.values()) == 9
    for model, read, written in (("a", 300, 40), ("b", 20, 5)):
        replies = found[model]["replies"]
        assert replies and found[model]["tokens_read"] == replies * read
        assert found[model]["tokens_written"] == replies * written


def test_nothing_is_written_where_nothing_is_asked(tmp_path: Path) -> None:
    with server_usage.counted(tmp_path, 1) as usage:
        assert list(ask_all(PAIR, [])) == []
    assert usage.figures() == {} and usage.note == "" and not [*tmp_path.iterdir()]


@pytest.mark.parametrize("budget", [1, 25, 26, 50, 175, 399, 400, 10_000])
def test_a_budget_ends_the_questions_and_gives_those_under_way(
    tmp_path: Path, asked: list[int], budget: int
) -> None:
    given: list[int] = []
    ended = None
    with server_usage.counted(tmp_path, budget) as usage:
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
        with server_usage.counted(tmp_path, budget), pytest.raises(UserError):
            list(ask_all(PAIR, questions(1)))
        assert len(asked) == before
    assert budget < 10_000 or len(given) == 17


@pytest.mark.parametrize("left", [1, 2, 3])
def test_the_budget_is_named_also_where_a_single_question_is_left(
    tmp_path: Path, asked: list[int], left: int
) -> None:
    one = [PAIR[0]._replace(concurrency=1)]
    given: list[int] = []
    with (
        server_usage.counted(tmp_path, 50),
        pytest.raises(UserError, match="50 tokens") as refused,
    ):
        given.extend(number for number, _ in ask_all(one, questions(2 + left)))
    assert given == asked == [0, 1] and refused.value.location == "--token-budget 50"


def test_a_used_up_budget_refuses_nothing_where_nothing_is_asked(tmp_path: Path) -> None:
    with server_usage.counted(tmp_path, 25) as usage:
        usage.add("m", Reply("yes", "", 20, 5))
        assert list(ask_all(PAIR, [])) == []


@pytest.mark.parametrize(
    ("budget", "is_used_up"), [(24, True), (25, True), (26, False), (None, False)]
)
def test_the_last_token_of_a_budget_uses_it_up(
    tmp_path: Path, budget: int | None, is_used_up: bool
) -> None:
    with server_usage.counted(tmp_path, budget) as usage:
        usage.add("m", Reply("yes", "", 20, 5))
        assert usage.is_used_up is is_used_up


@pytest.mark.parametrize("error", [UserError("disk full", exit_code=74), KeyboardInterrupt()])
def test_a_reply_that_cannot_be_counted_ends_the_work_with_the_cause(
    tmp_path: Path, asked: list[int], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def full(*_: Any) -> None:
        raise error

    with server_usage.counted(tmp_path, None) as usage:
        monkeypatch.setattr(usage, "add", full)
        with pytest.raises(type(error)) as caught:
            list(ask_all(PAIR, questions(9)))
    assert caught.value is error
