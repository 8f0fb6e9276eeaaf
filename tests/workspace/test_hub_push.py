"""--push-to-hub: an export's files in one commit, by the hub's own protocol, to a local hub."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.listening import listen

from agentlite.core.errors import NETWORK, USAGE, UserError
from agentlite.workspace import hub

PROGRAM = """
import sys
from pathlib import Path
from agentlite.core.errors import UserError
from agentlite.workspace.hub import push, refuse_push
refuse_push("me/model")
try:
    print(push({"README.md": Path("card.md"), "model.bin": Path("model.bin")}, "me/model"))
except UserError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


class LocalHub(ThreadingHTTPServer):
    """What it was asked: paths with their bodies. `refuses`: it answers 403 to commits."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes, str]] = []
        self.refuses = False
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: LocalHub

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        self.server.asked.append((path, body, self.headers.get("Authorization", "")))
        status, answer = 200, {}
        if path == "/api/repos/create":
            answer = {"url": f"{self.server.address}/me/model"}
        elif path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            answer = {
                "files": [
                    {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for one in files
                ]
            }
        elif self.server.refuses:
            status, answer = 403, {"error": "no write access"}
        else:
            url = f"{self.server.address}/me/model/commit/{'a' * 40}"
            answer = {"commitUrl": url, "commitOid": "a" * 40, "hookOutput": ""}
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture
def local_hub() -> Iterator[LocalHub]:
    server = LocalHub()
    listen(server)
    yield server
    server.shutdown()
    server.server_close()


def pushing(local_hub: LocalHub, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "card.md").write_text("# A model\n", encoding="utf-8")
    (folder / "model.bin").write_bytes(bytes(range(256)))
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HF_ENDPOINT": local_hub.address,
            "HF_TOKEN": "hf_localtokenlocaltoken",
            "HF_HUB_DISABLE_XET": "1",
        },
    )


@pytest.mark.long
def test_the_files_arrive_in_one_commit_in_a_private_repository(local_hub, tmp_path):
    done = pushing(local_hub, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{local_hub.address}/me/model/commit/{'a' * 40}"
    (created,) = [body for path, body, _ in local_hub.asked if path == "/api/repos/create"]
    assert json.loads(created)["visibility"] == "private"
    (commit,) = [body for path, body, _ in local_hub.asked if "/commit/" in path]
    files = [json.loads(line) for line in commit.splitlines()]
    contents = {
        one["value"]["path"]: base64.b64decode(one["value"]["content"])
        for one in files
        if one["key"] == "file"
    }
    assert contents == {"README.md": b"# A model\n", "model.bin": bytes(range(256))}
    assert {token for _, _, token in local_hub.asked} == {"Bearer hf_localtokenlocaltoken"}


@pytest.mark.long
def test_an_upload_that_is_refused_says_that_the_export_is_here(local_hub, tmp_path):
    local_hub.refuses = True
    done = pushing(local_hub, tmp_path)
    assert done.returncode == NETWORK and "the upload to me/model failed" in done.stderr
    assert "--force" in done.stderr and "hf_localtoken" not in done.stderr


@pytest.mark.parametrize("name", ["model", "me/model@main", "a/b/c", "./model"])
def test_a_name_that_the_hub_does_not_have_is_refused(name):
    with pytest.raises(UserError, match="not the name of a repository") as refused:
        hub.refuse_push(name)
    assert refused.value.exit_code == USAGE and refused.value.location == "--push-to-hub"


@pytest.mark.parametrize(
    ("offline", "token", "words"),
    [(True, "hf_x", "HF_HUB_OFFLINE is set"), (False, None, "no token"), (False, "hf_x", "")],
)
def test_without_a_token_or_offline_nothing_is_begun(offline, token, words, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: token)
    if not words:
        return hub.refuse_push("me/model")
    with pytest.raises(UserError, match=words) as refused:
        hub.refuse_push("me/model")
    assert refused.value.exit_code == NETWORK
