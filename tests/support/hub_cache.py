"""A cache of the hub with models in it, and a hub that serves them: made by hand, for the tests of
what is loaded.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support import shared_tokenizers
from support.listening import listen

from agentlite.engine import load_libraries


def commit(letter: str) -> str:
    return letter * 40


def use_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """From now on the hub's library, offline as in all tests, looks into `folder` alone."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder


def cache_model(cache: Path, name: str, files: Path, at: str, *, newest: bool = True) -> Path:
    """Puts the files of a folder into the cache, as the commit `at` of a hub id; `newest`: as the
    one that the cache believes to be the newest. Returns the snapshot's folder.
    """
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = Path(shutil.copytree(files, repository / "snapshots" / at, symlinks=True))
    if newest:
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs/main").write_text(at, encoding="ascii")
    return snapshot


def watched_loads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is handed to every `from_pretrained` of transformers from now on: class and name."""
    load_libraries("unsloth")
    import transformers

    found: list[tuple[str, str]] = []

    def watch(name: str) -> None:
        original = getattr(transformers, name).from_pretrained.__func__

        def watched(cls: Any, model: Any, *args: Any, **more: Any) -> Any:
            found.append((name, str(model)))
            return original(cls, model, *args, **more)

        monkeypatch.setattr(getattr(transformers, name), "from_pretrained", classmethod(watched))

    for name in ("PreTrainedModel", "PreTrainedTokenizerBase", "GenerationConfig"):
        watch(name)
    shared_tokenizers.read_alone(monkeypatch)
    return found


@contextmanager
def served(
    models: dict[str, dict[str, Path]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """A hub on this machine: the folder of each commit of each hub id, oldest first. Yields the
    paths that are asked for.
    """
    from huggingface_hub import constants

    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            asked.append(self.path)
            owner, model, _, revision, *rest = self.path.lstrip("/").split("/")
            commits = models.get(f"{owner}/{model}", {})
            at = [*commits][-1] if revision == "main" and commits else revision
            if at not in commits:
                error = "RevisionNotFound" if commits else "RepoNotFound"
                return self._refuse(error)
            path = commits[at] / "/".join(rest)
            if not path.is_file():
                return self._refuse("EntryNotFound", at)
            content = path.read_bytes()
            self.send_response(200)
            self.send_header("X-Repo-Commit", at)
            self.send_header("ETag", f'"{path.name}-{at}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_body:
                self.wfile.write(content)

        def _refuse(self, code: str, at: str = "") -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Repo-Commit", at)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listen(server)
    address, before = f"http://127.0.0.1:{server.server_port}", constants.ENDPOINT
    urls = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(before, address)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", urls)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
