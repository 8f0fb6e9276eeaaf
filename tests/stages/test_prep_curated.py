"""prep with all that selects: provenance of each row, counts that add up, runs that go on."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.malformed_rows import call, row
from support.samples import DATA

from agentlite import prep
from agentlite.config import resolve
from agentlite.core.records import SPLITS
from agentlite.core.row_files import read_rows
from agentlite.data.curation.coreset import BY_LOSS
from agentlite.workspace.lookup import Result

ENDS = ("kept", "rejected", "duplicates", "filtered")
CITIES = ("Oslo", "Bergen", "Lagos", "Quito", "Hanoi", "Turin", "Perth", "Dakar", "Kyoto", "Lille")
THINGS = ("rain", "snow", "wind", "fog", "heat", "frost", "hail", "storms", "sunshine", "thunder")


def asked(number: int) -> dict[str, Any]:
    """A row that has its own question and arguments."""
    city, thing = CITIES[number % 10], THINGS[number // 10 % 10]
    said = (
        f"Do I have to reckon with {thing} in {city} when I travel there on day {number} of "
        "the "
        "year?"
    )
    arguments = json.dumps({"city": f"{city} {thing}", "days": number})
    messages = row(calls=[call(arguments)])["messages"]
    return row(messages=[{"role": "user", "content": said}, *messages[1:]])


def chat(number: int) -> dict[str, Any]:
    chance = random.Random(number)
    said = [" ".join(chance.choices((*CITIES, *THINGS), k=12)) for _ in range(2)]
    return {
        "messages": [
            {"role": "user", "content": said[0]},
            {"role": "assistant", "content": said[1]},
        ]
    }


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text(
        "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows), encoding="utf-8"
    )
    return str(path)


def run(folder: Path, *sources: str, **changes: Any) -> Result:
    return prep(
        *sources, run=str(folder), **{"model": "smollm2-135m", "dev": 0.1, "test": 0.2, **changes}
    )


def kept(folder: Path, out: str = "prep") -> dict[str, str]:
    """The split of each record on disk, by id."""
    return {
        one["id"]: split for split in SPLITS for one in read_rows(folder / out / f"{split}.jsonl")
    }


def provenance(folder: Path, out: str = "prep") -> list[dict[str, Any]]:
    return list(read_rows(folder / out / "provenance.jsonl"))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Tools, with a copy and one that asks nearly the same; chat; and what is held out."""
    rows = [asked(number) for number in range(60)]
    near = json.loads(
        json.dumps(rows[3]).replace("Do I have to reckon", "Do I really have to reckon")
    )
    return {
        "tools": write(tmp_path / "tools.jsonl", [*rows, rows[0], near]),
        "chat": write(tmp_path / "chat.jsonl", [chat(number) for number in range(40)]),
        "held": write(tmp_path / "held.jsonl", [rows[7], rows[8]]),
    }


def choosing(files: dict[str, str], **changes: Any) -> dict[str, Any]:
    return {
        "duplicates": ["equal", "near"],
        "mix": [f"general={files['chat']}:0.2"],
        "holdout": [files["held"]],
        "coreset_strategy": "hybrid",
        "coreset_target_size": 20,
        **changes,
    }


@pytest.mark.long
def test_every_row_that_is_read_ends_once_and_its_way_says_why(files, tmp_path):
    figures = run(tmp_path / "r", files["tools"], files["chat"], **choosing(files)).figures
    assert figures["read"] == 102 == sum(figures[end] for end in ENDS)
    found = provenance(tmp_path / "r")
    assert len(found) == 102
    assert Counter(row["end"] for row in found) == {
        end: figures[end] for end in ENDS if figures[end]
    }
    codes = Counter(row["code"] for row in found if "code" in row)
    assert codes == figures["left_out"]
    assert codes["D401"] == codes["D403"] == 1
    assert codes["F331"] == 2
    assert {row["id"]: row["split"] for row in found if row["end"] == "kept"} == kept(
        tmp_path / "r"
    )
    assert figures["mixed"] == {"the rest": 58, "general": 12}
    assert figures["train"] == 20 == sum(figures["coreset"].values())
    by_file = figures["by_file"]
    assert by_file[files["tools"]]["read"] == 62
    for end in ("read", *ENDS):
        assert sum(counts[end] for counts in by_file.values()) == figures[end]


