"""BFCL's dialogs: the verdict is that of its own checker, and a call's result that of its executor.

What is compared with is the package bfcl-eval itself, on its own gold and on thousands of changes.
"""

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
from support.examples import ALL

from agentlite.environments.bfcl_world import BfclWorld, Instances, PythonCall, read_call
from agentlite.environments.registry import bfcl_tasks as tasks
from agentlite.scoring.metrics.bfcl import MULTI_TURN

pytestmark = pytest.mark.long
OWN = {*vars(multi_turn_utils)}
ALTERED = 10_000 if ALL else 300
FOREIGN = ("nothing()", "kill(pid=1)", "exit()", "run(a=2)", "ls(a=True, b=1)", "cat()", "_x(a=1)")


@pytest.fixture(scope="module")
def rows():
    return {task.id: task.row for category in MULTI_TURN for task in tasks(category)}


@pytest.fixture
def theirs() -> Iterator[None]:
    """The package keeps its worlds as globals of a module, for ever."""
    yield
    forget()


def forget() -> None:
    for name in {*vars(multi_turn_utils)} - OWN:
        delattr(multi_turn_utils, name)


def their_verdict(row, turns):
    steps = [[[call] for call in calls] for calls in turns]
    found = multi_turn_checker(steps, row["ground_truth"], row, "", "model")
    forget()
    return "" if found["valid"] else found["error_type"].removeprefix("multi_turn:")


def played(row, turns):
    world = BfclWorld()
    world.reset(**row)
    for calls in turns:
        for call in calls:
            world.carry_out(read_call(call))
        world.next_user("")
    return world


@pytest.mark.usefixtures("theirs")
def test_every_gold_dialog_has_bfcls_verdict(rows):
    assert len(rows) == 800
    for row in rows.values():
        assert played(row, row["ground_truth"]).verdict == ""
        assert their_verdict(row, row["ground_truth"]) == ""


@pytest.mark.usefixtures("theirs")
def test_an_altered_dialog_has_bfcls_verdict(rows):
    seen: Counter[str] = Counter()
    names = sorted(rows)
    for seed in range(ALTERED):
        draw = random.Random(seed)
        row = rows[draw.choice(names)]
        turns = altered(row["ground_truth"], rows[draw.choice(names)]["ground_truth"], draw)
        verdict = played(row, turns).verdict
        assert verdict == their_verdict(row, turns), (seed, row["id"], turns)
        seen[verdict] += 1
    # or the changes would show nothing
    assert len(seen) == 4 and min(seen.values()) > ALTERED / 60, seen


def altered(gold, other, draw):
    """A dialog with one to three calls dropped, added, doubled, moved, reordered or changed."""
    turns = [list(calls) for calls in gold]
    foreign = [call for calls in other for call in calls]
    for _ in range(draw.randint(1, 3)):
        filled = [index for index, calls in enumerate(turns) if calls]
        if not filled:
            break
        calls = turns[draw.choice(filled)]
        place = draw.randrange(len(calls))
        how = draw.choice(["drop", "double", "move", "reorder", "empty", "add", "add", "change"])
        if how == "drop":
            del calls[place]
        elif how == "double":
            calls.insert(place, calls[place])
        elif how == "move":
            turns[draw.randrange(len(turns))].append(calls.pop(place))
        elif how == "reorder":
            draw.shuffle(calls)
        elif how == "empty":
            calls.clear()
        elif how == "add":
            calls.insert(place, draw.choice([*foreign, *FOREIGN]))
        else:
            calls[place] = changed(read_call(calls[place]), draw)
    return turns


def changed(call, draw):
    positional, arguments = list(call.positional), dict(call.arguments)
    if arguments:
        name = draw.choice(sorted(arguments))
        arguments[name] = another(arguments[name], draw)
    elif positional:
        positional[0] = another(positional[0], draw)
    written = [repr(value) for value in positional]
    written += [f"{name}={value!r}" for name, value in arguments.items()]
    return f"{call.name}({', '.join(written)})"


def another(value, draw):
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return draw.choice([value + "x", value.upper(), value[:-1], ""])
    if isinstance(value, list):
        return value[:-1] if value else ["x"]
    return value * 2 + 1 if isinstance(value, int | float) else value


@pytest.mark.usefixtures("theirs")
def test_every_gold_call_returns_what_the_package_returns(rows):
    compared = 0
    for row in rows.values():
        world = Instances(row)
        for calls in row["ground_truth"]:
            results, _ = multi_turn_utils.execute_multi_turn_func_call(
                calls,
                row["initial_config"],
                row["involved_classes"],
                "model",
                row["id"],
                "long_context" in row["id"],
            )
            assert [world.call(read_call(call)) for call in calls] == results, row["id"]
            compared += len(calls)
        forget()
    assert compared == 4625


def test_two_worlds_of_a_dialog_share_nothing(rows):
    row = rows["multi_turn_base_0"]
    one, other = BfclWorld(), BfclWorld()
    one.reset(**row)
    other.reset(**row)
    before = other.state()
    for call in row["ground_truth"][0]:
        one.carry_out(read_call(call))
    assert other.state() == before != one.state()
    again = BfclWorld()
    again.reset(**row)
    assert again.state() == before


def test_a_dialog_that_is_cut_before_its_last_turn_is_ended_by_force(rows):
    row = rows["multi_turn_base_0"]
    world = BfclWorld()
    world.reset(**row)
    for call in row["ground_truth"][0]:
        world.carry_out(read_call(call))
    assert world.get_scores() == {"bfcl": 0.0, "progress": 0.0, "state": 0.0}
    assert world.verdict == "force_terminated"
    assert world.get_turn_scores() == [{"turn_right": 0.0}] * 4
    world.reset(**row)
    *before, last = row["ground_truth"]
    for calls in before:
        for call in calls:
            world.carry_out(read_call(call))
        world.next_user("")
    for call in last:
        world.carry_out(read_call(call))
    # the limit of steps in the last turn: BFCL judges such a dialog
    assert world.get_scores() == {"bfcl": 1.0, "progress": 1.0, "state": 1.0}
    assert world.get_turn_scores() == [{"turn_right": 1.0}] * 4


def test_of_a_dialog_the_turns_before_the_first_wrong_one_count(rows):
    row = rows["multi_turn_base_0"]
    for wrong in range(len(row["ground_truth"])):
        turns = [calls if turn != wrong else [] for turn, calls in enumerate(row["ground_truth"])]
        world = played(row, turns)
        assert world.get_scores()["progress"] == wrong / 4
        assert world.get_scores()["bfcl"] == 0
        right = [one["turn_right"] for one in world.get_turn_scores()]
        assert right == [1.0] * wrong + [0.0] * (4 - wrong)


@pytest.mark.parametrize(
    "text",
    ["f(", "f", "f(x)", "a.f()", "f(**{'a': 1})", "f(__import__('os').system('true'))", "f(g(1))"],
)
def test_gold_that_is_not_a_plain_call_is_refused_and_nothing_is_evaluated(text):
    with pytest.raises((SyntaxError, ValueError)):
        read_call(text)
    assert read_call(" sort('a', n=[1, -2]) ") == PythonCall("sort", ["a"], {"n": [1, -2]})
