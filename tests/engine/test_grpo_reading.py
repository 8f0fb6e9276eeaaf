"""Which passes GRPO makes over the answers of a step: simulated, not run on a GPU."""

from pathlib import Path
from typing import Any

import pytest
from support.simulated_cuda import simulated
from support.trainers import grpo, prompts, source, task

from agentlite.engine import grpo as trainer
from agentlite.engine import grpo_reading, watch

pytestmark = pytest.mark.torch

ROWS = {"batch_size": 4, "group_size": 4, "gradient_accumulation": 2, "max_new_tokens": 5}
STEPS = {"max_steps": 3, "save_steps": 3, "warmup_ratio": 0.0, "learning_rate": 1e-3}


def passes(model: str, folder: str, mode: str, beta: float) -> dict[str, Any]:
    """Of every step the shape of each call of the model without a cache, and whether it keeps
    gradients; the losses; and of one micro-batch the tokens that Unsloth reads, and those of all
    its rows.
    """
    import torch
    from unsloth.utils.prefix_grouper import build_group_layout
    from unsloth_zoo.rl_replacements import calculate_pad_tokens_in_prompt, left_pack_padding

    trust = trainer.trust_packing
    if mode == "of Unsloth":
        trainer.trust_packing = lambda trainer_class, _: trainer_class
    if mode == "not trusted":
        trainer.trust_packing = lambda trainer_class, _: trust(trainer_class, -1.0)
    calls: list[list[Any]] = []
    trainers: list[Any] = []
    make = trainer.make_trainer

    def made(*arguments: Any) -> Any:
        trainers.append(make(*arguments))
        unwrapped = trainers[-1].accelerator.unwrap_model(trainers[-1].model)
        trunk = unwrapped.base_model.model.model
        forward, generate = trunk.embed_tokens.forward, trainers[-1]._generate

        def counted(ids: Any) -> Any:
            calls[-1].append([*ids.shape, torch.is_grad_enabled()])
            return forward(ids)

        def sampled(*arguments: Any, **named: Any) -> Any:
            answers = generate(*arguments, **named)
            calls.append([])
            return answers

        calls.append([])
        trunk.embed_tokens.forward, trainers[-1]._generate = counted, sampled
        return trainers[-1]

    trainer.make_trainer = made
    settings = grpo(**ROWS, **STEPS, beta=beta)

    def judge(answers: Any) -> Any:
        return [{"even": float(one.sample % 2), "long": 0.0, "timeout": 0.0} for one in answers]

    Path(folder).mkdir()
    todo = task(settings, judge, prompts()[:2])
    trainer.train(source(Path(model)), settings, Path(folder), lambda: todo)
    answers, pad = trainers[-1]._buffered_inputs[0], 0
    ids = torch.cat([answers["prompt_ids"], answers["completion_ids"]], dim=1)
    width = answers["completion_ids"].shape[1]
    padding = calculate_pad_tokens_in_prompt(ids, width, pad)
    layout = build_group_layout(left_pack_padding(ids, pad), width, pad, 4, padding)
    rows = watch.read_metrics(Path(folder))
    return {
        # without those that sample the next answers: of two prompts, and of a token
        "calls": [[call for call in step if call[0] != 2 and call[1] > 1] for step in calls[1:]],
        "losses": [[row["loss"], row["grad_norm"]] for row in rows],
        "read": layout.flat_ids.shape[1],
        "tokens": int((ids != pad).sum()),
    }


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    def of(mode: str, beta: float) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("run") / "grpo"
        found: dict[str, Any] = simulated(passes, tiny_model, folder, mode, beta)
        return found

    return of


@pytest.mark.parametrize("beta", [0.1, 0.0])
def test_a_step_reads_its_answers_once_for_each_pass_and_four_of_the_longest_alone(run, beta):
    """Two micro-batches of four answers: the losses are those of Unsloth, which reads all alone."""
    ours, theirs = run("trusted", beta), run("of Unsloth", beta)
    assert ours["losses"] == theirs["losses"]
    packed = [[call for call in step if call[1] > 12] for step in ours["calls"]]
    alone = [[call for call in step if call[1] <= 12] for step in ours["calls"]]
    assert [len(step) for step in packed] == [4 if beta else one for one in (4, 2, 2)]
    assert [len(step) for step in alone] == [grpo_reading.ANSWERS_ALONE, 0, 0]
    assert len(theirs["calls"][0]) == (3 + 16 if beta else 2 + 8)
    assert ours["read"] < ours["tokens"]


def test_where_packed_answers_are_read_otherwise_they_are_padded(run):
    ours, theirs = run("not trusted", 0.1), run("of Unsloth", 0.1)
    assert ours["losses"] == theirs["losses"]
    assert all(rows == 4 for rows, _, _ in ours["calls"][-1])
