"""`agentlite` alone: what is in the folder, and a command that goes on from there."""

import json
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from support.sampled_pairs import sampled
from support.samples import DATA

import agentlite
from agentlite.cli.main import group
from agentlite.cli.next_step import NextStep, next_steps, with_next_command, workspace
from agentlite.cli.run_listing import inventory
from agentlite.config import this_machine
from agentlite.config.resolve import UserSettings, plain_settings, resolve
from agentlite.core.errors import UserError
from agentlite.workspace import lookup
from agentlite.workspace.lookup import Plan, RunTarget
from agentlite.workspace.stage_folder import open_stage

FIGURES = {"prep": {"kept": 3, "read": 5}, "pairs": {"pairs": 2, "steps": 4}}
RUN = Path("runs/default")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTLITE_RUN", raising=False)
    monkeypatch.setattr(this_machine, "find_gpu", lambda: None)
    return tmp_path


def stage(command: str, name: str = "", state: str = "done", run: Path = RUN, **given: Any) -> Path:
    """A stage as it is left on disk."""
    settings = plain_settings(resolve(command, UserSettings(given)).settings)
    target = run / (name := name or command)
    typed = RunTarget(run, name, user_settings=UserSettings(given)).command_line(command)
    with open_stage(target, Plan(command, settings, {}), force=False, command_line=typed) as one:
        (target / "out").write_bytes(b"x")
        if state == "failed":
            one.fail()
        elif state != "half":
            one.finish(["out"], FIGURES.get(command, {}))
    if state == "broken":
        (target / "out").write_bytes(b"y")
    return target


def steps() -> list[NextStep]:
    run = workspace()
    return next_steps(run, inventory(run) if run else [])


def commands(steps: list[NextStep]) -> list[str]:
    """All of which can be typed."""
    lines = [step.command for step in steps]
    for line in lines:
        name, *words = shlex.split(line.rpartition("&& ")[2])[1:] or ["runs"]
        parent = click.Context(group, **group.context_settings)
        command = group.get_command(parent, name)
        assert command, line
        command.make_parser(click.Context(command, parent=parent)).parse_args(words)
    return lines


@pytest.mark.parametrize("out", ["it's", "$(x)"])
def test_the_printed_command_of_each_cheap_stage_can_be_typed(folder: Path, out: str) -> None:
    """Each into a stage with an odd name, in a workspace with one."""
    given = {"run": "x y", "model": "smollm2-135m"}
    weather, preferences = str(DATA / "weather.jsonl"), folder / "preferences.jsonl"
    preferences.write_text(
        json.dumps({"prompt": "Is it wet?", "chosen": "Yes, 4 mm.", "rejected": "No."}),
        encoding="utf-8",
    )
    options = {"protocol": "hermes", "dev": 0.0, "test": 0.0}
    agentlite.prep(weather, out="prep", **given, **options)
    sampled(Path("x y"))
    results = {
        ("sft", "--data"): agentlite.prep(weather, out=out, **given, **options),
    }
    results["dpo", "--data", "2"] = agentlite.pairs(
        preferences=(str(preferences),), out=f"{out} recorded", **given
    )
    results["dpo", "--data", "3"] = agentlite.pairs(
        candidates="pairs", out=f"{out} ranked", **given
    )
    for (command, option, *_), result in results.items():
        words = shlex.split(result.next)
        name = Path(result.folder).name
        assert words[:4] == ["agentlite", command, option, name]
        assert words[-2:] == ["--run", "x y"]
        commands([NextStep(result.next, "")])


def test_an_empty_folder_begins_with_samples_or_with_own_dialogs():
    assert commands(steps()) == [
        "agentlite init home",
        "agentlite prep dialogs.jsonl",
        "agentlite doctor",
    ]


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (["prep"], ["agentlite sft", "agentlite plan"]),
        (["prep prep-5"], ["agentlite sft --data prep-5", "agentlite plan --data prep-5"]),
        (["prep", "sft"], ["agentlite eval"]),
        (["prep", "sft", "pairs"], ["agentlite dpo"]),
        (["prep", "sft", "pairs pairs-b"], ["agentlite dpo --data pairs-b --out dpo-pairs-b"]),
        (["prep", "sft", "pairs", "dpo"], ["agentlite eval --model sft --model dpo"]),
        (
            ["prep", "sft", "eval eval/prep/sft"],
            [
                "agentlite report",
                "agentlite chat sft",
                "agentlite export sft --merged sft-model",
                "agentlite pairs",
            ],
        ),
        (["eval eval/prep/smollm2-135m"], ["agentlite prep dialogs.jsonl"]),
    ],
    ids=" ".join,
)
def test_what_is_done_leads_to_what_comes_next(stages, expected):
    for words in stages:
        stage(*words.split())
    assert commands(steps()) == expected


@pytest.mark.parametrize("state", ["half", "failed", "broken"])
def test_what_is_not_done_is_carried_on_by_the_whole_command(state):
    stage("prep", sources=["a b.jsonl"])
    stage("sft", "long", state, max_steps=5, model="smollm2-135m")
    (step,) = steps()
    end = " --force" if state == "broken" else ""
    assert step.command == f"agentlite sft --out long --max-steps 5 --model smollm2-135m{end}"
    assert commands(steps()) and "long" in step.meaning
    stage("prep", "again", state, sources=["a b.jsonl"])
    assert steps()[0].command == f"agentlite prep 'a b.jsonl' --out again{end}"
    assert len(steps()) == 2


def test_an_error_at_a_stage_that_is_half_done_names_the_same_command():
    run = Path("runs/other")
    folder = stage("sft", state="half", run=run, max_steps=7)
    with pytest.raises(UserError) as refused:
        lookup.finished_stage(folder, "sft")
    (line,) = commands(steps())
    assert str(with_next_command(refused.value)).endswith(f": {line}")
    assert line == "agentlite sft --max-steps 7 --run runs/other"


def test_a_stage_at_work_is_not_begun_a_second_time():
    settings = plain_settings(resolve("sft", UserSettings()).settings)
    with open_stage(RUN / "sft", Plan("sft", settings, {}), force=False):
        assert commands(steps()) == ["agentlite runs"]
        assert "see how far sft has got" in steps()[0].meaning
