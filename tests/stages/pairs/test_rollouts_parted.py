"""Where two rollouts part, and what others gave for them before, without a world."""

import msgspec
import pytest
from msgspec.structs import replace
from support.generated_rollouts import rollout as acted
from support.generated_rollouts import says
from support.generated_run import stage

from agentlite.core.errors import RowError
from agentlite.core.records import PreferencePair, Side
from agentlite.rendering import choose
from agentlite.stages.pairs.rollouts import _parted, _read


@pytest.mark.parametrize("functions", [{}, {"own": lambda attempt: 0.25}])
def test_what_other_functions_gave_before_counts_only_where_none_is_named(tmp_path, functions):
    one = acted("fig", [says("No.")], {"env": 0.5})
    one = replace(one, rewards={"mine": 1.0}, reward_problem="it was slow")
    settings = {"model": "m", "protocol": "hermes", "split": "train"}
    plan = {"command": "rollout", "settings": settings, "inputs": {}}
    stage(tmp_path, plan, {"trajectories.jsonl": [msgspec.to_builtins(one)]}, {})
    found = _read(tmp_path, functions)
    (score,) = found.scores(found.candidates)
    assert score.components.get("own") == (0.25 if functions else None)
    assert score.components.get("mine") == (None if functions else 1.0)
    assert score.error == ("" if functions else "it was slow")


DONE = [says(call={"item": "fig"}, result="ok"), says("One.", user="And?"), says("Two.")]
HEARD = [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Go on."}]
SELL = {"type": "function", "function": {"name": "sell", "parameters": {}}}


def ranked(smollm2, best, worst, max_length=10**6):
    """What is made of two rollouts."""
    sides = (Side("", "turn", "m", sample, total) for sample, total in ((0, 1.0), (1, 0.0)))
    pair = PreferencePair(best.task, 0, "hermes", *sides)
    protocol = choose("hermes", smollm2).protocols["hermes"]
    return _parted(pair, best, worst, protocol=protocol, template=smollm2, max_length=max_length)


def two(at, before=0, worse="No.", result="ok", offered=(("buy",), ("buy",))):
    """Rollouts that part at a turn, behind as many answers of another model as `before` says."""
    first = says(call={"item": "fig"}, result=result)
    other = [*[first, *DONE[1:]][:at], says(worse)]
    made = []
    for turns_of_one, names in zip((DONE, other), offered, strict=True):
        one = acted("fig", turns_of_one, {})
        one.messages[2:2] = HEARD * before
        done = [replace(turn, offered=names) for turn in one.turns]
        made.append(replace(one, tools=[*one.tools, SELL], turns=done))
    return made


@pytest.mark.parametrize("before", range(3))
@pytest.mark.parametrize("at", range(3))
def test_rollouts_part_at_a_turn_of_theirs_whatever_others_answered_before(smollm2, at, before):
    best, worst = two(at, before)
    record, pair = ranked(smollm2, best, worst)
    assert (pair.chosen.text, pair.rejected.text) == (best.turns[at].text, "No.")
    assert (pair.chosen.sample, pair.chosen.total, pair.rejected.total) == (0, 1.0, 0.0)
    place = 2 + 2 * before + (0, 2, 4)[at]
    assert pair.turn == place == len(record.messages) - 1 and pair.record_id == record.id
    there = [message.content for message in record.messages]
    assert there == [one["content"] or "" for one in best.messages[: place + 1]]
    assert [tool.name for tool in record.tools] == ["buy"] and record.split == best.split == "test"


def test_rollouts_without_a_prompt_in_common_or_with_too_long_a_one_have_their_reason(smollm2):
    for made, reason in (
        (two(1, result="other"), "other results"),
        (two(1, offered=(("buy",), ("buy", "sell"))), "other results"),
        (two(2, worse="Two."), "same turns"),
        (two(2, worse=" Two. "), "same turns"),
    ):
        with pytest.raises(RowError, match=reason) as found:
            ranked(smollm2, *made)
        assert found.value.code == "E219"
    best, worst = two(2, worse="No, and no again, as often as you like.")
    with pytest.raises(RowError, match="tokens, max_length is 5") as found:
        ranked(smollm2, best, worst, 5)
    longest = int(found.value.reason.split()[0])
    assert ranked(smollm2, best, worst, longest)
    with pytest.raises(RowError):
        ranked(smollm2, best, worst, longest - 1)
