"""Client of an OpenAI-compatible endpoint: messages -> one reply, with retries and a deadline."""

import contextlib
import json
import math
import os
import random
import threading
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from agentlite.core.errors import NETWORK, UserError

if TYPE_CHECKING:
    import ssl

    import httpx

RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 529}  # a later try may succeed
REFUSED = {401, 402, 403, 404, 405}  # every other prompt would fail as well
LONGEST_REPLY, LONGEST_REFUSAL = 4 << 20, 2000  # bytes
LONGEST_DETAIL = 200  # characters of a server's explanation that are shown
LONGEST_WAIT = 120.0  # seconds between two tries; a server that asks for more is not waited for
TIMEOUTS = 2  # tries of one question that may time out: each can take minutes
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


class _Response(NamedTuple):
    status: int
    retry_after: str
    content: bytearray


def check(endpoint: Endpoint, location: str) -> None:
    """Raises UserError for an unusable address, one with a password, and an unusable key."""
    try:
        address = urlsplit(endpoint.url)
        usable = (
            address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
        )
    except ValueError:
        usable = False
    if not usable:
        raise UserError(
            "not the address of an endpoint.",
            "Write it like http://localhost:8000/v1.",
            location=location,
        )
    if address.username or address.password or address.query:
        raise UserError(
            "the address holds a name, a password or a query.",
            f"Leave it out, and put the key in the environment variable {endpoint.key}.",
            location=location,
        )
    if not (_key(endpoint).isascii() and _key(endpoint).isprintable()):
        raise UserError(
            "the key holds characters that cannot be sent.",
            "Set the variable again, to the key exactly as the provider shows it.",
            location=endpoint.key,
        )


def _key(endpoint: Endpoint) -> str:
    """Read where it is needed, and put nowhere but into the request."""
    return os.environ.get(endpoint.key, "").strip()


def ask(
    endpoint: Endpoint,
    messages: Sequence[Message],
    parameters: Mapping[str, object],
    stop: threading.Event,
) -> Reply:
    """One reply; call it from a thread without an event loop. `stop` ends the waits between tries.

    Raises UserError for a refusal that every other prompt would meet as well.
    """
    body = json.dumps({"model": endpoint.model, "messages": list(messages), **parameters}).encode()
    reply, timeouts = Reply("", "stopped"), 0
    for trial in range(endpoint.tries):
        if stop.is_set():
            break
        wait = None
        try:
            response = _post(endpoint, body)
        except TimeoutError:
            reply, timeouts = Reply("", "timed out", silent=True), timeouts + 1
        except ConnectionError as error:
            reply = Reply("", "no connection", silent=True, detail=_printable(endpoint, str(error)))
        else:
            detail = _explanation(endpoint, response.content)
            if 200 <= response.status < 300:
                reply = _reply(response.content)
                if not reply.silent:
                    return reply
                reply = reply._replace(detail=detail)
            elif response.status in REFUSED or 300 <= response.status < 400:
                raise _refusal(endpoint, response.status, detail)
            else:
                reply = Reply("", f"answered {response.status}", detail=detail)
                if response.status not in RETRIED:
                    return reply
                reply, wait = reply._replace(silent=True), _retry_after(response.retry_after)
        if wait is not None and wait > LONGEST_WAIT:
            return reply._replace(problem=f"{reply.problem} and asks to wait {_duration(wait)}")
        if timeouts == TIMEOUTS:
            break
        if trial + 1 < endpoint.tries:
            stop.wait(wait if wait is not None else min(LONGEST_WAIT, _pause(endpoint, trial)))
    return reply


def _pause(endpoint: Endpoint, trial: int) -> float:
    return endpoint.pause * (1 << trial) * random.uniform(0.75, 1.25)


def _post(endpoint: Endpoint, body: bytes) -> _Response:
    """One try. Raises TimeoutError and ConnectionError."""
    import asyncio

    import httpx

    # Asked for undecoded, and read so: a reply cannot unpack to more than its limit.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    headers["User-Agent"] = "agentlite"
    if key := _key(endpoint):
        headers["Authorization"] = f"Bearer {key}"
    client = _client(endpoint.url)

    async def exchange() -> _Response:
        response = None
        try:
            # httpx limits single waits; this limits the whole try, however slowly a server drips.
            async with (
                asyncio.timeout(endpoint.timeout),
                client,
                client.stream("POST", endpoint.address, content=body, headers=headers) as stream,
            ):
                retry_after = stream.headers.get("Retry-After", "")
                response = _Response(stream.status_code, retry_after, bytearray())
                longest = LONGEST_REPLY if stream.is_success else LONGEST_REFUSAL
                async for chunk in stream.aiter_raw():
                    response.content.extend(chunk)
                    if len(response.content) > longest:
                        break
        except (TimeoutError, httpx.HTTPError):
            if response is None or 200 <= response.status < 300:
                raise
        return response  # of a refusal, the status counts although its body broke off

    try:
        # asyncio.run would wait at its end for the thread that still looks the host's name up.
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            return loop.run_until_complete(exchange())
    except (TimeoutError, httpx.TimeoutException) as error:
        raise TimeoutError from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        raise ConnectionError(str(error) or _cause(endpoint, error)) from error


