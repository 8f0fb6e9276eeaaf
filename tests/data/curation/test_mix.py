"""agentlite.data.curation.mix: what is asked for is what is drawn, or it is said what else."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.config.resolve import parse_weights
from agentlite.core.errors import UserError
from agentlite.core.records import digest
from agentlite.data.curation.mix import (
    REST,
    TASKS,
    Mixed,
    MixGroup,
    draw,
    full_task_weights,
    parse_mix,
    repetitions,
    scaled,
)
from agentlite.data.curation.traits import Traits

TASK_WEIGHTS = {
    "tool_selection": 0.35,
    "multi_step_planning": 0.30,
    "timing_decision": 0.20,
    "tool_retrieval": 0.15,
}  # seed 002's

counts_of_tasks = st.fixed_dictionaries({task: st.integers(0, 60) for task in TASKS})
counts_of_some_tasks = st.dictionaries(
    st.sampled_from(TASKS), st.integers(1, 60), min_size=1, max_size=2
)


def rows(counts: Mapping[str, int], source: str = "a.jsonl") -> list[Traits]:
    return [
        Traits(digest(f"{source} {task} {n}"), "", source, task, str(n), b"", (), (), b"")
        for task, count in counts.items()
        for n in range(count)
    ]


def drawn(
    records: Sequence[Traits],
    mix: Sequence[str] = (),
    weights: Mapping[str, float] | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Mixed:
    return draw(
        records,
        [record.source for record in records],
        mix=parse_mix(mix),
        task_weights=weights or {},
        limit=limit,
        seed=seed,
    )


def ids(records: Sequence[Traits], found: Mixed) -> set[str]:
    return {records[index].id for index in found.indices}


@given(
    counts_of_tasks,
    st.none() | st.integers(1, 300),
    st.dictionaries(st.sampled_from(TASKS), st.sampled_from([0, 1, 2.5])),
)
def test_weighted_tasks_have_their_shares_and_no_row_is_drawn_twice(
    counts: dict[str, int], limit: int | None, weights: dict[str, float]
) -> None:
    if weights and not any(weights.values()):
        weights[TASKS[0]] = 1
    records = rows(counts)
    found = drawn(records, weights=weights, limit=limit)
    assert found.indices == sorted(set(found.indices))
    assert limit is None or len(found.indices) <= limit
    by_task = Counter(records[index].task for index in found.indices)
    assert by_task == found.by_task
    there = {task: weight for task, weight in weights.items() if counts[task] and weight}
    whole = sum(by_task[task] for task in there)
    for task, weight in there.items():
        assert abs(by_task[task] - whole * weight / sum(there.values())) <= 2
    if limit is None:
        assert all(by_task[task] == counts[task] for task in TASKS if task not in weights)
        assert not there or any(
            by_task[task] == counts[task] for task in there
        )  # no larger draw has these shares
    assert not by_task.keys() & {task for task, weight in weights.items() if not weight}


def test_the_default_weights_change_what_is_drawn_with_a_limit_and_without() -> None:
    records = rows(
        {
            "tool_selection": 700,
            "multi_step_planning": 100,
            "timing_decision": 100,
            "tool_retrieval": 100,
        }
    )
    for limit, sizes in ((None, (117, 100, 67, 50)), (100, (35, 30, 20, 15))):
        found = drawn(records, weights=TASK_WEIGHTS, limit=limit)
        assert tuple(found.by_task[task] for task in TASK_WEIGHTS) == sizes
    assert "multi_step_planning" in found.notes[0]


def test_a_limit_beyond_all_there_is_draws_what_no_limit_draws() -> None:
    records = rows({"tool_selection": 50, "timing_decision": 5, "general": 20})
    weights = {"tool_selection": 1.0, "timing_decision": 1.0}
    assert drawn(records, weights=weights, limit=10**6) == drawn(records, weights=weights)


@pytest.mark.parametrize(
    ("mix", "a", "b"),
    [
        (["general=b.jsonl:0.2"], 100, 20),
        (["agent=a.jsonl:5", "general=b.jsonl:1"], 100, 20),
        (["agent=a.jsonl:1", "general=b.jsonl:2"], 100, 200),
        (["b=b.jsonl:60000", "a=a.jsonl:30000"], 100, 200),
        (["general=b.jsonl:9"], 100, 200),
        (["general=b.jsonl:0"], 100, 0),
        ([], 100, 200),
    ],
)
def test_groups_are_drawn_in_their_ratios(mix: list[str], a: int, b: int) -> None:
    records = rows({"tool_selection": 100}) + rows({"general": 200}, "b.jsonl")
    found = drawn(records, mix)
    assert Counter(records[index].source for index in found.indices) == +Counter(
        {"a.jsonl": a, "b.jsonl": b}
    )
    assert bool(found.notes) == (mix == ["general=b.jsonl:9"])
    half = drawn(records, mix, limit=(a + b) // 2)
    if mix:
        assert Counter(records[i].source for i in half.indices) == +Counter(
            {"a.jsonl": a // 2, "b.jsonl": b // 2}
        )
    assert len(half.indices) == (a + b) // 2


def test_asked_for_more_than_there_is_it_takes_what_there_is_and_says_so() -> None:
    records = rows({"tool_selection": 100}) + rows({"general": 30}, "b.jsonl")
    found = drawn(records, ["chat=b.jsonl:2"])
    assert found.by_group == {REST: 100, "chat": 30}
    assert found.notes == ["the group 'chat' has 30 rows, not 200: all of them are taken"]


@given(
    st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.1, 1, 2.5]), st.none() | st.just(20)
)
def test_rows_are_repeated_as_often_as_the_ratio_asks_where_they_are_too_few(
    a: int, b: int, ratio: float, limit: int | None
) -> None:
    records = [*rows({"general": a}), *rows({"general": b}, "b.jsonl")]
    found = drawn(records, ["a=a.jsonl:1", f"b=b.jsonl:{ratio}*"], limit=limit)
    assert len({*found.indices}) == len(found.indices)  # drawn once, whatever is repeated later
    of_b = [index for index in found.indices if index >= a]
    times = repetitions(found.factors, [record.id for record in records], 0)
    assert {*times} <= {*of_b}
    assert sum(times.get(index, 1) for index in of_b) == found.by_group["b"]
    if limit is None:
        assert found.by_group == {"a": a, "b": round(a * ratio)}
    for counts in ([times[index] for index in times], [1]):
        assert max(counts, default=1) - min(counts, default=1) <= 1
    assert bool(times) == (found.by_group["b"] > len(of_b))


@given(
    counts_of_some_tasks,
    counts_of_some_tasks,
    st.sampled_from(["0.5", "2", "0.5*", "2*"]),
    st.sampled_from([{}, {"general": 1.0}, dict.fromkeys(TASKS, 0.0) | {"general": 1.0}]),
)
def test_a_group_counts_the_rows_that_it_gives(
    a: Mapping[str, int], b: Mapping[str, int], ratio: str, weights: Mapping[str, float]
) -> None:
    """Also one of which no row can be drawn, since its tasks weigh 0: none can be repeated."""
    records = [*rows(a), *rows(b, "b.jsonl")]
    found = drawn(records, [f"b=b.jsonl:{ratio}"], weights)
    given_rows = {REST: 0.0, "b": 0.0}
    for index in found.indices:
        name = "b" if records[index].source == "b.jsonl" else REST
        given_rows[name] += found.factors.get(index, 1)
    assert {name: round(count) for name, count in given_rows.items()} == found.by_group


def test_repeated_rows_are_as_many_as_asked_for_however_their_factor_is_rounded() -> None:
    for count in range(1, 50):
        ids = [str(number) for number in range(count)]
        for wanted in range(count, 120):
            times = repetitions(dict.fromkeys(range(count), wanted / count), ids, 0)
            assert sum(times.values()) == wanted, (count, wanted)


def test_a_folder_stands_for_its_files_and_a_group_may_have_several_sources() -> None:
    records = (
        rows({"general": 9}, "chat/x.jsonl")
        + rows({"general": 9}, "chat/y.jsonl")
        + rows({"general": 9}, "bfcl:multiple")
    )
    found = drawn(records, ["a=chat:1", "b=bfcl:multiple:0.5"])
    assert found.by_group == {"a": 18, "b": 9}
    assert (
        drawn(records, ["a=chat/x.jsonl+chat/y.jsonl:1", "b=bfcl:multiple:0.5"]).indices
        == found.indices
    )


@given(counts_of_tasks, counts_of_tasks, st.integers(1, 200), st.integers())
def test_neither_order_nor_anything_but_seed_and_id_decides(
    counts: dict[str, int], others: dict[str, int], limit: int, seed: int
) -> None:
    records = rows(counts) + rows(others, "b.jsonl")
    shuffled = random.Random(seed).sample(records, len(records))
    if not any(others.values()):
        return
    for order in (records, shuffled):
        found = drawn(order, ["b=b.jsonl:0.5"], TASK_WEIGHTS, limit, seed)
        assert ids(order, found) == ids(
            records, drawn(records, ["b=b.jsonl:0.5"], TASK_WEIGHTS, limit, seed)
        )


@given(st.sampled_from(TASKS), st.integers(0, 10**6))
def test_one_more_row_changes_few_of_the_others(task: str, number: int) -> None:
    records = rows(dict(zip(TASKS, (90, 70, 50, 60, 40, 10), strict=True)))
    new = Traits(digest(f"new {number}"), "", "a.jsonl", task, "", b"", (), (), b"")
    for limit in (None, 100):
        before = ids(records, drawn(records, weights=TASK_WEIGHTS, limit=limit))
        after = ids([new, *records], drawn([new, *records], weights=TASK_WEIGHTS, limit=limit))
        assert len((before ^ after) - {new.id}) <= 8


def test_an_empty_class_is_named_and_the_others_share_its_weight() -> None:
    found = drawn(rows({"tool_selection": 40, "timing_decision": 20}), weights=TASK_WEIGHTS)
    assert found.by_task == {"tool_selection": 35, "timing_decision": 20}
    assert found.notes[0].startswith("no row of multi_step_planning, tool_retrieval")


@pytest.mark.parametrize("task", TASKS)
def test_a_task_may_be_named_by_the_part_of_its_name_that_no_other_has(task: str) -> None:
    others = [part for other in TASKS if other != task for part in other.split("_")]
    names = [task, *(part for part in task.split("_") if part not in others)]
    for name in names:
        assert full_task_weights({name: 0.5}) == {task: 0.5}


def test_seed_002s_command_line_names_its_four_tasks() -> None:
    text = '{"tool_selection":0.35,"planning":0.30,"timing":0.20,"retrieval":0.15}'
    assert full_task_weights(parse_weights(text, "--task-weights")) == TASK_WEIGHTS


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ({"tool_selektion": 1.0}, "tool_selection"),
        ({"tool": 1.0}, "may be tool_selection or tool_retrieval"),
        ({"plan": 1.0}, "no task is called 'plan'"),
        ({"planning": 1.0, "multi_step_planning": 1.0}, "multi_step_planning appears twice"),
        ({"general": -1.0}, "general=1"),
        ({"general": float("nan")}, "0 or more"),
        ({"general": float("inf")}, "0 or more"),
        ({"general": 0.0, "tool_selection": 0.0}, "above 0"),
    ],
)
def test_weights_that_are_none_are_refused_with_the_fix(
    weights: dict[str, float], told: str
) -> None:
    with pytest.raises(UserError, match=told):
        full_task_weights(weights)


@pytest.mark.parametrize(
    "text",
    ["b.jsonl:0.2", "a=:1", "a=b.jsonl", "=b:1", "a=b.jsonl:-1", "a=b.jsonl:much", "a=b.jsonl:inf"],
)
def test_a_mix_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"general=chat\.jsonl:0\.2"):
        parse_mix([text])


def test_a_group_of_sources_that_are_not_there_or_are_in_another_is_refused() -> None:
    records = rows({"general": 3}) + rows({"general": 3}, "b.jsonl")
    for mix, told in (
        (["x=bb.jsonl:1"], "no row is left"),
        (["x=b.jsonl:1", "y=b.jsonl:1"], "one group"),
    ):
        with pytest.raises(UserError, match=told):
            drawn(records, mix)
    with pytest.raises(UserError, match="nothing would be drawn"):
        drawn(records, ["x=a.jsonl+b.jsonl:0"])
    with pytest.raises(UserError, match="twice"):
        parse_mix(["x=a:1", "x=b:1"])


@given(st.dictionaries(st.text(max_size=2), st.integers(0, 50)), st.integers(0, 200))
def test_counts_are_made_smaller_in_proportion(counts: dict[str, int], total: int) -> None:
    smaller = scaled(counts, total)
    assert sum(smaller.values()) == min(total, sum(counts.values()))
    for name, count in counts.items():
        assert smaller[name] <= count
        assert abs(smaller[name] - count * min(1, total / max(1, sum(counts.values())))) < 1


def test_groups_are_read_as_they_are_written() -> None:
    assert parse_mix(["x=C:/a b.jsonl+bfcl:multiple:2"]) == {
        "x": MixGroup(("C:/a b.jsonl", "bfcl:multiple"), 2.0)
    }
