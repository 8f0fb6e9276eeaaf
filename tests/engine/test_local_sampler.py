"""Several answers to a prompt: drawn as the model says, the same whatever stands beside them, the
prompt read once.
"""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.simulated_cuda import simulated

from agentlite.engine import caches, local_sampler
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loading, load
from agentlite.workspace.lookup import Source

SEEDS = ("d", "e", "f")
START = [60, 61, 62]  # what all prompts begin with
PROMPTS = tuple([*START, *own] for own in ([5, 6, 7, 8, 9, 10, 11], [400, 401], [77, 12, 900, 5]))


@pytest.fixture(scope="module")
def loaded(tiny_model):
    found = load(
        Source("tiny", str(tiny_model), None, ""), Loading("unsloth", 128), trainable=False
    )
    with (
        torch.no_grad()
    ):  # a random model's answers are all but equally likely: sharper, a wrong mask shows
        found.model.lm_head.weight.mul_(8)
    return found


def decoding(**changes):
    return Decoding(**{"turn_end": 2, "max_new_tokens": 12, "temperature": 1.0, **changes})


def asked(prompts=PROMPTS, seeds=SEEDS, stops=()):
    return [
        local_sampler.SampleRequest(prompt, tuple(f"{prompt} {seed}" for seed in seeds), stops)
        for prompt in prompts
    ]


def ids(drawn):
    return {(one.prompt, one.sample): one.ids for one in drawn}


def test_without_temperature_every_sample_is_what_generate_says(loaded):
    drawn = local_sampler.sample(loaded, asked(), decoding(temperature=0.0))
    for index, prompt in enumerate(PROMPTS):
        expected = loaded.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=12,
            pad_token_id=0,
        )[0, len(prompt) :].tolist()
        assert [one.ids for one in drawn if one.prompt == index] == [expected] * 3


def test_an_answer_does_not_depend_on_what_is_drawn_beside_it(loaded):
    together = ids(local_sampler.sample(loaded, asked(), decoding()))
    for index, prompt in enumerate(PROMPTS):
        for number, seed in enumerate(SEEDS):
            (alone,) = local_sampler.sample(loaded, asked([prompt], [seed]), decoding())
            assert alone.ids == together[index, number]
    assert len({tuple(answer) for answer in together.values()}) == 9


def test_each_sample_sees_the_prompt_and_its_own_tokens_alone(loaded):
    """Every token of every sample is the one its seed draws from the model's own logits over the
    plain sequence.
    """
    for one in local_sampler.sample(loaded, asked(), decoding()):
        stream = local_sampler.random.Random(f"{PROMPTS[one.prompt]} {SEEDS[one.sample]}")
        for place, token in enumerate(one.ids):
            with torch.no_grad():
                logits = loaded.model(torch.tensor([PROMPTS[one.prompt] + one.ids[:place]])).logits[
                    :, -1
                ]
            assert (
                local_sampler.choose_tokens(
                    logits, torch.tensor([stream.random()], dtype=torch.float64), decoding()
                )[0].item()
                == token
            )


def test_a_prompt_and_what_all_begin_with_are_read_once_for_all_answers(loaded, monkeypatch):
    read = []
    forward = type(loaded.model).forward

    def counting(self, *arguments, **named):
        read.append(named["input_ids"].numel())
        return forward(self, *arguments, **named)

    monkeypatch.setattr(type(loaded.model), "forward", counting)
    loaded.model.forward = counting.__get__(loaded.model)
    drawn = local_sampler.sample(
        loaded, asked(seeds=[str(n) for n in range(8)]), decoding(turn_end=-1)
    )
    del loaded.model.forward
    longest = max(map(len, PROMPTS)) - len(START)
    assert read[:2] == [len(START), len(PROMPTS) * longest]
    assert sum(read[2:]) == sum(len(one.ids) - 1 for one in drawn)


