"""--push-to-hub: an export's files in one commit, in a private repository."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from agentlite.core.errors import NETWORK, USAGE, UserError
from agentlite.workspace import hub


class LocalHub:
    """In place of the hub's client: what it was asked. `refuses`: commits."""

    def __init__(self) -> None:
        self.created: list[tuple[Any, ...]] = []
        self.commits: list[dict[str, bytes]] = []
        self.refuses = False

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> None:
        self.created.append((name, private, exist_ok))

    def create_commit(self, name: str, operations: Any, *, commit_message: str) -> Any:
        if self.refuses:
            raise OSError("403: no write access")
        files = {one.path_in_repo: Path(one.path_or_fileobj).read_bytes() for one in operations}
        self.commits.append(files)
        return SimpleNamespace(commit_url=f"https://hub/{name}/commit/{'a' * 40}")


@pytest.mark.parametrize("refuses", [False, True])
def test_the_files_arrive_in_one_commit_in_a_private_repository(tmp_path, monkeypatch, refuses):
    local, files = LocalHub(), {"README.md": b"# A model\n", "model.bin": bytes(range(256))}
    local.refuses = refuses
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: local)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    paths = {name: tmp_path / name for name in files}
    if refuses:
        with pytest.raises(UserError, match="the upload to me/model failed") as refused:
            hub.push(paths, "me/model")
        assert refused.value.exit_code == NETWORK and "--force" in refused.value.fix
        return
    assert hub.push(paths, "me/model") == f"https://hub/me/model/commit/{'a' * 40}"
    assert local.created == [("me/model", True, True)] and local.commits == [files]


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
