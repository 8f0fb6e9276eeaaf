"""Several endpoints share questions: how many at once, and what ends all."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from agentlite.core import openai_client
from agentlite.core.errors import NETWORK, UserError
from agentlite.core.openai_client import (
    PROBE,
    Endpoint,
    Question,
    Reply,
    ask_all,
    refuse_unanswered,
)

A, B = (Endpoint(f"http://{name}/v1", "m", concurrency=2) for name in "ab")
SILENT = Reply("", "answered 503", silent=True)
Say = Callable[[str, int], Reply]  # the host and the number of the question, -1 for a probe


def questions(count: int) -> list[Question]:
    return [Question([{"role": "user", "content": str(number)}], {}) for number in range(count)]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Say], Counter[tuple[str, int]]]:
    """Sets what is said to a question, and counts who was asked what."""

    def answering(say: Say) -> Counter[tuple[str, int]]:
        asked: Counter[tuple[str, int]] = Counter()

        def ask(endpoint: Endpoint, messages: Sequence[Mapping[str, Any]], *_: Any) -> Reply:
            number = -1 if messages == PROBE.messages else int(messages[0]["content"])
            host = endpoint.url[7:8]
            asked[host, number] += 1
            return say(host, number)

        monkeypatch.setattr(openai_client, "ask", ask)
        return asked

    return answering


def test_each_question_is_asked_once_and_all_endpoints_have_some(answering: Any) -> None:
    def say(host: str, number: int) -> Reply:
        time.sleep(0.002)
        return Reply(f"{number}")

    asked = answering(say)
    found = dict(ask_all([A, B], questions(40)))
    assert found == {number: Reply(f"{number}") for number in range(40)}
    assert set(asked.values()) == {1} and {host for host, _ in asked} == {"a", "b"}


@pytest.mark.parametrize("end", ["silent", "refused"])
def test_an_endpoint_that_is_dead_ends_all_with_its_address(end: str, answering: Any) -> None:
    def say(host: str, number: int) -> Reply:
        if host == "b":
            time.sleep(0.001)
            return Reply("x")
        if end == "refused":
            raise UserError("answered 401.", location=A.address, exit_code=NETWORK)
        return SILENT

    answering(say)
    with pytest.raises(UserError) as error:
        list(ask_all([A, B], questions(40)))
    assert (error.value.location, error.value.exit_code) == (A.address, NETWORK)


def test_a_question_that_fails_is_given_back_with_its_problem(answering: Any) -> None:
    asked = answering(lambda host, number: SILENT if number == 3 else Reply("x"))
    found = dict(ask_all([A, B], questions(8)))
    assert found.pop(3) == SILENT and set(found.values()) == {Reply("x")} and len(found) == 7
    assert asked["a", 3] + asked["b", 3] == 1


@pytest.mark.parametrize("endpoints", [[A], [A, B]], ids=["one", "two"])
def test_when_all_are_dead_what_came_before_has_been_given(
    endpoints: list[Endpoint], answering: Any
) -> None:
    lock, answered = threading.Lock(), set[int]()

    def say(host: str, number: int) -> Reply:
        with lock:
            if number >= 0 and len(answered) < 5:
                answered.add(number)
                return Reply("x")
            return SILENT

    answering(say)
    found = []
    replies = ask_all(endpoints, questions(50))
    with pytest.raises(UserError, match="no answer: answered 503") as error:
        found.extend(number for number, reply in replies if not reply.problem)
    assert {*found} <= answered and error.value.exit_code == NETWORK
    assert error.value.location in {one.address for one in endpoints}


@pytest.mark.parametrize("number", [0, 2])
def test_a_dead_server_makes_no_question_fail(number: int, answering: Any) -> None:
    """Not the last one either, which `--unanswered wrong` would count as wrong."""
    answering(lambda host, asked: Reply("x") if 0 <= asked < number else SILENT)
    with pytest.raises(UserError, match="no answer: answered 503"):
        assert [reply.problem for _, reply in ask_all([A], questions(number + 1))] == [""] * number


def test_a_fault_of_our_own_reaches_the_caller(answering: Any) -> None:
    def say(host: str, number: int) -> Reply:
        raise ZeroDivisionError

    answering(say)
    with pytest.raises(ZeroDivisionError):
        list(ask_all([A, B], questions(5)))


def test_causes_are_counted_together_whatever_a_server_says_of_each_question() -> None:
    problems = [f"answered 400: row {number} is too long" for number in range(7)] + [
        "timed out"
    ] * 2
    with pytest.raises(UserError) as error:
        refuse_unanswered(problems, 20, "--endpoint", "")
    assert "7 x answered 400: row 0 is too long; 2 x timed out." in error.value.problem