@settings(max_examples=examples(60), deadline=None)
@given(
    logits=st.lists(st.floats(-4, 4, width=32), min_size=2, max_size=9),
    top_p=st.floats(0.05, 1.0),
    temperature=st.floats(0.3, 3.0),
)
def test_tokens_are_drawn_as_often_as_they_are_likely(logits, top_p, temperature):
    uniform = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    row = torch.tensor([logits], dtype=torch.float32)
    counts = Counter(
        local_sampler.choose_tokens(
            row.expand(4000, -1), uniform, decoding(temperature=temperature, top_p=top_p)
        )[0].tolist()
    )
    likely = (row[0].double() / temperature).softmax(-1).tolist()
    order = sorted(range(len(likely)), key=lambda token: -likely[token])
    mass, kept = 0.0, []
    for token in order:
        if mass < top_p - 1e-6:
            kept.append(token)
        mass += likely[token]
    total = sum(likely[token] for token in kept)
    for token in range(len(likely)):
        if any(token != other and abs(likely[token] - likely[other]) < 1e-6 for other in order):
            continue  # which of two equally likely tokens falls out is not said
        expected = likely[token] / total if token in kept else 0.0
        assert counts[token] / 4000 == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_sample_is_the_same_with_a_row_of_its_own(loaded, temperature, monkeypatch):
    """Unsloth's decoding on CUDA and sliding windows obey no mask over columns: there every sample
    has a row.
    """
    own = decoding(temperature=temperature, top_p=0.9)
    stop = local_sampler.sample(loaded, asked(), own)[0].text[3:6]
    for stops in ((), (stop,)):
        shared, rows = [], []
        for shares, found in ((True, shared), (False, rows)):
            monkeypatch.setattr(local_sampler, "_shares_rows", lambda model, shares=shares: shares)
            found += local_sampler.sample(loaded, asked(stops=stops), own)
        for one, other in zip(rows, shared, strict=True):
            assert one._replace(log_probabilities=()) == other._replace(log_probabilities=())
            assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)
            assert len(one.log_probabilities) == len(one.ids)
        ended = {one.ended for one in rows}
        assert "stop" in ended if stops else "cut" in ended


def drawn_by_unsloth(model):
    """For rows that stay and for rows that leave: the ids of each answer, and the shape of every
    call. Likewise what Unsloth's own `generate` says without temperature.
    """
    loaded = load(Source("tiny", model, None, ""), Loading("unsloth", 128), trainable=False)
    with torch.no_grad():
        loaded.model.lm_head.weight.mul_(8)
    calls, found = [], {}
    loaded.model.model.embed_tokens.register_forward_pre_hook(
        lambda _, given: calls.append([*given[0].shape])
    )
    requests = asked()
    requests[:2] = asked(PROMPTS[:2], stops=("u",))  # sooner done
    for few in (32, 0):
        caches.FEW_ROWS = few
        calls.clear()
        answers = local_sampler.sample(loaded, requests, decoding())
        found[few] = [[one.ids for one in answers], [*calls]]
    for name, sampled in {
        "sampled": local_sampler.sample(loaded, asked(seeds=["d"]), decoding(temperature=0.0)),
        "generated": [
            loaded.model.generate(
                input_ids=torch.tensor([prompt], device=loaded.model.device),
                do_sample=False,
                max_new_tokens=12,
                pad_token_id=0,
            )[0, len(prompt) :]
            for prompt in PROMPTS
        ],
    }.items():
        found[name] = [[*map(int, getattr(one, "ids", one))] for one in sampled]
    return found


def test_unsloth_reads_each_prompt_once_and_rows_that_are_done_leave(tiny_model):
    """Simulated, not run on a GPU."""
    found = simulated(drawn_by_unsloth, tiny_model)
    (stayed, all_rows), (left, fewer) = found["32"], found["0"]
    assert stayed == left and found["sampled"] == found["generated"]
    assert all_rows[:2] == fewer[:2] == [[len(PROMPTS), max(map(len, PROMPTS))], [9, 1]]
    assert {rows for rows, _ in all_rows[1:]} == {9} and fewer[-1] == [4, 1]


def tried_with_qwen2(model, folder):
    """Whether a step of Qwen2 is launched as a whole after a trial that goes well, and after one
    in which the second reading gives other logits; and the answers of both.
    """
    import shutil

    from transformers import Qwen2Config, Qwen2ForCausalLM
    from unsloth.models import _decode_graphs

    torch.manual_seed(0)
    shutil.copytree(model, folder)
    known = Qwen2Config.from_pretrained(model).to_dict() | {"model_type": "qwen2"}
    Qwen2ForCausalLM(Qwen2Config(**known)).save_pretrained(folder)
    loaded = load(Source("qwen2", folder, None, ""), Loading("unsloth", 128), trainable=False)
    step, found = caches.RowCache.step, []

    def noisy(self, active):
        return [part + ("qwen2" in types) for part in step(self, active)]

    types = _decode_graphs._SUPPORTED_MODEL_TYPES
    for used in (step, noisy):
        caches._tried_types.clear()
        types.discard("qwen2")
        caches.RowCache.step = used
        answers = local_sampler.sample(loaded, asked(), decoding())
        found.append(["qwen2" in types, [one.ids for one in answers]])
    return found


def test_a_step_of_qwen2_is_launched_as_a_whole_where_its_logits_stay_the_same(
    tiny_model, tmp_path
):
    """Simulated, not run on a GPU: there are no graphs, and so the logits stay the same."""
    (well, answers), (ill, others) = simulated(tried_with_qwen2, tiny_model, tmp_path / "qwen2")
    assert well and not ill and answers == others
