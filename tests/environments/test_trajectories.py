"""Turns come back by rollout, and a turn that comes again stands for those behind it."""

import msgspec

from agentlite.core.row_files import write_rows
from agentlite.environments.trajectories import (
    READ,
    ModelTurn,
    RolloutKey,
    Trajectory,
    read_turns,
)


def turn(number, text, task="a", sample=0):
    return ModelTurn(task, sample, number, text, "turn", 3, ((text, number == 1),), None)


def test_turns_come_back_by_rollout_and_the_last_of_a_number_counts(tmp_path):
    path = tmp_path / "turns.jsonl"
    assert read_turns(path) == {}
    stored = [turn(0, "x"), turn(0, "y", "b"), turn(1, "x"), turn(2, "x"), turn(0, "z", sample=1)]
    write_rows(path, map(msgspec.to_builtins, stored))
    assert read_turns(path) == {
        RolloutKey("a", 0): [stored[0], stored[2], stored[3]],
        RolloutKey("b", 0): [stored[1]],
        RolloutKey("a", 1): [stored[4]],
    }
    anew = [*stored, turn(0, "new"), turn(1, "new")]
    write_rows(path, map(msgspec.to_builtins, anew))
    assert read_turns(path)[RolloutKey("a", 0)] == anew[-2:]


def sampled(number, opens, prompt, ids):
    more = {"opens": opens, "prompt_ids": tuple(prompt), "ids": tuple(ids)}
    return msgspec.structs.replace(turn(number, "x"), **more)


def test_a_row_has_what_was_read_and_sampled_in_order_and_whose_turn_each_id_is():
    turns = [
        sampled(0, True, [1, 2], [3, 4]),
        sampled(1, False, [5], [6]),
        sampled(2, True, [1, 2, 7], [8]),
        sampled(3, False, [], [9, 10]),
    ]
    one = Trajectory("a", 0, "", [], [], turns, "user", {})
    first, second = one.token_rows()
    assert (first.prompt, first.ids, first.turns) == ((1, 2), (3, 4, 5, 6), (0, 0, READ, 1))
    assert (second.prompt, second.ids, second.turns) == ((1, 2, 7), (8, 9, 10), (2, 3, 3))
    assert (first.mask, second.mask) == ([1, 1, 0, 1], [1, 1, 1])
    # the first begins a row, whatever it says
    alone = Trajectory("a", 0, "", [], [], turns[1:2], "user", {})
    assert [(row.prompt, row.ids) for row in alone.token_rows()] == [((5,), (6,))]
