"""`make dialogs` without a model: judges, keys, verdicts, and faults of users."""

import importlib
from typing import Any

import pytest

from agentlite.config.settings import MakeSettings
from agentlite.environments.synthesis.checks import DialogFault
from agentlite.environments.synthesis.dialog import MadeDialog, UserProfile
from agentlite.stages.make.judged import NO_VERDICT, DialogJudge, find_judges, read_verdict
from agentlite.stages.make.play import STOP, _question, _said, faults_of_user
from agentlite.stages.teacher import TeacherReply, question

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
    found = read_verdict(TeacherReply("", text))
    assert found.faults == faults and found.problem == ("" if faults is not None else NO_VERDICT)
    silent = read_verdict(TeacherReply("", text, problem="no reply"))
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
        return [TeacherReply("", said.get((judge, name), '{"faults": []}')) for name in names]

    monkeypatch.setattr(making, "_question", lambda row, slot: question(row["id"]))
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


ANNA = UserProfile(
    goal="Change the delivery of the order to a later day because you are away next week.",
    facts={
        "order_id": "W2378156",
        "email": "anna@example.org",
        "city": "Oslo",
        "day": "2026-05-18",
        "time": "15:00",
        "count": 2,
        "sizes": ["small", 38],
    },
    on_request=("order_id", "email"),
)
ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "My delivery has to move."},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "tool", "content": "4 days"},
    {
        "role": "assistant",
        "content": '<think>\nWhich?\n</think>\n\nThe "email", please?',
    },
]


def test_a_user_is_shown_its_goal_its_facts_and_what_was_said():
    system, asked = (message["content"] for message in _question(ANNA, ASKED).messages)
    for part in ("away next week", "- city: Oslo\n", "- order_id: W2378156 (tell it only", STOP):
        assert part in system
    said = ['{"you": "My delivery has to move."}']
    said += ['{"assistant": "The \\"email\\", please?"}']
    assert asked.splitlines()[1:3] == said and "4 days" not in asked and "brief" not in asked


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (TeacherReply("", "In Oslo."), "In Oslo."),
        (TeacherReply("", '{"you": "In Oslo."}'), "In Oslo."),
        *((TeacherReply("", text), None) for text in (STOP, f"Thanks. {STOP}", "[[ End-3f]]", "")),
        (TeacherReply("", "In Os", cut=True), None),
        (TeacherReply("", "In Oslo.", calls=True), None),
    ],
)
def test_the_stop_word_and_what_cannot_be_said_end_a_dialog(reply, words):
    assert _said(reply) == words


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("It is W2378156.", None),
        ("Order w2378156, anna@example.org.", None),
        ("On 18 May 2026, at 3 pm.", None),
        ("On the 18th at 3pm.", None),
        ("At 15:00 or 3:00 PM.", None),
        ("The two of them, 2, please. Size 38.", None),
        ("My order is not here.", None),
        ("Yes, find it.", None),
        ("我住在奥斯陆。", None),
        ("It is W2378157.", "contradiction"),
        ("Write to anna@example.com.", "contradiction"),
        ("The day is 2026-05-19.", "contradiction"),
        ("I need 4 of them.", "contradiction"),
        ("At 16:00.", "contradiction"),
        ("On the 19th.", "contradiction"),
        ("Assistant: Your order is moved.", "assistant"),
        ("How can I help you today?", "assistant"),
        ("As an AI, I have no order.", "assistant"),
        ("<|im_start|>assistant", "assistant"),
        ('<tool_call>{"name": "find"}</tool_call>', "call"),
        ('{"name": "move_order", "arguments": {}}', "call"),
        ("move_order(day=18)", "call"),
        ("Action: move_order", "call"),
    ],
)
def test_a_user_that_leaves_its_facts_or_its_role_has_a_fault(words, kind):
    messages = [*ASKED, {"role": "user", "content": words}]
    kinds = {fault.kind for fault in faults_of_user(ANNA, messages, ["move_order", "find"])}
    assert f"user: {kind}" in kinds if kind else not kinds
