"""agentlite.scoring.rewards: components by hand, what holds for any completion, user functions."""

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.examples import examples

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Gold, GoldCall, Parsed, Tool
from agentlite.scoring.metrics.step_metrics import calls_right, identity
from agentlite.scoring.rewards import (
    COMPONENTS,
    PENALTIES,
    WEIGHTS,
    Attempt,
    TraceStep,
    score_attempt,
    total,
)
from agentlite.scoring.rewards.scorer import UserFunctions, function_files

PARAMETERS = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "hourly": {"type": "boolean"},
    "levels": {"type": "array", "items": {"type": "integer"}},
    "area": {"type": "object", "properties": {"north": {"type": "number"}}},
}
WEATHER = Tool(
    "get_weather", "", {"type": "object", "properties": PARAMETERS, "required": ["city"]}
)
TIME = Tool(
    "get_time",
    "",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
TOOLS = (WEATHER, TIME)


def weather(city="Oslo", **others):
    return Call("get_weather", {"city": city, **others})


def time(city="Oslo"):
    return Call("get_time", {"city": city})


def expected(name="get_weather", **accepted):
    return GoldCall(name, accepted)


def gold(*calls, steps=None):
    return Gold(calls, steps)


ONE = gold(expected(city=["Oslo"], days=[3]))
LENIENT = gold(expected(city=["Oslo", "Oslo, Norway"], days=["", 3]))
PAIR = gold(expected(city=["Oslo"]), expected(city=["Rome"]))
MIXED = gold(expected(city=["Oslo"]), expected("get_time", city=["Oslo"]))
TWO_STEPS = gold(*MIXED.calls, steps=2)
OVERLAP = gold(expected(city=["Oslo", "Rome"]), expected(city=["Oslo"]))
NORTH = gold(expected(city=["Oslo"], area=[{"north": [1.5]}]))
TWICE = gold(expected(city=["Oslo"]), expected(city=["Oslo"]))
NONE = gold()

RIGHT = weather(days=3)
FULL = (1, 1, 1, 1, 1, 1, 1)
ONLY_CAST = (1, 1, 1, 1, 0, 1, 0)  # right, but in the wrong JSON type
SILENT = (0, 0, 0, 0, 1, 0, 0)
QUIET = (0, 1, 0, 0, 1, 1, 0)  # no answer where one is due, but no call either
CALLED = (0, 0.5, 0, 0, 1, 0, 0)  # a call where none is expected
LONG = "I look it up at once. " * 40
MISSED = {"missed_call": 1}
CAST = "right once its values are cast"


def says(*calls, text="", problem="", finished=True):
    return Parsed(text, calls, problem), finished, None


def did(*steps, text="Done.", problem="", finished=True):
    """A whole dialog: its steps, each a call that went well unless said otherwise, and its last
    text.
    """
    trace = tuple(step if isinstance(step, TraceStep) else TraceStep(step, True) for step in steps)
    return Parsed(text, (), problem), finished, trace


def failed(call, timed_out=False):
    return TraceStep(call, False, timed_out)


def case(name, due_, said, components, penalties=None, feedback="right"):
    return pytest.param(due_, said, components, penalties or {}, feedback, id=name)


# What is due and what is said; then task_completion, tool_accuracy, efficiency, timing_quality,
# format_compliance, arguments and exact; the penalties that count; the feedback.
# fmt: off
CASES = [
    # a call is due: the right one
    case("right call", ONE, says(RIGHT),
         FULL),
    case("right call among hundreds of words", ONE, says(RIGHT, text=LONG),
         (1, 1, 1, 1, 1, 1, 0), {"excess_text": 1}, "240 words, more than the step needs"),
    case("another accepted value", LENIENT, says(weather("Oslo, Norway", days=3)),
         FULL),
    case("what may be left out, left out", LENIENT, says(weather()),
         FULL),
    # ... in another type
    case("text for an integer", ONE, says(weather(days="3")),
         ONLY_CAST, feedback=CAST),
    case("float for an integer", ONE, says(weather(days=3.0)),
         (1, 1, 1, 1, 1, 1, 0), feedback=CAST),
    case("text for a boolean", gold(expected(city=["Oslo"], hourly=[True])), says(weather(hourly="true")),  # noqa: E501  (verbatim text)
         ONLY_CAST, feedback=CAST),
    case("JSON text for a list", gold(expected(city=["Oslo"], levels=[[1, 2]])), says(weather(levels="[1, 2]")),  # noqa: E501  (verbatim text)
         ONLY_CAST, feedback=CAST),
    case("JSON text for an object", NORTH, says(weather(area='{"north": 1.5}')),
         ONLY_CAST, feedback=CAST),
    case("a boolean is no integer", gold(expected(city=["Oslo"], days=[1])), says(weather(days=True)),  # noqa: E501  (verbatim text)
         (1/2, 1, 0, 1, 0, 3/4, 0), feedback="days is a bool"),
    case("half is no integer", ONE, says(weather(days=3.5)),
         (1/2, 1, 0, 1, 0, 3/4, 0), feedback="days is a float"),
    # ... partly right
    case("one value wrong", ONE, says(weather(days=4)),
         (1/2, 1, 0, 1, 1, 3/4, 0), feedback="days has a value that is not accepted"),
    case("parameter missing", ONE, says(weather()),
         (1/2, 1, 0, 1, 1, 5/8, 0), feedback="days is missing"),
    case("required parameter missing", ONE, says(Call("get_weather", {"days": 3})),
         (1/2, 1, 0, 1, 0, 5/8, 0), feedback="city is missing"),
    case("extra parameter of the tool", ONE, says(weather(days=3, hourly=True)),
         (2/3, 1, 0, 1, 1, 11/12, 0), feedback="hourly is not expected"),
    # ... another tool
    case("another tool", ONE, says(time()),
         (0, 0, 0, 1, 1, 0, 0), {"wrong_tool": 1}, "calls get_time, not get_weather"),
    # ... too many
    case("right call and another tool", ONE, says(RIGHT, time()),
         (1/2, 2/3, 1/2, 1, 1, 7/8, 0), {"wrong_tool": 1}, "calls get_time, not expected"),
    case("right call twice", ONE, says(RIGHT, RIGHT),
         (1/2, 2/3, 1/2, 1, 1, 7/8, 0), {"redundant_call": 1}, ("2 calls of get_weather where 1 "
                                                               "expected")),
    case("two wrong values", ONE, says(weather("Rome", days=3), weather("Bonn", days=3)),
         (1/4, 2/3, 0, 1, 1, 5/8, 0), {"redundant_call": 1},
         "2 calls of get_weather where 1 expected"),
    # ... none made
    case("answer where a call is expected", ONE, says(text="It rains."),
         SILENT, MISSED, "no call where get_weather is expected"),
    case("call that cannot be read", ONE, says(problem="call is not JSON"),
         (0,) * 7, MISSED | {"format_error": 1}, "call is not JSON"),
    case("cut off before a call", ONE, says(text="I th", finished=False),
         (0,) * 7, MISSED | {"timeout": 1}, "not finished"),
    # ... in a text with a problem
    case("right call, text with a problem", ONE, says(RIGHT, problem="call not closed"),
         (0, 1, 0, 1, 0, 1, 0), {"format_error": 1}, "call not closed"),
    case("right call, cut off", ONE, says(RIGHT, finished=False),
         (1, 1, 1, 1, 0, 1, 0), {"timeout": 1}, "not finished"),
    # several calls are due
    case("two right calls", PAIR, says(weather(), weather("Rome")),
         FULL),
    case("one of two calls", PAIR, says(weather("Rome")),
         (1/2, 2/3, 0, 1, 1, 1/2, 0), feedback="1 call of get_weather where 2 expected"),
    case("one of two calls, twice", PAIR, says(weather(), weather()),
         (1/2, 1, 0, 1, 1, 3/5, 0), {"redundant_call": 1}, "repeats a call of get_weather"),
    case("two right calls and a third", PAIR, says(weather(), weather("Rome"), weather("Bonn")),
         (2/3, 4/5, 2/3, 1, 1, 14/15, 0), {"redundant_call": 1}, ("3 calls of get_weather where 2 "
                                                                 "expected")),
    case("two tools", MIXED, says(weather(), time()),
         FULL),
    case("one of two tools", MIXED, says(weather()),
         (1/2, 2/3, 0, 1, 1, 1/2, 0), feedback="no call of get_time where 1 expected"),
    case("a call that both due calls take", OVERLAP, says(weather("Oslo"), weather("Rome")),
         FULL),
    case("the same call due twice", TWICE, says(weather(), weather()),
         FULL),
    # no call is due
    case("answer", NONE, says(text="It is late."),
         FULL),
    case("says nothing", NONE, says(),
         QUIET, feedback="says nothing"),
    case("says a full stop", NONE, says(text="."),
         QUIET, feedback="says nothing"),
    case("call where none is expected", NONE, says(time()),
         CALLED, {"wrong_tool": 1}, "calls get_time where no call is expected"),
    case("two calls where none is expected", NONE, says(weather(), time()),
         CALLED, {"wrong_tool": 2}, "calls get_time, get_weather where no call is expected"),
    case("no answer that can be read", NONE, says(problem="call is not JSON"),
         (0, 1, 0, 0, 0, 1, 0), {"format_error": 1}, "call is not JSON"),
    case("answer, cut off", NONE, says(text="It is", finished=False),
         (0, 1, 0, 0, 0, 1, 0), {"timeout": 1}, "not finished"),
    # a whole dialog, by its trace
    case("done in as many steps as needed", TWO_STEPS, did(weather(), time()),
         FULL),
    case("done, the number not known", MIXED, did(weather(), time()),
         FULL),
    case("a step failed and was repeated", TWO_STEPS, did(failed(weather()), weather(), time()),
         (2/3, 4/5, 2/3, 1, 1, 14/15, 0), {"redundant_call": 1}, ("carried out, but 1 of 3 steps "
                                                                 "failed")),
    case("a step ran out of time", TWO_STEPS, did(failed(time(), timed_out=True), weather(), time()),  # noqa: E501  (verbatim text)
         (2/3, 4/5, 2/3, 1, 1, 14/15, 0), {"redundant_call": 1, "timeout": 1}, ("carried out, but 1 "  # noqa: E501  (verbatim text)
                                                                               "of 3 steps failed")),  # noqa: E501  (verbatim text)
    case("a due step failed", TWO_STEPS, did(weather(), failed(time())),
         (1/2, 1, 0, 1, 1, 1, 1), feedback="1 of 2 expected calls carried out"),
    case("a due step was never tried", TWO_STEPS, did(weather()),
         (1/2, 2/3, 0, 1, 1, 1/2, 0), feedback="1 of 2 expected calls carried out"),
    case("a wrong value carried out", TWO_STEPS, did(weather("Rome"), time()),
         (1/2, 1, 0, 1, 1, 4/5, 0), feedback="1 of 2 expected calls carried out"),
    case("one step more than needed", TWO_STEPS, did(weather(), weather("Rome"), time()),
         (1, 4/5, 2/3, 1, 1, 14/15, 0), {"redundant_call": 1}, "carried out in 3 steps, not 2"),
    case("a step of another tool", gold(expected(city=["Oslo"])), did(weather(), time()),
         (1, 2/3, 1, 1, 1, 5/6, 0), {"wrong_tool": 1}),
    case("no step where some are expected", TWO_STEPS, did(),
         SILENT, MISSED, "0 of 2 expected calls carried out"),
    case("done, last text has a problem", TWO_STEPS, did(weather(), time(), problem="call not closed"),  # noqa: E501  (verbatim text)
         (1, 1, 1, 1, 0, 1, 0), {"format_error": 1}, "call not closed"),
    case("a step where none is expected", NONE, did(time()),
         CALLED, {"wrong_tool": 1}, "calls get_time where no call is expected"),
]
# fmt: on


def attempt_at(due_, said):
    parsed, finished, trace = said
    return Attempt(parsed, due_, TOOLS, finished=finished, trace=trace)


@pytest.mark.parametrize(("due_", "said", "components", "penalties", "feedback"), CASES)
def test_a_case_earns_what_stands_beside_it(due_, said, components, penalties, feedback):
    judged = score_attempt(attempt_at(due_, said))
    assert {name: judged.components[name] for name in COMPONENTS} == pytest.approx(
        dict(zip(COMPONENTS, components, strict=True))
    )
    assert {
        name: judged.components[name] for name in PENALTIES if judged.components[name]
    } == penalties
    assert (judged.feedback, judged.error) == (feedback, "")


def earned(due_, *calls, **how):
    return total(score_attempt(attempt_at(due_, says(*calls, **how))).components, WEIGHTS)


def test_under_the_default_weights_answers_rank_as_one_would_rank_them():
    ranked = [
        earned(ONE, RIGHT),
        earned(ONE, weather(days=3, hourly=True)),
        earned(ONE, weather(days=4)),
        earned(ONE, RIGHT, RIGHT),
        earned(ONE, weather("Rome", days=4), time()),
        earned(ONE, time()),
        earned(ONE, text="It rains."),
        earned(ONE, problem="call is not JSON"),
        earned(ONE, text="It", finished=False),
    ]
    assert ranked == sorted(ranked, reverse=True) and len(set(ranked)) == len(ranked)
    assert ranked[0] == 1.0 and ranked[5:7] == pytest.approx([-0.1, -0.2])


def test_a_feedback_is_one_short_line_whatever_the_model_calls():
    for odd in ("\n", "\x1b[31m", "\u202e", "\0"):
        told = score_attempt(attempt_at(ONE, says(Call(f"a{odd}b" + "c" * 5000)))).feedback
        assert told.isprintable() and len(told) == 200


# What holds whatever is said: three tools, few values, so that calls often agree, repeat, or are
# all but right.

SMALL = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "string"}, "z": {"type": "string"}},
    "required": ["x"],
}
OFFERED = tuple(Tool(name, "", SMALL) for name in "fgh")
CALLS = st.builds(
    Call,
    st.sampled_from("ffgh?"),
    st.fixed_dictionaries(
        {},
        optional={
            "x": st.sampled_from([1, 2, "1", None]),
            "y": st.sampled_from(["a", "b", 1]),
            "z": st.just("c"),
            "?": st.just(0),
        },
    ),
)
DUE = st.builds(
    lambda name, x, others: GoldCall(name, {"x": x, **others}),
    st.sampled_from("ffg"),
    st.sampled_from([[1], [2], [1, 2]]),
    st.fixed_dictionaries({}, optional={"y": st.sampled_from([["a"], ["", "a"], ["a", "b"]])}),
)
GOLDS = st.builds(lambda calls: Gold(tuple(calls)), st.lists(DUE, max_size=3))
SOME_DUE = st.builds(lambda calls: Gold(tuple(calls)), st.lists(DUE, min_size=1, max_size=3))
SAID = st.lists(CALLS, max_size=4)
PROBLEMS = st.sampled_from(["", "", "call not closed"])


