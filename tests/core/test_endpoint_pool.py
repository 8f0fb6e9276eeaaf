"""Several endpoints share questions: how many at once, who takes over, and when one is given up."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from agentlite.core import endpoint_pool
from agentlite.core.endpoint_pool import (
    IN_A_ROW,
    PROBE,
    Question,
    _SharedWork,
    ask_all,
    refuse_unanswered,
)
from agentlite.core.errors import NETWORK, UserError
from agentlite.core.openai_client import Endpoint, Reply

A, B = (Endpoint(f"http://{name}/v1", "m", concurrency=2) for name in "ab")
SILENT = Reply("", "answered 503", silent=True)
YES = Reply("yes")
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

        monkeypatch.setattr(endpoint_pool, "ask", ask)
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


def test_an_endpoint_has_as_many_questions_at_once_as_its_concurrency(answering: Any) -> None:
    together, lock, now, most = threading.Barrier(3, timeout=30), threading.Lock(), [0], [0]

    def say(host: str, number: int) -> Reply:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        if number < 3:
            together.wait()
        with lock:
            now[0] -= 1
        return Reply("x")

    answering(say)
    assert len(list(ask_all([A._replace(concurrency=3)], questions(30)))) == 30
    assert most[0] == 3


@pytest.mark.parametrize("end", ["silent", "refused"])
def test_what_a_dead_endpoint_does_not_answer_the_others_do(
    end: str, answering: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(host: str, number: int) -> Reply:
        time.sleep(0.001)
        if host == "b":
            return Reply("x")
        if end == "refused":
            raise UserError("answered 401.", location=A.address, exit_code=NETWORK)
        return SILENT

    asked = answering(say)
    found = dict(ask_all([A, B], questions(40)))
    assert found == dict.fromkeys(range(40), Reply("x"))
    assert all(asked["b", number] == 1 for number in range(40))
    shown = capsys.readouterr().err
    assert shown.count("The other endpoints take its questions.") == 1 and A.address in shown
    assert sum(count for (host, _), count in asked.items() if host == "a") < 12


@pytest.mark.parametrize(("limit", "of_probe"), [(2.0, 2.0), (60.0, 60.0), (600.0, 60.0)])
def test_a_probe_is_waited_for_as_long_as_a_question_and_a_minute_at_most(
    limit: float, of_probe: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: dict[bool, set[float]] = {True: set(), False: set()}

    def ask(endpoint: Endpoint, messages: Sequence[Mapping[str, Any]], *_: Any) -> Reply:
        waited[messages == PROBE.messages].add(endpoint.timeout)
        return YES if messages == PROBE.messages else SILENT

    monkeypatch.setattr(endpoint_pool, "ask", ask)
    assert len(list(ask_all([A._replace(timeout=limit)], questions(IN_A_ROW)))) == IN_A_ROW
    assert waited == {True: {of_probe}, False: {limit}}


def test_a_question_that_one_endpoint_fails_is_asked_at_the_other(answering: Any) -> None:
    def say(host: str, number: int) -> Reply:
        return SILENT if (host, number % 2) == ("a", 0) and number >= 0 else Reply(host)

    asked = answering(say)
    found = dict(ask_all([A, B], questions(20)))
    assert all(not reply.problem for reply in found.values()) and len(found) == 20
    assert all(found[number].text == "b" for number in range(0, 20, 2))
    assert max(asked[key] for key in asked if key[1] >= 0) == 1


def test_a_question_that_all_fail_is_given_back_with_its_problem(answering: Any) -> None:
    asked = answering(lambda host, number: SILENT if number == 3 else Reply("x"))
    found = dict(ask_all([A, B], questions(8)))
    assert found.pop(3) == SILENT and set(found.values()) == {Reply("x")} and len(found) == 7
    assert asked["a", 3] == asked["b", 3] == 1


def test_a_question_that_only_a_dead_endpoint_had_not_failed_is_given_back(answering: Any) -> None:
    a_asked, b_failed = threading.Event(), threading.Event()

    def say(host: str, number: int) -> Reply:
        if host == "a":
            a_asked.set()
            b_failed.wait(20)
            raise UserError("answered 401.", location=A.address, exit_code=NETWORK)
        a_asked.wait(20)  # so that it is the first question or the second that A keeps waiting
        if number == 4:
            b_failed.set()
        return SILENT if number == 3 else Reply("x")

    answering(say)
    found: dict[int, Reply] = {}
    one, two = A._replace(concurrency=1), B._replace(concurrency=1)
    asking = threading.Thread(
        target=lambda: found.update(ask_all([one, two], questions(6))), daemon=True
    )
    asking.start()
    asking.join(20)
    assert not asking.is_alive(), "it waits for an answer that nobody gives"
    assert found.pop(3) == SILENT and found == dict.fromkeys((0, 1, 2, 4, 5), Reply("x"))


YES_NO_GONE = ("answers", "fails", "refuses")


@pytest.mark.parametrize("seed", range(3))
def test_a_question_is_given_back_without_an_answer_only_when_all_that_are_left_have_failed_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three endpoints and two questions, whatever each does at each, in orders by chance."""
    monkeypatch.setattr(endpoint_pool, "ask", lambda *_: YES)  # the probes
    monkeypatch.setattr(endpoint_pool, "notice", lambda _: None)
    three, draw = [A._replace(concurrency=1)] * 3, Random(seed)
    for does in product(YES_NO_GONE, repeat=6):
        work, under_way = _SharedWork(three, questions(2), None), dict[int, int]()
        replies: list[tuple[int, Reply] | BaseException] = []
        while ready := [
            n for n in work.alive if n in under_way or work._next(n) is not None
        ]:  # one of them takes a question, or is done with it
            number = draw.choice(sorted(ready))
            if number not in under_way:
                under_way[number] = taken = work._take(number)
                assert taken is not None
                continue
            question = under_way.pop(number)
            match does[2 * number + question]:
                case "answers":
                    work.results.put((question, YES))
                case "fails":
                    work._fail(number, question, SILENT)
                case _:
                    work._give_up(number, question, UserError("answered 401.", location="a"))
            while not work.results.empty():
                replies.append(work.results.get())
                if not isinstance(replies[-1], BaseException):
                    work.take_up(replies[-1][0])
        if not work.alive:
            assert isinstance(replies[-1], UserError)
            continue
        found = dict(one for one in replies if not isinstance(one, BaseException))
        assert sorted(found) == [0, 1] and len(replies) == 2, does
        for question, reply in found.items():
            if reply.problem:
                assert {does[2 * n + question] for n in work.alive} == {"fails"}, (does, replies)


