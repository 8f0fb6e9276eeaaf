"""--push-to-hub: an export's files in one commit to a private repository."""

from pathlib import Path
from typing import Any

import pytest

from agentlite.core.errors import NETWORK, USAGE, UserError
from agentlite.workspace import hub

COMMIT = "https://hub/me/model/commit/" + "a" * 40


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the hub's client is asked; an OSError in the list is raised by the commit."""
    asked: list[Any] = []

    class Api:
        def create_repo(self, name: str, **how: Any) -> None:
            asked.append((name, how))

        def create_commit(self, name: str, operations: Any, commit_message: str) -> Any:
            if isinstance(asked[0], OSError):
                raise asked[0]
            asked.append({one.path_in_repo: one.path_or_fileobj for one in operations})
            return type("Commit", (), {"commit_url": COMMIT})

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    return asked


def test_the_files_arrive_in_one_commit_in_a_private_repository(uploads, tmp_path: Path) -> None:
    files = {"README.md": tmp_path / "card.md", "model.bin": tmp_path / "model.bin"}
    for path in files.values():
        path.write_bytes(b"x")
    assert hub.push(files, "me/model") == COMMIT
    created, committed = uploads
    assert created == ("me/model", {"private": True, "exist_ok": True})
    assert committed == {name: str(path) for name, path in files.items()}


def test_an_upload_that_is_refused_says_that_the_export_is_here(uploads, tmp_path: Path) -> None:
    uploads.append(OSError("403: no write access"))
    (tmp_path / "card.md").write_bytes(b"x")
    with pytest.raises(UserError, match="the upload to me/model failed: 403") as refused:
        hub.push({"README.md": tmp_path / "card.md"}, "me/model")
    assert refused.value.exit_code == NETWORK and "--force" in refused.value.fix


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
