"""Questions + several endpoints -> a reply to each, and the tokens that all of them took."""

import threading
from collections import Counter, defaultdict, deque
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

PROBE_SECONDS = 60.0  # of one try of the probe
THREAD = "endpoint"
USAGE_FILE = "usage.jsonl"  # no part of the result: a run that was killed has asked for more


class Question(NamedTuple):
    messages: Sequence[Message]
    parameters: Mapping[str, object]


PROBE = Question([{"role": "user", "content": "Say yes."}], {"max_tokens": 8})


class _Server:
    """An endpoint. `under_way`: requests; `failed`: the questions that it did not answer."""

    def __init__(self, endpoint: Endpoint):
        self.endpoint, self.is_alive, self.under_way = endpoint, True, 0
        self.failed = set[int]()

    def takes(self, question: int) -> bool:
        return self.is_alive and question not in self.failed

    def ask(self, question: Question, stop: threading.Event) -> Reply:
        """Is the question at fault, or the endpoint? After each failure a probe decides. Raises
        UserError 8 where that fails as well.
        """
        endpoint = self.endpoint
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


def ask_all(
    endpoints: Sequence[Endpoint], questions: Sequence[Question]
) -> Iterator[tuple[int, Reply]]:
    """The number of each question and its reply, as they come. Each endpoint has as many questions
    under way as its `concurrency`, and none runs ahead of what the caller has taken: who stops here
    loses no more answers than there are under way.

    A reply with a `problem` means that every endpoint failed this question. An endpoint that fails
    a short question as well is given up. Raises UserError 8 when all are given up; every reply
    before that has been given. When nothing is raised, the questions were at fault.
    """
    servers, usage = [_Server(endpoint) for endpoint in endpoints], current_usage()
    waiting, last = deque(range(len(questions))), dict[int, Reply]()  # question -> how it failed
    outcomes = SimpleQueue[tuple[_Server, int, Reply | BaseException]]()
    stop, left = threading.Event(), len(questions)

    def ask_one(server: _Server, number: int) -> None:
        outcome: Reply | BaseException
        try:
            outcome = server.ask(questions[number], stop)
        except BaseException as error:
            outcome = error  # the caller would wait for this thread for ever
        outcomes.put((server, number, outcome))

    def hand_out() -> None:
        for server in servers:
            while server.under_way < server.endpoint.concurrency:
                number = next(filter(server.takes, waiting), None)
                if number is None:
                    break
                waiting.remove(number)
                server.under_way += 1
                # a daemon: a try that is under way must not hold up the end of a stopped process
                arguments = (server, number)
                threading.Thread(target=ask_one, args=arguments, name=THREAD, daemon=True).start()

    try:
        hand_out()
        while left:
            server, number, outcome = outcomes.get()
            server.under_way -= 1
            if isinstance(outcome, UserError):
                was_alive, server.is_alive = server.is_alive, False
                if not any(other.is_alive for other in servers):
                    raise outcome
                if was_alive:
                    others = "The other endpoints take its questions."
                    notice(f"{outcome.location}: {outcome.problem} {others}")
            elif isinstance(outcome, BaseException):
                raise outcome
            elif outcome.problem:
                server.failed.add(number)
                last[number] = outcome
            else:
                if usage:
                    usage.add(server.endpoint.model, outcome)
                left -= 1
                yield number, outcome
                hand_out()
                continue
            waiting.appendleft(number)
            # a server that is given up may have been the last one for others, too
            for failed in [one for one in waiting if not any(each.takes(one) for each in servers)]:
                waiting.remove(failed)
                left -= 1
                yield failed, last[failed]
            hand_out()
    finally:
        stop.set()


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


class ServerUsage:
    """The tokens that models behind servers read and wrote for a stage, over all its runs, as the
    servers count them: those of every reply that was taken, also where the run was killed before it
    was kept.
    """

    def __init__(self, path: Path):
        self.path, self.by_model = path, defaultdict[str, Counter[str]](Counter)
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
        self.by_model[model].update(replies=1, tokens_read=read, tokens_written=written)

    @property
    def note(self) -> str:
        """For a line of progress."""
        tokens = sum(one["tokens_read"] + one["tokens_written"] for one in self.by_model.values())
        return f"{tokens:,} tokens" if self.by_model else ""

    def figures(self) -> dict[str, dict[str, int]]:
        return {model: dict(self.by_model[model]) for model in sorted(self.by_model)}


_COUNTED: ContextVar[ServerUsage | None] = ContextVar("usage", default=None)


def current_usage() -> ServerUsage | None:
    """Where replies are counted; None outside of `counted`."""
    return _COUNTED.get()


@contextmanager
def counted(folder: Path) -> Iterator[ServerUsage]:
    """Counts every reply of a server inside."""
    usage = ServerUsage(folder / USAGE_FILE)
    token = _COUNTED.set(usage)
    try:
        yield usage
    finally:
        _COUNTED.reset(token)
        if usage.file:
            usage.file.__exit__()
