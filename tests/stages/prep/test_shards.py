"""prep --shard and --gather: the bytes of one process, whatever is chosen over all rows, and errors
that name the place, the cause and a command that helps.
"""

import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples, in_turn
from support.malformed_rows import KINDS, call, line, row
from support.samples import DATA

from agentlite import prep
from agentlite.cli.main import group
from agentlite.config.settings import PrepSettings, fields
from agentlite.core.errors import OTHER_PLAN, REJECTS, UserError
from agentlite.data import taken_rows
from agentlite.data.formats import read_lines
from agentlite.data.ingest_row import IngestContext, take
from agentlite.rendering import choose
from agentlite.rendering.template import Template
from agentlite.stages.prep import shards
from agentlite.workspace import run_folder
from agentlite.workspace.folder_lock import held
from agentlite.workspace.model_source import copy_tokenizer
from agentlite.workspace.run_folder import Result

MODEL = "smollm2-135m"
CITIES = ("Oslo", "Bergen", "Lagos", "Quito", "Hanoi", "Turin", "Perth", "Dakar", "Kyoto", "Lille")


def asked(number: int, **more: Any) -> dict[str, Any]:
    city = CITIES[number % len(CITIES)]
    said = f"Do I have to reckon with rain in {city} when I travel there on day {number}?"
    messages = row(calls=[call(json.dumps({"city": city, "days": number}))])["messages"]
    return row(messages=[{"role": "user", "content": said}, *messages[1:]], **more)


def chat(number: int) -> dict[str, Any]:
    said = (
        f"{CITIES[number % 10]} or {CITIES[number // 10]}, which of the two is the older, {number}?"
    )
    return {
        "messages": [
            {"role": "user", "content": said},
            {"role": "assistant", "content": f"I cannot say, {number}."},
        ]
    }


