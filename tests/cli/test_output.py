"""What is printed of a result, and on which stream."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from agentlite.cli import output
from agentlite.cli.output import present
from agentlite.config.resolve import weightings
from agentlite.core.records import Message, Record, to_row
from agentlite.scoring.rewards import PENALTIES
from agentlite.scoring.weight_sweep import WeightingRow
from agentlite.workspace.run_folder import Result

SFT = Result(
    "sft",
    "done",
    "runs/default/sft",
    {
        "read": 12,
        "share": 0.123456,
        "rejects": {"E206": 2, "E104": 1},
        "none": {},
        "by_source": {"a": {"kept": 1}},
        "by_file": {
            "a.jsonl": {"formats": {"openai": 2, "text": 1}, "read": 3, "kept": 2},
            "b.jsonl": {"formats": {}, "read": 9, "kept": 9},
        },
    },
    ["train.jsonl"],
    12.6,
    "agentlite sft",
)


def shown(result: Result, capsys: Any, **options: Any) -> tuple[str, str]:
    present(result, **{"as_json": False, "show": 0, "shape": "", **options})
    return tuple(capsys.readouterr())


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_table_says_what_was_done_and_what_comes_next(capsys):
    out, err = shown(SFT, capsys)
    assert err == ""
    lines = cells(out)
    assert out.startswith("sft: done in 13 s, runs/default/sft\n")
    assert ["read", "12"] in lines and ["share", "0.1235"] in lines
    assert "rejects: E206 2, E104 1\n" in out and "none: -\n" in out
    assert ["source", "formats", "read", "kept"] in lines
    assert ["a.jsonl", "openai", "2,", "text", "1", "3", "2"] in lines
    assert ["b.jsonl", "-", "9", "9"] in lines
    assert "by_source" not in out and "by_file" not in out  # the table of files says it
    assert out.endswith("next: agentlite sft\n")


def test_the_result_in_words_stands_before_the_next_command(capsys):
    result = Result("eval", "done", "f", {}, [], 1.0, "less r.md", [], ["a is right.", "b is not."])
    out, _ = shown(result, capsys)
    assert out.endswith("\n\na is right.\nb is not.\nnext: less r.md\n")


@pytest.mark.parametrize(("prompts", "dialogs"), [(3, True), (2, False)])
@pytest.mark.parametrize("others", [[], [2], [3]])
def test_whole_dialogs_have_a_table_of_their_own_where_any_has_several_steps(
    prompts: int, dialogs: bool, others: list[int], capsys: Any
) -> None:
    def figure(mean: float, count: int) -> dict[str, Any]:
        return {"mean": mean, "low": 0.1, "high": 0.9, "count": count}

    models = {
        f"model {count}": {
            "prompts": count,
            "metrics": {"exact_call": figure(0.5, count)},
            "dialogs": {"end_to_end_success": figure(0.25, 2)},
        }
        for count in [prompts, *others]
    }
    out, _ = shown(Result("eval", "done", "f", models, [], 1.0), capsys)
    assert "exact_call" in out
    shows = dialogs or 3 in others
    assert ("whole dialogs, teacher-forced" in out) == shows == ("end_to_end_success" in out)


def test_eval_says_how_many_answers_are_wrong_in_which_way(capsys):
    metrics = {"exact_call": {"mean": 0.5, "low": 0.1, "high": 0.9, "count": 4}}
    models = {
        name: {"prompts": 4, "metrics": metrics, "wrong_answers": counts}
        for name, counts in (("base", {"no_call": 2}), ("sft", {"no_call": 1, "other_text": 1}))
    }
    out, _ = shown(Result("eval", "done", "f", models, [], 1.0), capsys)
    lines = [line.split("  ") for line in out.splitlines()]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert ["wrong answers, by kind"] in rows
    assert ["no call where one is wanted", "2", "1"] in rows
    assert ["another text", "0", "1"] in rows and ["all wrong answers", "2", "2"] in rows


def test_what_was_up_to_date_took_no_time_and_may_have_no_next_command(capsys):
    result = Result("sft", "up to date", "f", {"by_source": {"a": 1}}, [], 12.6)
    out, _ = shown(result, capsys)
    assert out.startswith("sft: up to date, f\n") and "next" not in out
    assert "by_source: a 1\n" in out  # where no table of files says it


def test_json_is_one_object_with_every_field_and_nothing_else(capsys):
    out, err = shown(SFT, capsys, as_json=True)
    assert err == "" and out.count("\n") == 1
    assert json.loads(out) == {
        "command": "sft",
        "status": "done",
        "folder": "runs/default/sft",
        "figures": SFT.figures,
        "outputs": ["train.jsonl"],
        "seconds": 12.6,
        "next": "agentlite sft",
        "failed": [],
        "sentences": [],
        "servers": {},
    }


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("status", ["done", "up to date", "dry run"])
def test_records_have_stdout_to_themselves_and_a_dry_run_has_none(
    as_json, status, capsys, monkeypatch
):
    monkeypatch.setattr(output, "_write_records", lambda folder, shape: print("record", shape))
    result = Result("pairs", status, "f", {"read": 1}, [], 1.0)
    out, err = shown(result, capsys, shape="openai", as_json=as_json)
    assert out == ("" if status == "dry run" else "record openai\n")
    assert ("pairs: " in err) is not as_json


@pytest.mark.parametrize(
    ("options", "stream"), [({}, 0), ({"as_json": True}, 1), ({"shape": "openai"}, 1)]
)
def test_shown_records_go_where_the_table_goes(options, stream, capsys, monkeypatch):
    monkeypatch.setattr(output, "_write_records", lambda *_: None)
    monkeypatch.setattr(
        "agentlite.stages.prep.show.rendered", lambda folder, count: ["⟦shown⟧"] * count
    )
    plan = SimpleNamespace(settings={"max_length": 9, "join": 1, "join_tokens": 99})
    monkeypatch.setattr("agentlite.cli.output.run_folder.read_plan", lambda folder: plan)
    done = Result("prep", "done", "f", {"read": 1, "kept": 1}, [], 1.0)
    assert shown(done, capsys, show=2, **options)[stream].count("⟦shown⟧") == 2
    dry = Result("prep", "dry run", "f", {"read": 1, "kept": 1}, [], 1.0)
    assert "shown" not in "".join(shown(dry, capsys, show=2))


@pytest.mark.parametrize("command", ["sft", "eval", "prep", "rollout", "make"])
def test_all_of_a_table_goes_to_stderr_where_stdout_holds_records(command, capsys, monkeypatch):
    monkeypatch.setattr(output, "_write_records", lambda *_: None)
    plan = SimpleNamespace(settings={"max_length": 9, "join": 1, "join_tokens": None})
    monkeypatch.setattr("agentlite.cli.output.run_folder.read_plan", lambda folder: plan)
    counts = {"kept": 1, "wanted": 1, "calls": 0, "tools_called": 0, "not_found": {}}
    figures: dict[str, dict[str, Any]] = {
        "sft": {"steps": 3, "rejects": {"a": 1}},
        "eval": {"m": {"prompts": 1, "metrics": {}, "wrong_answers": {"no_call": 1}}},
        "prep": {"read": 1, "kept": 1},
        "rollout": {"tasks": 1, "rollouts": 1, "turns": 1, "calls": 0, "failed_calls": 0}
        | {"ended": {}, "scores": {}},
        "make": {**counts, "kinds": {}, "verified": {}, "filtered": {}, "quality": {}},
    }
    servers = {"m": {"replies": 1, "tokens_read": 2, "tokens_written": 3}}
    result = Result(command, "done", "f", figures[command], [], 1.0, "agentlite runs", [], ["So."])
    result = msgspec.structs.replace(result, servers=servers)
    printed, nothing = shown(result, capsys)
    assert not nothing and "replies" in printed and printed.endswith("So.\nnext: agentlite runs\n")
    assert shown(result, capsys, shape="openai") == ("", printed)


def row(name: str, learned: bool, *earlier: bool) -> dict[str, Any]:
    said = [Message("assistant", name, loss=one) for one in (*earlier, learned)]
    messages = [message for one in said for message in (Message("user", "Hi"), one)]
    return to_row(Record(messages=tuple(messages)))


@pytest.mark.parametrize(
    ("shape", "noted"), [("openai", False), ("sharegpt", False), ("llamafactory", True)]
)
def test_turns_that_are_not_learned_are_noted_where_the_shape_cannot_say_so(
    shape, noted, capsysbinary, monkeypatch
):
    rows = [row("a", True), row("b", False), row("c", True, False, True)]
    monkeypatch.setattr("agentlite.stages.prep.show.written_rows", lambda folder: iter(rows))
    output._write_records(Path("f"), shape)
    out, err = capsysbinary.readouterr()
    assert len(out.splitlines()) == 3
    assert (b"prep: 2 records have turns that are not to be learned" in err) is noted
    output._write_records(Path("f"), output.OWN)
    own = capsysbinary.readouterr().out.splitlines()
    assert [json.loads(line) for line in own] == rows


def test_a_dry_run_of_eval_says_what_is_missing_for_each_model(capsys):
    figures = {
        "sft": {"prompts": 9, "missing": 4, "memory_gib": {"total": 1.5}},
        "others": {"prompts": 9, "missing": 0, "memory_gib": {}},
    }
    out, _ = shown(Result("eval", "dry run", "f", figures, [], 0.0), capsys)
    lines = cells(out)
    assert ["model", "prompts", "missing", "memory,", "GiB"] in lines
    assert ["sft", "9", "4", "1.5"] in lines and ["others", "9", "0", "-"] in lines


def test_a_dry_run_of_eval_in_an_environment_counts_tasks(capsys):
    figures = {"sft": {"tasks": 9, "missing": 4}}
    lines = cells(shown(Result("eval", "dry run", "f", figures, [], 0.0), capsys)[0])
    assert ["model", "tasks", "missing", "memory,", "GiB"] in lines
    assert ["sft", "9", "4", "-"] in lines


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "unknown"), (0, "0 s"), (0.4, "0 s"), (89.4, "89 s"), (90, "2 min"), (5400, "90 min")],
)
def test_the_time_of_a_cell_is_in_minutes_from_a_minute_and_a_half_on(seconds, words):
    assert output._time(seconds) == words


def test_penalties_are_no_components_of_a_weighting_that_have_a_column(capsys):
    common: Any = {"pairs": 3, "flipped": 0, "gained": 1, "lost": 2, "mean_margin": 0.1}
    common |= {"steps": 9, "rejected": {}, "no_pair": {}}
    penalty = next(iter(PENALTIES))
    weights = {"exact": 1.0, "mine": 1.0, penalty: -1.0}
    rows = [WeightingRow(name="a", weights=weights, chosen=dict.fromkeys(weights, 0.5), **common)]
    assert output._weightings(rows)[0][5:] == ["exact", "mine"]


def test_weightings_stand_in_rows_with_the_components_that_count(capsys):
    common: Any = {"pairs": 3, "flipped": 0, "gained": 1, "lost": 2, "mean_margin": 0.12345}
    common |= {"steps": 9, "rejected": {}, "no_pair": {}}
    weights = [{"exact": 1.0, "efficiency": 0.0, "mine": 0.5}, {"exact": 0.0, "mine": 0.0}]
    chosen = [{"exact": 0.5, "efficiency": 0.25, "mine": 0.126}, {}]
    rows = [
        WeightingRow(name=name, weights=weights[n], chosen=chosen[n], **common)
        for n, name in enumerate("ab")
    ]
    assert output._weightings(rows) == [
        ["weighting", "pairs", "flipped", "other\nsteps", "mean\nmargin", "exact", "mine"],
        ["a", "3", "0", "+1 -2", "0.123", "0.50", "0.13"],
        ["b", "3", "0", "+1 -2", "0.123", "-", "-"],
    ]
    figures = {"weightings": msgspec.to_builtins(rows), "sentences": ["one.", "two."]}
    out, _ = shown(Result("pairs", "compared", "f", figures, [], 0.0), capsys)
    assert out.endswith("\none.\ntwo.\n") and "by every weighting" not in out


def test_a_component_that_tells_no_weighting_from_another_is_no_column(capsys):
    common: Any = {"pairs": 3, "flipped": 0, "gained": 1, "lost": 2, "mean_margin": 0.1}
    common |= {"steps": 9, "rejected": {}, "no_pair": {}, "weights": {"exact": 1.0, "mine": 1.0}}
    chosen = [{"exact": 0.5, "mine": 0.25}, {"exact": 0.5, "mine": 0.75}]
    rows = [
        WeightingRow(name=name, chosen=means, **common)
        for name, means in zip("ab", chosen, strict=True)
    ]
    heading, *_ = output._weightings(rows)
    assert heading[5:] == ["mine"]
    figures = {"weightings": msgspec.to_builtins(rows), "sentences": []}
    out, _ = shown(Result("pairs", "compared", "f", figures, [], 0.0), capsys)
    assert "scores of the chosen answers by every weighting: exact 0.50" in out


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (0.123456, "0.1235"),
        (123456.0, "1.235e+05"),
        ([1, 2], "1 -> 2"),
        ({}, "-"),
        ({"a": {"b": 0.5}, "c": [1, 2]}, "a b 0.5, c 1 -> 2"),
        (None, "None"),
        ("text", "text"),
    ],
)
def test_a_figure_in_words(value, text):
    assert output.number(value) == text


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"a": None, "b": (), "c": 0, "d": "", "e": False}, {"c": 0, "d": "", "e": False}),
        ({"weights": ("a=1",)}, {"weights": "a=1"}),
        ({"weights": "a=1,b=2"}, {"weights": "a=1,b=2"}),
        ({"weights": ("a=1", "b=2")}, {"grid": ("a=1", "b=2")}),
        ({"weights": ("a=1", "b=2"), "grid": ("g",)}, {"grid": ("g", "a=1", "b=2")}),
        ({"weights": ("a=1",), "grid": ("g",)}, {"weights": "a=1", "grid": ("g",)}),
    ],
)
def test_one_weighting_is_a_setting_and_several_are_a_grid(flags, expected):
    assert weightings(flags) == expected


def test_prep_prints_a_short_table_and_where_the_rest_is(capsys, monkeypatch):
    plan = SimpleNamespace(settings={"max_length": 9, "join": 1, "join_tokens": 99})
    monkeypatch.setattr("agentlite.cli.output.run_folder.read_plan", lambda folder: plan)
    files = {"a": {"formats": {"openai": 2}, "read": 2}, "b": {"formats": {}, "read": 1}}
    figures = {"read": 3, "kept": 1, "rejects": {"E206": 2}, "groups": 1, "by_file": files}
    out, _ = shown(Result("prep", "done", "f", figures, [], 1.0, "agentlite sft"), capsys)
    assert ["rejected", "2", "E206:"] in [line[:3] for line in cells(out)]
    assert ["a", "openai", "2", "2"] in cells(out) and "groups" not in out
    assert out.endswith("All figures: f/stats.json\nnext: agentlite sft\n")
    one = {**figures, "by_file": {"a": files["a"]}}
    assert "formats" not in shown(Result("prep", "dry run", "f", one, [], 1.0), capsys)[0]
    assert not [line for line in out.splitlines() if line != line.rstrip()]


@pytest.mark.parametrize(
    ("join", "join_tokens", "most"),
    [(1, 1400, 560), (8, 1400, 1400), (8, 300, 560), (8, None, 560)],
)
def test_the_longest_row_stands_against_the_limit_that_it_was_held_to(
    join, join_tokens, most, capsys, monkeypatch
):
    plan = SimpleNamespace(settings={"max_length": 560, "join": join, "join_tokens": join_tokens})
    monkeypatch.setattr("agentlite.cli.output.run_folder.read_plan", lambda folder: plan)
    lengths = {"50%": 100, "100%": 200}
    figures = {"read": 1, "kept": 1, "rejects": {}, "by_file": {}, "length": lengths}
    figures |= {"trained_tokens": 9, "tokens": {"trained_share": 0.1}}
    out, _ = shown(Result("prep", "done", "f", figures, [], 1.0), capsys)
    assert f"the longest has 200 of at most {most:,}" in " ".join(out.split())
