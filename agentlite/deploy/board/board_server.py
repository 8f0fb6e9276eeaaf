"""The board over HTTP: its page, the workspaces as JSON, and commands that are started from it."""

import hmac
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct

from agentlite.config.pipeline import STAGES
from agentlite.core.errors import UserError
from agentlite.deploy.board import stage_form
from agentlite.deploy.board.chat_server import ChatServer, called
from agentlite.deploy.board.evaluations import Evaluations, words_of_comparison
from agentlite.deploy.board.newest_answers import newest_answers
from agentlite.deploy.board.processes import FOLDER, Processes
from agentlite.deploy.board.report_page import answer_of, report_page
from agentlite.deploy.board.stored_answers import StoredAnswers
from agentlite.deploy.board.workspaces import KeyFigure, Workspaces, as_json, defaults
from agentlite.deploy.local_server import LocalHandler, LocalServer
from agentlite.deploy.openai_api import Refused
from agentlite.scoring.metrics.wrong_answers import IN_WORDS

PAGE = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
MOST_VALUES = 400  # of a form
MOST_COMPARED = 16  # evaluations
LONGEST_SEARCH = 500  # characters
T = TypeVar("T")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report has its own policy in its head. Its origin is none, so that it could ask nothing of the
# board even if a text of a model became markup.
REPORT_POLICY = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"
SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class FilledForm(Struct, frozen=True, forbid_unknown_fields=True):
    """What the page sends of a form."""

    stage: str
    run: str
    values: dict[str, str] = {}


class NamedCommand(Struct, frozen=True, forbid_unknown_fields=True):
    run: str
    id: str


