"""Which tokens are learned from, in every protocol: on Unsloth's CUDA path, simulated and not run
on a GPU, as with the engine hf on the CPU.
"""

import itertools
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.samples import with_template
from support.simulated_cuda import simulated
from support.trainers import TOOL, grpo, sft, source, task

from agentlite.core.records import Call, Message, Record
from agentlite.engine.grpo import Reward
from agentlite.rendering import PROTOCOLS, Encoded, choose, encode, render
from agentlite.workspace.model_source import load_template

pytestmark = pytest.mark.torch

RECORD = Record(
    messages=(
        Message("user", "Is it wet in Oslo?"),
        Message("assistant", calls=(Call("get_weather", {"city": "Oslo"}),)),
        Message("tool", '{"rain": true}'),
        Message("assistant", "Yes."),
    ),
    tools=(TOOL,),
)
ENGINES = ("unsloth", "hf")


class FirstAnswer(NamedTuple):
    """What is read and what is said, call and end of it, at the first step of RECORD."""

    prompt: list[int]
    ids: list[int]
    stops: tuple[str, ...]


@cache
def rows(protocol: str) -> list[Encoded]:
    template = load_template("smollm2-135m")
    if protocol == "chat":  # the template's own, which takes no tools
        template = with_template(template, "tools")
    chosen = choose(protocol, template).protocols[protocol]
    return [encode(row, template) for row in render(RECORD, chosen, template)]


def first_answer(protocol: str) -> FirstAnswer:
    row = rows(protocol)[0]
    start = next(place for place, label in enumerate(row.labels) if label != -100)
    trained = itertools.takewhile(lambda label: label != -100, row.labels[start:])
    return FirstAnswer(row.input_ids[:start], [*trained], PROTOCOLS[protocol].stops)


def learned(model: str, folder: str, engine: str) -> dict[str, Any]:
    """What reaches the losses of sft and grpo: the ids and labels of every row, and the ids and the
    mask of every answer. No loss is calculated.
    """
    import trl

    from agentlite.engine import grpo as grpo_trainer
    from agentlite.engine import load_libraries, local_sampler
    from agentlite.engine import sft as sft_trainer

    load_libraries(engine)
    batches: dict[str, list[Any]] = {"SFTTrainer": [], "GRPOTrainer": []}
    for name, seen in batches.items():
        base = next(one for one in getattr(trl, name).__mro__ if "compute_loss" in vars(one))

        def looked(self: Any, model: Any, inputs: Any, *_: Any, seen: Any = seen, **__: Any) -> Any:
            seen.append(
                {key: one.tolist() for key, one in inputs.items() if hasattr(one, "tolist")}
            )
            return sum(one.sum() for one in model.parameters() if one.requires_grad) * 0

        base.compute_loss = looked
    every = [row for name in PROTOCOLS for row in rows(name)]
    short = {"batch_size": 2, "gradient_accumulation": 1, "max_length": 1024, "engine": engine}
    settings = sft(**short, max_steps=(len(every) + 1) // 2)
    base_model, work = source(Path(model)), Path(folder)
    (work / "sft").mkdir()
    sft_trainer.train(base_model, settings, work / "sft", every, [])

    answers = [first_answer(name) for name in PROTOCOLS]

    def called(loaded: Any, sampled: Any, *_: Any) -> None:
        """The gold call, one that was cut off, and another token after it."""
        for answer in sampled:
            gold = next(one for one in answers if one.prompt == [*answer.request.prompt])
            answer.ids = [gold.ids, gold.ids[:5], [1000, *gold.ids]][answer.sample]
            answer.log_probabilities = [-1.0] * len(answer.ids)

    local_sampler._shared = local_sampler._rows = called
    grpo_trainer.sampler_gaps = lambda *_: [0.0]  # these answers were not sampled

    ended: list[str] = []

    def judge(answers: Any) -> list[Reward]:
        ended.extend(answer.ended for answer in answers)
        rewards = [float(answer.sample % 2) for answer in answers]
        return [{"even": one, "long": 0.0, "timeout": 0.0} for one in rewards]

    whole = {**short, "batch_size": 3, "gradient_accumulation": len(answers), "max_length": 2048}
    settings = grpo(**whole, group_size=3, max_steps=1, beta=0.0, max_new_tokens=200)
    asked, stops = [one.prompt for one in answers], [one.stops for one in answers]
    wanted = task(settings, judge, asked, stops)
    (work / "grpo").mkdir()
    grpo_trainer.train(base_model, settings, work / "grpo", lambda loaded: wanted)
    return {
        "rows": sorted(row for batch in batches["SFTTrainer"] for row in _rows(batch)),
        "answers": sorted(answer for batch in batches["GRPOTrainer"] for answer in _answers(batch)),
        "ended": sorted({*ended}),
        "packed": any("packed_seq_lengths" in batch for batch in batches["SFTTrainer"]),
    }


def _rows(batch: dict[str, Any]) -> list[list[list[int]]]:
    """Ids and labels of each row, whether they are padded or lie one behind the other."""
    if "packed_seq_lengths" in batch:
        found, start = [], 0
        for length in batch["packed_seq_lengths"]:
            end = start + length
            found.append([batch["input_ids"][0][start:end], batch["labels"][0][start:end]])
            start = end
        return found
    lengths = [sum(mask) for mask in batch["attention_mask"]]
    padded = [*zip(batch["input_ids"], batch["labels"], lengths, strict=True)]
    assert all(label == -100 for _, labels, n in padded for label in labels[n:])
    return [[ids[:n], labels[:n]] for ids, labels, n in padded]


def _answers(batch: dict[str, Any]) -> list[list[list[int]]]:
    """The ids of each answer that are learned from; they stand before the padding."""
    both = zip(batch["completion_ids"], batch["completion_mask"], strict=True)
    assert all(mask == sorted(mask, reverse=True) for mask in batch["completion_mask"])
    return [[token for token, on in zip(ids, mask, strict=True) if on] for ids, mask in both]


@pytest.fixture(scope="module")
def found(tiny_model, tmp_path_factory):
    return {
        engine: simulated(
            learned,
            tiny_model,
            tmp_path_factory.mktemp(engine),
            engine,
            card="rtx3060" if engine == "unsloth" else None,
        )
        for engine in ENGINES
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_labelled_token_of_a_row_and_no_other_is_trained(found, protocol):
    for row in rows(protocol):
        assert any(label != -100 for label in row.labels)
        for engine in ENGINES:
            assert [row.input_ids, row.labels] in found[engine]["rows"], engine


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_token_of_an_answer_is_learned_from_however_it_ends(found, protocol):
    gold = first_answer(protocol)
    for engine in ENGINES:
        for ids in (gold.ids, gold.ids[:5], [1000, *gold.ids]):
            assert ids in found[engine]["answers"], engine


def test_both_engines_train_the_same_rows_and_answers(found):
    unsloth, hf = (found[engine] for engine in ENGINES)
    assert unsloth["rows"] == hf["rows"] and unsloth["answers"] == hf["answers"]
    assert len(unsloth["answers"]) == 3 * len(PROTOCOLS)
    assert unsloth["packed"] and not hf["packed"]
    assert unsloth["ended"] == hf["ended"] == ["cut", "stop", "turn"]
