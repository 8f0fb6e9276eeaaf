"""Where vLLM samples the answers of grpo, and where it cannot."""

import contextlib
import importlib.util
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from agentlite.config.gpu_profiles import Gpu
from agentlite.config.settings import GrpoSettings
from agentlite.core.errors import UserError
from agentlite.engine import vllm_sampler

CARD = Gpu("NVIDIA GeForce RTX 3060", 12, 11.5, 8.6)


@pytest.fixture
def machine(monkeypatch):
    """A machine with a card and packages, whatever is here."""

    def found(card: Gpu | None = CARD, *packages: str) -> None:
        monkeypatch.setattr(vllm_sampler, "card", lambda: card)
        find = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name: (name in packages or None) if name.startswith("vllm") else find(name),
        )

    return found


@pytest.mark.parametrize(
    ("settings", "card", "packages", "problem"),
    [
        ({}, CARD, (), "vLLM is not installed"),
        ({}, None, ("vllm",), "needs a CUDA GPU, and none is found"),
        ({}, Gpu("Tesla T4", 15, 14, 7.5), ("vllm",), "Tesla T4 has 7.5"),
        ({"load_in_8bit": True}, CARD, ("vllm",), "no 8-bit weights"),
        ({"load_in_4bit": True}, CARD, ("vllm",), "vllm-bnb-plugin"),
        ({"full": True}, CARD, ("vllm",), "full trains all weights"),
        ({"lora_r": 1024}, CARD, ("vllm",), "up to rank 512"),
        ({"peft": {"use_dora": True}}, CARD, ("vllm",), "peft.use_dora"),
        ({"peft": {"bias": "all"}}, CARD, ("vllm",), "peft.bias"),
        ({"peft": {"modules_to_save": ["lm_head"]}}, CARD, ("vllm",), "peft.modules_to_save"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_vllm_cannot_sample_is_refused_with_the_cause(
    machine, settings, card, packages, problem
):
    machine(card, *packages)
    with pytest.raises(UserError) as error:
        vllm_sampler.refuse(GrpoSettings(vllm=True, **settings))
    assert problem in str(error.value) and error.value.exit_code == 2 and error.value.fix
    vllm_sampler.refuse(GrpoSettings(**settings))  # without it, nothing is asked


@pytest.mark.torch
@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_an_engine_of_trls_own_samples_by_its_merged_weights(tiny_model, monkeypatch, top_p):
    """With plain TRL: stops and seeds of each answer, no adapter, and log-probabilities that the
    trainer's forward pass agrees with to rounding, also below top-p 1.
    """
    from support import simulated_vllm
    from support.trainers import grpo, prompts, source, task

    from agentlite.engine import grpo as grpo_trainer
    from agentlite.engine.grpo import AnswerReward
    from agentlite.engine.load import load, loading_of

    vllm = ModuleType("vllm")
    vllm.SamplingParams = simulated_vllm.SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    llm = simulated_vllm.LLM(model=str(tiny_model), logprobs_mode="processed_logprobs")
    settings = grpo(engine="hf", vllm=True, group_size=3, temperature=0.7, top_p=top_p)
    loaded = load(source(tiny_model), loading_of(settings), trainable=True)
    decoding = task().decoding._replace(temperature=0.7, top_p=top_p, max_new_tokens=5)
    stops = [("Observation:",), ("9", "x"), (), (), ()]
    wanted = task(lambda answers: [AnswerReward({})] * len(answers))
    wanted = wanted._replace(stops=stops, decoding=decoding)
    trl_trainer = SimpleNamespace(
        accelerator=SimpleNamespace(unwrap_model=lambda model: model),
        vllm_generation=SimpleNamespace(llm=llm),
        state=SimpleNamespace(global_step=5),
        model=loaded.model,
        _metrics={"train": defaultdict(list)},
    )
    rollout = grpo_trainer._rollout(loaded, settings, wanted)
    given = rollout(["1", "1", "1", "0", "0", "0"], trl_trainer)
    (call,) = llm.calls
    assert call.prompts == given["prompt_ids"] == [prompts()[n] for n in (1, 1, 1, 0, 0, 0)]
    assert [one.stop for one in call.parameters] == [["9", "x"]] * 3 + [["Observation:"]] * 3
    assert len({one.seed for one in call.parameters}) == 6 and call.lora_int_id is None
    assert list(map(len, given["logprobs"])) == list(map(len, given["completion_ids"]))
    measured = trl_trainer._metrics["train"]
    assert 0 < measured["sampler_gap/mean"][0] <= measured["sampler_gap/max"][0] < 1e-4
    assert rollout(["1"] * 3 + ["0"] * 3, trl_trainer) == given  # the same seeds


@pytest.mark.torch
def test_an_answer_ends_at_a_stop_string_of_its_prompt_alone(tiny_model, monkeypatch):
    from support import simulated_vllm
    from support.trainers import grpo, prompts, source

    from agentlite.engine.decoding import Decoding
    from agentlite.engine.load import load, loading_of
    from agentlite.engine.local_sampler import SampleRequest

    vllm = ModuleType("vllm")
    vllm.SamplingParams = simulated_vllm.SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    loaded = load(source(tiny_model), loading_of(grpo(engine="hf")), trainable=True)
    llm = simulated_vllm.LLM(model=str(tiny_model))
    answers = vllm_sampler.of_engine(llm, loaded.model)
    request = SampleRequest(prompts()[0], ("seed",))
    decoding = Decoding(6, temperature=1.0, turn_end=2)
    (free,) = vllm_sampler.sample(answers, loaded, [request], decoding)
    stop = loaded.tokenizer.decode(free.ids[:3])[-2:]
    stopped, again = vllm_sampler.sample(
        answers, loaded, [request._replace(stops=(stop,)), request], decoding
    )
    assert stopped.ended == "stop" and stopped.text.endswith(stop)
    assert stopped.ids == free.ids[: len(stopped.ids)] and len(stopped.ids) <= 3
    assert len(stopped.log_probabilities) == len(stopped.ids)
    assert again.ids == free.ids and again.ended == "cut"


@pytest.mark.parametrize("fails", [False, True])
def test_a_shared_engine_gets_the_trained_adapter_alone_and_no_file_of_it_stays(fails):
    """Beside it the model has the frozen reference."""
    llm, folders = object(), []

    class Model:
        vllm_engine, peft_config = llm, {"default": None, "reference": None}

        def save_lora(self, folder, selected_adapters=None):
            for name in selected_adapters or self.peft_config:
                (Path(folder) / name).touch()

        def load_lora(self, folder):
            folders.append(Path(folder))
            return sorted(path.name for path in Path(folder).iterdir())

    handed_over = contextlib.suppress(ZeroDivisionError) if fails else contextlib.nullcontext()
    with handed_over, vllm_sampler._adapter(llm, Model()) as given:
        assert given == {"lora_request": ["default"]}
        if fails:
            raise ZeroDivisionError
    assert [folder.exists() for folder in folders] == [False]
    for model in (SimpleNamespace(peft_config={}), SimpleNamespace(vllm_engine=llm)):
        with vllm_sampler._adapter(llm, model) as given:
            assert given == {}
