"""Questions + several endpoints -> a reply to each."""

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from agentlite.core.errors import NETWORK, UserError
from agentlite.core.openai_client import Endpoint, Message, Reply, ask

PROBE_SECONDS = 60.0  # of one try of the probe
THREAD = "endpoint"


class Question(NamedTuple):
    messages: Sequence[Message]
    parameters: Mapping[str, object]


PROBE = Question([{"role": "user", "content": "Say yes."}], {"max_tokens": 8})


def ask_all(
    endpoints: Sequence[Endpoint], questions: Sequence[Question]
) -> Iterator[tuple[int, Reply]]:
    """The number of each question and its reply, as they come. Each endpoint has as many questions
    under way as its `concurrency`, and none runs ahead of what the caller has taken: who stops here
    loses no more answers than there are under way.

    A reply with a `problem` means that its endpoint failed this question, and answers others.
    Raises UserError 8 where one answers a short question no more either.
    """
    stop = threading.Event()
    outcomes = SimpleQueue[tuple[Endpoint, int, Reply | BaseException]]()
    free = deque(endpoint for endpoint in endpoints for _ in range(endpoint.concurrency))
    waiting = deque(range(len(questions)))

    def ask_one(endpoint: Endpoint, number: int) -> None:
        outcome: Reply | BaseException
        try:
            outcome = _ask(endpoint, questions[number], stop)
        except BaseException as error:
            outcome = error  # the caller would wait for this thread for ever
        outcomes.put((endpoint, number, outcome))

    try:
        for _ in questions:
            while free and waiting:
                # a daemon: a try that is under way must not hold up the end of a stopped process
                arguments = (free.popleft(), waiting.popleft())
                threading.Thread(target=ask_one, args=arguments, name=THREAD, daemon=True).start()
            endpoint, number, outcome = outcomes.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield number, outcome
            free.append(endpoint)
    finally:
        stop.set()


def _ask(endpoint: Endpoint, question: Question, stop: threading.Event) -> Reply:
    """Is the question at fault, or the endpoint? After each failure a probe decides."""
    reply = ask(endpoint, *question, stop)
    if reply.problem and not stop.is_set():
        shorter = endpoint._replace(timeout=min(endpoint.timeout, PROBE_SECONDS))
        if ask(shorter, *PROBE, stop).problem:
            raise UserError(
                f"no answer: {reply.why}.",
                "Look at the server; the same command again asks for what is missing.",
                location=endpoint.address,
                exit_code=NETWORK,
            )
    return reply


def refuse_unanswered(problems: Sequence[str], count: int, location: str, effect: str) -> None:
    """Raises UserError 8 where questions have no answer. `problems`: of each such question;
    `count`: of all that are asked; `effect`: what `--unanswered wrong` would make of them, "" where
    that does not help.
    """
    if problems:
        by_problem = Counter(problems).most_common(3)
        reasons = "; ".join(f"{number} x {problem}" for problem, number in by_problem)
        out = f" If they never get one: --unanswered wrong {effect}." if effect else ""
        raise UserError(
            f"{len(problems)} of {count} questions have no answer: {reasons}.",
            f"The same command asks these again, and no others.{out}",
            location=location,
            exit_code=NETWORK,
        )
