"""A dialog that goes on: the same answers as when all is read again, and only new ids are read."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from agentlite.engine import local_sampler, read_before, shared_cache
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loading, load
from agentlite.engine.read_before import Columns, ReadBefore
from agentlite.workspace.model_source import Source


@pytest.fixture(scope="module", params=["unsloth", "hf"])
def loaded(request, tiny_model):
    found = load(
        Source("tiny", str(tiny_model), None, ""), Loading(request.param, 512), trainable=False
    )
    with (
        torch.no_grad()
    ):  # a random model's answers are all but equally likely: sharper, faults show
        found.model.lm_head.weight.mul_(8)
    return found


@pytest.fixture
def ids_read(loaded, monkeypatch):
    """How many ids each forward pass reads, padding left out."""
    read = []
    forward = loaded.model.forward

    def counting(*arguments, **named):
        read.append(named["input_ids"].shape)
        return forward(*arguments, **named)

    monkeypatch.setattr(loaded.model, "forward", counting)
    return read


DECODING = Decoding(5, temperature=1.0, turn_end=2)


def asked(prompt, samples=1):
    return local_sampler.SampleRequest(
        prompt, tuple(f"{hash(tuple(prompt))} {number}" for number in range(samples))
    )


dialogs = st.lists(
    st.tuples(
        st.lists(st.integers(3, 900), min_size=1, max_size=30),  # the first prompt
        st.lists(st.lists(st.integers(3, 900), max_size=60), min_size=4, max_size=4),  # results
        st.integers(0, 3),  # the turn at which it ends
        st.integers(0, 9),  # of how many of its ids its answer is, read again from a text
        st.integers(1, 3),  # samples
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(12), deadline=None)
@given(started=dialogs, long=st.sampled_from([1, 20, shared_cache.LONG]))
def test_answers_are_those_of_a_model_that_reads_all_again(loaded, started, long):
    """Dialogs of any length begin together, end at any turn, and go on with results of any length;
    the ids of some answers are cut or changed before they are read again. Prompts of `long` new ids
    are read alone.
    """
    before = ReadBefore()
    prompts = [(first, *rest) for first, *rest in started]
    for turn in range(4):
        requests = [asked(prompt, samples) for prompt, *_, samples in prompts]
        if not requests:
            return
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(shared_cache, "LONG", long)
            drawn = sorted(local_sampler.sample(loaded, requests, DECODING, before))
        again = sorted(local_sampler.sample(loaded, requests, DECODING))
        for one, other in zip(drawn, again, strict=True):
            assert one.ids == other.ids
            assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=2e-4)
        last = {one.prompt: one for one in drawn}  # its last sample is the one that goes on
        prompts = [
            ([*prompt, *last[index].ids[: len(last[index].ids) - cut], *results[turn], 9], *rest)
            for index, (prompt, *rest) in enumerate(prompts)
            for results, ends, cut, _ in [rest]
            if ends > turn
        ]


def test_only_new_ids_are_read(loaded, ids_read):
    before = ReadBefore()
    prompt = [*range(100, 160)]
    for _ in range(3):
        ids_read.clear()
        (one,) = local_sampler.sample(loaded, [asked(prompt)], DECODING, before)
        assert [shape[1] for shape in ids_read[1:]] == [1] * (len(one.ids) - 1)
        first = ids_read[0][1]
        prompt = [*prompt, *one.ids, *range(300, 310)]
        assert first in (60, 11)  # the last id of the answer, and ten of a result
    assert first == 11


def test_a_long_result_makes_no_other_dialog_wait(loaded, ids_read):
    """Rows that are read together have about as many new ids: no row is padded to the longest."""
    before = ReadBefore()
    prompts = [[*range(start, start + 40)] for start in (100, 200, 300)]
    drawn = sorted(local_sampler.sample(loaded, list(map(asked, prompts)), DECODING, before))
    results = ([5] * 3, [7] * 200, [6] * 4)
    fresh = [*range(500, 550)]
    following = [
        [*prompt, *one.ids, *result]
        for prompt, one, result in zip(prompts, drawn, results, strict=True)
    ]
    requests = list(map(asked, [following[0], fresh, *following[1:]]))
    ids_read.clear()
    together = sorted(local_sampler.sample(loaded, requests, DECODING, before))
    short, _, long = sorted(len(result) + 1 for result in results)
    assert sorted(map(tuple, ids_read[:3])) == sorted([(2, short + 1), (1, long), (1, 50)])
    again = sorted(local_sampler.sample(loaded, requests, DECODING))
    assert [one.ids for one in together] == [one.ids for one in again]
    for one, other in zip(together, again, strict=True):
        assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=2e-4)


def test_a_long_prompt_is_read_alone_and_no_other_is_padded_to_it(loaded, ids_read):
    long = shared_cache.LONG
    prompts = [[*range(3, 3 + length)] for length in (long + 9, 30, long, 44)]
    local_sampler.sample(loaded, list(map(asked, prompts)), DECODING)
    assert sorted(map(tuple, ids_read[:3])) == [(1, long), (1, long + 9), (2, 44)]


def test_dialogs_with_the_same_head_read_it_once(loaded, ids_read):
    """As with the tools of a world: a dialog that begins while others go on."""
    before, tools = ReadBefore(), [*range(100, 180)]
    local_sampler.sample(loaded, [asked([*tools, 7, 8])], DECODING, before)
    ids_read.clear()
    local_sampler.sample(loaded, [asked([*tools, 9, 10, 11])], DECODING, before)
    assert ids_read[0] == (1, 3)


def test_what_ended_is_not_kept(loaded):
    before = ReadBefore()
    local_sampler.sample(loaded, [asked([5, 6, 7], 3), asked([8, 9])], DECODING, before)
    assert len(before.now) == 4
    local_sampler.sample(loaded, [asked([700, 701])], DECODING, before)
    assert len(before.now) == 1 and len(before.last) == 4
    size = sum(
        one.nbytes for (columns,) in [before.now.values()] for k in columns.layers for one in k
    )
    assert before.bytes == size


def test_above_the_limit_of_memory_it_is_read_again(loaded, monkeypatch):
    monkeypatch.setattr(read_before, "MOST_BYTES", 0)
    before = ReadBefore()
    requests = [asked([5, 6, 7, 8])]
    (one,) = local_sampler.sample(loaded, requests, DECODING, before)
    assert not before.now
    following = [asked([5, 6, 7, 8, *one.ids, 9])]
    assert local_sampler.sample(loaded, following, DECODING, before)[0].ids == (
        local_sampler.sample(loaded, following, DECODING)[0].ids
    )


def test_halves_of_a_batch_that_does_not_fit_know_what_was_read_before(loaded, monkeypatch):
    before = ReadBefore()
    prompts = [[*range(start, start + 20)] for start in (100, 200, 300)]
    drawn = sorted(local_sampler.sample(loaded, list(map(asked, prompts)), DECODING, before))
    following = [asked([*p, *one.ids, 9, 10]) for p, one in zip(prompts, drawn, strict=True)]
    expected = sorted(local_sampler.sample(loaded, following, DECODING))
    method = local_sampler._shared

    def small(loaded, requests, decoding, before=None):
        found = method(loaded, requests, decoding, before)
        if len(requests) > 1:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return found

    monkeypatch.setattr(local_sampler, "_shared", small)
    read = []
    monkeypatch.setattr(
        shared_cache,
        "_read",
        lambda a, rows, real=shared_cache._read: read.append(rows) or real(a, rows),
    )
    halved = sorted(local_sampler.sample(loaded, following, DECODING, before))
    assert [one.ids for one in halved] == [one.ids for one in expected]
    assert all(known.ids for rows in read for _, known in rows)


@given(
    st.lists(st.integers(0, 2), max_size=9).map(tuple),
    st.lists(st.integers(0, 2), max_size=9).map(tuple),
)
def test_the_common_head_is_that_of_a_comparison_one_by_one(one, other):
    expected = 0
    while expected < min(len(one), len(other)) and one[expected] == other[expected]:
        expected += 1
    assert read_before._common(one, other) == expected


def test_the_longest_of_several_is_taken_and_one_id_is_left_to_read():
    before = ReadBefore()
    grid = torch.arange(24.0).reshape(2, 4, 3)
    for ids in ((1, 2), (1, 2, 3, 4), (7,)):
        before.keep(Columns(ids, [(grid[:, : len(ids)], -grid[:, : len(ids)])]))
    before.begin_call()
    for prompt, known in (
        ([1, 2, 3, 4, 5], 4),
        ([1, 2, 3, 4], 3),
        ([1, 2, 3, 9, 9], 3),
        ([1], 0),
        ([8, 1], 0),
    ):
        found = before.longest(prompt)
        assert found.ids == tuple(prompt[:known])
        for keys, values in found.layers:
            assert torch.equal(keys, grid[:, :known]) and torch.equal(values, -grid[:, :known])
