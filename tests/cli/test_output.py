"""What is printed of a result, and on which stream."""

import json
from typing import Any

import pytest

from agentlite.cli.output import present
from agentlite.config.resolve import weightings
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


def test_a_dry_run_of_eval_says_what_is_missing_for_each_model(capsys):
    figures = {
        "sft": {"prompts": 9, "missing": 4, "memory_gib": {"total": 1.5}},
        "others": {"prompts": 9, "missing": 0, "memory_gib": {}},
    }
    out, _ = shown(Result("eval", "dry run", "f", figures, [], 0.0), capsys)
    lines = cells(out)
    assert ["model", "prompts", "missing", "memory,", "GiB"] in lines
    assert ["sft", "9", "4", "1.5"] in lines and ["others", "9", "0", "-"] in lines


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
