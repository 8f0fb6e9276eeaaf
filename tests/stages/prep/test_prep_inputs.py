"""The inputs in the plan of a prep: every file that its rows depend on, by its content."""

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.generated_run import stage
from support.samples import DATA

from agentlite.config.settings import PrepSettings
from agentlite.core.row_files import write_rows
from agentlite.data.rejects import Reject, reject_row
from agentlite.stages import prep
from agentlite.stages.prep import check
from agentlite.workspace.run_folder import RunTarget

MODEL = "smollm2-135m"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    names = {
        "sources": DATA / "weather.jsonl",
        "tools": DATA / "formats/sage_tools.jsonl",
        "holdout": DATA / "formats/openai.jsonl",
    }
    found = {}
    for name, path in names.items():
        found[name] = Path(shutil.copy(path, tmp_path / f"{name}.jsonl"))
    found["retry_rejects"] = tmp_path / "rejects.jsonl"
    reject = Reject(f"{found['sources']}:1", b"{}", "E206", "no name")
    write_rows(found["retry_rejects"], [reject_row(reject)])
    return found


def inputs(folder: Path, files: dict[str, Path], **changes: Any) -> dict[str, str]:
    several = {name: (str(files[name]),) for name in ("sources", "tools", "holdout")}
    given = {**several, "retry_rejects": str(files["retry_rejects"]), "model": MODEL, **changes}
    settings = check.checked(PrepSettings(**given), folder / "prep")
    _, plan = prep._plan(settings, RunTarget(folder, "prep"), io.BytesIO(), None)
    return plan.inputs


@pytest.mark.parametrize("name", ["sources", "tools", "holdout", "retry_rejects"])
def test_other_bytes_in_a_file_change_its_own_input_alone(
    name: str, files: dict[str, Path], tmp_path: Path
) -> None:
    first = inputs(tmp_path, files)
    files[name].write_bytes(files[name].read_bytes() + b"\n")
    again = inputs(tmp_path, files)
    [changed] = [key for key in first if first[key] != again[key]]
    assert str(files[name]) in changed or changed == name


def test_a_shard_does_not_look_at_what_is_held_out(files: dict[str, Path], tmp_path: Path) -> None:
    whole, shard = inputs(tmp_path, files), inputs(tmp_path, files, shard="1/2")
    assert whole.keys() - shard.keys() == {f"holdout {files['holdout']}"}


def test_the_retriever_is_an_input_where_tools_are_retrieved(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prep, "digest_of", lambda *_: "of the index")
    assert inputs(tmp_path, files, retrieve=3)["retriever"] == "of the index"
    assert "retriever" not in inputs(tmp_path, files)


def test_the_model_whose_losses_count_is_an_input(files: dict[str, Path], tmp_path: Path) -> None:
    settings = {"model": MODEL, "data": "prep", "protocol": "hermes"}
    found = []
    for weights in ({"a": 1}, {"a": 2}):
        (tmp_path / "sft" / "adapter").mkdir(parents=True, exist_ok=True)
        rows = {"adapter/adapter_model.safetensors": [weights]}
        stage(tmp_path / "sft", {"command": "sft", "settings": settings, "inputs": {}}, rows, {})
        coreset = {"coreset_strategy": "loss_topk", "coreset_target_size": 3}
        found.append(inputs(tmp_path, files, coreset_model="sft", **coreset))
    first, second = found
    assert [key for key in first if first[key] != second[key]] == ["coreset_model"]
    assert first["coreset_model"] != first["model"]
