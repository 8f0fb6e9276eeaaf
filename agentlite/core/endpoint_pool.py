"""Questions + several endpoints -> a reply to each, and the tokens that all of them took."""

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from agentlite.core.console import notice
from agentlite.core.errors import NETWORK, UserError
from agentlite.core.openai_client import Endpoint, Message, Reply, ask
from agentlite.core.row_files import Appender, read_rows

IN_A_ROW = 4  # questions without an answer, one after the other, before an endpoint is probed
PROBE_SECONDS = 60.0  # of one try of the probe
THREAD = "endpoint"
USAGE_FILE = "usage.jsonl"  # no part of the result: a run that was killed has asked for more
PROBING = -1  # stands where the number of a question stands


class Question(NamedTuple):
    messages: Sequence[Message]
    parameters: Mapping[str, object]


PROBE = Question([{"role": "user", "content": "Say yes."}], {"max_tokens": 8})
Numbered = tuple[int, Reply]  # the number of a question, and its reply


def ask_all(endpoints: Sequence[Endpoint], questions: Sequence[Question]) -> Iterator[Numbered]:
    """The number of each question and its reply, as they come. Each endpoint has as many questions
    under way as its `concurrency`, and none runs ahead of what the caller has taken: who stops here
    loses no more answers than there are under way.

    A reply with a `problem` means that every endpoint failed this question. An endpoint that fails
    a short question as well is given up. Raises UserError 8 when all are given up; every reply
    before that has been given. When nothing is raised, the questions were at fault. Raises
    UserError 2 where the budget of `counted` is used up: no further question is asked, and the
    replies that were under way have been given.
    """
    work, left = _SharedWork(endpoints, questions), len(questions)
    if work.usage and questions:
        work.usage.refuse_used_up()
    try:
        work.hand_out()
        while left > work.unasked:
            for numbered in work.take(*work.outcomes.get()):
                left -= 1
                yield numbered
            work.hand_out()
    finally:
        work.stop.set()
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
    """What is known of an endpoint. `failed`: questions; `in_a_row`: how many it failed last;
    `held`: those that it failed and that wait for the end of a probe.
    """

    def __init__(self, endpoint: Endpoint):
        self.endpoint, self.is_alive, self.under_way = endpoint, True, 0
        self.failed, self.in_a_row = set[int](), 0
        self.held: list[Numbered] = []


class _SharedWork:
    """The questions that wait, and the endpoints that share them. All of it belongs to the thread
    of the caller; a thread for each question only asks.
    """

    def __init__(self, endpoints: Sequence[Endpoint], questions: Sequence[Question]):
        self.questions, self.usage = questions, current_usage()
        self.servers = [_Server(endpoint) for endpoint in endpoints]
        self.waiting = deque(range(len(questions)))
        self.last: dict[int, Reply] = {}  # question -> how it failed
        self.unasked = 0  # questions that the budget leaves out
        self.stop, self.counting = threading.Event(), threading.Lock()
        self.outcomes: SimpleQueue[tuple[_Server, int, Reply | BaseException]] = SimpleQueue()

    def hand_out(self) -> None:
        """To each endpoint as many questions that it has not failed as it has room for; to none
        once the budget is used up.
        """
        if self.usage and self.usage.is_used_up:
            self.unasked += len(self.waiting)
            self.waiting.clear()
        for server in self.servers:
            while (
                server.is_alive
                and not server.held
                and server.under_way < server.endpoint.concurrency
                and (question := self._next(server)) is not None
            ):
                self.waiting.remove(question)
                self._start(server, question)

    def _next(self, server: _Server) -> int | None:
        return next((number for number in self.waiting if number not in server.failed), None)

    def _start(self, server: _Server, question: int) -> None:
        server.under_way += 1
        arguments = (server, question)
        # a daemon: a try that is under way must not hold up the end of a stopped process
        threading.Thread(target=self._ask, args=arguments, name=THREAD, daemon=True).start()

    def _ask(self, server: _Server, question: int) -> None:
        """In a thread of its own. A reply counts at once, before the caller takes it."""
        endpoint, asked = server.endpoint, PROBE
        if question == PROBING:
            endpoint = endpoint._replace(timeout=min(endpoint.timeout, PROBE_SECONDS))
        else:
            asked = self.questions[question]
        outcome: Reply | BaseException
        try:
            outcome = ask(endpoint, *asked, self.stop)
            if self.stop.is_set():
                return  # nobody waits for it any more
            if self.usage and question != PROBING and not outcome.problem:
                with self.counting:
                    self.usage.add(endpoint.model, outcome)
        except BaseException as error:
            outcome = error  # the caller would wait for this thread for ever
        self.outcomes.put((server, question, outcome))

    def take(
        self, server: _Server, question: int, outcome: Reply | BaseException
    ) -> list[Numbered]:
        """What the end of a request has for the caller."""
        server.under_way -= 1
        if isinstance(outcome, UserError):
            return self._give_up(server, question, outcome)
        if isinstance(outcome, BaseException):
            raise outcome
        if question == PROBING:
            return self._end_probe(server, outcome) if server.is_alive else []
        if outcome.problem:
            return self._fail(server, question, outcome)
        server.in_a_row = 0
        return [(question, outcome)]

    def _fail(self, server: _Server, question: int, reply: Reply) -> list[Numbered]:
        """Is the question at fault, or the endpoint? After several failures in a row, and at the
        end of the work, a probe decides.
        """
        self.last[question] = reply
        if not server.is_alive:  # it was given up since: its failure means nothing
            return self._pass_on(question)
        is_probed = bool(server.held)
        if not is_probed:
            server.in_a_row += 1
            if server.in_a_row < IN_A_ROW and self._next(server) is not None:
                server.failed.add(question)
                return self._pass_on(question)
            self._start(server, PROBING)
        server.held.append((question, reply))
        return []

    def _end_probe(self, server: _Server, probe: Reply) -> list[Numbered]:
        (first, reply), *others = server.held
        if probe.problem:
            error = UserError(
                f"no answer: {reply.why}.",
                "Look at the server; the same command again asks for what is missing.",
                location=server.endpoint.address,
                exit_code=NETWORK,
            )
            return self._give_up(server, PROBING, error)
        server.held, server.in_a_row = [], 0
        server.failed.add(first)
        found = self._pass_on(first)
        for question, reply in others:
            found += self._fail(server, question, reply)
        return found

    def _give_up(self, server: _Server, question: int, error: UserError) -> list[Numbered]:
        was_alive, server.is_alive = server.is_alive, False
        if not any(other.is_alive for other in self.servers):
            raise error
        if was_alive:
            others = "The other endpoints take its questions."
            notice(f"{error.location}: {error.problem} {others}")
        # its own, and those that wait: some of these had only this endpoint left
        own = [number for number, _ in server.held] + [question] * (question != PROBING)
        waiting = [*own, *reversed(self.waiting)]
        server.held = []
        self.waiting.clear()
        return [numbered for number in waiting for numbered in self._pass_on(number)]

    def _pass_on(self, question: int) -> list[Numbered]:
        """To an endpoint that has not failed it, or else to the caller."""
        if any(server.is_alive and question not in server.failed for server in self.servers):
            self.waiting.appendleft(question)
            return []
        return [(question, self.last[question])]


