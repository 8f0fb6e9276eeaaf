"""One at a time, in the order of asking, and no more than may wait."""

import threading
from types import SimpleNamespace

import pytest
from support.processes import waits_until

from agentlite.deploy import answer_queue
from agentlite.deploy.answer_queue import LONGEST_WAIT, AnswerQueue, ClientGone, QueueFull


def waits(queue: AnswerQueue, number: int) -> bool:
    """Whether so many wait within five seconds, while one is answered."""
    return waits_until(lambda: queue.working and queue.waiting >= number, 5)


def test_the_order_is_that_of_asking():
    queue, order, threads = AnswerQueue(20), list[int](), list[threading.Thread]()

    def answer(number: int) -> None:
        with queue.turn(lambda: False) as waited:
            assert waited >= 0
            order.append(number)

    with queue.turn(lambda: False):
        for number in range(20):
            threads.append(threading.Thread(target=answer, args=(number,)))
            threads[-1].start()
            assert waits(queue, number + 1)
    for thread in threads:
        thread.join()
    assert order == list(range(20)) and not queue.working


@pytest.mark.parametrize("longest", [0, 1, 3])
def test_one_is_answered_and_the_longest_number_waits(longest):
    queue, over = AnswerQueue(longest), threading.Event()

    def wait() -> None:
        with queue.turn(lambda: False):
            over.wait(60)

    threads = [threading.Thread(target=wait) for _ in range(longest + 1)]
    try:
        for number, thread in enumerate(threads):
            thread.start()
            assert waits(queue, number)
        with pytest.raises(QueueFull) as full, queue.turn(lambda: False):
            pass
        assert 1 <= full.value.seconds <= LONGEST_WAIT and queue.waiting == longest
    finally:
        over.set()
        for thread in filter(threading.Thread.is_alive, threads):
            thread.join()
    assert not queue.working


def test_who_is_gone_or_fails_leaves_the_line():
    queue = AnswerQueue(5)
    with queue.turn(lambda: False), pytest.raises(ClientGone), queue.turn(lambda: True):
        pass
    assert not queue.working
    with pytest.raises(ValueError, match="odd"), queue.turn(lambda: False):
        raise ValueError("odd")
    assert not queue.working


def test_however_long_an_answer_takes_a_client_is_asked_to_wait_for_a_minute(monkeypatch):
    queue, now = AnswerQueue(0), [0.0]
    monkeypatch.setattr(answer_queue, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for seconds, asked in ((16.0, 4), (3600.0, LONGEST_WAIT)):
        with queue.turn(lambda: False):
            now[0] += seconds
        with queue.turn(lambda: False):
            with pytest.raises(QueueFull) as full, queue.turn(lambda: False):
                pass
            assert full.value.seconds == asked


def test_a_request_is_asked_to_wait_for_those_before_it_by_the_time_that_answers_take(monkeypatch):
    """Not by the time for which they have waited, which a log has."""
    queue, now, waits_of = AnswerQueue(1), [0.0], list[float]()
    monkeypatch.setattr(answer_queue, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def second() -> None:
        with queue.turn(lambda: False) as waited:
            waits_of.append(waited)

    thread = threading.Thread(target=second)
    with queue.turn(lambda: False) as waited:
        thread.start()
        assert waited == 0 and waits(queue, 1)
        with pytest.raises(QueueFull) as full, queue.turn(lambda: False):
            pass
        assert full.value.seconds == 2  # for two answers, a second each
        now[0] += 11.0
    thread.join()
    assert waits_of == [11.0]
    with queue.turn(lambda: False):  # 1 + 10 / 5 = 3 behind the first; 3 - 3 / 5 behind the second
        other = threading.Thread(target=second)
        other.start()
        assert waits(queue, 1)
        with pytest.raises(QueueFull) as full, queue.turn(lambda: False):
            pass
        assert full.value.seconds == 5  # 2 * 2.4, rounded up
    other.join()