class Empty(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing more to say."""


class NamedModel(Struct, frozen=True, forbid_unknown_fields=True):
    run: str
    model: str


class ChatTurn(Struct, frozen=True, forbid_unknown_fields=True):
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []
    temperature: float = 0.0


class FunctionCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a function in a file, as `chat --exec` runs it."""

    file: str
    tools: list[dict[str, Any]]
    name: str
    arguments: str


class BoardServer(LocalServer):
    """On 127.0.0.1 alone. `token` stands first in each path. `read_only`: nothing can be started
    or stopped. Raises UserError 2 for a port that is in use.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        port: int,
        *,
        token: str,
        read_only: bool = False,
        key_figure: KeyFigure = lambda stage: "",
    ):
        self.folders, self.read_only = [*folders], read_only
        self.workspaces = Workspaces(folders, key_figure)
        self.processes, self.chat = Processes(), ChatServer()
        self.evaluations, self.answers = Evaluations(self.workspaces), StoredAnswers()
        self.reading = threading.Lock()  # one report, or comparison, is made at a time
        self._clicks, self._counting = 0, threading.Lock()
        self.files = {path.name: path for path in PAGE.iterdir() if path.suffix in KINDS}
        super().__init__("board", BoardHandler, port, token=token)

    @property
    def url(self) -> str:
        return f"{self.origin}/{self.token}/"

    def server_close(self) -> None:
        """The model of the chat ends; commands that were started go on."""
        super().server_close()
        self.chat.close()

    @contextmanager
    def clicked(self) -> Iterator[None]:
        """While somebody waits for an answer: a look at the workspaces stops early then."""
        with self._counting:
            self._clicks += 1
        try:
            yield
        finally:
            with self._counting:
                self._clicks -= 1

    def is_clicked(self) -> bool:
        return self._clicks > 0

    def run_named(self, name: str, *, new: bool = False) -> Path:
        """A workspace that was seen or, with `new`, a name inside a folder of the board. Raises
        Refused.
        """
        self.workspaces.look_for(name)
        if name in self.workspaces.runs() or name in map(str, self.folders):
            return Path(name)
        path = Path(name)
        # a name such as .. has another parent than it seems to
        is_inside = path.parent in self.folders and path.name not in ("", ".", "..")
        if new and is_inside and str(path) == name and not path.name.startswith("."):
            return path
        inside = ", ".join(f"{folder}/NAME" for folder in self.folders)
        raise Refused(
            404, f"{name or 'This'} is not a workspace of this board. A new one: {inside}."
        )


class BoardHandler(LocalHandler):
    """One connection, in a thread of its own."""

    server: BoardServer

    def do_GET(self) -> None:
        self.answered(self._get)

    def do_POST(self) -> None:
        self.answered(self._post)

    def is_own_origin(self, origin: str) -> bool:
        """Only the board's own page: another program's page on this machine is a stranger."""
        host = self.headers.get("Host") or ""
        return origin == f"http://{host}"

    def refuse_without_token(self) -> None:
        given = urlsplit(self.path).path.split("/")[1].encode("utf-8", "replace")
        if not hmac.compare_digest(given, self.server.token.encode()):
            raise Refused(
                403,
                "The address lacks the board's token: open the one that `agentlite board` printed.",
                code="forbidden",
            )

    def _get(self) -> None:
        path = self._below_token()
        given = parse_qs(urlsplit(self.path).query)
        query = {name: values[-1] for name, values in given.items()}
        if path in ("", *self.server.files):
            self._file(path or "board.html")
        elif path == "report":
            self._report(query, given.get("model", []))
        elif path == "api/compare":
            self._answer(_compared(self.server, given.get("id", [])))
        elif path == "api/rows":
            self._answer(_rows(self.server, query))
        elif path in READS:
            with self.server.clicked():
                found = READS[path](self.server, query)
            self._answer(found)
        else:
            raise Refused(404, "There is no such page.", kind="not_found_error")

    def _post(self) -> None:
        path = self._below_token()
        if path not in ACTS:
            raise Refused(404, "There is no such command.", kind="not_found_error")
        if not self.headers.get("Origin"):  # a browser always names it
            raise Refused(403, "The request does not name its page.", code="forbidden")
        kind, act = ACTS[path]
        body = self.body()
        if self.server.read_only:
            raise Refused(403, "This board is read-only: --read-only.", code="forbidden")
        try:
            request = msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(400, f"The body of the request is not one: {error}.") from error
        try:
            self._answer(act(self.server, request))
        except UserError as error:
            raise Refused(400, str(error)) from error

    def _below_token(self) -> str:
        return urlsplit(self.path).path.split("/", 2)[2] if self.path.count("/") > 1 else ""

    def _answer(self, value: object) -> None:
        body = json.dumps(value, ensure_ascii=False, allow_nan=False)
        self.send_bytes(200, "application/json", body.encode("utf-8", "replace"), SAFE)

    def _file(self, name: str) -> None:
        path = self.server.files[name]
        kind = f"{KINDS[path.suffix]}; charset=utf-8"
        policy = {"Content-Security-Policy": POLICY}
        self.send_bytes(200, kind, path.read_bytes(), SAFE | policy)

    def _report(self, query: Mapping[str, str], models: Sequence[str]) -> None:
        """`models`: those that are compared; all where none is named."""
        run = self.server.run_named(query.get("run", ""))
        with self.server.reading:
            made = report_page(run, models)
        status, kind = (200, "text/html") if made.is_page else (409, "text/plain")
        policy = {"Content-Security-Policy": REPORT_POLICY}
        self.send_bytes(status, f"{kind}; charset=utf-8", made.content, SAFE | policy)

    def _log(self, requested: str) -> None:
        """Only what went wrong, since the page asks every other second; never with the token."""
        if self.status >= 400:
            super()._log(requested.replace(self.server.token, "TOKEN"))


def _facts(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    return {
        "folders": [*map(str, server.folders)],
        "read_only": server.read_only,
        "stages": {name: stage.help for name, stage in STAGES.items()},
        "defaults": defaults(),
    }


def _rows(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    since = _number(query.get("since", "-1"))
    waiting = server.workspaces.look(is_urgent=server.is_clicked)
    version = server.workspaces.version
    rows, gone = server.workspaces.rows(since)
    return {
        "version": version,
        "waiting": waiting,
        "rows": as_json(rows),
        "gone": gone,
        "runs": server.workspaces.runs(),
    }


def _curves(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    name = query.get("id", "")
    _stage(server, name)
    found = server.workspaces.curves(name)
    if found is None:  # it went in between
        raise Refused(404, "There is no such stage.", kind="not_found_error")
    version = found["version"]
    return found if version != _number(query.get("version", "-1")) else {"version": version}


def _stage(server: BoardServer, name: str) -> tuple[Path, Path]:
    """The workspace and the folder of a stage that was seen. Raises Refused for another."""
    server.workspaces.look_for(name)
    run, folder = server.workspaces.run(name), server.workspaces.folder(name)
    if run is None or folder is None:
        raise Refused(404, "There is no such stage.", kind="not_found_error")
    return run, folder


def _answers(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    _, folder = _stage(server, query.get("id", ""))
    return {"answers": [msgspec.to_builtins(one) for one in newest_answers(folder)]}


def _evaluations(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    models, waiting = server.evaluations.look()
    return {"models": msgspec.to_builtins(models), "waiting": waiting}


def _compared(server: BoardServer, names: Sequence[str]) -> dict[str, Any]:
    """What `eval --compare` says of finished evaluations: paired, on the questions of all."""
    if not 2 <= len(names) <= MOST_COMPARED:
        raise Refused(400, f"Name 2 to {MOST_COMPARED} evaluations to compare.")
    words = words_of_comparison([_stage(server, name)[1] for name in names])
    with server.reading:
        found = _or_refused(lambda: answer_of(words))
    command = stage_form.as_typed_command(words[:-1])
    return {"command": command, "differences": found["figures"]["differences"]}


def _page(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    run, folder = _stage(server, query.get("id", ""))
    wrong, text, first = (query.get(key, "") for key in ("wrong", "text", "first"))
    found = _or_refused(
        lambda: server.answers.page(
            run, folder, wrong=wrong, text=text[:LONGEST_SEARCH], first=_number(first)
        )
    )
    return {**msgspec.to_builtins(found), "kinds": IN_WORDS}


def _answer(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    run, folder = _stage(server, query.get("id", ""))
    number = _number(query.get("number", ""))
    found = _or_refused(lambda: server.answers.answer(run, folder, number))
    return dict(msgspec.to_builtins(found))


def _question(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    run, folder = _stage(server, query.get("id", ""))
    record, turn = query.get("record", ""), _number(query.get("turn", ""))
    found = _or_refused(lambda: server.answers.question(run, folder, record, turn))
    return {"run": str(run), **msgspec.to_builtins(found)}


def _or_refused(ask: Callable[[], T]) -> T:
    """Raises Refused for a UserError: the page shows it, and the server goes on."""
    try:
        return ask()
    except UserError as error:
        raise Refused(404, str(error), kind="not_found_error") from error


def _form(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    try:
        return stage_form.form(query.get("stage", ""))
    except UserError as error:
        raise Refused(404, str(error), kind="not_found_error") from error


def _commands(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    inside = [path.parent for folder in server.folders for path in folder.glob(f"*/{FOLDER}")]
    runs = dict.fromkeys([*map(Path, server.workspaces.runs()), *server.folders, *inside])
    found = [one for run in runs for one in server.processes.listed(run)]
    found.sort(key=lambda one: -one.at)
    shown = [
        {**msgspec.to_builtins(one), "command": stage_form.as_typed_command(one.words)}
        for one in found[:100]
    ]
    return {"commands": shown}


def _log_of(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    run = server.run_named(query.get("run", ""), new=True)
    return {"log": server.processes.log(run, query.get("id", ""))}


def _preview(server: BoardServer, request: FilledForm) -> dict[str, Any]:
    return {"command": stage_form.as_typed_command(_words(server, request))}


def _start(server: BoardServer, request: FilledForm) -> dict[str, Any]:
    words = _words(server, request)
    run = server.run_named(request.run, new=True)
    started = server.processes.start(run, words)
    server.workspaces.look_at(run)
    return {"started": msgspec.to_builtins(started)}


def _stop(server: BoardServer, request: NamedCommand) -> dict[str, Any]:
    server.processes.stop(server.run_named(request.run, new=True), request.id)
    return {"stopped": request.id}


def _chat_state(server: BoardServer, query: Mapping[str, str]) -> dict[str, Any]:
    return dict(msgspec.to_builtins(server.chat.state()))


def _load(server: BoardServer, request: NamedModel) -> dict[str, Any]:
    server.chat.load(server.run_named(request.run), request.model)
    return dict(msgspec.to_builtins(server.chat.state()))


def _unload(server: BoardServer, request: Empty) -> dict[str, Any]:
    server.chat.close()
    return {}


def _say(server: BoardServer, request: ChatTurn) -> dict[str, Any]:
    tools = {"tools": request.tools} if request.tools else {}
    return server.chat.say(
        {"messages": request.messages, **tools, "temperature": request.temperature}
    )


def _call(server: BoardServer, request: FunctionCall) -> dict[str, Any]:
    return {"result": called(request.file, request.tools, request.name, request.arguments)}


def _words(server: BoardServer, request: FilledForm) -> list[str]:
    server.run_named(request.run, new=True)
    if len(request.values) > MOST_VALUES:
        raise Refused(400, "The form has too many fields.")
    return stage_form.words(request.stage, request.run, request.values)


def _number(text: str) -> int:
    try:
        return int(text[:20])
    except ValueError:
        return -1


READS: Mapping[str, Callable[[BoardServer, Mapping[str, str]], dict[str, Any]]] = {
    "api/facts": _facts,
    "api/rows": _rows,
    "api/curves": _curves,
    "api/answers": _answers,
    "api/evaluations": _evaluations,
    "api/page": _page,
    "api/answer": _answer,
    "api/question": _question,
    "api/form": _form,
    "api/commands": _commands,
    "api/log": _log_of,
    "api/chat": _chat_state,
}
ACTS: Mapping[str, tuple[Any, Callable[[BoardServer, Any], dict[str, Any]]]] = {
    "api/preview": (FilledForm, _preview),
    "api/start": (FilledForm, _start),
    "api/stop": (NamedCommand, _stop),
    "api/load": (NamedModel, _load),
    "api/unload": (Empty, _unload),
    "api/say": (ChatTurn, _say),
    "api/call": (FunctionCall, _call),
}
