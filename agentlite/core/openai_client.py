"""Client of OpenAI-compatible endpoints: one reply, with retries and a deadline, or many."""

import contextlib
import json
import os
import random
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from agentlite.core.console import printable
from agentlite.core.errors import NETWORK, UserError

if TYPE_CHECKING:
    import ssl

    import httpx

RETRY_STATUSES = {408, 409, 425, 429, 500, 502, 503, 504, 529}  # a later try may succeed
# every other prompt would fail as well
REFUSAL_FIXES = {
    401: "Put a valid key into the environment variable {key}.",
    402: "The account behind the key has no credit left.",
    403: "The key in {key} may not use {model}.",
    404: "Check the address (it usually ends in /v1) and the model's name.",
    405: "Check the address: it usually ends in /v1.",
}
LONGEST_REPLY = 4 << 20  # bytes
LONGEST_DETAIL = 200  # characters of a server's explanation that are shown
LONGEST_WAIT = 120.0  # seconds between two tries
SECONDS = re.compile(r"-?\d+(\.\d+)?")
MOST_TIMEOUTS = 2  # tries of one question that may time out: each can take minutes
Message = Mapping[str, Any]


class Endpoint(NamedTuple):
    """`url` ends in /v1, as clients write it. `key`: the environment variable that holds the key.

    Seconds: `timeout` for one try from the connection to the last byte, `pause` before the second
    try, doubled for every later one. `concurrency`: requests under way at once.
    """

    url: str
    model: str
    key: str = "OPENAI_API_KEY"
    timeout: float = 60.0
    tries: int = 5
    pause: float = 1.0
    concurrency: int = 4

    @property
    def address(self) -> str:
        return self.url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"


class Reply(NamedTuple):
    """`problem`: why there is no text and no call; `detail`: how the endpoint explained it, in
    printable characters.

    `silent`: every try failed. Tokens as the endpoint counts them, or 0. `calls` and `finish` in
    OpenAI's format.
    """

    text: str
    problem: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    silent: bool = False
    calls: Sequence[Any] = ()
    finish: str = ""
    detail: str = ""
    thought: str = ""

    @property
    def reason(self) -> str:
        """The problem, and how it was explained."""
        return f"{self.problem}: {self.detail}" if self.detail else self.problem


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[Any] | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct):
    message: _Message = msgspec.field(default_factory=_Message)
    index: int = 0
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: Any = None


def check_endpoint(endpoint: Endpoint, location: str) -> None:
    """Raises UserError for an unusable address, one with a password, and an unusable key."""
    try:
        address = urlsplit(endpoint.url)
        is_usable = address.scheme in ("http", "https") and address.hostname and address.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or address.username or address.password or address.query:
        raise UserError(
            "not the address of an endpoint, or one with a name, a password or a query.",
            "Write it like http://localhost:8000/v1, and put the key in the environment variable "
            f"{endpoint.key}.",
            location=location,
        )
    if not (_key(endpoint).isascii() and _key(endpoint).isprintable()):
        raise UserError(
            "the key holds characters that cannot be sent.",
            "Set the variable again, to the key exactly as the provider shows it.",
            location=endpoint.key,
        )


def _key(endpoint: Endpoint) -> str:
    """The key, read where it is needed, and put nowhere but into the request."""
    return os.environ.get(endpoint.key, "").strip()


def ask(
    endpoint: Endpoint,
    messages: Sequence[Message],
    parameters: Mapping[str, object],
    stop: threading.Event,
) -> Reply:
    """One reply. `stop` ends the waits between tries.

    Raises UserError for a refusal that every other prompt would meet as well.
    """
    body = json.dumps({"model": endpoint.model, "messages": list(messages), **parameters}).encode()
    reply, timeouts = Reply("", "stopped"), 0
    for trial in range(endpoint.tries):
        if stop.is_set():
            break
        reply, wait = _send(endpoint, body)
        timeouts += reply.problem == "timed out"
        if not reply.silent or timeouts == MOST_TIMEOUTS:
            break
        if wait is None:
            # 1, 2, 4 s by default, each a little off: those refused together do not return together
            wait = endpoint.pause * (1 << trial) * random.uniform(0.75, 1.25)
        if trial + 1 < endpoint.tries:
            stop.wait(min(wait, LONGEST_WAIT))
    return reply


def _send(endpoint: Endpoint, body: bytes) -> tuple[Reply, float | None]:
    """A reply, and the seconds that the endpoint asks to wait before the next try."""
    import httpx

    # asked for undecoded, and read so: a reply cannot unpack to more than its limit
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    headers["User-Agent"] = "agentlite"
    if key := _key(endpoint):
        headers["Authorization"] = f"Bearer {key}"
    content, deadline = bytearray(), time.monotonic() + endpoint.timeout
    try:
        with (
            _client(endpoint) as client,
            client.stream("POST", endpoint.address, content=body, headers=headers) as response,
        ):
            for chunk in response.iter_raw():
                content += chunk
                # httpx limits single waits; this limits the whole try, however a server drips
                if time.monotonic() > deadline:
                    return Reply("", "timed out", silent=True), None
                if len(content) > LONGEST_REPLY:
                    break
    except httpx.TimeoutException:
        return Reply("", "timed out", silent=True), None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        detail = _printable(endpoint, str(error) or "it broke off")
        return Reply("", "no connection", silent=True, detail=detail), None
    status, detail = response.status_code, _explanation(endpoint, content)
    if response.is_success:
        reply = _read_completion(content)
        return (reply._replace(detail=detail) if reply.silent else reply), None
    if status in REFUSAL_FIXES or 300 <= status < 400:
        raise UserError(
            f"answered {status}{': ' + detail if detail else ''}.",
            REFUSAL_FIXES.get(status, "Give the address that it redirects to.").format(
                key=endpoint.key, model=endpoint.model
            ),
            location=endpoint.address,
            exit_code=NETWORK,
        )
    reply = Reply("", f"answered {status}", silent=status in RETRY_STATUSES, detail=detail)
    seconds = response.headers.get("Retry-After", "")  # or a date
    return reply, max(0.0, float(seconds)) if SECONDS.fullmatch(seconds) else None