def judged(due_, calls, problem="", finished=True, trace=None):
    return score_attempt(
        Attempt(
            Parsed("Well.", tuple(calls), problem), due_, OFFERED, finished=finished, trace=trace
        )
    )


def worth(due_, calls):
    return total(judged(due_, calls).components, WEIGHTS)


def satisfies(call, one_due):
    return judged(Gold((one_due,)), [call]).components["efficiency"] == 1.0


@pytest.mark.long
@given(GOLDS, SAID, CALLS)
@settings(max_examples=examples(400))
def test_adding_a_wrong_call_never_raises_the_total(due_, calls, wrong):
    """Wrong: no expected call asks for it, and it repeats another one, or its tool is not expected,
    or was called as often as it is, repetitions left out.
    """
    # the first call where one is expected ends a silence, which is worse
    assume(calls or not due_.calls)
    number = sum(one.name == wrong.name for one in due_.calls)
    of_tool = [identity(call) for call in calls if call.name == wrong.name]
    assume(len(set(of_tool)) >= number or identity(wrong) in of_tool)
    assume(not any(satisfies(wrong, one) for one in due_.calls))
    assert worth(due_, [*calls, wrong]) < worth(due_, calls)


NAMES = "abcde"
OF_FIVE = Tool("f", "", {"properties": {name: {"type": "integer"} for name in NAMES}})


