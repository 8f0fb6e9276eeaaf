"""What components look at: words beside a call, words of the dialog, traces, and which call is
assigned to which expected one; and the default weights.
"""

import re

import pytest
from support.samples import ROOT

from agentlite.core.records import ANY_TOOL, Call, Candidate, Gold, GoldCall, Message, Parsed, Tool
from agentlite.data.formats import to_record
from agentlite.rendering import PROTOCOLS
from agentlite.scoring.rewards import WEIGHTS, Attempt, TraceStep, score_attempt
from agentlite.scoring.rewards.attempt import MOST_STEP_WORDS, trace_step
from agentlite.scoring.rewards.call_matching import uses_by_tool
from agentlite.scoring.rewards.scorer import Scorer


@pytest.mark.parametrize(
    ("words", "recorded", "excess"),
    [
        (MOST_STEP_WORDS, 0, False),
        (MOST_STEP_WORDS + 1, 0, True),
        (MOST_STEP_WORDS + 1, 75, True),
        (MOST_STEP_WORDS + 10, MOST_STEP_WORDS + 5, False),
        (2 * MOST_STEP_WORDS + 10, MOST_STEP_WORDS + 5, False),
        (2 * MOST_STEP_WORDS + 11, MOST_STEP_WORDS + 5, True),
    ],
)
def test_excess_words_are_more_than_a_thought_needs_and_twice_the_recorded(words, recorded, excess):
    said, dialog = (" ".join(f"w{n}" for n in range(count)) for count in (words, recorded))
    asked = (Message("user", "w7"),)
    attempt = Attempt(Parsed(said, (Call("f"),)), Gold(), (), messages=asked, reference=dialog)
    assert attempt.excess_words == (words if excess else 0)
    # an answer may be longer
    assert not Attempt(Parsed(said), Gold(), (), messages=asked).excess_words


@pytest.mark.parametrize(
    ("words", "recorded", "excess"),
    [(2500, 0, False), (2501, 0, True), (4000, 2000, False), (4001, 2000, True)],
)
def test_a_thought_may_be_long_or_twice_as_long_as_the_recorded_one(words, recorded, excess):
    thought, known = "x " * words, "x " * recorded
    attempt = Attempt(Parsed("", (Call("f"),)), Gold(), (), thought=thought, recorded_thought=known)
    assert bool(attempt.excess_words) == excess


@pytest.mark.parametrize("count", [25, 26])
@pytest.mark.parametrize("word", ["rain{}", "Oslo", "w{}"])
def test_words_beside_a_call_are_about_the_dialog_and_not_the_same_ones_again(word, count):
    said = " ".join(word.format(n or "") for n in range(count))
    asked = (Message("user", "Rain in Oslo?"),)
    attempt = Attempt(Parsed(said, (Call("f"),)), Gold(), (), messages=asked)
    assert bool(attempt.excess_words) == (count == 26 and word != "rain{}")


DIALOG = (
    Message("system", "Be brief."),
    Message("user", "Rain in Tromsø?"),
    Message("assistant", "", (Call("f"),)),
    Message("tool", "4 mm"),
)


@pytest.mark.parametrize(
    ("said", "recorded", "related"),
    [
        ("TROMSØ", "", True),  # a word of the first message, in other letters
        ("Brief", "", True),
        ("mm", "", True),
        ("yes", "Yes, it does.", True),
        ("xqz", "Yes, it does.", False),
        ("xqz", "", False),
        (" ! ", "!", True),  # the record itself says no more
        ("! !", "!", False),
    ],
)
def test_an_answer_is_related_by_a_word_of_any_message_or_by_being_the_recorded_one(
    said, recorded, related
):
    attempt = Attempt(Parsed(said), Gold(), (), messages=DIALOG, reference=recorded)
    assert attempt.is_related is related
    assert Attempt(Parsed(said), Gold(), ()).is_related  # nothing to compare it with


# --- Traces ---


ASK = Call("ask", {"x": 1}, "a")


@pytest.mark.parametrize(
    ("result", "failed", "timed_out"),
    [
        ("Error: TimeoutError", True, True),
        ("Error: ReadTimeout: 10 s", True, True),
        ("Error: TimeoutExpired: x", True, True),
        ("Error: the request timed out", True, True),
        ("Error: time-out", True, True),
        ("Error: no time", True, False),
        ("Error: sometimes out", True, False),
        ("the time out is 3", False, False),
        ("Error: " + "x" * 300 + "timeout", True, False),  # a page that was returned
    ],
)
def test_only_a_call_that_failed_ran_out_of_time(result, failed, timed_out):
    assert trace_step(ASK, result, failed) == TraceStep(ASK, not failed, timed_out, result)


