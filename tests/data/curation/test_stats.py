"""Statistics, scripts, samples and cuts: what is counted, drawn and cut, by hand."""

import math
import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.records import Gold, Message, Record
from agentlite.data.curation.coreset import Wording
from agentlite.data.curation.mix import sample
from agentlite.data.curation.traits import script_of, traits
from agentlite.data.ingest import RecordSize, cut
from agentlite.stages.prep.write import statistics


def asking(query: str, answer: str = "a", **fields: str) -> Record:
    messages = (Message("user", query), Message("assistant", answer))
    return Record(messages=messages, **fields)  # type: ignore[arg-type]


def sized(longest: int, offered: tuple[str, ...] = (), called: tuple[str, ...] = ()) -> RecordSize:
    return RecordSize(
        10 * longest,
        longest,
        longest,
        longest + 1,
        1,
        offered,
        called,
        Wording(longest / 3, 1 / (longest + 1)),
    )


def test_statistics_by_hand() -> None:
    records = [asking(str(n), source="ba"[n > 0], task="general") for n in range(4)]
    sizes = [
        sized(4, ("f", "g"), ("f", "f")),
        sized(1, ("g",), ("h",)),
        sized(3),
        sized(2)._replace(turns=5),
    ]
    found = statistics([*zip(map(traits, records), sizes, strict=True)])
    assert found == {
        "by_source": {"a": 3, "b": 1},
        "by_task": {"general": 4},
        "turns": {"50%": 1, "90%": 5, "99%": 5, "100%": 5},
        "length": {"50%": 2, "90%": 4, "99%": 4, "100%": 4},
        "longest_answer": 5,
        "tokens": {"all": 100, "trained": 10, "trained_share": 0.1},
        "tools": {
            "offered": 2,
            "called": 2,
            "calls": 3,
            "most_called": {"f": 2, "h": 1},
            "offered_at_once": {"50%": 0, "90%": 2, "99%": 2, "100%": 2},
        },
    }
    assert list(found["by_source"]) == ["a", "b"]
    empty = statistics([])
    assert (empty["tokens"]["trained_share"], empty["length"]) == (0.0, {})


def test_the_script_of_a_text_is_the_first_that_it_holds() -> None:
    texts = {"天気は?": "Kana", "Oslo 天气": "Han", "Погода в Oslo": "Cyrillic", "É": "Latin"}
    for text, name in texts.items():
        assert script_of(text) == name


# --- samples ---


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(0, 40), st.integers(0, 9))
def test_a_sample_is_spread_evenly_and_a_small_source_gives_what_it_has(
    sources: list[str], limit: int, seed: int
) -> None:
    records = [asking(str(n), source=source) for n, source in enumerate(sources)]
    chosen = sample(records, limit, seed)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(limit, len(records))
    taken, there = Counter(sources[index] for index in chosen), Counter(sources)
    for one in there:
        assert taken[one] == there[one] or taken[one] >= max(taken.values(), default=0) - 1
    shuffled = random.Random(seed).sample(range(len(records)), len(records))
    again = sample([records[index] for index in shuffled], limit, seed)
    assert sorted(shuffled[index] for index in again) == chosen


# --- dialogs that are cut ---


@given(st.integers(1, 20), st.integers(0, 45), st.integers(0, 20))
def test_a_dialog_is_cut_behind_the_last_turn_that_fits(steps: int, room: int, unlearned: int):
    """Of as many questions, the first turns not learned; with room for as many messages."""
    messages = []
    for n in range(steps):
        answer = Message("assistant", f"a{n}", loss=n >= unlearned)
        messages += [Message("user", f"q{n}"), answer]
    gold = {2 * n + 1: Gold() for n in range(steps)}
    record = Record(messages=tuple(messages), gold=gold, meta={"k": "v"})
    asked = []

    def fits(part: Record) -> bool:
        asked.append(part)
        return len(part.messages) <= room

    shorter = cut(record, fits)
    kept = 2 * min(room // 2, steps - 1)
    assert len(asked) <= math.log2(steps) + 1
    if kept <= 2 * unlearned or not kept:
        assert shorter is None
        return
    assert shorter is not None
    assert shorter.messages == record.messages[:kept]
    assert shorter.gold == {turn: Gold() for turn in gold if turn < kept}
    assert shorter.meta == {"k": "v", "cut_from": 2 * steps}
    assert shorter.parent == record.id
