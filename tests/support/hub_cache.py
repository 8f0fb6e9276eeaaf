"""A cache of the hub with models in it, and a hub that serves them: made by hand, for the tests of
what is loaded.
"""

import json
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


GATED = {"gated"}  # names of data sets


def described(name: str, folder: Path, at: str) -> bytes:
    """What the hub says of a data set, whose card is README.md as JSON."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    siblings = [
        {"rfilename": str(path.relative_to(folder)), "size": path.stat().st_size} for path in files
    ]
    card = folder / "README.md"
    about = json.loads(card.read_text()) if card.exists() else {}
    return json.dumps({"id": name, "sha": at, "siblings": siblings, "cardData": about}).encode()


@contextmanager
def served(
    models: dict[str, dict[str, Path]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """A hub on this machine: the folder of each commit of each hub id, oldest first; that of a data
    set begins with `datasets/`, and one in GATED is gated. Yields the paths that are asked for.
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
            path, _, _ = self.path.lstrip("/").partition("?")
            is_api, path = path.startswith("api/"), path.removeprefix("api/")
            kind = "datasets/" if path.startswith("datasets/") else ""
            owner, name, *rest = path.removeprefix(kind).split("/")
            _, revision, *rest = rest or ("revision", "main")
            commits = models.get(f"{kind}{owner}/{name}", {})
            at = [*commits][-1] if revision == "main" and commits else revision
            if at not in commits:
                error = "RevisionNotFound" if commits else "RepoNotFound"
                return self._refuse(error)
            file = commits[at] / "/".join(rest)
            if is_api:
                content = described(f"{owner}/{name}", commits[at], at)
            elif name in GATED:
                return self._refuse("GatedRepo", status=403)
            elif file.is_file():
                content = file.read_bytes()
            else:
                return self._refuse("EntryNotFound", at)
            self.send_response(200)
            self.send_header("X-Repo-Commit", at)
            self.send_header("ETag", f'"{file.name}-{at}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_body:
                self.wfile.write(content)

        def _refuse(self, code: str, at: str = "", status: int = 404) -> None:
            self.send_response(status)
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
