"""Which model a name means, and which digest stands for it: no model is loaded."""

from pathlib import Path

import pytest
from support.hub_cache import cache_model, use_cache

from agentlite.core.errors import MODEL, OTHER_PLAN, UserError
from agentlite.workspace import input_files
from agentlite.workspace.lookup import Plan, find_checkpoint, find_model
from agentlite.workspace.stage_folder import open_stage


def whole_model(folder: Path, weights: bytes = b"weights") -> Path:
    folder.mkdir(parents=True)
    for name, content in {
        "config.json": b"{}",
        "model.safetensors": weights,
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b"{}",
        "chat_template.jinja": b"x",
    }.items():
        (folder / name).write_bytes(content)
    return folder


def train(folder: Path, model: str, made: str, weights: bytes = b"adapter") -> None:
    digest = find_model(model, folder.parent).digest
    plan = Plan("sft", {"model": model}, {"model": digest})
    with open_stage(folder, plan, force=False) as stage:
        if made:
            if made == "model":
                whole_model(folder / made, weights)
            else:
                (folder / made).mkdir()
                (folder / made / "adapter_model.safetensors").write_bytes(weights)
        files = [path.relative_to(folder).as_posix() for path in folder.glob("*/*")]
        stage.finish(files, {})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace in the current folder; beside it the folder of a base model."""
    whole_model(tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def test_a_stage_of_the_workspace_comes_before_a_folder_of_that_name(run):
    whole_model(run.parent / "sft", b"others")
    folder = find_model("sft", run)
    assert (folder.base, folder.adapter) == (str(run.parent / "sft"), None)
    train(run / "sft", "base", "adapter")
    found = find_model("sft", run)
    assert (found.name, found.base) == ("sft", str(run.parent / "base"))
    assert found.adapter == run / "sft/adapter"


def test_a_checkpoint_is_a_model_by_its_step_and_only_when_it_is_whole(run):
    train(run / "sft", "base", "adapter")
    for step, is_whole in ((50, True), (90, False)):
        made = run / f"sft/checkpoints/checkpoint-{step}"
        made.mkdir(parents=True)
        (made / "adapter_model.safetensors").write_bytes(b"of step %d" % step)
        if is_whole:
            (made / "manifest.json").write_bytes(b"{}")
    found, trained = find_checkpoint("sft@50", run), find_model("sft", run)
    assert found
    assert (found.base, found.adapter) == (trained.base, run / "sft/checkpoints/checkpoint-50")
    assert found.digest != trained.digest
    with pytest.raises(UserError, match="no checkpoint of step 90"):
        find_checkpoint("sft@90", run)


def test_an_adapter_on_an_adapter_stands_on_the_weights_below_both(run):
    train(run / "sft", "base", "adapter", b"one")
    train(run / "dpo", "sft", "adapter", b"two")
    base, sft, dpo = (find_model(name, run) for name in ("base", "sft", "dpo"))
    assert dpo.base == base.base and dpo.adapter == run / "dpo/adapter"
    assert len({base.digest, sft.digest, dpo.digest}) == 3
    assert sft.digest.startswith(base.digest[:16] + "+")


def test_a_stage_that_trained_all_weights_is_a_base_of_its_own(run):
    train(run / "whole", "base", "model", b"all")
    found = find_model("whole", run)
    assert (found.base, found.adapter) == (str(run / "whole/model"), None)


FILES = (
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "config.json",
)


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_decides_what_a_model_says_is_in_its_digest(run, name):
    folder = run.parent / "base"
    before = find_model("base", run).digest
    assert find_model("base", run).digest == before
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(b'{"a": 1}' if content == b"{}" else content + b"!")
    assert find_model("base", run).digest != before
    (folder / name).write_bytes(content)
    (folder / "README.md").write_bytes(b"a card")
    assert find_model("base", run).digest == before
    (folder / "more.safetensors").write_bytes(b"more")
    assert find_model("base", run).digest != before


@pytest.mark.parametrize("below", ["base", "sft"])
def test_an_adapter_is_refused_on_other_weights_than_those_it_was_trained_on(run, below):
    train(run / "sft", "base", "adapter")
    if below == "sft":
        train(run / "dpo", "sft", "adapter", b"two")
    name = "sft" if below == "base" else "dpo"
    find_model(name, run)
    (run.parent / "base/model.safetensors").write_bytes(b"other weights")
    with pytest.raises(UserError, match="was trained on other weights") as refused:
        find_model(name, run)
    assert refused.value.exit_code == OTHER_PLAN


def test_a_tokenizer_of_the_hub_may_have_its_template_in_its_configuration(run, monkeypatch):
    (run.parent / "base/chat_template.jinja").unlink()
    cache_model(use_cache(run / "hub", monkeypatch), "org/name", run.parent / "base", "c" * 40)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (run / "copy").mkdir(exist_ok=True)
        input_files.copy_tokenizer("org/name", run / "copy")
        assert (run / "copy" / name).read_bytes() == b"{}"


def test_a_file_is_no_model_and_a_pickle_is_never_one(run):
    for name in ("m.gguf", "m.pt"):
        Path(name).write_bytes(b"")
        with pytest.raises(UserError, match="there is no model") as refused:
            find_model(name, run)
        assert refused.value.exit_code == MODEL


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_a_configuration_that_cannot_be_read_is_refused(run, text):
    (run.parent / "base/config.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="is not JSON") as refused:
        find_model("base", run)
    assert refused.value.exit_code == MODEL and refused.value.location.endswith("config.json")


@pytest.mark.parametrize(
    ("left", "message"),
    [
        ((), "holds no config.json"),
        (("config.json",), r"holds no weights \(\*\.safetensors\)"),
        (("model.safetensors",), "holds no config.json"),
        (("config.json", "model.bin"), "its weights are a pickle"),
        (("config.json", "adapter_config.json", "model.safetensors"), "is an adapter"),
    ],
)
def test_a_folder_that_is_no_whole_model_is_refused(run, left, message):
    (run.parent / "half").mkdir()
    for name in left:
        (run.parent / "half" / name).write_bytes(b"{}")
    with pytest.raises(UserError, match=message) as refused:
        find_model("half", run)
    assert refused.value.exit_code == MODEL


def test_an_adapter_whose_base_is_gone_says_so(run):
    train(run / "sft", "base", "adapter")
    for path in (run.parent / "base").iterdir():
        path.unlink()
    (run.parent / "base").rmdir()
    with pytest.raises(UserError, match="is an adapter on base, which cannot be found") as refused:
        find_model("sft", run)
    assert refused.value.exit_code == MODEL and refused.value.location == str(run / "sft")
