"""Client of an OpenAI-compatible endpoint: messages -> one reply, with retries and a deadline."""

import json
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
LONGEST_WAIT = 120.0  # seconds
Message = Mapping[str, Any]


class Endpoint(NamedTuple):
    """`url` ends in /v1, as clients write it. `key`: the environment variable that holds the key.

    Seconds: `timeout` for one try, `pause` before the second try, doubled for every later one.
    """

    url: str
    model: str
    key: str = "OPENAI_API_KEY"
    timeout: float = 60.0
    tries: int = 5
    pause: float = 1.0

    @property
    def address(self) -> str:
        return self.url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"


class Reply(NamedTuple):
    """`problem`: why there is neither text nor a call; `detail`: how the endpoint explained it.

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
    problem = ""
    for trial in range(endpoint.tries):
        if stop.is_set():
            return Reply("", problem or "stopped")
        wait = None
        try:
            response = _post(endpoint, body)
        except TimeoutError:
            problem = "timed out"
        except ConnectionError:
            problem = "no connection"
        else:
            if 200 <= response.status < 300:
                return _reply(response.content)
            detail = _printable(endpoint, response.content)
            if response.status in REFUSED or 300 <= response.status < 400:
                raise _refusal(endpoint, response.status, detail)
            problem = f"answered {response.status}"
            if response.status not in RETRIED:
                return Reply("", problem, detail=detail)
            wait = _retry_after(response.retry_after)
        if trial + 1 < endpoint.tries:
            stop.wait(min(LONGEST_WAIT, wait if wait is not None else _pause(endpoint, trial)))
    return Reply("", problem, silent=True)


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
        return asyncio.run(exchange())
    except (TimeoutError, httpx.TimeoutException) as error:
        raise TimeoutError from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        raise ConnectionError from error


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
    try:
        completion = json.loads(content.decode("utf-8", "replace"))
        choice = completion["choices"][0]
        text, calls = choice["message"].get("content"), choice["message"].get("tool_calls")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Reply("", "no chat completion")
    usage = completion.get("usage")
    text = text if isinstance(text, str) else None
    calls = calls if isinstance(calls, list) else []
    return Reply(
        text or "",
        "no text" if text is None and not calls else "",
        _count(usage, "prompt_tokens"),
        _count(usage, "completion_tokens"),
        calls=calls,
        finish=str(choice.get("finish_reason", "")),
    )


def _count(usage: object, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value >= 0 else 0


def _retry_after(header: str) -> float | None:
    """The seconds to wait; the header holds them, or a date."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _refusal(endpoint: Endpoint, status: int, detail: str) -> UserError:
    fixes = {
        401: f"Put a valid key into the environment variable {endpoint.key}.",
        402: "The account behind the key has no credit left.",
        403: f"The key in {endpoint.key} may not use {endpoint.model}.",
        404: "Check the address (it usually ends in /v1) and the model's name.",
        405: "Check the address: it usually ends in /v1.",
    }
    return UserError(
        f"{endpoint.address} answered {status}{': ' + detail if detail else ''}.",
        fixes.get(status, "Give the address that it redirects to."),
        exit_code=NETWORK,
    )


def _printable(endpoint: Endpoint, content: bytearray) -> str:
    """The beginning of an explanation, without the key: some servers send back what they got."""
    text = " ".join(content.decode("utf-8", "replace").split())
    text, key = "".join(filter(str.isprintable, text)), _key(endpoint)
    return (text.replace(key, "(the key)") if key else text)[:200]
