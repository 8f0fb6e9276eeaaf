"""Fixtures for all tests: the real tokenizer, templates, a dialog, tiny models, a workspace."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # huggingface_hub reads it when it is imported

import gc
from pathlib import Path

import pytest
import tiny
from hypothesis import settings
from support import no_disk_waits, processes, shared_tokenizers, without_torch
from support.examples import ALL, QUICK, examples
from support.samples import OSLO, TIME, WEATHER, WEATHER_TOOL, with_template

from agentlite.core.records import Call, Message, Record
from agentlite.rendering.template import Template
from agentlite.workspace.input_files import load_template

# No deadline: the first example may import much. Only --all draws examples that nobody has seen: a
# change is not refused for what it did not touch.
settings.register_profile(
    "agentlite", deadline=None, max_examples=examples(100), derandomize=not ALL
)
settings.load_profile("agentlite")


TORCH_FIXTURES = {"tiny_model", "tiny_encoder"}
if QUICK:
    without_torch.refuse()
no_disk_waits.install()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu-model", default="smollm2-135m", help="a folder: what tests/gpu train [smollm2-135m]"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the tests that need torch: those that use a model, tiny or real, or say so themselves.
    A quick run leaves them out, and the long ones. Otherwise their files come first, since they
    take longest, and before them the one of the README, which trains a real model.
    """
    for item in items:
        tiny = TORCH_FIXTURES & {*getattr(item, "fixturenames", ())}
        if tiny or item.get_closest_marker("slow"):
            item.add_marker("torch")
        if " at 0x" in item.name:
            raise pytest.UsageError(f"{item.nodeid}: an id that differs in each process")
    torch = [item for item in items if item.get_closest_marker("torch")]
    files = {item.path for item in torch}
    if QUICK:
        left_out = {*torch, *(item for item in items if item.get_closest_marker("long"))}
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: (item.path.name != "test_readme.py", item.path not in files))


def pytest_collection_finish() -> None:
    gc.freeze()  # or each search of the memory goes through twenty thousand tests


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    processes.warm.wanted = "torch" if item.get_closest_marker("torch") else "light"


@pytest.fixture
def disk_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every fsync and rename of the test, in order: `fsync NAME`, `rename OLD NEW`."""
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(handle: int) -> None:
        calls.append(f"fsync {Path(f'/proc/self/fd/{handle}').resolve().name}")
        fsync(handle)

    def record_replace(old: Path, new: Path) -> None:
        calls.append(f"rename {Path(old).name} {Path(new).name}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    return calls


@pytest.fixture(scope="session")
def smollm2() -> Template:
    return load_template("smollm2-135m")


@pytest.fixture(scope="session")
def templates(smollm2: Template) -> dict[str, Template]:
    """One that takes no tools, one that takes them, one that rewrites its history."""
    return {
        "smollm2": smollm2,
        "tools": with_template(smollm2, "tools"),
        "forgets": with_template(smollm2, "forgets"),
    }


@pytest.fixture
def dialog() -> Record:
    """System, user, call with a thought, result, answer, and a second question answered at once."""
    call = Call("get_weather", {"city": "Oslo"}, "call_0")
    return Record(
        messages=(
            Message("system", "Be brief."),
            Message("user", "Is it wet in Oslo?"),
            Message("assistant", "I must look it up.", calls=(call,)),
            Message("tool", '{"rain_mm": 4}', call_id="call_0"),
            Message("assistant", "Yes, about 4 mm."),
            Message("user", "Are you sure?"),
            Message("assistant", "Quite sure."),
        ),
        tools=(WEATHER, TIME),
        task="multi_step_planning",
    )


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two random layers under the real tokenizer: for what does not depend on the weights."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny-model"
    tiny.make_model(folder)
    shared_tokenizers.share()
    gc.freeze()  # every trainer searches the memory, of which the libraries are the most
    return folder


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two random layers under the tokenizer of the embedded model for texts."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny-encoder"
    tiny.make_encoder(folder)
    return folder


@pytest.fixture(scope="session")
def caller(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose `sft` knows one dialog by heart: for Oslo it calls get_weather, and given 4
    mm says yes.
    """
    import json

    import agentlite

    run = tmp_path_factory.mktemp("caller")
    call = {
        "id": "a",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
    }
    row = {
        "messages": [
            OSLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "4 mm"},
            {"role": "assistant", "content": "Yes, 4 mm."},
        ],
        "tools": [WEATHER_TOOL],
    }
    (run / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    options = {"model": str(tiny_model), "protocol": "hermes", "dev": 0.0, "test": 0.0}
    agentlite.prep(str(run / "rows.jsonl"), run=str(run), **options)
    steps = {"max_steps": 60, "save_steps": 60, "batch_size": 1, "gradient_accumulation": 1}
    rate = {"learning_rate": 1e-2, "lr_scheduler": "constant", "warmup_ratio": 0.0}
    agentlite.sft(run=str(run), full=True, **steps, **rate)
    return run
