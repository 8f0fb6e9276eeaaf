"""`make dialogs` without a model: judges, keys, verdicts, and faults of users."""

import importlib
from typing import Any

import pytest

from agentlite.config.settings import MakeSettings
from agentlite.environments.simulators import SimulatorReply, question
from agentlite.environments.synthesis.checks import DialogFault
from agentlite.environments.synthesis.dialog import MadeDialog
from agentlite.stages.make.judged import NO_VERDICT, DialogJudge, find_judges, read_verdict

making = importlib.import_module("agentlite.stages.make.judged")
A, B = "http://a/v1", "http://b/v1"


def judges(**changes: Any) -> list[tuple[str, str, str, str, str]]:
    usual = {"endpoint": (A,), "model": "m", "endpoint_key": "WRITER", "judge_key": "JUDGE"}
    found = find_judges(MakeSettings(**{**usual, **changes}))
    return [
        (one.name, one.model, one.served.digest, one.served.endpoints[0].key, one.option)
        for one in found
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
    found = read_verdict(SimulatorReply("", text))
    assert found.faults == faults and found.problem == ("" if faults is not None else NO_VERDICT)
    silent = read_verdict(SimulatorReply("", text, problem="no reply"))
    assert (silent.faults, silent.problem) == (None, "no reply")


def test_judges_see_what_the_rules_keep_and_verify_what_nobody_finds_a_fault_in(
    monkeypatch, tmp_path
):
    by_rules = {"bad": [DialogFault("nonsense", "odd")], "half": [DialogFault("odd", "odd", 3)]}
    made = [
        MadeDialog({"id": name, "meta": {"verified": ["results"]}}, by_rules.get(name, []))
        for name in ("good", "bad", "half", "doubted", "silent")
    ]
    said = {
        ("judge_2", "doubted"): '{"faults": ["nonsense"], "reason": "why"}',
        ("judge_2", "silent"): "Fine.",
    }
    shown: list[list[str]] = []

    def answers(judge, questions, settings, file, title, option):
        names = [question.messages[0]["content"] for question in questions]
        shown.append(names)
        return [SimulatorReply("", said.get((judge, name), '{"faults": []}')) for name in names]

    monkeypatch.setattr(making, "_question", lambda row, slot: question("teacher", row["id"]))
    monkeypatch.setattr(making, "answers", answers)
    plans: Any = {dialog.row["id"]: None for dialog in made}
    judges: Any = [
        DialogJudge(name, "m", name, "--judge-endpoint")  # type: ignore[arg-type]
        for name in ("judge_1", "judge_2")
    ]
    dialogs, figures = making.judge_dialogs(MakeSettings(), judges, made, plans, tmp_path)
    kept = ["good", "half", "doubted", "silent"]
    assert shown == [kept, [], kept, ["silent"]]  # what cannot be read is asked for once more
    assert {dialog.row["id"]: [fault.kind for fault in dialog.faults] for dialog in dialogs} == {
        "good": [],
        "bad": ["nonsense"],
        "half": ["odd"],
        "doubted": ["judge: nonsense"],
        "silent": ["judge: no verdict"],
    }
    for dialog in dialogs:
        by = ["results", "judge"] if dialog.row["id"] in ("good", "half") else ["results"]
        assert dialog.row["meta"]["verified"] == by
    assert all(dialog.row["meta"]["verified"] == ["results"] for dialog in made)
    judged = {name: of["judged"] for name, of in figures["judges"].items()}
    assert judged == {"judge_1": 4, "judge_2": 4}
    assert figures["judges_agree"]["share"] == 2 / 3  # of the three with two verdicts
