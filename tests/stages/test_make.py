"""`agentlite make dialogs`: from tools alone to rows that prep reads, confirmed by execution."""

import json
from collections import Counter

import msgspec
import pytest
from support.lending import lending_library

import agentlite
from agentlite.core.records import from_row
from agentlite.core.row_files import Appender, read_rows
from agentlite.data.formats.tool_calls import read_call
from agentlite.environments.registry import environment
from agentlite.environments.synthesis.blueprint import KINDS, Blueprint, carry_out
from agentlite.environments.world import LIMITS, World
from agentlite.stages import make as stage
from agentlite.stages.make import dialog_counts, key_figure

FILES = ("blueprints.jsonl", "dialogs.jsonl", "stats.json")


def make(folder, name="run", **options):
    env = f"{folder / 'library.py'}:Library"
    defaults = {"env": env, "num_dialogs": 40, "extra_tools": 2}
    return agentlite.make(run=str(folder / name), **{**defaults, **options})


def contents(folder, name="run"):
    return [(folder / name / "make" / file).read_bytes() for file in FILES]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Dialogs of all kinds from the library."""
    folder = tmp_path_factory.mktemp("make")
    lending_library(folder)
    return folder, make(folder)


def dialogs(folder, name="run"):
    return [*read_rows(folder / name / "make" / "dialogs.jsonl")]


def made_calls(messages):
    return [read_call(call) for message in messages for call in message.get("tool_calls") or ()]


@pytest.mark.long
def test_all_kinds_are_made_in_their_shares(made):
    folder, result = made
    assert result.outputs == [*FILES]
    figures = result.figures
    assert figures["kinds"] == dialog_counts({}, 40) and figures["kept"] == 40
    assert Counter(row["meta"]["kind"] for row in dialogs(folder)) == figures["kinds"]
    assert figures["not_found"] == {}
    assert figures["verified"] == {"results": 40, "state": 40}
    assert key_figure(figures) == "40 of 40 dialogs"
    assert len({row["id"] for row in dialogs(folder)}) == 40
    assert result.next.startswith("agentlite prep --from make")


def test_a_fresh_world_returns_what_the_dialogs_say_and_ends_in_their_state(made):
    folder, _ = made
    world = environment(f"{folder / 'library.py'}:Library", needs_tasks=False)
    (task,) = world.tasks()
    plans = {row["blueprint"]["task"]: row for row in blueprints(folder)}
    assert [*plans] == [""]
    by_id = {row["kind"] + json.dumps(row["blueprint"]["turns"]): row for row in blueprints(folder)}
    assert len(by_id) == 40
    with World(world.world_class, LIMITS) as fresh:
        for row, plan in zip(dialogs(folder), blueprints(folder), strict=True):
            results, state = carry_out(fresh, task, made_calls(row["messages"]))
            said = [one["content"] for one in row["messages"] if one["role"] == "tool"]
            assert results == said
            assert state == plan["blueprint"]["state"]


def blueprints(folder):
    return [*read_rows(folder / "run" / "make" / "blueprints.jsonl")]


def test_what_is_by_chance_or_left_from_another_world_is_not_called(made):
    folder, _ = made
    called = Counter(call.name for row in dialogs(folder) for call in made_calls(row["messages"]))
    assert not {"lucky_number", "forget", "renamed"} & called.keys()
    assert {"find_book", "borrow", "reserve_room", "opening_hours"} <= called.keys()


def test_the_user_says_what_no_result_says(made):
    """Every argument of a call stands in a message before it."""
    folder, _ = made
    for row in dialogs(folder):
        for number, message in enumerate(row["messages"]):
            before = json.dumps(row["messages"][:number], ensure_ascii=False)
            for call in made_calls([message]):
                for value in call.arguments.values():
                    assert str(value) in before, (value, row["messages"])


def test_each_kind_is_what_it_says(made):
    folder, _ = made
    by_kind = {kind: [] for kind in KINDS}
    for row in dialogs(folder):
        roles = [one["role"] for one in row["messages"]]
        calls = [len(one.get("tool_calls", ())) for one in row["messages"]]
        by_kind[row["meta"]["kind"]].append((row, roles, calls))
    assert all(calls[1] == 1 and len(calls) == 4 for _, _, calls in by_kind["single"])
    assert all(max(calls) > 1 for _, _, calls in by_kind["parallel"])
    assert all(roles.count("user") in (2, 3) for _, roles, _ in by_kind["several_turns"])
    for _, _, calls in by_kind["no_tool"]:
        assert not sum(calls) and len(calls) == 2
    for _, roles, calls in by_kind["missing_function"]:
        last = max(at for at, role in enumerate(roles) if role == "user")
        assert sum(calls[:last]) and not sum(calls[last:])
    for _, roles, calls in by_kind["missing_parameter"]:
        assert roles[:3] == ["user", "assistant", "user"] and calls[1] == 0 and calls[3] == 1
    for row, _, _ in [one for rows in by_kind.values() for one in rows]:
        called = {call.name for call in made_calls(row["messages"])}
        assert called <= {tool["function"]["name"] for tool in row["tools"]}


def test_prep_reads_all_of_them(made):
    folder, _ = made
    result = agentlite.prep(
        run=str(folder / "run"), trajectories=("make",), model="smollm2-135m", out="read"
    )
    assert result.figures["read"] == 40 and not result.figures["rejected"]
    records = [
        from_row(row)
        for split in ("train", "dev", "test")
        for row in read_rows(folder / "run" / "read" / f"{split}.jsonl")
    ]
    assert {record.meta["extra"]["meta"]["kind"] for record in records} <= {*KINDS}
    assert all(record.has_gold(turn) for record in records for turn in record.turns)


@pytest.mark.long
def test_killed_at_any_blueprint_it_ends_with_the_same_bytes(made, monkeypatch):
    folder, _ = made
    append, written, looked_for = Appender.append, [], []
    make(folder, "whole")
    plans = [
        msgspec.convert(row["blueprint"], Blueprint)
        for row in read_rows(folder / "whole" / "make" / "blueprints.jsonl")
    ]
    assert len({plan.key for plan in plans}) == len(plans) == 40

    def stops(self, row):
        append(self, row)
        written.append((row["kind"], row["number"]))
        if len(written) == 11:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Appender, "append", stops)
        with pytest.raises(KeyboardInterrupt):
            make(folder, "again")
    walk = stage._walk

    def seen(settings, new_world, world, tasks, place, keys):
        looked_for.append(place)
        return walk(settings, new_world, world, tasks, place, keys)

    monkeypatch.setattr(stage, "_walk", seen)
    assert make(folder, "again").status == "done"
    assert contents(folder, "again") == contents(folder, "whole")
    assert not {*written} & {*looked_for}
    assert make(folder, "again").status == "up to date"


def test_counts_add_up_whatever_the_shares():
    for number in (1, 7, 40, 101):
        assert sum(dialog_counts({}, number).values()) == number
    assert dialog_counts({"single": 1.0, "no_tool": 2.0}, 4) == {"single": 1, "no_tool": 3}


@pytest.mark.long
def test_dialogs_from_the_tools_of_bfcl_are_all_verified_by_state(tmp_path):
    pytest.importorskip("bfcl_eval")
    number = 30
    result = agentlite.make(
        run=str(tmp_path / "run"), env="bfcl:multi_turn_base", split="train", num_dialogs=number
    )
    figures = result.figures
    assert figures["kept"] == number - sum(figures["not_found"].values()) >= 0.9 * number
    assert figures["verified"]["state"] == figures["kept"] and figures["tools_called"] > 20
    length = 4096
    read = agentlite.prep(
        run=str(tmp_path / "run"),
        trajectories=("make",),
        model="smollm2-135m",
        max_length=length,
    )
    assert read.figures["read"] == figures["kept"] and not read.figures["rejected"]
