"""Which sentence encoder a name means, and which digest stands for it: no model is loaded."""

import json
from pathlib import Path

import pytest
from support.hub_cache import cache_model, use_cache

from agentlite.core.errors import MODEL, UserError
from agentlite.workspace.lookup import Plan, RunTarget, find_encoder
from agentlite.workspace.stage_folder import open_stage

KIND = "sentence_transformers.models.Transformer"


def encoder(folder: Path, weights: bytes = b"w") -> Path:
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "modules.json").write_text(json.dumps([{"type": KIND}]), encoding="utf-8")
    (folder / "1_Pooling/config.json").write_text("{}", encoding="utf-8")
    return folder


def retriever(folder: Path, trained: bool, model: str = "base") -> None:
    plan = Plan("retriever", {"model": model}, {"model": find_encoder(model, folder).digest})
    with open_stage(folder, plan, force=False) as stage:
        (folder / "index.json").write_bytes(b"{}")
        files = ["index.json"]
        if trained:
            encoder(folder / "model", b"trained")
            files += ["model/model.safetensors", "model/modules.json"]
        stage.finish(files, {})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    encoder(tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def test_a_stage_comes_before_a_folder_and_a_folder_before_an_alias(run):
    encoder(run.parent / "all-minilm-l6-v2", b"others")
    found = find_encoder("all-minilm-l6-v2", run)
    assert found.base == str(run.parent / "all-minilm-l6-v2")
    retriever(run / "all-minilm-l6-v2", trained=True)
    found = find_encoder("all-minilm-l6-v2", run)
    assert found.base == str(run / "all-minilm-l6-v2/model") and found.adapter is None


def test_a_stage_that_only_made_an_index_stands_for_the_model_it_used(run):
    retriever(run / "index", trained=False)
    assert find_encoder("index", run).base == str(run.parent / "base")
    (run.parent / "base/model.safetensors").write_bytes(b"other")
    with pytest.raises(UserError, match="was made with base, which has changed since") as refused:
        find_encoder("index", run)
    assert refused.value.exit_code == MODEL and "--force" in refused.value.fix


@pytest.mark.parametrize("name", ["model.safetensors", "modules.json", "1_Pooling/config.json"])
def test_every_weight_and_every_configuration_is_in_the_digest(run, name):
    before = find_encoder("base", run).digest
    assert find_encoder("base", run).digest == before
    path = run.parent / "base" / name
    path.write_bytes(path.read_bytes() + b" ")
    assert find_encoder("base", run).digest != before


def layers(kind: str) -> bytes:
    return json.dumps([{"type": kind}]).encode()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("modules.json", layers("sentence_transformers_evil.Layer"), "not part of sentence-trans"),
        ("modules.json", layers("x.sentence_transformers.Layer"), "not part of sentence-transform"),
        ("modules.json", b"{", "cannot be read"),
        ("modules.json", b"[{}]", "cannot be read"),
        ("modules.json", None, r"holds no modules\.json"),
        ("model.safetensors", None, r"holds no \*\.safetensors"),
    ],
)
def test_a_folder_that_is_no_encoder_or_holds_code_is_refused(run, name, content, problem):
    find_encoder("base", run)
    (run.parent / "base" / name).unlink()
    if content is not None:
        (run.parent / "base" / name).write_bytes(content)
    with pytest.raises(UserError, match=problem) as refused:
        find_encoder("base", run)
    assert refused.value.exit_code == MODEL


def test_a_stage_keeps_the_commit_of_its_encoder_and_a_new_one_takes_the_newest(run, monkeypatch):
    cache = use_cache(run / "hub", monkeypatch)
    (run.parent / "base/config.json").write_text("{}", encoding="utf-8")
    for letter in "ab":
        cache_model(cache, "org/name", run.parent / "base", letter * 40)
    plan = Plan("retriever", {"model": "org/name"}, {"model": "a" * 40})
    with open_stage(run / "index", plan, force=False) as stage:
        assert (
            find_encoder("org/name", run, RunTarget(run, "index").old_plan).base
            == f"org/name@{'a' * 40}"
        )
        assert find_encoder("org/name", run, RunTarget(run, "other").old_plan).digest == "b" * 40
        stage.finish([], {})
    assert find_encoder("index", run).digest == "a" * 40


def test_an_encoder_of_the_hub_that_names_code_is_refused(run, monkeypatch):
    config = '{"_attn_implementation": "someone/kernel"}'
    (run.parent / "base/config.json").write_text(config, encoding="utf-8")
    cache_model(use_cache(run / "hub", monkeypatch), "org/name", run.parent / "base", "c" * 40)
    with pytest.raises(UserError, match="never runs a model's own code") as refused:
        find_encoder("org/name", run)
    assert refused.value.exit_code == MODEL
