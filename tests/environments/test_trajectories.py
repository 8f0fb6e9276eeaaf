"""The ids of a rollout as rows: what was read, and what was sampled at which turn."""

from agentlite.environments.trajectories import NOT_SAMPLED, ModelTurn, Trajectory


def sampled(number, opens, prompt, ids):
    read = {"opens": opens, "prompt_ids": tuple(prompt)}
    return ModelTurn("a", 0, number, "x", "turn", 3, ids=tuple(ids), **read)


def test_a_row_has_what_was_read_and_sampled_in_order_and_whose_turn_each_id_is():
    turns = [
        sampled(0, True, [1, 2], [3, 4]),
        sampled(1, False, [5], [6]),
        sampled(2, True, [1, 2, 7], [8]),
        sampled(3, False, [], [9, 10]),
    ]
    one = Trajectory("a", 0, "", [], [], turns, "user", {})
    first, second = one.token_rows()
    assert (first.prompt, first.ids, first.turns) == ((1, 2), (3, 4, 5, 6), (0, 0, NOT_SAMPLED, 1))
    assert (second.prompt, second.ids, second.turns) == ((1, 2, 7), (8, 9, 10), (2, 3, 3))
    assert (first.mask, second.mask) == ([1, 1, 0, 1], [1, 1, 1])
    # the first begins a row, whatever it says
    alone = Trajectory("a", 0, "", [], [], turns[1:2], "user", {})
    assert [(row.prompt, row.ids) for row in alone.token_rows()] == [((5,), (6,))]
