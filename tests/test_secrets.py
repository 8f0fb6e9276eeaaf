"""Keys and tokens of the environment are sent to whom they are for, and stand nowhere else."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support import processes
from support.listening import listen
from support.samples import DATA, ROOT

CANARY = "sk-Canary0123456789abcdef"
SECRETS = {
    name: f"{CANARY}-{name.lower()}"
    for name in (
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "OPENAI_API_KEY",
        "ANSWERS_KEY",
        "JUDGE_KEY",
        "WANDB_API_KEY",
    )
}


class Echo(BaseHTTPRequestHandler):
    """Answers, or fails as the path says, and then sends back what it was sent, the key as well."""

    def do_POST(self) -> None:
        key = self.headers.get("Authorization", "")
        self.server.keys.append(key)  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers["Content-Length"]))
        status = int(self.path.split("/")[1])
        message = {"content": 'Fine. {"score": 4, "reason": "x"}'}
        body: Any = {"choices": [{"message": message, "finish_reason": "stop"}]}
        if status != 200:
            body = {
                "error": f"{'x' * (status - 300)} your key {key} was refused, {dict(self.headers)}"
            }
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as found:
        found.keys = []  # type: ignore[attr-defined]
        listen(found)
        yield found
        found.shutdown()


@pytest.fixture
def said(tmp_path: Path) -> Iterator[list[str]]:
    """All that is printed; at the end it is looked through, and all that was written down as
    well.
    """
    found: list[str] = []
    yield found
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert found and written
    for content in [*(text.encode() for text in found), *written]:
        assert CANARY.encode() not in content, content[:2000]


def run(said: list[str], folder: Path, line: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "agentlite", *shlex.split(line), "--debug"]
    there = {
        **os.environ,
        **SECRETS,
        "AGENTLITE_CACHE": str(folder / "cache"),
        "AGENTLITE_RUN": str(folder / "run"),
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
    }
    done = processes.run(command, capture_output=True, text=True, env=there, cwd=folder)
    said += [done.stdout, done.stderr]
    assert (done.returncode == 0) == (code == 0), done.stderr
    return done.stderr


@pytest.fixture
def prepared(tmp_path: Path, tiny_model: Path, said: list[str]) -> Path:
    shutil.copytree(tiny_model, tmp_path / "model")
    split = "--set prep.dev=0.2 --set prep.test=0.3"
    run(said, tmp_path, f"prep {DATA / 'weather.jsonl'} --model {tmp_path / 'model'} {split}")
    return tmp_path


def test_no_key_is_written_down_or_told_where_all_goes_well(prepared, said, server):
    url = f"http://127.0.0.1:{server.server_address[1]}/200/v1"
    keys = "--set eval.endpoint_key=ANSWERS_KEY --set pairs.endpoint_key=ANSWERS_KEY"
    there = f"--endpoint {url} {keys} --model theirs"
    judge = f"--judge {url} --set eval.judge_key=JUDGE_KEY --judge-model judge"
    run(said, prepared, f"eval {there} {judge}")
    run(said, prepared, f"pairs {there} -n 2")
    sent = {f"Bearer {SECRETS[name]}" for name in ("ANSWERS_KEY", "JUDGE_KEY")}
    assert sent == set(server.keys)  # each its own
    run(said, prepared, f"eval {there} --print-config")
    for command in ("runs", f"plan --model {prepared / 'model'}"):
        run(said, prepared, command)


@pytest.mark.parametrize("status", [302, 400, 401, 470])
def test_no_key_is_told_by_a_server_that_sends_it_back(prepared, said, server, status):
    url = f"http://127.0.0.1:{server.server_address[1]}/{status}/v1"
    there = f"--endpoint {url} --set eval.endpoint_key=ANSWERS_KEY --model m"
    told = run(said, prepared, f"eval {there}", code=8)
    assert f"answered {status}" in told


@pytest.mark.parametrize("key", ["hub_token", "push_to_hub_token"])
def test_a_token_is_no_setting(prepared, said, key):
    given = prepared / "agentlite.yaml"
    given.write_text(f"sft:\n  trl:\n    {key}: {CANARY}\n", encoding="utf-8")
    for line in ("sft", "sft --print-config"):
        assert "a secret is not a setting" in run(said, prepared, line, code=2)
    given.unlink()
