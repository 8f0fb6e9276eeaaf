"""The inputs in the plan of a prep: every file that its rows depend on, by its content."""

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.samples import DATA

from agentlite.config.settings import PrepSettings
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
    return found


def inputs(folder: Path, files: dict[str, Path], **changes: Any) -> dict[str, str]:
    several = {name: (str(files[name]),) for name in ("sources", "tools", "holdout")}
    given = {**several, "model": MODEL, **changes}
    settings = check.checked(PrepSettings(**given))
    return prep._plan(settings, {}, RunTarget(folder, "prep"), io.BytesIO()).plan.inputs


@pytest.mark.parametrize("name", ["sources", "tools", "holdout"])
def test_other_bytes_in_a_file_change_its_own_input_alone(
    name: str, files: dict[str, Path], tmp_path: Path
) -> None:
    first = inputs(tmp_path, files)
    files[name].write_bytes(files[name].read_bytes() + b"\n")
    again = inputs(tmp_path, files)
    [changed] = [key for key in first if first[key] != again[key]]
    assert str(files[name]) in changed or changed == name


def test_the_retriever_is_an_input_where_tools_are_retrieved(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prep, "digest_of", lambda *_: "of the index")
    assert inputs(tmp_path, files, retrieve=3)["retriever"] == "of the index"
    assert "retriever" not in inputs(tmp_path, files)
