"""One at a time, in the order of asking, and no more than may wait."""

import threading

import pytest
from support.processes import waits_until

from agentlite.deploy.answer_queue import LONGEST_WAIT, AnswerQueue, QueueFull


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