WEATHER = {
    "name": "weather",
    "description": "",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def test_at_a_recorded_step_a_function_sees_what_was_done_before_it_and_failed():
    """As Anthropic's rows mark it."""

    def use(name, city):
        block = {"type": "tool_use", "id": name, "name": "weather", "input": {"city": city}}
        return {"role": "assistant", "content": [block]}

    def result(name, text, **fields):
        block = {"type": "tool_result", "tool_use_id": name, "content": text, **fields}
        return {"role": "user", "content": [block]}

    row = {
        "tools": [WEATHER],
        "messages": [
            {"role": "user", "content": "Rain?"},
            use("t1", "Osl"),
            result("t1", "unknown", is_error=True),
            use("t2", "Oslo"),
            result("t2", "4 mm"),
            {"role": "assistant", "content": "Yes."},
        ],
    }
    record = to_record(row, "anthropic", split=False)
    assert len(record.turns) == 3
    seen = []

    def steps(attempt):
        seen.append(attempt.history)
        assert attempt.trace is None and attempt.scores == {} == attempt.row
        return float(all(step.ok for step in attempt.history))

    scorer = Scorer({record.id: record}, PROTOCOLS, {"steps": steps})
    candidates = [
        Candidate(record.id, turn, "hermes", "sft", n, "Yes.", "turn", 1)
        for turn in record.turns
        for n in range(2)
    ]
    found = [score.components["steps"] for score in scorer(candidates)]
    assert found == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert [len(history) for history in seen] == [0, 0, 1, 1, 2, 2]
    assert [(step.call.arguments["city"], step.ok, step.result) for step in seen[-1]] == [
        ("Osl", False, "unknown"),
        ("Oslo", True, "4 mm"),
    ]


# --- Expected calls ---


def test_the_default_weights_are_those_of_the_documentation():
    text = (ROOT / "docs/rewards.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (-?[\d.]+) \|", text, re.MULTILINE)
    assert {name: float(weight) for name, weight in rows if name in WEIGHTS} == WEIGHTS
    assert WEIGHTS["task_completion"] == 0.40 and WEIGHTS["timeout"] == -0.5


def test_where_the_gold_has_a_number_of_steps_it_goes_before_five():
    tool = Tool("f", "", {"type": "object"})
    call = Call("f", {})
    steps = tuple(TraceStep(Call("f", {"x": n}) if n else call, True) for n in range(4))
    for optimal, efficiency in ((None, 1.0), (3, 3 / 4), (2, 1 / 2)):
        gold = Gold((GoldCall("f", {}),), optimal)
        found = score_attempt(Attempt(Parsed("Done."), gold, (tool,), trace=steps))
        assert found.components["efficiency"] == pytest.approx(efficiency)


@pytest.mark.parametrize(
    ("expected", "made", "taken"),
    [
        (["*"], ["f"], ["f"]),
        (["f", "*"], ["f", "g"], ["f", "g"]),  # f is spoken for
        (["*", "g"], ["f", "g"], ["f", "g"]),
        (["g", "*"], ["f", "g"], ["f", "g"]),
        (["f", "*"], ["f", "f"], ["f", "f"]),  # the second f is not
        (["*", "*"], ["g", "f"], ["f", "g"]),
        (["f", "*"], ["f"], ["*", "f"]),
        (["*"], ["no_such_tool"], ["*"]),
        (["f", "*"], ["no_such_tool", "f"], ["*", "f"]),
        (["*"], [], ["*"]),
    ],
)
def test_any_tool_stands_for_a_tool_on_offer_that_no_other_expected_call_names(
    expected, made, taken
):
    tools = [Tool(name, "", {"type": "object"}) for name in ("f", "g")]
    gold = [GoldCall(ANY_TOOL if name == "*" else name, {}) for name in expected]
    found = uses_by_tool(gold, [Call(name, {"n": n}) for n, name in enumerate(made)], tools)
    names = [one.name for use in found.values() for one in use.expected]
    assert sorted("*" if name == ANY_TOOL else name for name in names) == taken
