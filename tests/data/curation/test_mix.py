"""agentlite.data.curation.mix: what is asked for is what is drawn, or it is said what else."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.config.resolve import parse_weights
from agentlite.config.settings import PrepSettings
from agentlite.core.records import digest
from agentlite.data.curation.mix import TASKS, Draw, draw, full_task_weights, repetitions
from agentlite.data.curation.traits import Traits

TASK_WEIGHTS = {
    "tool_selection": 0.35,
    "multi_step_planning": 0.30,
    "timing_decision": 0.20,
    "tool_retrieval": 0.15,
}  # seed 002's

counts_of_tasks = st.fixed_dictionaries({task: st.integers(0, 60) for task in TASKS})


def rows(counts: Mapping[str, int], source: str = "a.jsonl") -> list[Traits]:
    return [
        Traits(digest(f"{source} {task} {n}"), "", source, task, str(n), (), (), (), *[0] * 6)
        for task, count in counts.items()
        for n in range(count)
    ]


def drawn(
    records: Sequence[Traits],
    mix: Sequence[str] = (),
    weights: Mapping[str, float] | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Draw:
    given = {"mix": (*mix,), "task_weights": {**(weights or {})}, "limit": limit, "seed": seed}
    sources = [record.source for record in records]
    settings = PrepSettings(sources=(*dict.fromkeys(sources),), **given)  # type: ignore[arg-type]
    return draw(dict(enumerate(records)), sources, settings)


def ids(records: Sequence[Traits], found: Draw) -> set[str]:
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
    assert limit is None or len(found.indices) <= limit
    by_task = Counter(records[index].task for index in found.indices)
    there = {task: weight for task, weight in weights.items() if counts[task] and weight}
    whole = sum(by_task[task] for task in there)
    for task, weight in there.items():
        assert abs(by_task[task] - whole * weight / sum(there.values())) <= 2
    if limit is None:
        assert all(by_task[task] == counts[task] for task in TASKS if task not in weights)
        # no larger draw has these shares
        assert not there or any(by_task[task] == counts[task] for task in there)
    assert not by_task.keys() & {task for task, weight in weights.items() if not weight}


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


@given(
    st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.1, 1, 2.5]), st.none() | st.just(20)
)
def test_rows_are_repeated_as_often_as_the_ratio_asks_where_they_are_too_few(
    a: int, b: int, ratio: float, limit: int | None
) -> None:
    records = [*rows({"general": a}), *rows({"general": b}, "b.jsonl")]
    found = drawn(records, ["a=a.jsonl:1", f"b=b.jsonl:{ratio}*"], limit=limit)
    of_b = [index for index in found.indices if index >= a]
    times = repetitions(found.factors, dict(enumerate(records)), 0)
    assert {*times} <= {*of_b}
    assert sum(times.get(index, 1) for index in of_b) == found.by_group["b"]
    if limit is None:
        assert found.by_group == {"a": a, "b": round(a * ratio)}
    for counts in ([times[index] for index in times], [1]):
        assert max(counts, default=1) - min(counts, default=1) <= 1
    assert bool(times) == (found.by_group["b"] > len(of_b))


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


def test_seed_002s_command_line_names_its_four_tasks() -> None:
    text = '{"tool_selection":0.35,"planning":0.30,"timing":0.20,"retrieval":0.15}'
    assert full_task_weights(parse_weights(text, "--task-weights")) == TASK_WEIGHTS
