"""A prompt that taught nothing has its place taken by another one, and no place stays empty."""

from hypothesis import given
from hypothesis import strategies as st

from agentlite.stages.grpo_steps import NEVER, PromptSchedule, Visit

COUNT = 6
indexes = st.integers(0, COUNT - 1)
histories = st.lists(st.tuples(indexes, st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=3)))


def after(history: list[tuple[int, list[float]]], rest: float) -> PromptSchedule:
    schedule = PromptSchedule(range(COUNT), rest, COUNT)
    for step, (index, totals) in enumerate(history):
        schedule.visited(index, step, totals)
    return schedule


@given(histories, st.lists(indexes, min_size=1, max_size=4, unique=True), st.integers(0, 12))
def test_who_rests_is_passed_over_while_others_are_there(history, groups, rest):
    schedule, step = after(history, rest), len(history)
    last = {
        index: max(place for place, (one, _) in enumerate(history) if one == index)
        for index, _ in history
    }
    asleep = {
        index
        for index, place in last.items()
        if len({*history[place][1]}) < 2 and step - place < rest
    }
    chosen = schedule.select(groups, step)
    assert len({*chosen}) == len(chosen) == len(groups)
    awake = {*range(COUNT)} - asleep - {*groups}
    for planned, taken in zip(groups, chosen, strict=True):
        assert taken == planned or (planned in asleep and taken in awake)
    # whoever rests is taken only where nobody is left
    assert not asleep & {*chosen} or awake <= {*chosen}


def test_in_its_place_comes_the_one_that_was_learned_from_least_and_longest_ago():
    schedule = PromptSchedule(range(4), 9, 4)
    for step, index in enumerate([1, 2, 3, 3, 0]):
        schedule.visited(index, step, [0.0, 1.0] if index else [1.0, 1.0])
    assert schedule.select([0], 5) == [1]
    assert schedule.select([0, 1], 5) == [2, 1]
    assert schedule.visits == {
        0: Visit(4, 1, flat=True),
        1: Visit(0, 1, flat=False),
        2: Visit(1, 1, flat=False),
        3: Visit(3, 2, flat=False),
    }
    assert schedule.select([0], 13) == [0] and NEVER.times == 0
