"""Questions + several endpoints -> a reply to each; a dead endpoint's work goes to the others."""

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from agentlite.core import server_usage
from agentlite.core.console import notice
from agentlite.core.errors import NETWORK, UserError
from agentlite.core.openai_client import Endpoint, Message, Reply, ask
from agentlite.core.server_usage import ServerUsage

IN_A_ROW = 4  # questions without an answer, one after the other, before an endpoint is probed
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

    A reply with a `problem` means that every endpoint failed this question. An endpoint that fails
    a short question as well is given up. Raises UserError 8 when all are given up; every reply
    before that has been given. When nothing is raised, the questions were at fault. Raises
    UserError 2 where the budget of `server_usage` is used up: no further question is asked, and the
    replies that were under way have been given.
    """
    usage = server_usage.current()
    work = _SharedWork(endpoints, questions, usage)
    if usage and questions:
        usage.refuse_used_up()
    for number, endpoint in enumerate(endpoints):
        for _ in range(min(endpoint.concurrency, len(questions))):
            # daemons: a try that is under way must not hold up the end of a stopped process
            threading.Thread(target=work.share, args=(number,), name=THREAD, daemon=True).start()
    left = len(questions)
    try:
        while left > work.unasked:
            result = work.results.get()
            if isinstance(result, BaseException):
                raise result
            left -= 1
            yield result
            work.take_up(result[0])
    finally:
        work.end()
    if usage and left:
        usage.refuse_used_up()


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


class _SharedWork:
    """The questions that wait, and what is known of each endpoint. Endpoints are numbered."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        questions: Sequence[Question],
        usage: ServerUsage | None,
    ):
        self.endpoints, self.questions, self.usage = endpoints, questions, usage
        self.results: SimpleQueue[tuple[int, Reply] | BaseException] = SimpleQueue()
        self.stop = threading.Event()
        self.changed = threading.Condition()  # guards all that follows
        self.waiting = deque(range(len(questions)))
        self.open = set[int]()  # under way, or answered and not taken up by the caller
        self.unasked = 0  # questions that the budget leaves out
        self.failures: dict[int, dict[int, Reply]] = defaultdict(dict)  # question -> endpoint
        self.alive = set(range(len(endpoints)))
        self.in_a_row = [0] * len(endpoints)
        self.probed = [False] * len(endpoints)  # whether it is being probed

    def take_up(self, question: int) -> None:
        """The caller is done with the reply."""
        with self.changed:
            self.open.discard(question)
            self.changed.notify_all()

    def end(self) -> None:
        self.stop.set()
        with self.changed:
            self.changed.notify_all()

    def share(self, number: int) -> None:
        """The work of one thread: question after question to one endpoint."""
        try:
            while (question := self._take(number)) is not None:
                try:
                    reply = ask(self.endpoints[number], *self.questions[question], self.stop)
                    if self.stop.is_set():
                        return  # nobody waits for it any more
                    if reply.problem:
                        self._fail(number, question, reply)
                        continue
                except UserError as error:
                    self._give_up(number, question, error)
                    continue
                self._count(number, reply)
                self.results.put((question, reply))
        except BaseException as error:
            self.results.put(error)  # the caller would wait for this thread for ever

    def _count(self, number: int, reply: Reply) -> None:
        """Before the reply is given, so that nobody waits for more once the budget is used up."""
        with self.changed:
            self.in_a_row[number] = 0
            if self.usage:
                self.usage.add(self.endpoints[number].model, reply)
            if self.usage and self.usage.is_used_up:
                self.unasked += len(self.waiting)
                self.waiting.clear()

    def _take(self, number: int) -> int | None:
        """A question that this endpoint has not failed; None when there is nothing left to do."""
        with self.changed:
            while number in self.alive and not self.stop.is_set():
                question = self._next(number)
                if question is not None and not self.probed[number] and self._has_room():
                    self.waiting.remove(question)
                    self.open.add(question)
                    return question
                self.changed.wait()
        return None

    def _has_room(self) -> bool:
        return len(self.open) < sum(endpoint.concurrency for endpoint in self.endpoints)

    def _next(self, number: int) -> int | None:
        return next((one for one in self.waiting if number not in self.failures[one]), None)

    def _fail(self, number: int, question: int, reply: Reply) -> None:
        """Is the question at fault, or the endpoint? After several failures in a row, and at the
        end of the work, a probe decides."""
        with self.changed:
            while self.probed[number]:
                self.changed.wait()
            self.in_a_row[number] += 1
            self.probed[number] = number in self.alive and (
                self.in_a_row[number] >= IN_A_ROW or self._next(number) is None
            )
            probe = self.probed[number]
        if probe:
            try:
                if not self._answers(number):
                    raise _no_answer(self.endpoints[number], reply)
            finally:
                with self.changed:
                    self.probed[number] = False
                    self.changed.notify_all()
        with self.changed:
            if number in self.alive:
                self.failures[question][number] = reply
                self._pass_on(question)
            else:  # a sibling thread has given it up: its failure means nothing
                self._put_back(question)
            self.changed.notify_all()

    def _answers(self, number: int) -> bool:
        endpoint = self.endpoints[number]
        short = endpoint._replace(timeout=min(endpoint.timeout, PROBE_SECONDS))
        if ask(short, *PROBE, self.stop).problem:
            return False
        with self.changed:
            self.in_a_row[number] = 0
        return True

    def _pass_on(self, question: int) -> None:
        """To an endpoint that has not failed it, or else to the caller."""
        failures = self.failures[question]
        if self.alive - failures.keys():
            self._put_back(question)
        else:
            self.results.put((question, next(reversed(failures.values()))))

    def _put_back(self, question: int) -> None:
        self.open.remove(question)
        self.waiting.appendleft(question)

    def _give_up(self, number: int, question: int, error: UserError) -> None:
        with self.changed:
            self._put_back(question)
            if number not in self.alive or self.stop.is_set():
                return
            self.alive.remove(number)
            if not self.alive:
                self.results.put(error)
            else:
                notice(f"{error.location}: {error.problem} The other endpoints take its questions.")
                # those that only this endpoint had not failed yet
                for one in [*self.waiting]:
                    if not self.alive - self.failures[one].keys():
                        self.waiting.remove(one)
                        self._pass_on(one)
            self.changed.notify_all()


def _no_answer(endpoint: Endpoint, reply: Reply) -> UserError:
    why = f"{reply.problem}: {reply.detail}" if reply.detail else reply.problem
    return UserError(
        f"no answer: {why}.",
        "Look at the server; the same command again asks for what is missing.",
        location=endpoint.address,
        exit_code=NETWORK,
    )
