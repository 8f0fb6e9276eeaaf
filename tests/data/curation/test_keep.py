"""`--keep`: which rollouts are learned, by their scores, and the best of each task."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.conditions import parse_keep
from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record, to_row
from agentlite.data.curation.keep import find_surpassed, refuse_unmet
from agentlite.data.formats import to_record

USER = Message("user", "Buy it.")


def rollout(task="one", sample=0, turns=1, **scores):
    meta = {"rollout": {"task": task, "sample": sample, "scores": scores, "ended": "user"}}
    return Record(messages=(USER, Message("assistant", "x")) * turns, meta=meta)


PLAIN = Record(messages=(USER, Message("assistant", "Done.")))


@pytest.mark.parametrize(
    ("keep", "record", "reason"),
    [
        ("", rollout(env=0.0), ""),
        ("best", rollout(env=0.0), ""),
        ("env>=1", rollout(env=1.0), ""),
        (" env >= 1 , , best, ", rollout(env=1.0), ""),
        ("env>=1", rollout(env=0.5), "env is 0.5, --keep asks for env>=1"),
        ("best, env>0, bfcl>=1", rollout(env=1.0, bfcl=0.0), "bfcl is 0"),
        ("bfcl>=1", rollout(env=1.0), "has no score bfcl; its scores: env"),
        ("bfcl>=1", rollout(), "has no score bfcl; its scores: none"),
        ("env>=1", PLAIN, ""),
    ],
)
def test_a_rollout_stays_where_every_condition_holds(keep, record, reason):
    if not reason:
        refuse_unmet(record, parse_keep(keep))
        return
    with pytest.raises(RowError) as found:
        refuse_unmet(record, parse_keep(keep))
    assert found.value.code == "F314" and reason in found.value.reason


@pytest.mark.parametrize("meta", [None, {}, {"task": "a", "sample": 0, "scores": {"env": "1"}}])
def test_a_row_whose_meta_is_of_no_rollout_is_refused(meta):
    row = to_row(Record(messages=PLAIN.messages, meta={"rollout": meta}))
    with pytest.raises(RowError, match="E201"):
        to_record(row, "agentlite")


def test_the_best_has_the_highest_mean_then_the_fewest_turns_then_comes_first():
    records = [
        rollout("a", 0, env=0.5, bfcl=0.0),
        rollout("a", 1, env=0.5, bfcl=0.5),
        PLAIN,
        rollout("b", 0, turns=3, env=1.0),
        rollout("b", 1, turns=2, env=1.0),
        rollout("c", 1, env=1.0),
        rollout("c", 0, env=1.0),
    ]
    found = find_surpassed(enumerate(records))
    assert found == {0: records[1].id, 3: records[4].id, 5: records[6].id}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 4))))
def test_one_rollout_of_each_task_stays_and_none_is_better(drawn):
    records = [rollout(task, n, turns, env=n_env) for n, (task, turns, n_env) in enumerate(drawn)]
    left = find_surpassed(enumerate(records))
    best = {drawn[n][0]: drawn[n][2] for n in range(len(drawn)) if n not in left}
    assert sorted(best) == sorted({task for task, *_ in drawn})
    assert len(drawn) - len(left) == len(best)
    assert all(score <= best[task] for task, _, score in drawn)
