"""agentlite.data.curation: what is chosen to train on, what its losses are, and what is learned
again.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from agentlite.core.errors import UserError
from agentlite.core.records import Message, Record, to_row
from agentlite.core.row_files import Row
from agentlite.data.curation.coreset import (
    BY_LOSS,
    BufferState,
    add_to_buffer,
    buffer_rows,
    coreset,
    find_buffer,
    replay_rows,
    wording,
)

TOPICS = [
    ["the ferry leaves the harbour", "a ferry in the harbour", "ferry and harbour"],
    ["whales eat krill and sleep", "krill is what whales eat", "whales, whales, krill"],
    ["明天上海的天气怎么样", "上海明天天气好吗", "请问上海天气"],
    ["帮我订一张去北京的火车票", "订火车票去北京", "北京火车票多少钱"],
]
TEXTS = [text for topic in TOPICS for text in topic]


Chosen = tuple[list[int], dict[str, int]]


def chosen(strategy: str, target: int, texts: Sequence[str] = TEXTS, seed: int = 0) -> Chosen:
    """With the text as id; the loss is its length."""
    return coreset(
        dict(enumerate(texts)),
        strategy=strategy,
        target=target,
        seed=seed,
        loss=lambda index: len(texts[index]),
        text=texts.__getitem__,
    )


@given(
    st.sampled_from([*BY_LOSS, "random"]),
    st.integers(1, 11),
    st.integers(0, 99),
    st.randoms(use_true_random=False),
)
@settings(max_examples=examples(60))
def test_as_many_are_chosen_as_asked_whatever_the_order(
    strategy: str, target: int, seed: int, chance: Any
) -> None:
    shuffled = chance.sample(TEXTS, len(TEXTS))
    one, counts = chosen(strategy, target, seed=seed)
    other, same_counts = chosen(strategy, target, shuffled, seed)
    assert len(set(one)) == len(one) == target == sum(counts.values())
    assert one == sorted(one)
    assert {TEXTS[index] for index in one} == {shuffled[index] for index in other}
    assert counts == same_counts


def test_the_hardest_are_those_with_the_largest_losses() -> None:
    best = sorted(map(len, TEXTS))[-3:]
    assert sorted(len(TEXTS[index]) for index in chosen("loss_topk", 3)[0]) == best


@pytest.mark.parametrize("seed", range(5))
def test_diversity_takes_one_of_each_topic_in_english_and_chinese(seed: int) -> None:
    assert sorted(index // 3 for index in chosen("diversity", 4, seed=seed)[0]) == [0, 1, 2, 3]


def test_a_hybrid_takes_six_tenths_by_loss_and_then_what_is_unlike_them() -> None:
    for target, hard in ((10, 6), (3, 2), (6, 4), (1, 1)):
        counts = {"loss": hard, "diversity": target - hard}
        assert chosen("hybrid", target)[1] == counts
    texts = ["ferry " * 9 + str(n) for n in range(6)] + [
        "ferry now",
        "whale krill",
        "ferry soon",
        "ferry late",
    ]
    picked, _ = chosen("hybrid", 7, texts)
    assert len({*range(6)} & {*picked}) >= 4
    assert 7 in picked
    for seed in range(5):  # the only one by diversity
        assert 7 in chosen("hybrid", 3, texts, seed)[0]


@given(
    st.sampled_from([*BY_LOSS, "random"]),
    st.lists(st.sampled_from("abc"), min_size=12, max_size=12),
    st.integers(1, 11),
)
@settings(max_examples=examples(60))
def test_every_part_keeps_its_share_in_any_strategy(
    strategy: str, parts: list[str], target: int
) -> None:
    # those of part "a" are the hardest: without parts, a coreset by loss would be made of them
    found, counts = coreset(
        dict(enumerate(TEXTS)),
        strategy=strategy,
        target=target,
        seed=0,
        loss=lambda index: float(parts[index] == "a"),
        text=TEXTS.__getitem__,
        stratum_of=parts.__getitem__,
    )
    assert len({*found}) == len(found) == target == sum(counts.values())
    there, kept = Counter(parts), Counter(parts[index] for index in found)
    for part, count in there.items():
        assert abs(kept[part] - count * target / len(parts)) < 1


def said(*texts: str, **fields: Any) -> Record:
    return Record(
        messages=tuple(Message(("user", "assistant")[n % 2], text) for n, text in enumerate(texts)),
        **fields,
    )


# --- replay ---

ONE, TWO, THREE = "1" * 16, "2" * 16, "3" * 16  # keys of runs


def rows(*numbers: int) -> list[Row]:
    return [to_row(said(f"question {n} of {n % 7}", f"answer {n}", split="train")) for n in numbers]


def add(found: BufferState, new: Sequence[Row], capacity: int = 100) -> int:
    return add_to_buffer(found, new, capacity=capacity, seed=0)


def ids(rows: Sequence[Row]) -> set[str]:
    return {row["id"] for row in rows}


def test_the_first_run_fills_the_buffer_and_the_next_one_replays_from_it(tmp_path: Path) -> None:
    first, second = rows(*range(20)), rows(*range(15, 35))
    empty = find_buffer(tmp_path / "b", ONE)
    assert replay_rows(buffer_rows(empty), ids(first), 20, ratio=0.25, seed=0, buffer="") == []
    assert not (tmp_path / "b").exists()
    assert add(empty, first) == 20
    found = find_buffer(tmp_path / "b", TWO)
    drawn = replay_rows(
        buffer_rows(found), ids(second), 20, ratio=0.25, seed=0, buffer=found.previous_file
    )
    assert len(drawn) == 5
    assert ids(drawn) < ids(rows(*range(15)))
    assert add(found, second) == 35
    assert ids(buffer_rows(find_buffer(tmp_path / "b", THREE))) == ids(rows(*range(35)))


def test_beyond_its_capacity_the_buffer_keeps_a_choice_of_old_and_new_whatever_their_order(
    tmp_path: Path,
) -> None:
    contents = []
    for number in range(2):
        folder = tmp_path / str(number)
        add(find_buffer(folder, ONE), rows(*range(20)), 24)
        new = random.Random(number).sample(rows(*range(20, 60)), 40)
        kept = add(find_buffer(folder, TWO), new, 24)
        contents.append(buffer_rows(find_buffer(folder, THREE)))
        new_ids = ids(contents[-1]) - ids(rows(*range(20)))
        assert kept == 24
        assert 0 < len(new_ids) < 24
    assert contents[0] == contents[1]


def test_the_same_run_again_draws_the_same_and_adds_nothing(tmp_path: Path) -> None:
    for number in range(3):
        assert add(find_buffer(tmp_path, f"{number:016x}"), rows(number)) == number + 1
    again = find_buffer(tmp_path, f"{1:016x}")
    assert ids(buffer_rows(again)) == ids(rows(0)) and add(again, rows(1)) == 2
    assert len(list(tmp_path.glob("*.jsonl"))) == 3
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"it holds notes\.txt"):
        find_buffer(tmp_path, "new")


def test_killed_while_it_is_written_the_buffer_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("agentlite.core.row_files.os.replace", dying)
        with pytest.raises(KeyboardInterrupt):
            add(find_buffer(tmp_path, ONE), rows(*range(5)))
    found = find_buffer(tmp_path, ONE)
    assert (found.previous_file, found.own_file) == ("", "")
    assert add(found, rows(*range(5))) == 5


def test_a_buffer_that_another_run_has_changed_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    mine, other = find_buffer(tmp_path, ONE), find_buffer(tmp_path, TWO)
    add(other, rows(1))
    with pytest.raises(UserError, match="another run"):
        add(mine, rows(2))
    assert ids(buffer_rows(find_buffer(tmp_path, ONE))) == ids(rows(1))


def test_the_proxy_loss_by_hand():
    four = Record(messages=(Message("user", "a b"), Message("assistant", "c d")))
    assert wording(four).proxy_loss == pytest.approx(4 / 512 + math.log(4) / 5)
    entropy = -(2 / 4 * math.log(2 / 4) + 2 * 1 / 4 * math.log(1 / 4))
    assert wording(said("Yes no", "yes me")).proxy_loss == pytest.approx(4 / 512 + entropy / 5)
    assert wording(said("word " * 5000)).proxy_loss == 5 and wording(said("", "")).proxy_loss == 0
