"""Messages -> the text a model behind an OpenAI-compatible endpoint answers with; what passes is
tried again.
"""

import email.utils
import json
import os
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from agentlite.core.errors import NETWORK, UserError

AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 529}  # what a later try may mend
REFUSED = {401, 402, 403, 404, 405}  # what every other question would meet as well
LONGEST_REPLY = 4 << 20
LONGEST_WAIT = 120.0
Message = Mapping[str, Any]


class Endpoint(NamedTuple):
    """`url` as clients have it, up to /v1. `key`: the name of the environment variable that holds
    the key.

    Seconds: `timeout` for one try, `pause` before the second, doubled for every later one.
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
    """`problem`: why there is neither text nor a call; `silent` if every try failed. Tokens as the
    endpoint counts them, or 0. `calls` and `finish` as OpenAI has them. `told`: what it said beside
    a problem."""

    text: str
    problem: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    silent: bool = False
    calls: Sequence[Any] = ()
    finish: str = ""
    told: str = ""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to wherever it points."""

    def redirect_request(self, *_: Any) -> None:
        return None


def check(endpoint: Endpoint, place: str) -> None:
    """Raises UserError for an address that is none or holds a password, and for a key that no
    request can carry.
    """
    try:
        parts = urlsplit(endpoint.url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise UserError(
            "no address of an endpoint.", "Write one as http://localhost:8000/v1.", location=place
        )
    if parts.username or parts.password or parts.query:
        raise UserError(
            "the address holds a name, a password or a query.",
            f"Leave it out, and put the key in the environment variable {endpoint.key}.",
            location=place,
        )
    if not (_key(endpoint).isascii() and _key(endpoint).isprintable()):
        raise UserError(
            "holds characters that no key has.",
            "Set it again, as it was given to you.",
            location=endpoint.key,
        )


def _key(endpoint: Endpoint) -> str:
    """Read when it is needed, and put nowhere but into the request."""
    return os.environ.get(endpoint.key, "").strip()


def ask(
    endpoint: Endpoint,
    messages: Sequence[Message],
    parameters: Mapping[str, Any],
    stop: threading.Event,
) -> Reply:
    """One answer. Raises UserError for what no later question would fare better with; `stop` ends
    the waiting.
    """
    body = json.dumps({"model": endpoint.model, "messages": list(messages), **parameters}).encode()
    problem = ""
    for trial in range(endpoint.tries):
        if stop.is_set():
            return Reply("", problem or "stopped")
        try:
            return _reply(_post(endpoint, body))
        except urllib.error.HTTPError as error:
            wait = _retry_after(error.headers.get("Retry-After"))
            problem = f"answered {error.code}"
            if error.code in REFUSED or 300 <= error.code < 400:
                raise _refusal(endpoint, error.code, _said(error)) from None
            if error.code not in AGAIN:
                return Reply("", problem, told=_shown(endpoint, _said(error)))
        except (OSError, HTTPException) as error:
            wait = None
            timed_out = isinstance(getattr(error, "reason", error), TimeoutError)
            problem = "timed out" if timed_out else "no connection"
        if trial + 1 < endpoint.tries:
            stop.wait(min(LONGEST_WAIT, wait if wait is not None else _pause(endpoint, trial)))
    return Reply("", problem, silent=True)


def _pause(endpoint: Endpoint, trial: int) -> float:
    return endpoint.pause * (1 << trial) * random.uniform(0.75, 1.25)


def _post(endpoint: Endpoint, body: bytes) -> bytes:
    """The whole reply, within the time for one try, however slowly it drips."""
    headers = {"Content-Type": "application/json", "User-Agent": "agentlite"}
    if key := _key(endpoint):
        headers["Authorization"] = f"Bearer {key}"
    deadline = time.monotonic() + endpoint.timeout
    request = urllib.request.Request(endpoint.address, body, headers)
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(request, timeout=endpoint.timeout) as response:
        return _read(response, deadline)


def _read(response: HTTPResponse, deadline: float) -> bytes:
    content = b""
    while chunk := response.read1(1 << 16):
        content += chunk
        if time.monotonic() > deadline:
            raise TimeoutError
        if len(content) > LONGEST_REPLY:
            return content
    if response.length:
        raise IncompleteRead(content)
    return content


def _reply(content: bytes) -> Reply:
    try:
        answer = json.loads(content.decode("utf-8", "replace"))
        choice = answer["choices"][0]
        text, calls = choice["message"].get("content"), choice["message"].get("tool_calls")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Reply("", "no chat completion")
    usage = answer.get("usage")
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    found = calls if isinstance(calls, list) else []
    problem = "" if isinstance(text, str) or found else "no text"
    return Reply(
        text if isinstance(text, str) else "",
        problem,
        prompt,
        completion,
        calls=found,
        finish=str(choice.get("finish_reason", "")),
    )


def _count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value >= 0 else 0


def _retry_after(header: str | None) -> float | None:
    """Seconds, or a date."""
    try:
        return max(0.0, float(header or ""))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header or "").timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def _said(error: IO[bytes]) -> str:
    try:
        return error.read(2000).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return ""


def _refusal(endpoint: Endpoint, code: int, said: str) -> UserError:
    fixes = {
        401: f"Put a key that holds in the environment variable {endpoint.key}.",
        402: "The account behind the key has no credit left.",
        403: f"The key in {endpoint.key} may not use {endpoint.model}.",
        404: "Look at the address (it ends in /v1 as a rule) and at the model's name.",
        405: "Look at the address: it ends in /v1 as a rule.",
    }
    shown = _shown(endpoint, said)
    return UserError(
        f"{endpoint.address} answered {code}{': ' + shown if shown else ''}.",
        fixes.get(code, "Give the address that it points to."),
        exit_code=NETWORK,
    )


def _shown(endpoint: Endpoint, said: str) -> str:
    """The beginning of what a server said; some send back what they were sent."""
    shown, key = " ".join(said.split()), _key(endpoint)
    return (shown.replace(key, "(the key)") if key else shown)[:200]
