"""A board that serves, and workspaces for it whose every text tries to become markup."""

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.generated_run import stage
from support.listening import listen

from agentlite.core.records import Message, Record, Tool, to_row
from agentlite.core.row_files import write_rows
from agentlite.deploy.board.board_server import BoardServer
from agentlite.workspace.digests import file_digest

TOKEN = "0123456789-abcdef_token"
EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>\'"&${1}'
EVIL_NAME = EVIL.replace("/", "")  # of a folder


@contextmanager
def serving(folders: Sequence[Path], **options: Any) -> Iterator[BoardServer]:
    with BoardServer(folders, 0, token=TOKEN, **options) as made:
        thread = listen(made)
        try:
            while made.workspaces.look(10):
                pass
            yield made
        finally:
            made.shutdown()
            thread.join()


def asked(
    server: BoardServer,
    path: str,
    body: object = None,
    *,
    token: str = TOKEN,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """POSTs a body as the board's own page does, or GETs."""
    connection = http.client.HTTPConnection(*server.server_address, timeout=60)  # type: ignore[arg-type]
    own = {"Origin": server.origin} if body is not None else {}
    text = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    connection.request(method, f"/{token}/{path}", text, {**own, **(headers or {})})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, answer.headers


def trained(folder: Path, steps: int = 30, command: str = "sft", **settings: Any) -> None:
    """A finished trainer, with its curves and its pace."""
    rows = [
        {"step": n, "loss": 2 / n, "kl": n / 100, "reward/exact": 1 - 1 / n}
        for n in range(1, steps + 1)
    ]
    plan = {"command": command, "settings": {"model": "base", **settings}, "inputs": {}}
    stage(folder, plan, {"metrics.jsonl": rows}, {"steps": steps, "last_loss": 2 / steps})


def evil_runs(root: Path) -> Path:
    """Names, settings, figures, logs and answers of a stranger."""
    run = root / EVIL_NAME
    trained(run / EVIL_NAME, command="grpo", model=EVIL, **{EVIL: EVIL, "weights": {EVIL: 1}})
    rows = [{"step": n, EVIL: n, f"reward/{EVIL}": 0.5, "loss": 1.0} for n in (1, 2)]
    plan = {"command": "grpo", "settings": {"model": EVIL}, "inputs": {EVIL: EVIL}}
    stage(run / "grpo", plan, {"metrics.jsonl": rows}, {EVIL: 1.0, "figure": EVIL})
    answer = {
        "record_id": EVIL,
        "turn": 0,
        "model": EVIL,
        "text": EVIL,
        "ended": EVIL,
        "components": {EVIL: 1.0},
        "feedback": EVIL,
    }
    write_rows(run / "grpo" / "rollouts.jsonl", [answer])
    record = Record(
        messages=(Message("user", EVIL), Message("assistant", EVIL)), tools=(Tool(EVIL, EVIL),)
    )
    asked = {"command": "prep", "settings": {}, "inputs": {}}
    stage(run / "prep", asked, {"test.jsonl": [{**to_row(record), "id": "0"}]}, {})
    said = {"text": EVIL, "problem": EVIL, "wrong": EVIL, "metrics": {EVIL: 1}}
    said |= {"slices": {EVIL: EVIL}, "calls": [{"name": EVIL, "arguments": EVIL}]}
    inputs = {"data": file_digest(run / "prep/test.jsonl")}
    stage(
        run / "eval/prep" / EVIL_NAME,
        {"command": "eval", "settings": {"model": EVIL}, "inputs": inputs},
        {"predictions.jsonl": [{"record_id": "0", "turn": 1, **said}]},
        {},
        {"metrics": {EVIL: {"mean": 0.5, "low": 0.4, "high": 0.6, "count": EVIL}}},
    )
    return run