def test_many_questions_that_fail_do_not_stop_an_endpoint_that_answers_a_short_one(
    answering: Any,
) -> None:
    asked = answering(lambda host, number: SILENT if number >= 2 else Reply("x"))
    found = dict(ask_all([A], questions(30)))
    assert [number for number, reply in found.items() if not reply.problem] == [0, 1]
    assert len(found) == 30 and asked["a", -1] >= 28 // (4 * 2)


@pytest.mark.parametrize("count", range(1, 8))
def test_an_endpoint_is_probed_after_each_four_failures_in_a_row_and_at_the_end(
    count: int, answering: Any
) -> None:
    """An answer begins the count anew, be it to a question or to the probe."""
    for ends in product((True, False), repeat=count):
        asked = answering(lambda _, n, ends=ends: YES if n < 0 or ends[n] else SILENT)
        found = dict(ask_all([A._replace(concurrency=1)], questions(count)))
        assert [not found[number].problem for number in range(count)] == [*ends]
        probes = in_a_row = 0
        for number, answered in enumerate(ends):
            in_a_row = 0 if answered else in_a_row + 1
            if in_a_row == IN_A_ROW or (in_a_row and number == count - 1):
                probes, in_a_row = probes + 1, 0
        assert asked["a", -1] == probes


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


@pytest.mark.parametrize("detail", ["", "at lunch"])
def test_the_explanation_of_a_dead_endpoint_is_shown(answering: Any, detail: str) -> None:
    answering(lambda host, number: SILENT._replace(detail=detail))
    with pytest.raises(UserError) as error:
        list(ask_all([A], questions(9)))
    assert f"answered 503{': ' + detail if detail else ''}." in error.value.problem


def test_nothing_is_asked_when_nobody_reads_on(answering: Any) -> None:
    closed = threading.Event()

    def say(host: str, number: int) -> Reply:
        if number >= 2:
            closed.wait(30)
        return Reply("x")

    asked = answering(say)
    replies = ask_all([A], questions(500))
    next(iter(replies))
    replies.close()  # type: ignore[attr-defined]  # a generator
    closed.set()
    time.sleep(0.05)
    assert len(asked) <= 2  # the one that was taken, and one under way


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("fails", [False, True])
def test_nobody_runs_ahead_of_a_slow_reader(answering: Any, concurrency: int, fails: bool) -> None:
    """Whoever stops the reader loses what is under way, and no more."""

    def say(host: str, number: int) -> Reply:
        return SILENT if fails and host == "b" and number >= 0 else YES

    asked = answering(say)
    endpoints = [A._replace(concurrency=concurrency), B._replace(concurrency=concurrency)]
    for taken, _ in enumerate(ask_all(endpoints, questions(12)), 1):
        time.sleep(0.02)  # the threads could answer all questions meanwhile
        answered = {number for host, number in asked if not (fails and host == "b")} - {-1}
        assert len(answered) <= taken - 1 + 2 * concurrency
    assert len(answered) == 12


def test_a_fault_of_our_own_reaches_the_caller(answering: Any) -> None:
    def say(host: str, number: int) -> Reply:
        raise ZeroDivisionError

    answering(say)
    with pytest.raises(ZeroDivisionError):
        list(ask_all([A, B], questions(5)))


def test_questions_without_an_answer_are_counted_by_problem_with_a_way_out() -> None:
    refuse_unanswered([], 9, "m", "counts them as wrong")
    with pytest.raises(UserError) as error:
        refuse_unanswered(["answered 503", "x", "answered 503"], 9, "m", "counts them as wrong")
    assert error.value.problem == "3 of 9 questions have no answer: 2 x answered 503; 1 x x."
    assert "--unanswered wrong counts them as wrong" in error.value.fix
    assert error.value.exit_code == NETWORK and error.value.location == "m"
    with pytest.raises(UserError) as error:
        refuse_unanswered([*"abbccc", *"dddd"], 99, "m", "")
    assert error.value.problem.endswith(" 4 x d; 3 x c; 2 x b.")  # the three most frequent
    with pytest.raises(UserError) as error:
        refuse_unanswered(["x"], 1, "m", "")
    assert "--unanswered" not in error.value.fix
