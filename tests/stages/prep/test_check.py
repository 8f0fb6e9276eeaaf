"""What prep refuses, and from which number on; settings that do nothing are noted."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import OTHER_PLAN, REJECTS, UserError
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import write_json, write_rows
from agentlite.data.curation.select import Selection
from agentlite.data.rejects import Reject
from agentlite.stages.prep import _run_key, check
from agentlite.stages.prep import provenance as origin
from agentlite.workspace import run_folder
from agentlite.workspace.run_folder import Plan, open_stage

FILE = Path("rejects.jsonl")


def ingested(read: int, *codes: str, **left_out: int) -> Any:
    rejects = [Reject(f"a.jsonl:{n}", b"", code, f"reason {n}") for n, code in enumerate(codes, 1)]
    return SimpleNamespace(read=read, rejects=rejects, left_out=Counter(left_out))


@pytest.mark.parametrize(
    ("read", "count", "share", "refused"),
    [
        (100, 0, 0.0, False),
        (100, 1, 0.0, False),  # one bad row never stops a run
        (100, 2, 0.0, True),
        (100, 2, 0.02, False),
        (100, 3, 0.02, True),
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


def test_too_many_long_rows_name_the_length_that_keeps_them_all():
    given = ingested(100, *["E206"] * 3)
    reasons = ["2100 tokens, max_length is 2048", "no JSON", "5130 tokens, max_length is 2048"]
    given.rejects[:] = [
        one._replace(reason=reason) for one, reason in zip(given.rejects, reasons, strict=True)
    ]
    with pytest.raises(UserError) as caught:
        check.refuse_rejects(PrepSettings(sources=("a",), max_rejects=0.0), given, FILE)
    assert caught.value.fix.startswith("2 of them are too long: --max-length 5130 keeps them all, ")
    assert "--max-rejects 0.03" in caught.value.fix


@pytest.mark.parametrize("code", ["E104", "E105"])
def test_a_file_that_may_have_lost_rows_is_refused_unless_all_rejects_are_allowed(code):
    given = ingested(100, code)
    with pytest.raises(UserError, match="reason 1: rows may be missing") as caught:
        check.refuse_rejects(PrepSettings(sources=("a",), max_rejects=0.99), given, FILE)
    assert (caught.value.exit_code, caught.value.location) == (REJECTS, "a.jsonl:1")
    check.refuse_rejects(PrepSettings(sources=("a",), max_rejects=1.0), given, FILE)


def test_where_nothing_is_left_the_commonest_reason_says_what_to_do():
    check.refuse_nothing_left(ingested(1), Selection([0]), FILE)
    with pytest.raises(UserError, match="no row left of 2 read") as caught:
        check.refuse_nothing_left(ingested(2, "E206", "E206"), Selection([]), FILE)
    assert (caught.value.exit_code, caught.value.location) == (REJECTS, "rejects.jsonl")
    common, seldom = [*CODES][:2]
    ends: Any = {0: SimpleNamespace(code=common), 1: SimpleNamespace(code=seldom)}
    given = ingested(4, "E206", **{common: 1})
    with pytest.raises(UserError, match=f"4 read: 1 rejected, {common} 2, {seldom} 1") as caught:
        check.refuse_nothing_left(given, Selection([], ends), FILE)
    assert caught.value.fix == CODES[common].hint and caught.value.exit_code == REJECTS


def test_a_file_that_changes_while_it_is_read_is_refused():
    check.refuse_changed({"a": "1", "b": "2"}, {"a": "1"})
    with pytest.raises(UserError, match="was changed while it was read") as caught:
        check.refuse_changed({"a": "1", "b": "2"}, {"a": "1", "b": "3"})
    assert (caught.value.exit_code, caught.value.location) == (OTHER_PLAN, "b")


NOTES = [
    ({"continual_buffer_size": 3}, "continual_buffer_size does nothing without replay"),
    ({"continual_replay_ratio": 0.5}, "continual_replay_ratio does nothing without replay"),
    ({"join_tokens": 9}, "join_tokens does nothing without join"),
    ({"retrieve_by": "bm25"}, "retrieve_by does nothing without retrieve"),
    ({"retriever": "r"}, "retriever does nothing without retrieve"),
    ({"near": 0.5}, "near does nothing without --duplicates near or --holdout"),
    ({}, ""),
    ({"join_tokens": 9, "join": 2}, ""),
    ({"near": 0.5, "duplicates": ("near",)}, ""),
    ({"retriever": "r", "retrieve": 3}, ""),
    ({"continual_buffer_size": 3, "replay": "b"}, ""),
]


def test_a_setting_that_does_nothing_alone_is_noted(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_bytes(b"{}\n")
    for changes, note in NOTES:
        settings = PrepSettings(sources=(str(tmp_path / "rows.jsonl"),), **changes)
        assert check.checked(settings) == settings
        assert capsys.readouterr().err == (f"prep: {note}\n" if note else "")


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
        check.checked(PrepSettings(**given))
    assert caught.value.exit_code == 2 and caught.value.fix


def test_sources_are_the_files_of_folders_and_the_categories_of_bfcl(tmp_path):
    for name in ("b.jsonl", "a.jsonl"):
        (tmp_path / name).write_bytes(b"{}\n")
    sources = ("bfcl:simple_python,multiple", str(tmp_path), "-")
    settings = check.checked(PrepSettings(sources=sources))
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    assert settings.sources == ("bfcl:simple_python", "bfcl:multiple", *files, "-")


@pytest.mark.parametrize("option", ["mix", "format"])
@pytest.mark.parametrize(
    ("named", "fix"),
    [
        ("../chat.jsonl", "Name ../chat.jsonl as a source too: agentlite prep ... ../chat.jsonl"),
        ("../more", "Name ../more as a source too: agentlite prep ... ../more"),
        ("bfcl:multiple", "Name bfcl:multiple as a source too: agentlite prep ... bfcl:multiple"),
        ("../dta.jsonl", "Did you mean '../data.jsonl'?"),
    ],
)
def test_a_source_that_is_only_named_in_an_option_is_to_be_named_as_one(
    tmp_path, monkeypatch, option, named, fix
):
    for name in ("data.jsonl", "chat.jsonl", "more/chat.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    value = {"mix": f"general={named}:0.1", "format": f"{named}=openai"}[option]
    with pytest.raises(UserError, match="which is not read") as found:
        check.checked(PrepSettings(sources=("../data.jsonl",), **{option: (value,)}))
    assert (found.value.fix, found.value.location) == (fix, f"--{option}")


def test_the_packages_that_a_setting_needs_are_looked_for_before_a_row_is_read(
    tmp_path, monkeypatch
):
    looked: list[str] = []
    for name in ("check_parquet", "check_packages", "refuse_unwritable", "need"):
        monkeypatch.setattr(check, name, lambda *_, name=name, **__: looked.append(name))
    for changes, names in (
        ({}, []),
        ({"rows": "parquet"}, ["check_parquet"]),
        ({"retrieve": 3}, ["check_packages"]),
        ({"workers": "ray"}, ["need"]),
        ({"workers": 2}, []),
        ({"replay": "b"}, ["refuse_unwritable"]),
    ):
        looked.clear()
        check.refuse_missing_packages(PrepSettings(sources=("a",), **changes))
        assert looked == names, changes


def test_a_run_in_a_replay_buffer_is_known_by_contents_and_not_by_names():
    settings = {"seed": 0, "sources": ["a"], "holdout": [], "replay": "b", "rows": "jsonl"}
    key = _run_key(settings, {"a": "1", "b": "2"})
    renamed = {**settings, "sources": ["c"], "replay": "d", "rows": "parquet", "holdout": ["e"]}
    assert _run_key(renamed, {"x": "2", "y": "1"}) == key
    assert _run_key({**settings, "seed": 1}, {"a": "1", "b": "2"}) != key
    assert _run_key(settings, {"a": "1", "b": "3"}) != key


# --- where a record came from ---


MEASURED = "tokens 30, trained_tokens 4, loss 2.5"


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    folder = tmp_path / "prep"
    rows = [
        {"id": "r1", "location": "a:1", "format": "openai", "end": "kept", "split": "train"},
        {"id": "r2", "location": "a:2", "format": "openai", "end": "kept", "split": "test"},
        {
            "id": "r3",
            "location": "a:3",
            "done": {"was": "old", "cut": ["x", "y"], "personal": {"email": 2}},
            "end": "duplicate",
            "of": "r1",
        },
    ]
    with open_stage(folder, Plan("prep", {}, {}), force=False) as stage:
        write_rows(folder / "provenance.jsonl", rows)
        reject = {"location": "a:4", "code": "E206", "reason": "no name"}
        write_rows(folder / "rejects.jsonl", [reject])
        joined = {"id": "j1", "parent": "", "meta": '{"joined": ["r1", "r9"]}'}
        write_rows(folder / "train.jsonl", [joined])
        variant = {"id": "v1", "parent": "r2", "meta": '{"made": "masked", "other": 1}'}
        write_rows(folder / "test.jsonl", [variant])
        write_rows(folder / "dev.jsonl", [])
        write_json(folder / "stats.json", {})
        measures = {"id": "r2", "split": "test", "tokens": 30, "trained_tokens": 4, "loss": 2.5}
        write_rows(folder / "measures.jsonl", [measures])
        names = ["provenance.jsonl", "measures.jsonl", "rejects.jsonl", "stats.json"]
        stage.finish([*names, "train.jsonl", "test.jsonl", "dev.jsonl"], {})
    return folder


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (
            "r2",
            f"r2  from a:2, read as openai\n  kept in test\n  {MEASURED}",
        ),
        (
            "a:2",
            f"r2  from a:2, read as openai\n  kept in test\n  {MEASURED}",
        ),
        ("r1", "r1  from a:1, read as openai\n  kept in train, joined with others into j1"),
        (
            "old",
            "r3  from a:3\n  was: old\n  cut: x, y\n  personal: email 2\n  duplicate\n  see r1",
        ),
        ("a:4", "a row  from a:4\n  rejected: E206 MEANING (no name)"),
        (
            "j1",
            "j1  from prep\n  joined: r1, r9\n  made in train\n  see r1\n  see r9\n"
            "r1  from a:1, read as openai\n  kept in train, joined with others into j1",
        ),
        (
            "v1",
            "v1  from prep\n  made: masked\n  made in test\n  see r2\n"
            f"r2  from a:2, read as openai\n  kept in test\n  {MEASURED}",
        ),
    ],
)
def test_why_says_where_a_record_came_from_and_where_it_ended(prepared, query, text):
    found = "\n".join(map(origin.as_text, origin.why(prepared, query)))
    expected = text.replace("MEANING", CODES["E206"].meaning)
    if query == "j1":  # its rows are shown as they were read
        expected = expected.replace(", joined with others into j1", "")
    assert found == expected


def test_what_nobody_knows_is_refused_and_so_is_a_prep_without_provenance(prepared):
    with pytest.raises(UserError, match="no record or row is called 'r7'"):
        origin.why(prepared, "r7")
    (prepared / "done.json").unlink()
    with pytest.raises(UserError, match="is not finished"):
        origin.why(prepared, "r1")
    assert run_folder.is_stage(prepared)