# --- the tokens that models behind servers read and wrote for a stage: counted, and limited


class ServerUsage:
    """What a stage has used, over all its runs: every reply that came, also where the run was
    killed before it was kept. Tokens are as the servers count them.
    """

    def __init__(self, path: Path, budget: int | None):
        self.path, self.budget, self.tokens = path, budget, 0
        self.by_model: dict[str, dict[str, int]] = {}
        self.file: Appender | None = None  # else opened with the first reply
        if path.exists():
            self.file = Appender(path)  # cuts a torn line
            for row in read_rows(path):
                self._sum(row["model"], row["tokens_read"], row["tokens_written"])

    def add(self, model: str, reply: Reply) -> None:
        read, written = reply.prompt_tokens, reply.completion_tokens
        self.file = self.file or Appender(self.path)
        self.file.append({"model": model, "tokens_read": read, "tokens_written": written})
        self._sum(model, read, written)

    def _sum(self, model: str, read: int, written: int) -> None:
        figures = self.by_model.setdefault(
            model, {"replies": 0, "tokens_read": 0, "tokens_written": 0}
        )
        figures["replies"] += 1
        figures["tokens_read"] += read
        figures["tokens_written"] += written
        self.tokens += read + written

    @property
    def is_used_up(self) -> bool:
        return self.budget is not None and self.tokens >= self.budget

    def refuse_used_up(self) -> None:
        """Raises UserError 2 if the budget is used up."""
        if self.is_used_up:
            raise UserError(
                f"is used up: the servers have read and written {self.tokens:,} tokens.",
                "The same command with a larger one goes on, and asks nothing again.",
                location=f"--token-budget {self.budget}",
            )

    @property
    def note(self) -> str:
        """For a line of progress."""
        return f"{self.tokens:,} tokens" if self.by_model else ""

    def figures(self) -> dict[str, dict[str, int]]:
        return dict(sorted(self.by_model.items()))


_COUNTED: ContextVar[ServerUsage | None] = ContextVar("usage", default=None)


def current_usage() -> ServerUsage | None:
    """Where replies are counted; None outside of `counted`."""
    return _COUNTED.get()


@contextmanager
def counted(folder: Path, budget: int | None) -> Iterator[ServerUsage]:
    """Counts every reply of a server inside, and ends the work where the budget is used up."""
    usage = ServerUsage(folder / USAGE_FILE, budget)
    token = _COUNTED.set(usage)
    try:
        yield usage
    finally:
        _COUNTED.reset(token)
        if usage.file:
            usage.file.__exit__()
