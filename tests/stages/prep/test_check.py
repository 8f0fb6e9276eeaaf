"""What prep refuses, and from which number on; what its plan holds."""

import io
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from support.samples import DATA

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import REJECTS, UserError
from agentlite.core.reject_codes import CODES
from agentlite.data.rejects import Reject
from agentlite.stages import prep
from agentlite.stages.prep import _run_key, check
from agentlite.stages.prep.select import Selection
from agentlite.workspace.lookup import Plan, RunTarget

FILE = Path("rejects.jsonl")


def ingested(read: int, *codes: str, **left_out: int) -> Any:
    rejects = [Reject(f"a.jsonl:{n}", b"", code, f"reason {n}") for n, code in enumerate(codes, 1)]
    counted = Counter(left_out)
    return SimpleNamespace(rows_read=read, rejects=rejects, left_out=lambda ends: counted)


@pytest.mark.parametrize(
    ("read", "count", "share", "refused"),
    [
        (100, 0, 0.0, False),
        (100, 1, 0.0, False),  # one bad row never stops a run
        (100, 2, 0.0, True),
        (100, 2, 0.02, False),
        (100, 3, 0.02, True),
        (100, 29, 0.29, False),
        (100, 29, 0.28, True),
        (2, 2, 1.0, False),
        (3, 2, 0.5, True),
        (4, 2, 0.5, False),
    ],
)
def test_more_rejects_than_the_share_allows_are_refused(read, count, share, refused):
    settings = PrepSettings(sources=("a",), max_rejects=share)
    given = ingested(read, *["E206"] * count)
    if not refused:
        check.refuse_rejects(settings, given, FILE)
        return
    with pytest.raises(UserError, match=f"{count} of {read} rows rejected, {share:.0%}") as caught:
        check.refuse_rejects(settings, given, FILE)
    assert (caught.value.exit_code, caught.value.location) == (REJECTS, "rejects.jsonl")
    allowed = float(caught.value.fix.rpartition(" ")[2].rstrip("."))
    check.refuse_rejects(PrepSettings(sources=("a",), max_rejects=allowed), given, FILE)


@pytest.mark.parametrize("code", ["E104", "E105"])
def test_a_file_that_may_have_lost_rows_is_refused_unless_all_rejects_are_allowed(code):
    given = ingested(100, code)
    with pytest.raises(UserError, match="reason 1: rows may be missing") as caught:
        check.refuse_rejects(PrepSettings(sources=("a",), max_rejects=0.99), given, FILE)
    assert (caught.value.exit_code, caught.value.location) == (REJECTS, "a.jsonl:1")
    check.refuse_rejects(PrepSettings(sources=("a",), max_rejects=1.0), given, FILE)


def test_where_nothing_is_left_the_commonest_reason_says_what_to_do():
    def selection(left: int, given: Any) -> Selection:
        given.traits = [Any] * left
        context: Any = SimpleNamespace(settings=PrepSettings())
        return Selection(given, context, [], None)

    check.refuse_nothing_left(selection(1, ingested(1)), FILE)
    with pytest.raises(UserError, match="no row left of 2 read") as caught:
        check.refuse_nothing_left(selection(0, ingested(2, "E206", "E206")), FILE)
    assert (caught.value.exit_code, caught.value.location) == (REJECTS, "rejects.jsonl")
    common, seldom = [*CODES][:2]
    nothing = selection(0, ingested(4, "E206", **{common: 2, seldom: 1}))
    with pytest.raises(UserError, match=f"4 read: 1 rejected, {common} 2, {seldom} 1") as caught:
        check.refuse_nothing_left(nothing, FILE)
    assert caught.value.fix == CODES[common].hint and caught.value.exit_code == REJECTS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": ()}, "no SOURCE is given"),
        ({"format": ("opnai",)}, "opnai"),
        ({"mix": ("general",)}, "general"),
        ({"task_weights": {"nothing": 1.0}}, "nothing"),
        ({"coreset_strategy": "hybrid"}, "a coreset needs a strategy and a size"),
        ({"coreset_target_size": 3}, "a coreset needs a strategy and a size"),
    ],
    ids=str,
)
def test_a_mistake_in_a_setting_is_refused_before_a_row_is_read(changes, message, tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(b"{}\n")
    given = {"sources": (str(tmp_path / "rows.jsonl"),), **changes}
    with pytest.raises(UserError, match=message) as caught:
        check.expand_settings(PrepSettings(**given))
    assert caught.value.exit_code == 2 and caught.value.fix


def test_sources_are_the_files_of_folders_and_the_categories_of_bfcl(tmp_path):
    for name in ("b.jsonl", "a.jsonl"):
        (tmp_path / name).write_bytes(b"{}\n")
    sources = ("bfcl:simple_python,multiple", str(tmp_path), "-")
    settings = check.expand_settings(PrepSettings(sources=sources))
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    assert settings.sources == ("bfcl:simple_python", "bfcl:multiple", *files, "-")


@pytest.mark.parametrize("option", ["mix", "format"])
def test_a_source_that_is_only_named_in_an_option_is_refused(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    for name in ("data.jsonl", "chat.jsonl"):
        Path(name).write_bytes(b"{}\n")
    value = {"mix": "general=chat.jsonl:0.1", "format": "chat.jsonl=openai"}[option]
    with pytest.raises(UserError, match="which is not read") as found:
        check.expand_settings(PrepSettings(sources=("data.jsonl",), **{option: (value,)}))
    assert "agentlite prep ... chat.jsonl" in found.value.fix
    assert found.value.location == f"--{option}"


def test_a_run_in_a_replay_buffer_is_known_by_contents_and_not_by_names():
    settings = {"seed": 0, "sources": ["a"], "holdout": [], "replay": "b", "rows": "jsonl"}
    plan = Plan("prep", settings, {"a": "1", "b": "2"})
    key = _run_key(plan)
    renamed = {**settings, "sources": ["c"], "replay": "d", "rows": "parquet", "holdout": ["e"]}
    assert _run_key(Plan("prep", renamed, {"x": "2", "y": "1"})) == key
    assert _run_key(replace(plan, settings={**settings, "seed": 1})) != key
    assert _run_key(replace(plan, inputs={"a": "1", "b": "3"})) != key


# --- the inputs of the plan: every file that the rows depend on, by its content ---


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
    given = {**several, "model": "smollm2-135m", **changes}
    settings = check.expand_settings(PrepSettings(**given))
    return prep._make_job(settings, {}, RunTarget(folder, "prep"), io.BytesIO()).plan.inputs


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
    monkeypatch.setattr(prep.lookup, "find_finished_stage", lambda *_: None)
    monkeypatch.setattr(prep, "retriever_digest", lambda *_: "of the index")
    assert inputs(tmp_path, files, retrieve=3)["retriever"] == "of the index"
    assert "retriever" not in inputs(tmp_path, files)
