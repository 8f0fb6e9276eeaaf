"""A model acts in worlds: its calls are carried out, its user goes on, and each end has a name."""

import json
from itertools import pairwise

import pytest
from support.examples import in_turn
from support.shop import ITEMS, call, script, scripted, shop, tasks

from agentlite.environments.rollout import RolloutAnswer, RolloutSetup, roll
from agentlite.environments.trajectories import ModelTurn, RolloutKey, Trajectory
from agentlite.environments.world import WorldLimits
from agentlite.rendering import choose
from agentlite.workspace.model_source import load_template

pytestmark = pytest.mark.long  # a process for each world


@pytest.fixture
def setup(tmp_path, smollm2):
    protocol = choose("hermes", smollm2).protocols["hermes"]
    made = shop(tmp_path, tasks())
    return RolloutSetup(made, protocol, smollm2, 2000, 5, WorldLimits(60.0))


def rolled(setup, answers=scripted, samples=1, earlier=(), batch_size=3):
    waiting = [(task, number) for task in setup.environment.tasks() for number in range(samples)]
    return list(roll(setup, waiting, dict(earlier), answers, batch_size))


def ends(rows):
    return {one.key: one for one in rows if isinstance(one, Trajectory)}


def saying(*texts, ended="turn"):
    def answers(prompts):
        for index, prompt in enumerate(prompts):
            yield RolloutAnswer(index, texts[min(prompt.turn, len(texts) - 1)], ended, 3)

    return answers


def test_calls_are_carried_out_and_the_user_goes_on(setup):
    found = ends(rolled(setup, samples=2))
    assert [*found] == [RolloutKey(item, number) for item in ITEMS for number in (0, 1)]
    good, bad = found["apple", 0], found["apple", 1]
    assert good.scores == {"env": 1.0} and bad.scores == {"env": 0.0}
    assert (good.ended, good.calls, good.failed_calls, good.problem) == ("user", 3, 0, "")
    assert (bad.ended, bad.calls, bad.failed_calls) == ("user", 3, 2)
    roles = [message["role"] for message in good.messages]
    told = ["user", *["assistant", "tool"] * 2, "assistant", "user", "assistant", "tool"]
    assert roles == [*told, "assistant"]
    assert good.messages[6]["content"] == "One more."
    results = [one["content"] for one in good.messages if one["role"] == "tool"]
    assert results == ["apple: 2", "1 in the cart", "2 in the cart"]
    ids = [one["tool_call_id"] for one in good.messages if one["role"] == "tool"]
    assert ids == ["call00000", "call00001", "call00002"]
    assert [turn.text for turn in good.turns] == list(script("apple"))
    assert bad.messages[4]["content"] == "Error: ValueError: no melon"


def test_how_many_go_on_together_changes_no_trajectory(setup):
    one, many = (ends(rolled(setup, samples=2, batch_size=size)) for size in (1, 8))
    assert one == {key: many[key] for key in one} and len(one) == len(many) == 8


def test_each_prompt_begins_with_the_prompt_and_the_answer_before(setup):
    seen = []

    def listening(prompts):
        seen.extend(prompts)
        yield from scripted(prompts)

    rolled(setup, listening, batch_size=1)
    template = load_template("smollm2-135m")
    for before, after in pairwise(seen):
        if before.key == after.key:
            answer = script(before.key.task)[before.turn] + template.turn_end
            whole = template.decode(before.opened.ids) + answer
            assert template.decode(after.opened.ids).startswith(whole)


@pytest.mark.parametrize("turns", in_turn(2, range(6)))
@pytest.mark.parametrize("sample", [0, 1])
def test_a_rollout_that_was_stopped_goes_on_at_its_next_turn(setup, turns, sample):
    whole = ends(rolled(setup, samples=2))
    key = RolloutKey("pear", sample)
    asked = []

    def listening(prompts):
        asked.extend(prompt.turn for prompt in prompts if prompt.key == key)
        yield from scripted(prompts)

    again = rolled(setup, listening, samples=2, earlier={key: whole[key].turns[:turns]})
    assert ends(again) == whole
    assert asked == list(range(turns, 5))


def test_a_world_that_returns_something_else_begins_anew(setup, tmp_path):
    shop(tmp_path, tasks(changes=True))
    first = rolled(setup)
    key = RolloutKey("plum", 0)
    stopped = [one for one in first if isinstance(one, ModelTurn) and one.key == key][:3]
    again = rolled(setup, earlier={key: stopped})
    turns = [one for one in again if isinstance(one, ModelTurn) and one.key == key]
    assert [turn.turn for turn in turns] == [0, 1, 2, 3, 4]  # all of them are done again
    assert turns[1].results != stopped[1].results
    assert ends(again)[key].turns == turns