@pytest.mark.long
@given(st.sets(st.sampled_from(NAMES), min_size=1), st.sets(st.sampled_from(NAMES)), st.data())
def test_every_right_argument_raises_the_total(named, right, draw):
    """Of one call, beside another or alone: what GRPO climbs."""
    one = GoldCall("f", {name: [1] for name in named})
    due_ = Gold((one, GoldCall("f", {"a": [7]})) if draw.draw(st.booleans()) else (one,))
    others = [Call("f", {"a": 7})] * (len(due_.calls) - 1)
    right = right & named
    assume(right < named)
    added = draw.draw(st.sampled_from(sorted(named - right)))

    def worth_of(correct):
        call = Call("f", {name: int(name in correct) for name in named})
        attempt = Attempt(Parsed("", (call, *others)), due_, (OF_FIVE,))
        return total(score_attempt(attempt).components, WEIGHTS)

    assert worth_of(right | {added}) > worth_of(right)


@pytest.mark.long
@given(GOLDS, SAID, PROBLEMS, st.randoms(use_true_random=False))
@settings(max_examples=examples(300))
def test_permuting_parallel_calls_changes_nothing(due_, calls, problem, generator):
    before, shuffled = judged(due_, calls, problem), list(calls)
    generator.shuffle(shuffled)
    assert judged(due_, shuffled, problem) == before
    golds = list(due_.calls)
    generator.shuffle(golds)
    assert judged(Gold(tuple(golds)), calls, problem) == before


