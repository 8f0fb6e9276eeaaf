"""`make dialogs` without a model: judges, keys, verdicts, and faults of users."""

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.config.settings import MakeSettings
from agentlite.environments.making.blueprint import Blueprint, PlannedTurn
from agentlite.environments.making.checks import DialogFault
from agentlite.environments.simulators import SimulatorReply
from agentlite.stages.make.judged import (
    NO_VERDICT,
    DialogJudge,
    DialogVerdict,
    _read,
    find_judges,
)

making = importlib.import_module("agentlite.stages.make.judged")
A, B = "http://a/v1", "http://b/v1"


def judges(**changes: Any) -> list[tuple[str, str, str, str, str]]:
    usual = {"endpoint": (A,), "model": "m", "endpoint_key": "WRITER", "judge_key": "JUDGE"}
    found = find_judges(MakeSettings(**{**usual, **changes}))
    return [
        (one.name, one.model, one.digest, one.served.endpoints[0].key, one.option) for one in found
    ]


@pytest.mark.parametrize(
    ("changes", "pairs"),
    [
        ({"judge_model": ("x", "y")}, [("x", A), ("y", A)]),
        ({"judge_endpoint": (A, B)}, [("m", A), ("m", B)]),
        ({"judge_endpoint": (A, B), "judge_model": ("x", "y")}, [("x", A), ("y", B)]),
        ({"judge_endpoint": (B,), "judge_model": ("x", "y")}, [("x", B), ("y", B)]),
        ({"judge_endpoint": (A, B), "judge_model": ("x",)}, [("x", A), ("x", B)]),
    ],
    ids=str,
)
def test_a_judge_is_a_model_at_a_server_and_has_the_key_of_judges(changes, pairs):
    option = "--judge-endpoint" if "judge_endpoint" in changes else "--endpoint"
    assert judges(**changes) == [
        (f"judge_{number}", model, url, "JUDGE", option)
        for number, (model, url) in enumerate(pairs, 1)
    ]


def verdicts(*found: tuple[str, ...] | None) -> dict[str, DialogVerdict]:
    return {f"d{number}": DialogVerdict(one, "so") for number, one in enumerate(found)}


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ('{"faults": []}', ()),
        ('{"faults": ["nonsense", "odd", "strange"]}', ("nonsense", "other")),
        ('{"faults": "nonsense"}', None),
        ('{"faults": [3]}', None),
        ('{"faults": ["nonsense"]} {"reason": "no list"}', ("nonsense",)),
        ("Fine.", None),
    ],
)
def test_a_verdict_is_a_list_of_names(text, faults):
    found = _read(SimulatorReply("", text))
    assert found.faults == faults and found.problem == ("" if faults is not None else NO_VERDICT)
    silent = _read(SimulatorReply("", text, problem="no reply"))
    assert (silent.faults, silent.problem) == (None, "no reply")


# --- who speaks for whom, and by which key ---


# --- the plan of a dialog ---


def plan(*turns: PlannedTurn) -> Blueprint:
    return Blueprint("several_turns", "", turns, ("look",), "")


def test_judges_see_what_the_rules_keep_and_verify_what_nobody_finds_a_fault_in(monkeypatch):
    rows = {
        name: {"id": name, "meta": {"verified": ["results"]}}
        for name in ("good", "bad", "half", "doubted", "silent")
    }
    by_rules = {"bad": [DialogFault("nonsense", "odd")], "half": [DialogFault("odd", "odd", 3)]}
    made = [(row, by_rules.get(name, [])) for name, row in rows.items()]
    fine = DialogVerdict(())
    said = {
        "judge_1": {"good": fine, "half": fine, "doubted": fine, "silent": fine},
        "judge_2": {"doubted": DialogVerdict(("nonsense",), "why"), "half": fine},
    }
    said["judge_2"] |= {"good": fine, "silent": DialogVerdict(None, problem="no answer")}
    shown: list[list[str]] = []

    def answered(settings, judge, questions, folder):
        shown.append(questions)
        return [said[judge.name][name] for name in questions]

    monkeypatch.setattr(making, "_question", lambda row, slot: row["id"])
    monkeypatch.setattr(making, "_answered", answered)
    slots = [SimpleNamespace(blueprint=SimpleNamespace(id=name)) for name in rows]
    judges: Any = [DialogJudge(name, "m", None, "--judge-endpoint") for name in said]  # type: ignore[arg-type]
    found, verdicts = making.judged(MakeSettings(), judges, made, slots, Path())  # type: ignore[arg-type]
    assert shown == [["good", "half", "doubted", "silent"]] * 2
    assert [row["id"] for row, _ in found] == [*rows]
    verified = {row["id"]: row["meta"]["verified"] for row, _ in found}
    assert {name for name, by in verified.items() if "judge" in by} == {"good", "half"}
    assert all(by[0] == "results" and len(by) <= 2 for by in verified.values())
    kinds = {row["id"]: [fault.kind for fault in faults] for row, faults in found}
    assert kinds["doubted"] == ["judge: nonsense"] and kinds["silent"] == ["judge: no verdict"]
    assert (kinds["good"], kinds["bad"], kinds["half"]) == ([], ["nonsense"], ["odd"])
    assert all("judge" not in row["meta"]["verified"] for row in rows.values())
    assert {name: {*of} for name, of in verdicts.items()} == {name: {*said[name]} for name in said}