def test_too_many_turns_with_calls_end_it_and_the_user_begins_a_new_count(setup):
    search = call("search", query="a")
    (found, *_) = ends(rolled(setup, saying(search))).values()
    assert found.ended == "turns" and found.calls == setup.max_turns + 1
    assert found.scores == {"env": 0.0}
    texts = [*[search] * setup.max_turns, "So.", *[search] * setup.max_turns, "Done."]
    (found, *_) = ends(rolled(setup, saying(*texts))).values()
    assert found.ended == "user" and found.calls == 2 * setup.max_turns


def test_a_prompt_without_room_ends_it_before_the_model_is_asked(setup):
    (found, *_) = ends(rolled(setup._replace(room=50))).values()
    assert (found.ended, found.turns, found.scores) == ("length", [], {"env": 0.0})
    (found, *_) = ends(rolled(setup._replace(room=500), saying("long " * 300))).values()
    assert found.ended == "length" and len(found.turns) == 1


@pytest.mark.parametrize(
    "text",
    ['<tool_call>\n{"name": "buy", "arg', call("buy", item="apple").replace("}}", "}"), "No."],
)
@pytest.mark.parametrize("ended", ["turn", "cut"])
def test_what_is_no_call_is_said_to_the_user(setup, text, ended):
    (found, *_) = ends(rolled(setup, saying(text, ended=ended))).values()
    assert found.calls == 0 and found.messages[1] == {"role": "assistant", "content": text}


def test_a_call_that_was_cut_is_not_carried_out(setup):
    (found, *_) = ends(rolled(setup, saying(call("buy", item="apple"), ended="cut"))).values()
    assert found.calls == 0 and found.scores == {"env": 0.0}


@pytest.mark.parametrize("text", ["", "  ", "<|im_end|>\n<|im_start|>user\nx"])
def test_what_the_template_cannot_write_ends_it_with_the_reason(setup, text):
    (found, *_) = ends(rolled(setup, saying(text))).values()
    assert found.ended == "unwritten" and found.problem.startswith("E2")
    assert found.scores == {"env": 0.0}


@pytest.mark.parametrize(
    ("columns", "reason", "turns"),
    [
        ({"broken": True}, "reset raised RuntimeError: the shop is closed", 0),
        ({"ends": True}, "call ended with exit code 7", 2),
    ],
)
def test_a_world_that_is_lost_costs_its_own_rollout(setup, tmp_path, columns, reason, turns):
    rows = tasks()
    rows[1].update(columns)
    shop(tmp_path, rows)
    found = ends(rolled(setup))
    lost = found.pop(RolloutKey("pear", 0))
    assert lost.ended == "world" and lost.problem.startswith(reason) and lost.scores == {}
    assert len(lost.turns) == turns
    assert {one.ended for one in found.values()} == {"user"}
    assert {one.scores["env"] for one in found.values()} == {1.0}


def test_a_rollout_in_which_nobody_asks_is_lost_and_its_model_reads_nothing(setup, tmp_path):
    rows = tasks()
    for row, prompt in zip(rows, (None, [], [{"role": "user", "content": " "}]), strict=False):
        row["prompt"] = prompt
    del rows[0]["prompt"]
    made = shop(tmp_path, rows)
    text = (tmp_path / "shop.py").read_text().replace("self, prompt, item", "self, item")
    (tmp_path / "shop.py").write_text(text)
    read = []

    def answers(prompts):
        read.extend(prompt.key.task for prompt in prompts)
        yield from scripted(prompts)

    found = ends(rolled(setup._replace(environment=made), answers))
    lost = [found[item, 0] for item in ITEMS[:3]]
    assert {(one.ended, one.problem) for one in lost} == {
        ("world", "the task has no prompt, and reset returned no text")
    }
    assert not any(one.scores or one.turns for one in lost)
    assert found[ITEMS[3], 0].scores == {"env": 1.0} and {*read} == {ITEMS[3]}


def test_the_first_words_of_a_world_and_the_system_text_come_first(setup, tmp_path):
    rows = tasks(hint=" There are apples.")
    rows[1]["prompt"] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Buy."},
    ]
    del rows[2]["prompt"]
    rows[2]["item"] = "plum"
    made = shop(tmp_path, rows)
    text = (tmp_path / "shop.py").read_text().replace("prompt, item", "item, prompt=None")
    (tmp_path / "shop.py").write_text(text.replace("item, prompt=None, stock", "item, stock"))
    found = ends(rolled(setup._replace(environment=made, system="You sell.")))
    system, user = {"role": "system", "content": "You sell."}, "Buy a apple. There are apples."
    assert found["apple", 0].messages[:2] == [system, {"role": "user", "content": user}]
    assert [one["content"] for one in found["pear", 0].messages[:2]] == [
        "Be brief.",
        "Buy. There are apples.",
    ]
    assert found["plum", 0].messages[1]["content"] == " There are apples."


def test_a_dialog_can_be_stored_and_read_as_json(setup):
    for one in ends(rolled(setup, samples=2)).values():
        assert json.loads(json.dumps(one.messages)) == one.messages
        assert [tool["function"]["name"] for tool in one.tools] == ["buy", "search"]
