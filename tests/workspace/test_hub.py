"""A hub id is pinned to a commit: the files of that commit are used, and never those of another."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.hub_cache import cache_model, commit, served, use_cache

from agentlite.core.errors import NETWORK, UserError
from agentlite.workspace import hub
from agentlite.workspace.lookup import Plan, RunTarget, find_model, model_of_prep
from agentlite.workspace.stage_folder import open_stage

OLD, NEW = commit("a"), commit("b")
NAME = "Qwen/Qwen2.5-1.5B-Instruct"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return use_cache(tmp_path / "hub", monkeypatch)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return whole_model(tmp_path / "files")


def whole_model(folder: Path, *, shards: int = 1, config: str = "{}") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config, encoding="utf-8")
    more = ("generation_config.json", "tokenizer.model", "added_tokens.json")
    for name in ("tokenizer.json", "tokenizer_config.json", *more):
        (folder / name).write_text("{}", encoding="utf-8")
    names = [f"model-{n}-of-{shards}.safetensors" for n in range(1, shards + 1)]
    if shards == 1:
        names = [hub.WEIGHTS]
    else:
        index = {"weight_map": {f"layer.{n}": name for n, name in enumerate(names)}}
        (folder / hub.INDEX).write_text(json.dumps(index), encoding="utf-8")
    for name in names:
        (folder / name).write_bytes(name.encode())
    # what repositories hold beside: another copy of the weights, pickles, other programs' files
    for name in ("consolidated.safetensors", "pytorch_model.bin", "model.gguf"):
        (folder / name).write_bytes(b"not wanted")
    return folder


def begin(folder: Path, model: str, at: str, adapter: bool = False) -> None:
    """A stage whose plan has `model` at the commit `at`; with an `adapter`, finished."""
    with open_stage(folder, Plan("sft", {"model": model}, {"model": at}), force=False) as stage:
        if adapter:
            (folder / "adapter").mkdir()
            (folder / "adapter/adapter_model.safetensors").write_bytes(b"adapter")
            stage.finish(["adapter/adapter_model.safetensors"], {})


@pytest.mark.parametrize(
    ("name", "is_id", "model", "at"),
    [
        (NAME, True, NAME, ""),
        (f"{NAME}@v1.0", True, NAME, ""),
        (f"{NAME}@{OLD}", True, NAME, OLD),
        ("smollm2-135m", False, "smollm2-135m", ""),
        ("./a/b", False, "./a/b", ""),
        ("/a", False, "/a", ""),
        ("~/a", False, "~/a", ""),
        ("a/b/c", False, "a/b/c", ""),
    ],
)
def test_a_hub_id_is_told_from_a_folder_and_from_its_commit(name, is_id, model, at):
    assert (hub.is_hub_id(name), hub.hub_id(name), hub.commit_of(name)) == (is_id, model, at)


def test_a_folder_of_the_cache_names_the_hub_id_and_the_commit(cache, files):
    snapshot = cache_model(cache, "a-b/c--d", files, OLD)
    assert hub.hub_id_and_commit(str(snapshot)) == ("a-b/c--d", OLD)
    for other in (files, snapshot.parent, Path("/"), Path("x"), Path("a/b/c")):
        assert hub.hub_id_and_commit(str(other)) == ("", "")


def test_a_hub_id_stands_for_the_newest_commit_of_the_cache_when_offline(cache, files):
    cache_model(cache, NAME, files, NEW)
    cache_model(cache, NAME, files, OLD, newest=False)
    source = find_model(NAME, Path())
    assert (source.name, source.base, source.digest) == (NAME, f"{NAME}@{NEW}", NEW)
    older = find_model(f"{NAME}@{OLD}", Path())
    assert (older.base, older.digest) == (f"{NAME}@{OLD}", OLD)


def test_a_cached_commit_that_is_not_the_pinned_one_is_refused_offline(cache, files, tmp_path):
    cache_model(cache, NAME, files, OLD)
    begin(tmp_path / "run/sft", NAME, NEW, adapter=True)
    for pinned in (f"{NAME}@{NEW}", "sft"):
        with pytest.raises(UserError, match=NEW) as refused:
            find_model(pinned, tmp_path / "run")
        assert refused.value.exit_code == NETWORK
        assert "HF_HUB_OFFLINE is set" in refused.value.problem
    with pytest.raises(UserError, match=NEW):
        hub.model_snapshot(f"{NAME}@{NEW}")


def test_an_adapter_stands_on_the_commit_that_it_was_trained_on(cache, files, tmp_path):
    cache_model(cache, NAME, files, NEW)
    cache_model(cache, NAME, files, OLD, newest=False)
    begin(tmp_path / "sft", NAME, OLD, adapter=True)
    begin(tmp_path / "dpo", "sft", find_model("sft", tmp_path).digest, adapter=True)
    for name in ("sft", "dpo"):
        source = find_model(name, tmp_path)
        assert source.base == f"{NAME}@{OLD}" and source.digest.startswith(OLD[:16] + "+")
    assert find_model(NAME, tmp_path).digest == NEW


def test_a_stage_that_was_begun_keeps_its_commit_and_a_new_one_takes_the_newest(
    cache, files, tmp_path
):
    cache_model(cache, NAME, files, NEW)
    cache_model(cache, NAME, files, OLD, newest=False)
    begin(tmp_path / "sft", NAME, OLD)
    assert find_model(NAME, tmp_path, RunTarget(tmp_path, "sft").old_plan).base == f"{NAME}@{OLD}"
    assert find_model(NAME, tmp_path, RunTarget(tmp_path, "other").old_plan).base == f"{NAME}@{NEW}"
    assert find_model(NAME, tmp_path, None).base == f"{NAME}@{NEW}"
    assert model_of_prep("sft", tmp_path).base == f"{NAME}@{OLD}"
    cache_model(cache, "Qwen/Qwen3-8B", files, NEW)
    assert find_model("Qwen/Qwen3-8B", tmp_path, RunTarget(tmp_path, "sft").old_plan).digest == NEW


@pytest.mark.parametrize("shards", [1, 3])
def test_the_whole_snapshot_is_found_offline_and_half_of_one_is_refused(cache, tmp_path, shards):
    files = whole_model(tmp_path / "files", shards=shards)
    snapshot = cache_model(cache, NAME, files, OLD)
    assert hub.model_snapshot(f"{NAME}@{OLD}") == snapshot
    last = sorted(snapshot.glob("model*.safetensors"))[-1]
    last.unlink()
    with pytest.raises(UserError, match=last.name) as refused:
        hub.model_snapshot(f"{NAME}@{OLD}")
    assert refused.value.exit_code == NETWORK and OLD in refused.value.problem


@pytest.fixture
def online(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The hub has two commits of a model in three shards; the cache has the older one."""
    commits = {}
    for at, config in ((OLD, "{}"), (NEW, '{"newer": 1}')):
        commits[at] = whole_model(tmp_path / at, shards=3, config=config)
    cache_model(cache, NAME, commits[OLD], OLD)
    (tmp_path / "pickled").mkdir()
    shutil.copy(commits[NEW] / "config.json", tmp_path / "pickled")
    with served({NAME: commits, "org/pickled": {NEW: tmp_path / "pickled"}}, monkeypatch) as asked:
        yield asked


