"""The model that the page talks to: `agentlite serve` as a child of the board, one at a time."""

import contextlib
import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from agentlite.core.console import hidden
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Call
from agentlite.data.formats.tool_calls import read_tools
from agentlite.deploy.board.processes import CONTROL, TAIL
from agentlite.deploy.tool_results import executed

KEY = "AGENTLITE_BOARD_KEY"  # the variable with the token of the child
ANSWER_SECONDS = 600.0
CALL_SECONDS = 10.0
END_SECONDS = 10.0


class LoadedModel(Struct, frozen=True):
    """`state`: none, loading, ready or ended; `log`: the end of what it has printed."""

    state: str
    run: str = ""
    model: str = ""
    protocol: str = ""
    log: str = ""


class ChatServer:
    """At most one model is in memory. Another one takes its place; closing the board ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None
        self._named = ("", "")
        self._address: dict[str, str] = {}
        self._token = ""

    def load(self, run: Path, model: str) -> None:
        """Starts a server for a model of a workspace; `state` says when it is ready."""
        if not model or len(model) > 500 or "\0" in model:
            raise UserError("names no model.", location="model")
        with self._lock:
            self._end()
            self._named, self._token = (str(run), model), secrets.token_hex(32)
            self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed by _end)
            words = ["serve", "--run", str(run), "--port", "0", "--json", "--token-env", KEY]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agentlite", *words, "--", model],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, KEY: self._token},
                start_new_session=True,
            )
            threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        """Its first line is its address."""
        assert process.stdout
        with contextlib.suppress(ValueError, OSError), process.stdout:
            found = json.loads(process.stdout.readline())
            if process is self._process and "url" in found:
                self._address = {name: str(value) for name, value in found.items()}
            process.stdout.read()  # what it may print later, until it ends

    def state(self) -> LoadedModel:
        with self._lock:
            if self._process is None:
                return LoadedModel("none")
            ended = self._process.poll() is not None
            state = "ended" if ended else "ready" if self._address else "loading"
            size = os.fstat(self._log.fileno()).st_size
            text = os.pread(self._log.fileno(), TAIL, max(0, size - TAIL)).decode(
                "utf-8", "replace"
            )
            shown = hidden(CONTROL.sub("", text.replace(self._token, "TOKEN")))
            return LoadedModel(state, *self._named, self._address.get("protocol", ""), shown)

    def say(self, body: dict[str, Any]) -> dict[str, Any]:
        """One answer. `body`: messages, tools and how to sample, as OpenAI has them. Raises
        UserError for a model that is not ready, or refuses.
        """
        address, token = self._address, self._token
        if not address:
            raise UserError("no model is loaded.", "Load one first.", location="chat")
        place = urlsplit(address["url"])
        connection = http.client.HTTPConnection(
            place.hostname or "", place.port, timeout=ANSWER_SECONDS
        )
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            text = json.dumps({**body, "model": address["model"], "stream": False})
            path = f"{place.path}/chat/completions"
            connection.request("POST", path, text.encode("utf-8", "replace"), headers)
            answer = connection.getresponse()
            found = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UserError(f"the model does not answer ({error}).", location="chat") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise UserError(str(found.get("error", {}).get("message", answer.status)))
        return dict(found)

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        """As Ctrl-C does; what does not end then is killed."""
        process, self._process, self._address = self._process, None, {}
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._log.close()


def called(file: str, tools: object, name: str, arguments: str) -> str:
    """The result of a call by the function of that name in a file, as `chat --exec` gives it.
    Raises UserError 2.
    """
    try:
        offered = read_tools(tools)
        values = json.loads(arguments or "{}")
        if not isinstance(values, dict):
            raise ValueError("not an object")
    except RowError as error:
        raise UserError(f"{error.reason} ({error.code}).", location="tools") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"the arguments are not JSON: {error}.", location=name) from error
    with executed(file, offered, CALL_SECONDS) as observe:
        return observe(Call(name, values))