def write(path: Path, rows: list[Any]) -> str:
    path.write_bytes(
        b"".join(
            (one if isinstance(one, bytes) else json.dumps(one, ensure_ascii=False).encode())
            + b"\n"
            for one in rows
        )
    )
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Calls, with copies, near copies, contradictions, rows of other shards' questions, personal
    data, long rows and broken ones; chat; tools by their ids; and what is held out.
    """
    folder = tmp_path_factory.mktemp("rows")
    rows: list[Any] = [asked(number) for number in range(24)]
    other = json.loads(json.dumps(rows[5]).replace('\\"days\\": 5', '\\"days\\": 6'))
    near = json.loads(json.dumps(rows[3]).replace("Do I have", "Do I really have"))
    mail = json.loads(json.dumps(rows[9]).replace("Do I", "I am ann.berg@posteo.net. Do I"))
    broken = [KINDS[name].bad for name in sorted(KINDS) if 0 < len(KINDS[name].bad) < 3000][:12]
    long = row(messages=row()["messages"] * 12)
    dialogs = [
        {
            "dialog_id": f"sft_{number}",
            "turns": [
                {"role": "user", "content": f"Is it wet in town {number} of the valley?"},
                {"role": "assistant", "content": "I look it up."},
                {"role": "tool", "content": "4 mm", "tool_id": "rain_001"},
                {"role": "assistant", "content": f"Yes, {number}."},
            ],
            "target_tools": ["rain_001"],
        }
        for number in range(3)
    ]
    return {
        "calls": write(folder / "calls.jsonl", [*rows, rows[0], other, near, mail, long, rows[1]]),
        "bad": write(folder / "bad.jsonl", [line(n=1), *broken, line(n=2)]),
        "chat": write(folder / "chat.jsonl", [chat(number) for number in range(18)]),
        "sage": write(folder / "sage.jsonl", dialogs),
        "tools": str(DATA / "formats" / "sage_tools.jsonl"),
        "held": write(folder / "held.jsonl", [rows[7], rows[8]]),
        "earlier": write(folder / "earlier.jsonl", [chat(number) for number in range(50, 70)]),
    }


def run(folder: Path, *sources: str, **changes: Any) -> Result:
    return prep(*sources, run=str(folder), **{"model": MODEL, **changes})


def in_shards(folder: Path, count: int, *sources: str, **changes: Any) -> list[str]:
    return [
        run(folder, *sources, shard=f"{n}/{count}", **changes).folder for n in range(1, count + 1)
    ]


def content(folder: str | Path) -> dict[str, bytes]:
    """Every file of a stage; of done.json all but the time."""
    names = {path.name for path in Path(folder).iterdir() if path.is_file()}
    found = {name: (Path(folder) / name).read_bytes() for name in names if not name.startswith(".")}
    done = json.loads(found.pop("done.json"))
    return found | {"done": json.dumps([done["outputs"], done["figures"]]).encode()}


# all that works over all rows, and what changes a row so that it does
OVER_ALL: dict[str, dict[str, Any]] = {
    "nothing": {},
    "copies": {"duplicates": ["equal", "calls", "near"], "near": 0.7},
    "contradictions": {"contradictions": "drop", "duplicates": ["none"]},
    "held out": {"holdout": ["held"]},
    "mix": {"mix": ["general=chat:0.3"]},
    "repeated": {"mix": ["general=chat:0.9*"], "task_weights": {"general": 2.0}},
    "limit": {"limit": 17, "seed": 3},
    "by loss": {
        "coreset_strategy": "loss_topk",
        "coreset_target_size": 9,
        "coreset_loss": "proxy",
    },
    "diverse": {"coreset_strategy": "diversity", "coreset_target_size": 9},
    "hybrid": {"coreset_strategy": "hybrid", "coreset_target_size": 9, "coreset_loss": "proxy"},
    "random": {"coreset_strategy": "random", "coreset_target_size": 9},
    "replay": {"replay": "buffer", "continual_replay_ratio": 0.5, "continual_buffer_size": 15},
    "variants": {"remove_tool": 0.5, "mask_names": 0.5, "distractors": 2},
    "joined": {"join": 3, "join_tokens": 900},
    "split by tools": {"split_by": ["tools"], "dev": 0.3, "test": 0.3},
    "mixture": {"protocol": "hermes=2,react", "seed": 1},
    "masked and cut": {"personal": "mask", "long_rows": "cut", "max_length": 600},
    "dropped": {
        "personal": "drop",
        "long_rows": "filter",
        "max_length": 600,
        "system": "Be brief.",
    },
    "repaired": {"repair": ["literal", "json", "encoding"]},
}


def of_files(changes: dict[str, Any], files: dict[str, str], folder: Path) -> dict[str, Any]:
    """The options with the paths of the files that they name."""
    named = dict(changes)
    if "holdout" in named:
        named["holdout"] = [files[name] for name in named["holdout"]]
    if "mix" in named:
        named["mix"] = [one.replace("chat:", f"{files['chat']}:") for one in named["mix"]]
    if "replay" in named:
        named["replay"] = str(folder / "buffer")
    return named


def refuse_other_bytes(
    files: dict[str, str], folder: Path, changes: dict[str, Any], count: int
) -> None:
    """One process, and shards that are gathered, of the same sources with the same options."""
    sources = [files[name] for name in ("calls", "chat", "bad", "sage", "tools")]
    options = {"max_rejects": 1.0, **of_files(changes, files, folder)}
    if "replay" in changes:
        run(folder / "earlier", files["earlier"], replay=options["replay"])
        shutil.copytree(folder / "buffer", folder / "kept")
    alone = content(run(folder / "alone", *sources, **options).folder)
    if "replay" in changes:
        shutil.rmtree(folder / "buffer")
        (folder / "kept").rename(folder / "buffer")
    in_shards(folder / "shards", count, *sources, **options)
    gathered = content(prep(run=str(folder / "shards"), gather="*").folder)
    assert gathered.keys() == alone.keys()
    for name, bytes_ in alone.items():
        assert gathered[name] == bytes_, name


@pytest.mark.long
@pytest.mark.parametrize("name", in_turn(3, list(OVER_ALL)))
def test_gathered_shards_are_one_process_byte_for_byte(
    name: str, files: dict[str, str], tmp_path: Path
) -> None:
    count = 1 + list(OVER_ALL).index(name) % 4
    refuse_other_bytes(files, tmp_path, OVER_ALL[name], count)


@pytest.mark.long
@settings(max_examples=examples(8))
@given(st.lists(st.sampled_from([*OVER_ALL]), min_size=2, max_size=5), st.integers(1, 5))
def test_any_options_together_give_the_bytes_of_one_process(
    files: dict[str, str], tmp_path_factory: pytest.TempPathFactory, names: list[str], count: int
) -> None:
    changes = {key: value for name in names for key, value in OVER_ALL[name].items()}
    if "coreset_target_size" in changes:
        changes.setdefault("coreset_loss", "proxy")
    refuse_other_bytes(files, tmp_path_factory.mktemp("any"), changes, count)


@pytest.mark.long
def test_parquet_edited_rejects_and_more_shards_than_rows_are_gathered_too(
    files: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    first = run(tmp_path / "first", files["bad"], max_rejects=1.0)
    edited = tmp_path / "edited.jsonl"
    rejects = (Path(first.folder) / "rejects.jsonl").read_text(encoding="utf-8").splitlines()
    one = json.loads(rejects[0])
    edited.write_text(json.dumps({"location": one["location"], "raw": line(n=40).decode()}) + "\n")
    options = {"retry_rejects": str(edited), "rows": "parquet", "max_rejects": 1.0}
    alone = content(run(tmp_path / "alone", files["bad"], **options).folder)
    count = 20
    in_shards(tmp_path / "shards", count, files["bad"], **options)
    assert content(prep(run=str(tmp_path / "shards"), gather="*").folder) == alone


@pytest.mark.long
def test_sources_are_needed_where_shards_are_read_and_not_where_they_are_gathered(
    files: dict[str, str], tmp_path: Path
) -> None:
    source = shutil.copy(files["chat"], tmp_path / "chat.jsonl")
    alone = content(run(tmp_path / "alone", str(source)).folder)
    folders = in_shards(tmp_path / "shards", 2, str(source))
    Path(source).unlink()
    gathered = prep(*reversed(folders), run=str(tmp_path / "elsewhere"), gather="*")
    assert content(gathered.folder) == alone
    again = prep(*folders, run=str(tmp_path / "elsewhere"), gather="*")
    assert (gathered.status, again.status) == ("done", "up to date")


@pytest.mark.long
def test_what_does_not_change_a_row_can_be_given_to_gather_alone(
    files: dict[str, str], tmp_path: Path
) -> None:
    options = {"limit": 9, "dev": 0.3, "seed": 5, "join": 2, "holdout": [files["held"]]}
    alone = content(run(tmp_path / "alone", files["calls"], files["chat"], **options).folder)
    folders = in_shards(tmp_path / "shards", 2, files["calls"], files["chat"], limit=3)
    gathered = prep(*folders, run=str(tmp_path / "gathered"), gather="*", **options)
    assert content(gathered.folder) == alone


@pytest.mark.long
def test_the_settings_of_the_current_folder_change_nothing_of_what_is_gathered(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = content(run(tmp_path / "alone", files["chat"], dev=0.3).folder)
    folders = in_shards(tmp_path / "shards", 2, files["chat"], dev=0.3)
    (tmp_path / "agentlite.yaml").write_text("prep: {dev: 0.5, max_length: 512}\n")
    monkeypatch.chdir(tmp_path)
    gathered = prep(*folders, run=str(tmp_path / "gathered"), gather="*")
    assert content(gathered.folder) == alone


@pytest.mark.long
def test_too_many_rejects_are_refused_over_all_shards_and_allowed_without_reading_them_again(
    files: dict[str, str], tmp_path: Path
) -> None:
    alone = content(run(tmp_path / "alone", files["bad"], max_rejects=1.0).folder)
    in_shards(tmp_path / "shards", 2, files["bad"])
    with pytest.raises(UserError, match="rows rejected") as refused:
        prep(run=str(tmp_path / "shards"), gather="*")
    assert refused.value.exit_code == REJECTS
    allowed = prep(run=str(tmp_path / "shards"), gather="*", max_rejects=1.0)
    assert content(allowed.folder) == alone


def killed_in_the_middle(folder: Path, source: str) -> None:
    """Shard 2 of 3, by a process that is killed without warning once some rows are written."""

    def deadly() -> None:
        stored, rows = taken_rows._stored, []

        def dying(one: Any) -> Any:
            rows.append(one)
            if len(rows) == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            return stored(one)

        taken_rows._stored = dying
        run(folder, source, shard="2/3")

    process = multiprocessing.get_context("fork").Process(target=deadly)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.long
def test_a_shard_that_is_killed_is_named_with_the_command_that_runs_it_again(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    alone = content(run(tmp_path / "alone", files["chat"]).folder)
    folder = tmp_path / "shards"
    for shard in ("1/3", "3/3"):
        run(folder, files["chat"], shard=shard)
    killed_in_the_middle(folder, files["chat"])
    half = folder / "prep-2-of-3"
    assert not (half / shards.TAKEN).exists() and not run_folder.is_finished(half)
    refused = refused_gather(folder)
    assert refused.location == str(half) and "shard 2/3 is not finished" in refused.problem
    with held(half):
        assert "is running: process" in refused_gather(folder).problem
    type_command_in(refused.fix)
    assert content(prep(run=str(folder), gather="*").folder) == alone


def refused_gather(folder: Path, *named: str, **given: Any) -> UserError:
    with pytest.raises(UserError) as refused:
        prep(*named, run=str(folder), gather="*", **given)
    assert not (folder / "prep").exists()
    return refused.value


def type_command_in(fix: str) -> None:
    """Runs the command that an error ends with."""
    found = re.search(r": (agentlite .*)$", fix)
    assert found, fix
    done = CliRunner().invoke(group, shlex.split(found[1])[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr


@pytest.mark.long
def test_a_shard_that_is_missing_is_named_with_its_command(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"limit": 9, "protocol": "react", "holdout": [files["held"]]}
    folder = tmp_path / "shards"
    run(folder, files["chat"], shard="2/3", **options)
    refused = refused_gather(folder)
    assert refused.location == str(folder / "prep-1-of-3")
    assert refused.problem == "shard 1/3 is missing. 1 more is missing."
    type_command_in(refused.fix)
    refused = refused_gather(folder)
    assert refused.problem == "shard 3/3 is missing."
    type_command_in(refused.fix)
    alone = content(run(tmp_path / "alone", files["chat"], **options).folder)
    assert content(prep(run=str(folder), gather="*").folder) == alone


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_length": 900}, "prep.max_length 2048 -> 900"),
        ({"limit": 5}, "prep.limit absent -> 5"),
        ({"model": "tiny"}, "prep.model"),
    ],
)
def test_a_shard_of_other_settings_or_another_model_is_named_with_its_command(
    changes: dict[str, Any],
    said: str,
    files: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "model" in changes:
        changes = {"model": str(copied_tokenizer(tmp_path / "tiny"))}
    folder = tmp_path / "shards"
    run(folder, files["chat"], shard="1/2")
    run(folder, files["chat"], shard="2/2", **changes)
    refused = refused_gather(folder)
    assert refused.exit_code == OTHER_PLAN
    assert refused.location == str(folder / "prep-2-of-2")
    assert said in refused.problem and "prep-1-of-2" in refused.problem
    type_command_in(refused.fix)
    assert prep(run=str(folder), gather="*").status == "done"


def copied_tokenizer(folder: Path) -> Path:
    """A model of its own: what prep reads of the real one, and weights that nothing loads."""
    folder.mkdir()
    copy_tokenizer(MODEL, folder)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_a_source_that_changed_between_two_shards_is_named(
    files: dict[str, str], tmp_path: Path
) -> None:
    source = Path(shutil.copy(files["chat"], tmp_path / "chat.jsonl"))
    run(tmp_path, str(source), shard="1/2")
    source.write_bytes(source.read_bytes() + line(n=50) + b"\n")
    run(tmp_path, str(source), shard="2/2")
    refused = refused_gather(tmp_path)
    assert f"{source} has changed since" in refused.problem
    assert refused.exit_code == OTHER_PLAN and refused.location == str(tmp_path / "prep-2-of-2")


@pytest.mark.long
def test_two_shards_of_one_number_are_both_named(files: dict[str, str], tmp_path: Path) -> None:
    for shard, out in (("1/2", "a"), ("1/2", "b"), ("2/2", "c")):
        run(tmp_path, files["chat"], shard=shard, out=out)
    refused = refused_gather(tmp_path)
    assert refused.problem == f"{tmp_path / 'a'} and {tmp_path / 'b'} are both shard 1/2."
    assert refused.exit_code == OTHER_PLAN
    assert prep("b", "c", "c", run=str(tmp_path), gather="*").status == "done"


@pytest.mark.long
def test_shards_of_other_numbers_stages_and_changed_files_are_refused_with_the_place(
    files: dict[str, str], tmp_path: Path
) -> None:
    assert "no shard" in refused_gather(tmp_path).problem
    run(tmp_path, files["chat"], shard="1/2")
    run(tmp_path, files["chat"], shard="2/3")
    other = refused_gather(tmp_path)
    assert other.location == str(tmp_path / "prep-2-of-3") and "is shard 2/3" in other.problem
    run(tmp_path, files["chat"], out="whole")
    assert "not a shard" in refused_gather(tmp_path, "whole", "prep-1-of-2").problem
    nowhere = refused_gather(tmp_path, "nowhere")
    assert nowhere.location == str(tmp_path / "nowhere")
    run(tmp_path, files["chat"], shard="2/2")
    taken = tmp_path / "prep-2-of-2" / shards.TAKEN
    taken.write_bytes(taken.read_bytes()[:-1])
    changed = refused_gather(tmp_path, "prep-1-of-2", "prep-2-of-2")
    assert changed.location == str(taken.parent) and shards.TAKEN in changed.problem
    assert "--shard 2/2 " in changed.fix and changed.fix.endswith("--force")
    with pytest.raises(UserError, match="is a stage of `agentlite prep --shard`, not of `prep`"):
        run_folder.finished(tmp_path / "prep-1-of-2", "prep")


@pytest.mark.long
def test_folders_follow_the_option_as_a_shell_writes_them(
    files: dict[str, str], tmp_path: Path
) -> None:
    folders = in_shards(tmp_path / "shards", 3, files["chat"])
    for out, words in {
        "three": ["--gather", *folders],
        "before": [*folders, "--gather"],
        "alone": ["--gather", "--run", str(tmp_path / "shards")],
    }.items():
        command = ["prep", *words, "--out", out, "--json"]
        command += [] if "--run" in words else ["--run", str(tmp_path)]
        done = CliRunner().invoke(group, command, catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["figures"]["read"] == 18
    assert content(tmp_path / "three") == content(tmp_path / "shards" / "alone")


@pytest.mark.parametrize("text", ["4/3", "0/3", "3", "a/b", "1/", "-1/2", "1/2/3"])
def test_what_is_no_shard_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not one of several shards") as refused:
        run(tmp_path, "rows.jsonl", shard=text)
    assert refused.value.location == "--shard"


def test_a_shard_that_is_gathered_or_shown_is_refused(
    files: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="Leave out --shard or --gather"):
        run(tmp_path, shard="1/2", gather="*")
    for words in (["--show", "1"], ["--as", "openai"], ["--rows", "-"]):
        command = ["prep", files["chat"], "--shard", "1/2", "--run", str(tmp_path), *words]
        shown = CliRunner().invoke(group, command)
        assert isinstance(shown.exception, UserError)
        assert "decided over all shards" in shown.exception.problem
    assert not (tmp_path / "prep-1-of-2").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_length", 900),
        ("personal", "mask"),
        ("protocol", "react"),
        ("duplicates", ["equal", "near"]),
        ("system", "Be brief."),
        ("model_name", ["Dove"]),
    ],
)
def test_gather_refuses_what_would_change_the_rows(
    key: str, value: Any, files: dict[str, str], tmp_path: Path
) -> None:
    folders = in_shards(tmp_path, 1, files["chat"])
    refused = refused_gather(tmp_path, *folders, **{key: value})
    assert refused.location == f"--{key.replace('_', '-')}" and refused.exit_code == OTHER_PLAN
    assert "the shards were read with" in refused.problem


def test_gather_refuses_another_model(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copied_tokenizer(tmp_path / "tiny")
    folders = in_shards(tmp_path, 2, files["chat"], model=str(model))
    (model / "model.safetensors").write_bytes(b"others")
    refused = refused_gather(tmp_path, *folders)
    assert refused.location == "--model" and "it has changed since" in refused.problem


@pytest.mark.long
def test_the_settings_that_a_row_depends_on_are_those_that_gather_refuses(
    smollm2: Template, files: dict[str, str]
) -> None:
    """Every setting that is looked at while rows are read, on rows of all formats."""
    looked_at: set[str] = set()

    class Watched(PrepSettings, frozen=True, kw_only=True):
        def __getattribute__(self, name: str) -> Any:
            looked_at.add(name)
            return PrepSettings.__getattribute__(self, name)

    def lines() -> Iterator[tuple[str, Any]]:
        sources = [*files.values(), *map(str, sorted((DATA / "formats").glob("*.jsonl")))]
        for source in sources:
            for one in read_lines(source, None):  # type: ignore[arg-type]
                yield source, one

    for changes in ({}, {"long_rows": "cut", "max_length": 300, "system": "Be brief."}):
        settings = Watched(**changes)
        mixture = choose("hermes=2,react", smollm2, 1)
        for source, one in lines():
            take(source, one, IngestContext(settings, smollm2, mixture))
    found = looked_at & fields("prep").keys()
    assert {"max_length", "personal", "duplicates", "system", "model_name"} <= found
    assert found <= {*shards.OF_ROWS}
    assert {*shards.OF_ROWS} <= fields("prep").keys()