@pytest.mark.long
def test_the_pinned_commit_is_fetched_where_the_cache_has_another(online, cache):
    folder = hub.model_snapshot(f"{NAME}@{NEW}")
    assert folder == cache / "models--Qwen--Qwen2.5-1.5B-Instruct/snapshots" / NEW
    assert sorted(path.name for path in folder.iterdir()) == [
        "added_tokens.json",
        "config.json",
        "generation_config.json",
        *[f"model-{n}-of-3.safetensors" for n in (1, 2, 3)],
        hub.INDEX,
        "tokenizer.model",
    ]
    assert json.loads((folder / "config.json").read_bytes()) == {"newer": 1}
    # but for what huggingface_hub asks once a day for itself
    assert all(NEW in path for path in online if not path.startswith("/api/agent-harnesses"))


@pytest.mark.long
def test_the_newest_commit_is_asked_for_once_and_then_pinned(online):
    source = find_model(NAME, Path())
    assert source.digest == NEW
    assert any("/main/" in path for path in online)
    online.clear()
    hub.model_snapshot(source.base)
    assert online and not any("/main/" in path for path in online)


@pytest.mark.parametrize(("small", "told"), [(5_500, True), (9_000, False), (None, False)])
def test_a_mirror_in_4_bit_is_named_where_it_is_less_than_half(small, told, monkeypatch, capsys):
    """Of weights alone: Mistral's have a second copy in one file."""

    def model_info(self: object, name: str, files_metadata: bool) -> SimpleNamespace:
        if name != NAME and small is None:
            raise OSError("not there")
        assert name in (NAME, "unsloth/Qwen2.5-1.5B-Instruct-bnb-4bit")
        size = {NAME: 7_600}.get(name, (small or 0) / 2)
        names = ("model-1-of-2.safetensors", "model-2-of-2.safetensors", "consolidated.safetensors")
        files = [SimpleNamespace(rfilename=file, size=size * 1e6) for file in names]
        return SimpleNamespace(siblings=files)

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", model_info)
    hub._name_smaller_mirror(f"{NAME}@{NEW}")
    said = capsys.readouterr().err
    assert ("15.2 GB" in said and "5.5 GB" in said) == told and bool(said) == told