WELL_FORMED = st.builds(
    lambda name, x, others: Call(name, {"x": x, **others}),
    st.sampled_from("fgh"),
    st.integers(0, 3),
    st.fixed_dictionaries({}, optional={"y": st.sampled_from("abc"), "z": st.just("c")}),
)


@given(SOME_DUE, WELL_FORMED, PROBLEMS, st.booleans(), st.sampled_from(["", "Well."]))
@settings(max_examples=examples(300))
def test_where_a_call_is_due_abstaining_is_worse_than_any_well_formed_call(
    due_, call, problem, finished, text
):
    abstaining = score_attempt(Attempt(Parsed(text, (), problem), due_, OFFERED, finished=finished))
    assert total(abstaining.components, WEIGHTS) < worth(due_, [call])


TRACES = st.one_of(
    st.none(),
    st.lists(st.builds(TraceStep, CALLS, st.booleans(), st.booleans()), max_size=4).map(tuple),
)


@pytest.mark.long
@given(GOLDS, SAID, PROBLEMS, st.booleans(), TRACES)
@settings(max_examples=examples(300))
def test_every_component_is_between_0_and_1_and_every_penalty_a_count(
    due_, calls, problem, finished, trace
):
    components = judged(due_, calls, problem, finished, trace).components
    assert list(components) == [*COMPONENTS, *PENALTIES]
    assert all(type(value) is float for value in components.values())
    assert all(0 <= components[name] <= 1 for name in COMPONENTS)
    assert all(components[name] >= 0 and components[name].is_integer() for name in PENALTIES)