@pytest.mark.long
@pytest.mark.parametrize("strategy", [*BY_LOSS, "random"])
def test_a_coreset_leaves_the_shares_of_tasks_and_groups_as_they_were_set(
    strategy, files, tmp_path
):
    choice = {"coreset_strategy": strategy, "dev": 0.0, "test": 0.0}
    tools, chats = files["tools"], files["chat"]
    weights = {"tool_selection": 0.75, "general": 0.25}
    by_task = run(
        tmp_path / "r", tools, chats, task_weights=weights, coreset_target_size=20, **choice
    )
    assert by_task.figures["by_task"] == {"tool_selection": 15, "general": 5}
    by_group = run(
        tmp_path / "r",
        tools,
        chats,
        out="mixed",
        mix=[f"agent={tools}:3", f"general={chats}:1"],
        coreset_target_size=20,
        **choice,
    )
    assert {name: counts["kept"] for name, counts in by_group.figures["by_file"].items()} == {
        tools: 15,
        chats: 5,
    }


def test_seed_004_filters_its_general_chat_as_ms_swift_does(tmp_path, monkeypatch):
    """A format for one source of a mix: the others keep what the filter would take out."""
    monkeypatch.chdir(tmp_path)
    for name in ("ms_agent", "self_cognition"):
        shutil.copy(DATA / f"formats/{name}.jsonl", tmp_path)
    moss = [
        {
            "conversations": [
                {"from": "user", "value": f"Who are you, {number}?"},
                {"from": "assistant", "value": f"I am {name}. {number}"},
            ]
        }
        for number, name in enumerate(["MOSS", "nobody", "Moss", "nobody", "a person"])
    ]
    write(tmp_path / "ms_bench.jsonl", moss)
    given = resolve.UserSettings(
        flags={
            "sources": ["ms_agent.jsonl", "ms_bench.jsonl", "self_cognition.jsonl"],
            "model": "smollm2-135m",
            "dev": 0,
            "test": 0,
        },
        files=("recipes/seed-004.yaml",),
    )
    settings = msgspec.structs.asdict(resolve.resolve("prep", given).settings)
    result = prep(*settings.pop("sources"), run=str(tmp_path / "r"), **settings)
    assert result.figures["left_out"]["F301"] == 2
    assert result.figures["by_file"]["ms_bench.jsonl"]["formats"] == {"ms_bench": 5}
    assert result.figures["by_file"]["ms_agent.jsonl"]["formats"] == {"ms_agent": 5}


def test_what_is_held_out_is_found_under_its_mask_too(tmp_path):
    rows = [asked(number) for number in range(5)]
    # nearly all of it is the address: under its mask it is not nearly the same
    rows[1]["messages"][0]["content"] = (
        "Tell ann.marie.of.the.rain.and.the.snow@institute-of-the-weather-of-norway.org of it."
    )
    held = write(tmp_path / "held.jsonl", [rows[1]])
    figures = run(
        tmp_path / "r", write(tmp_path / "rows.jsonl", rows), personal="mask", holdout=[held]
    ).figures
    assert figures["left_out"] == {"F331": 1}


def test_the_row_that_holds_a_key_is_named(tmp_path, capsys):
    rows = [asked(number) for number in range(5)]
    rows[3]["messages"][0]["content"] += " My key is sk-proj-abcdefghijklmnopqrstuvwxyz123456."
    run(tmp_path / "r", write(tmp_path / "rows.jsonl", rows), personal="report")
    assert f"{tmp_path / 'rows.jsonl'}:4: a key or a password is learned" in capsys.readouterr().err


@pytest.mark.long
def test_the_second_run_replays_what_the_first_one_learned_and_again_the_same(files, tmp_path):
    other = write(tmp_path / "other.jsonl", [chat(100 + number) for number in range(40)])
    replay = {"replay": str(tmp_path / "buffer"), "continual_replay_ratio": 0.5, "dev": 0.0}
    first = run(tmp_path / "r", files["tools"], **replay, out="first").figures
    assert (first["replayed"], first["buffer"]) == (0, first["train"])
    before = {one["id"] for one in read_rows(tmp_path / "r" / "first" / "train.jsonl")}
    second = run(tmp_path / "r", other, **replay, out="second").figures
    assert second["replayed"] == second["train"] // 2
    learned = {one["id"] for one in read_rows(tmp_path / "r" / "second" / "train.jsonl")}
    assert len(learned & before) == second["replayed"] == second["train_rows"] - second["train"]
    assert {
        row["id"] for row in provenance(tmp_path / "r", "second") if row["location"] == "the buffer"
    } == learned & before
    assert run(tmp_path / "r", other, **replay, out="second").status == "up to date"
    assert (
        run(tmp_path / "r", other, **replay, out="second", force=True).figures["buffer"]
        == second["buffer"]
    )
    assert {one["id"] for one in read_rows(tmp_path / "r" / "second" / "train.jsonl")} == learned