def _client(endpoint: Endpoint) -> "httpx.Client":
    """Follows no redirect: it would carry the key to wherever it points."""
    import httpx

    return httpx.Client(
        verify=_certificates(),
        # proxies, which know nothing of this machine
        trust_env=urlsplit(endpoint.url).hostname not in ("localhost", "127.0.0.1", "::1"),
        timeout=endpoint.timeout,
        follow_redirects=False,
    )


@cache
def _certificates() -> "ssl.SSLContext":
    """Those that the system trusts (httpx brings its own list), read once: it takes 60 ms."""
    import ssl

    return ssl.create_default_context()


def _read_completion(content: bytearray) -> Reply:
    """`silent`: what came is not a completion, such as a proxy's page, and a later try may bring
    one. Bytes that are not UTF-8 become U+FFFD, as cut characters do in any decoder.
    """
    try:
        # not by msgspec, which refuses the half of a character that some servers send
        body = json.loads(content.decode("utf-8-sig", "replace"))
        completion = msgspec.convert(body, _Completion)
    except (ValueError, msgspec.ValidationError, RecursionError):
        return Reply("", "sent no chat completion", silent=True)
    choice = min(completion.choices, key=lambda choice: choice.index)
    finish, answer = choice.finish_reason or "", choice.message
    if finish == "error":
        return Reply("", "sent an answer that ended with an error", silent=True)
    # A thinking model may be cut before its first word; everything else must have text or a call.
    is_empty = answer.content is None and not answer.tool_calls and finish != "length"
    usage = completion.usage if isinstance(completion.usage, dict) else {}
    thought = answer.reasoning_content or answer.reasoning
    counts = (usage.get(key) for key in ("prompt_tokens", "completion_tokens"))
    prompt_tokens, completion_tokens = (n if isinstance(n, int) and n >= 0 else 0 for n in counts)
    return Reply(
        answer.content or "",
        "sent no text" if is_empty else "",
        prompt_tokens,
        completion_tokens,
        calls=answer.tool_calls or (),
        finish=finish,
        thought=thought if isinstance(thought, str) else "",
    )


def _explanation(endpoint: Endpoint, content: bytearray) -> str:
    """What a server says about a failure: the message in OpenAI's shape, or the text itself."""
    text = content.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, RecursionError):
        value: object = json.loads(text)
        for key in ("error", "message"):
            if isinstance(value, dict):
                value = value.get(key, value)
        text = value if isinstance(value, str) else text
    return _printable(endpoint, text)


def _printable(endpoint: Endpoint, text: str) -> str:
    """The beginning of a text, without what a terminal would obey, and without the key: some
    servers send back what they got. The key is taken out before a cut that could leave a part.
    """
    text = printable(" ".join(text.split()))
    key = _key(endpoint)
    return (text.replace(key, "(the key)") if key else text)[:LONGEST_DETAIL]


PROBE_SECONDS = 60.0  # of one try of the probe


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
    free_endpoints = deque(endpoint for endpoint in endpoints for _ in range(endpoint.concurrency))
    waiting_numbers = deque(range(len(questions)))

    def ask_one(endpoint: Endpoint, number: int) -> None:
        try:
            outcomes.put((endpoint, number, _ask_and_probe(endpoint, questions[number], stop)))
        except BaseException as error:  # the caller would wait for this thread for ever
            outcomes.put((endpoint, number, error))

    try:
        for _ in questions:
            while free_endpoints and waiting_numbers:
                # a daemon: a try that is under way must not hold up the end of a stopped process
                pair = (free_endpoints.popleft(), waiting_numbers.popleft())
                threading.Thread(target=ask_one, args=pair, name="endpoint", daemon=True).start()
            endpoint, number, outcome = outcomes.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield number, outcome
            free_endpoints.append(endpoint)  # not before: the caller has stored the answer by now
    finally:
        stop.set()


def _ask_and_probe(endpoint: Endpoint, question: Question, stop: threading.Event) -> Reply:
    """Is the question at fault, or the endpoint? After each failure a probe decides."""
    reply = ask(endpoint, *question, stop)
    if reply.problem and not stop.is_set():
        probe_endpoint = endpoint._replace(timeout=min(endpoint.timeout, PROBE_SECONDS))
        if ask(probe_endpoint, *PROBE, stop).problem:
            raise UserError(
                f"no answer: {reply.reason}.",
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
        # a server may name each question: "answered 400: row 7 is too long" has the cause of row 8
        by_cause: dict[str, list[str]] = {}
        for problem in problems:
            by_cause.setdefault(problem.partition(": ")[0], []).append(problem)
        groups = sorted(by_cause.values(), key=len, reverse=True)[:3]
        reasons = "; ".join(f"{len(group)} x {group[0]}" for group in groups)
        way_out = f" If they never get one: --unanswered wrong {effect}." if effect else ""
        raise UserError(
            f"{len(problems)} of {count} questions have no answer: {reasons}.",
            f"The same command asks these again, and no others.{way_out}",
            location=location,
            exit_code=NETWORK,
        )
