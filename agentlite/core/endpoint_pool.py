"""Questions + several endpoints -> a reply to each; a dead endpoint's work goes to the others."""

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from agentlite.core import server_usage
from agentlite.core.console import notice
from agentlite.core.errors import NETWORK, UserError
from agentlite.core.openai_client import Endpoint, Message, Reply, ask

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
    work = _SharedWork(endpoints, questions)
    if work.usage and questions:
        work.usage.refuse_used_up()
    for server in work.servers:
        for _ in range(min(server.endpoint.concurrency, len(questions))):
            # daemons: a try that is under way must not hold up the end of a stopped process
            threading.Thread(target=work.share, args=(server,), name=THREAD, daemon=True).start()
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
        work.stop.set()
        with work.changed:
            work.changed.notify_all()
    if work.usage and left:
        work.usage.refuse_used_up()


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


class _Server:
    """What is known of an endpoint. `failed`: questions; `in_a_row`: how many it failed last."""

    def __init__(self, endpoint: Endpoint):
        self.endpoint = endpoint
        self.is_alive, self.is_probed = True, False
        self.failed, self.in_a_row = set[int](), 0


class _SharedWork:
    """The questions that wait, and the endpoints that share them."""

    def __init__(self, endpoints: Sequence[Endpoint], questions: Sequence[Question]):
        self.questions, self.usage = questions, server_usage.current()
        self.results: SimpleQueue[tuple[int, Reply] | BaseException] = SimpleQueue()
        self.room = sum(endpoint.concurrency for endpoint in endpoints)
        self.stop = threading.Event()
        self.changed = threading.Condition()  # guards all that follows
        self.servers = [_Server(endpoint) for endpoint in endpoints]
        self.waiting = deque(range(len(questions)))
        self.open = set[int]()  # under way, or answered and not taken up by the caller
        self.last: dict[int, Reply] = {}  # question -> how it failed
        self.unasked = 0  # questions that the budget leaves out

    def take_up(self, question: int) -> None:
        """The caller is done with the reply."""
        with self.changed:
            self.open.discard(question)
            self.changed.notify_all()

    def share(self, server: _Server) -> None:
        """The work of one thread: question after question to one endpoint."""
        try:
            while (question := self._take(server)) is not None:
                try:
                    reply = ask(server.endpoint, *self.questions[question], self.stop)
                    if self.stop.is_set():
                        return  # nobody waits for it any more
                    if reply.problem:
                        self._fail(server, question, reply)
                        continue
                except UserError as error:
                    self._give_up(server, question, error)
                    continue
                self._count(server, reply)
                self.results.put((question, reply))
        except BaseException as error:
            self.results.put(error)  # the caller would wait for this thread for ever

    def _take(self, server: _Server) -> int | None:
        """A question that this endpoint has not failed; None when there is nothing left to do."""
        with self.changed:
            while server.is_alive and not self.stop.is_set():
                question = self._next(server)
                if question is not None and not server.is_probed and len(self.open) < self.room:
                    self.waiting.remove(question)
                    self.open.add(question)
                    return question
                self.changed.wait()
        return None

    def _next(self, server: _Server) -> int | None:
        return next((one for one in self.waiting if one not in server.failed), None)

    def _count(self, server: _Server, reply: Reply) -> None:
        """Before the reply is given, so that nobody waits for more once the budget is used up."""
        with self.changed:
            server.in_a_row = 0
            if self.usage:
                self.usage.add(server.endpoint.model, reply)
            if self.usage and self.usage.is_used_up:
                self.unasked += len(self.waiting)
                self.waiting.clear()

    def _fail(self, server: _Server, question: int, reply: Reply) -> None:
        """Is the question at fault, or the endpoint? After several failures in a row, and at the
        end of the work, a probe decides. Raises UserError 8 for the endpoint.
        """
        with self.changed:
            self.changed.wait_for(lambda: not server.is_probed)
            server.in_a_row += 1
            is_due = server.in_a_row >= IN_A_ROW or self._next(server) is None
            server.is_probed = server.is_alive and is_due
            probes = server.is_probed
        if probes:
            short = server.endpoint._replace(timeout=min(server.endpoint.timeout, PROBE_SECONDS))
            try:
                is_silent = bool(ask(short, *PROBE, self.stop).problem)
            finally:
                with self.changed:
                    server.is_probed = False
                    self.changed.notify_all()
            if is_silent:
                raise UserError(
                    f"no answer: {reply.why}.",
                    "Look at the server; the same command again asks for what is missing.",
                    location=server.endpoint.address,
                    exit_code=NETWORK,
                )
        with self.changed:
            if probes:
                server.in_a_row = 0
            if server.is_alive:  # else a sibling thread has given it up: its failure means nothing
                server.failed.add(question)
            self.last[question] = reply
            self._pass_on(question)
            self.changed.notify_all()

    def _pass_on(self, question: int) -> None:
        """To an endpoint that has not failed it, or else to the caller."""
        if any(server.is_alive and question not in server.failed for server in self.servers):
            self.open.discard(question)
            self.waiting.appendleft(question)
        else:
            self.results.put((question, self.last[question]))

    def _give_up(self, server: _Server, question: int, error: UserError) -> None:
        with self.changed:
            if self.stop.is_set():
                return
            was_alive, server.is_alive = server.is_alive, False
            if any(other.is_alive for other in self.servers):
                if was_alive:
                    others = "The other endpoints take its questions."
                    notice(f"{error.location}: {error.problem} {others}")
                # some of those that wait had only this endpoint left
                waiting = [question, *reversed(self.waiting)]
                self.waiting.clear()
                for one in waiting:
                    self._pass_on(one)
            elif was_alive:
                self.results.put(error)
            self.changed.notify_all()
