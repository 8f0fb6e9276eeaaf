"""What vLLM is asked for each answer, and what is made of what it says; tests/gpu run vLLM."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.engine import vllm_sampler
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loaded
from agentlite.engine.local_sampler import SampleRequest


def test_each_answer_has_its_seed_and_stops_and_keeps_the_ids_up_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[list[int], dict[str, Any]]] = []

    def generate(prompts: list[Any], parameters: list[dict[str, Any]], **_: Any) -> list[Any]:
        outputs = []
        for prompt, each in zip(prompts, parameters, strict=True):
            ids = prompt["prompt_token_ids"]
            asked.append((ids, each))
            drawn = {40 + len(ids): -1.0, 60: -2.0, 61: -3.0}
            logprobs = [{token: SimpleNamespace(logprob=one)} for token, one in drawn.items()]
            outputs.append(SimpleNamespace(token_ids=[*drawn], logprobs=logprobs))
        return [SimpleNamespace(outputs=[output]) for output in outputs]

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=dict))
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "".join(map(chr, ids)))
    configuration = SimpleNamespace(eos_token_id=None)
    loaded = Loaded(SimpleNamespace(generation_config=configuration), tokenizer)
    requests = [SampleRequest([1, 2], ("a", "b"), ("<",)), SampleRequest([3], ("c",))]
    decoding = Decoding(5, temperature=0.7, top_p=0.9, turn_end=61)
    drawn = vllm_sampler.sample(SimpleNamespace(generate=generate), loaded, requests, decoding)

    assert [ids for ids, _ in asked] == [[1, 2], [1, 2], [3]]
    assert [each["stop"] for _, each in asked] == [["<"], ["<"], []]
    assert len({each["seed"] for _, each in asked}) == 3
    for _, each in asked:
        assert (each["temperature"], each["top_p"], each["max_tokens"]) == (0.7, 0.9, 5)
        assert each["stop_token_ids"] == [61]
    found = [(one.prompt, one.sample, one.text, one.ended, one.log_probabilities) for one in drawn]
    assert found == [
        (0, 0, "*<", "stop", (-1.0, -2.0)),
        (0, 1, "*<", "stop", (-1.0, -2.0)),
        (1, 0, ")<", "turn", (-1.0, -2.0, -3.0)),
    ]
