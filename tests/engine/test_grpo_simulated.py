"""grpo on Unsloth's CUDA path, simulated and not run on a GPU."""

import math
from pathlib import Path
from typing import Any

import pytest
from support.simulated_cuda import simulated
from support.trainers import checkpointing, grpo, source, task

from agentlite.engine import training_log
from agentlite.engine.grpo import AnswerReward

pytestmark = pytest.mark.torch

# What a model says when it calls a tool, in the protocols whose calls end at a stop string and not
# with the turn.
CALLS = {
    "react": "Action: a\nObservation:",
    "modelscope": "<|startofthink|>{}<|endofthink|>",
}
SETTINGS = {
    "max_steps": 3,
    "batch_size": 2,
    "group_size": 2,
    "gradient_accumulation": 1,
    "max_new_tokens": 3,
    "save_steps": 3,
}


def steps(model: str, folder: str) -> dict[str, Any]:
    """A step of sampled answers, and one of calls that end at the stop string of each protocol."""
    import trl
    from support.trainers import prompts
    from unsloth.models import _decode_graphs

    from agentlite.core.errors import UserError
    from agentlite.engine import grpo as grpo_trainer
    from agentlite.engine import load_libraries, local_sampler
    from agentlite.engine.load import load, loading_of
    from agentlite.rendering import choose
    from agentlite.workspace.model_source import load_template

    load_libraries("unsloth")
    template = load_template("smollm2-135m")
    stops = {name: choose(name, template).protocols[name].stops for name in CALLS}
    seen: list[dict[str, Any]] = []
    sampler = local_sampler._rows

    def called(loaded: Any, requests: Any, decoding: Any, *_: Any) -> list[Any]:
        if not seen:
            return sampler(loaded, requests, decoding)
        name = list(CALLS)[len(seen) - 1]
        ids = template.encode(CALLS[name])
        return [
            local_sampler.read(
                loaded.tokenizer, [1000 + number, *ids], {2}, stops[name], (index, number)
            )._replace(log_probabilities=(-1.0,) * (len(ids) + 1))
            for index, request in enumerate(requests)
            for number in range(len(request.seeds))
        ]

    local_sampler._rows = called
    base = next(base for base in trl.GRPOTrainer.__mro__ if "compute_loss" in vars(base))
    compute_loss = base.compute_loss

    def looked(self: Any, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        loss = compute_loss(self, model, inputs, *rest, **named)
        modules = list(model.modules())
        seen.append(
            {
                "mask": inputs["completion_mask"].tolist(),
                "reference": inputs.get("ref_per_token_logps") is not None,
                "buffers": sum(
                    name in vars(module)
                    for module in modules
                    for name in _decode_graphs._BUFFER_NAMES
                ),
                "checkpointing": checkpointing(model),
                "scale_rewards": self.scale_rewards,
                "epsilon_high": self.epsilon_high,
                "masked": self.mask_truncated_completions,
                "weight_decay": self.args.weight_decay,
                "trained": [n for n, weight in model.named_parameters() if weight.requires_grad],
                "dtypes": sorted(
                    {str(weight.dtype) for weight in model.parameters() if weight.requires_grad}
                ),
                "loss": loss.item(),
            }
        )
        return loss

    base.compute_loss = looked

    def judge(answers: Any) -> list[AnswerReward]:
        odd = [float(answer.sample.sample % 2) for answer in answers]
        return [AnswerReward({"even": one, "long": 0.0, "timeout": 0.0}) for one in odd]

    wanted = task(judge)._replace(prompts=prompts()[:1], stops=[()])
    settings = grpo(**SETTINGS)
    grpo_trainer.train(source(Path(model)), settings, Path(folder), lambda loaded: wanted)
    try:
        load(source(Path(model)), loading_of(grpo(engine="hf")), trainable=True)
        refused = ""
    except UserError as error:
        refused = f"{error.exit_code} {error}"
    return {
        "steps": seen,
        "rows": training_log.logged(Path(folder)),
        "refused": refused,
        "vocabulary": len(template.tokenizer.get_vocab()),
    }


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    return simulated(steps, tiny_model, tmp_path_factory.mktemp("run"), card="rtx3060")


@pytest.mark.parametrize("protocol", CALLS)
def test_a_call_that_ends_at_a_stop_string_is_learned_from(run, protocol):
    index = 1 + [*CALLS].index(protocol)
    mask = run["steps"][index]["mask"]
    assert mask and all(all(row) for row in mask)
    assert run["rows"][index]["grad_norm"] > 0


def test_the_trainer_has_the_settings_that_the_plan_names(run):
    for step in run["steps"]:
        assert (step["scale_rewards"], step["epsilon_high"]) == ("group", 0.2)
        assert not step["masked"] and step["weight_decay"] == 0


def test_the_buffers_of_the_decoding_are_freed_before_the_backward_pass(run):
    assert run["steps"][0]["buffers"] == 0


def test_the_backward_pass_after_sampling_computes_blocks_again(run):
    """Unsloth's decoding turns that off, and its loss on again."""
    assert [step["checkpointing"] for step in run["steps"]] == [["unsloth"]] * len(run["steps"])


def test_the_adapter_alone_is_trained_in_float32_against_its_start(run):
    for step in run["steps"]:
        assert all(".default." in name for name in step["trained"])
        assert step["dtypes"] == ["torch.float32"]
        assert step["reference"]
    assert run["rows"][0]["kl"] == pytest.approx(0, abs=1e-2)


def test_the_log_has_every_measure_but_the_entropy(run):
    """Unsloth's loss never has all logits; docs/gpu.md says so. `surprisal` stands for it."""
    for row in run["rows"]:
        measures = {"loss", "reward", "reward_std", "flat", "kl", "surprisal", "new_tokens"}
        assert row.keys() >= measures and "entropy" not in row
    first = run["rows"][0]["surprisal"]
    assert first == pytest.approx(math.log(run["vocabulary"]), abs=0.1)  # random weights


def test_the_engine_hf_is_refused_where_unsloth_was_loaded(run):
    assert run["refused"].startswith("5 ") and "separate process" in run["refused"]