def _cause(endpoint: Endpoint, error: Exception) -> str:
    """Why there was no response, where the library does not say it."""
    import httpx

    if not isinstance(error, httpx.ConnectError):
        return "it broke off"
    tls = endpoint.url.startswith("https:")
    return "TLS failed; is the address http:// instead of https://" if tls else "it was refused"


def _client(url: str) -> "httpx.AsyncClient":
    """Follows no redirect: it would carry the key to wherever it points."""
    import httpx

    proxies = urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1")
    try:
        return httpx.AsyncClient(
            verify=_certificates(), trust_env=proxies, timeout=None, follow_redirects=False
        )
    except (ImportError, ValueError):
        raise UserError(
            "a proxy of the environment cannot be used.",
            "Set https_proxy, http_proxy and all_proxy to http:// addresses, or unset them.",
            location=url,
        ) from None


@cache
def _certificates() -> "ssl.SSLContext":
    """Those that the system trusts (httpx brings its own list), read once: it takes 60 ms."""
    import ssl

    return ssl.create_default_context()


def _reply(content: bytearray) -> Reply:
    """`silent`: what came is not a completion, such as a proxy's page, and a later try may bring
    one. Bytes that are not UTF-8 become U+FFFD, as cut characters do in any decoder.
    """
    try:
        completion = json.loads(content.decode("utf-8-sig", "replace"))
        choice = _choice(completion["choices"])
        text, calls = choice["message"].get("content"), choice["message"].get("tool_calls")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Reply("", "sent no chat completion", silent=True)
    usage, finish = completion.get("usage"), str(choice.get("finish_reason", ""))
    if finish == "error":
        return Reply("", "sent an answer that ended with an error", silent=True)
    text = text if isinstance(text, str) else None
    calls = calls if isinstance(calls, list) else []
    # A thinking model may be cut before its first word; everything else must have text or a call.
    nothing = text is None and not calls and finish != "length"
    return Reply(
        text or "",
        "sent no text" if nothing else "",
        _count(usage, "prompt_tokens"),
        _count(usage, "completion_tokens"),
        calls=calls,
        finish=finish,
    )


def _choice(choices: Any) -> Any:
    """The first of several, whatever their order."""
    ordered = (one for one in choices if isinstance(one, dict) and one.get("index") == 0)
    return next(ordered, choices[0])


def _count(usage: object, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value >= 0 else 0


def _retry_after(header: str) -> float | None:
    """The seconds to wait; the header holds them, or a date. None for anything else."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError, OSError):
            return None
    return None if math.isnan(seconds) else max(0.0, seconds)


def _duration(seconds: float) -> str:
    if seconds >= 1e7:
        return "for months"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"


def _refusal(endpoint: Endpoint, status: int, detail: str) -> UserError:
    fixes = {
        401: f"Put a valid key into the environment variable {endpoint.key}.",
        402: "The account behind the key has no credit left.",
        403: f"The key in {endpoint.key} may not use {endpoint.model}.",
        404: "Check the address (it usually ends in /v1) and the model's name.",
        405: "Check the address: it usually ends in /v1.",
    }
    return UserError(
        f"answered {status}{': ' + detail if detail else ''}.",
        fixes.get(status, "Give the address that it redirects to."),
        location=endpoint.address,
        exit_code=NETWORK,
    )


def _explanation(endpoint: Endpoint, content: bytearray) -> str:
    """What a server says about a failure: the message in OpenAI's shape, or the text itself."""
    text = content.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, RecursionError):
        found: object = json.loads(text)
        for key in ("error", "message"):
            if isinstance(found, dict):
                found = found.get(key, found)
        text = found if isinstance(found, str) else text
    return _printable(endpoint, text)


def _printable(endpoint: Endpoint, text: str) -> str:
    """The beginning of a text, without what a terminal would obey, and without the key: some
    servers send back what they got.
    """
    # before a cut that could leave a part of the key, and behind what could have parted it
    text = " ".join(_without_key(endpoint, text)[: 20 * LONGEST_DETAIL].split())
    text = "".join(filter(str.isprintable, text))
    return _without_key(endpoint, text)[:LONGEST_DETAIL]


def _without_key(endpoint: Endpoint, text: str) -> str:
    key = _key(endpoint)
    return text.replace(key, "(the key)") if key else text