@given(GOLDS, SAID)
@settings(max_examples=examples(300))
def test_exact_is_the_strict_verdict_of_the_metrics(due_, calls):
    """But where an early due call takes what only a later one accepts, the metric, like BFCL's,
    goes by their order.
    """
    found = judged(due_, calls).components["exact"]
    orders = itertools.permutations(calls)
    assert found == float(any(calls_right(order, due_, OFFERED) for order in orders))


# Weights and totals.


def test_a_total_is_the_weighted_sum_and_is_not_clamped():
    assert total({"a": 0.5, "b": 3.0, "c": 1.0}, {"a": 1.0, "b": -0.3}) == pytest.approx(-0.4)


# Functions of one's own.

MINE = """\
import os, signal, sys, time
print("imported")

def short(attempt):
    print("judging")
    os.system("echo by a command")
    return 1 - len(attempt.text) / 100

def raises(attempt):
    return {}["no such key"]
def hangs(attempt): time.sleep(60)
def none(attempt): return None
def two(attempt): return 2.0
def two_arguments(response, gold): return 1
def leaves(attempt): sys.exit("bye")
async def awaited(attempt): return 0.25
def dies(attempt): os._exit(3)
"""
ATTEMPT = Attempt(Parsed("x", (time(),)), NONE, TOOLS, text="x" * 30)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """One child for all that need no other."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    names = [
        line.split("(")[0].split("def ")[1]
        for line in MINE.splitlines()
        if line.startswith(("def ", "async def "))
    ]
    with UserFunctions([f"{folder}/mine.py:{name}" for name in names], seconds=0.5) as functions:
        yield functions


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("raises", "raised KeyError: 'no such key' (PLACE:10)"),
        (
            "two_arguments",
            "raised TypeError: two_arguments() missing 1 required positional argument: 'gold' "
            "(PLACE)",
        ),
        ("leaves", "raised SystemExit: bye (PLACE:15)"),
        ("none", "returned None, not a number from 0 to 1"),
        ("two", "returned 2.0, not a number from 0 to 1"),
        ("hangs", "took longer than 0.5 s"),
        ("dies", "ended with exit code 3"),
    ],
)
def test_a_function_that_gives_no_number_costs_its_candidate_alone(own, name, told):
    place = own[name].func.__self__.code.functions[0].file
    others = {"short": own["short"], "awaited": own["awaited"]}
    found = score_attempt(ATTEMPT, {name: own[name], **others})
    assert found.error == f"{name} {told.replace('PLACE', place)}"
    assert name not in found.components
    assert (found.components["short"], found.components["awaited"]) == (0.7, 0.25)
    assert total(found.components, WEIGHTS) == total(score_attempt(ATTEMPT).components, WEIGHTS)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["mine.py"], "'mine.py' names no function"),
        (["not.py:short"], "not.py: no such file"),
        (["mine.py:exact"], "mine.py:exact: another component is called exact"),
        (["mine.py:short"] * 2, "another component is called short"),
    ],
    ids=str,
)
def test_what_names_no_function_is_refused_before_a_child_is_there(mine, texts, told):
    for refuse in (UserFunctions, function_files):
        with pytest.raises(UserError, match=told) as caught:
            refuse(texts)
        assert caught.value.fix and caught.value.exit_code == 2
