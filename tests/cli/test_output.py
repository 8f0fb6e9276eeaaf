"""What is printed of a result, and on which stream."""

import json
from typing import Any

from agentlite.cli.output import present
from agentlite.workspace.lookup import Result

SFT = Result(
    "sft",
    "done",
    "runs/default/sft",
    {
        "read": 12,
        "share": 0.123456,
        "rejects": {"E206": 2, "E104": 1},
        "none": {},
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
    }


def test_eval_shows_its_main_figures_in_plain_words_and_all_on_request(capsys):
    figure = {"mean": 0.5, "low": 0.2, "high": 0.8, "count": 4}
    names = (
        "tool_selection_accuracy",
        "exact_call",
        "call_decision",
        "format_compliance",
        "toolrl",
    )
    groups = {"metrics": dict.fromkeys(names, figure), "dialogs": {"end_to_end_success": figure}}
    figures = {"prompts": 4, **groups, "wrong_answers": {"no_call": 2}}
    result = Result("eval", "done", "f", {"base": figures, "sft": figures}, [], 1.0)
    _, head, *rows, more = shown(result, capsys)[0].splitlines()
    assert head.split() == ["base", "sft"]
    titles = ["right tool", "right call", "call or no call", "readable answers"]
    assert [row.partition("  ")[0] for row in rows] == titles
    assert rows[0].split()[2:] == ["50.0", "%", "[20.0,", "80.0]", "n=4"] * 2
    assert more == "The same command with --all prints every figure."
    full, _ = shown(result, capsys, in_full=True)
    every = [*names, "end_to_end_success", "no call where one is wanted"]
    assert [name for name in every if name not in full] == [] and "--all" not in full
