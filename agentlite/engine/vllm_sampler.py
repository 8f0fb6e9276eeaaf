"""Sampling by vLLM: each answer of a step with its own seed and stop strings.

With Unsloth there is one engine in the process: vLLM loads the weights, the trained model is built
around the same tensors, and the adapter is handed over as a file before each call. With plain TRL
vLLM holds a copy of the weights, into which TRL merges the adapter before each step.
"""

import contextlib
import random
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from agentlite.engine.decoding import Decoding, ends_of
from agentlite.engine.load import Loaded
from agentlite.engine.local_sampler import Sample, SampleRequest, make_sample


def sample(
    llm: Any, loaded: Loaded, requests: Sequence[SampleRequest], decoding: Decoding
) -> list[Sample]:
    """The samples of every request by an engine in this process, all in one call, by the weights as
    they are now.

    The log-probabilities are those the token was drawn by: at the temperature, after top-p. vLLM
    rounds otherwise in another batch, so a seed gives the same answer only mostly.
    """
    from vllm import SamplingParams

    ends = ends_of(loaded.model, decoding.turn_end)
    numbered_seeds = [
        (index, number, seed, request)
        for index, request in enumerate(requests)
        for number, seed in enumerate(request.seeds)
    ]
    parameters = [
        SamplingParams(
            temperature=decoding.temperature,
            top_p=decoding.top_p,
            max_tokens=decoding.max_new_tokens,
            seed=random.Random(seed).getrandbits(31),
            stop=list(request.stops),
            include_stop_str_in_output=True,
            stop_token_ids=sorted(ends),
            skip_special_tokens=False,  # a stop string may be a special token
            logprobs=0,  # of the drawn token alone
        )
        for _, _, seed, request in numbered_seeds
    ]
    prompts = [{"prompt_token_ids": list(request.prompt)} for *_, request in numbered_seeds]
    with _adapter_arguments(llm, loaded.model) as adapter_arguments:
        outputs = llm.generate(prompts, parameters, use_tqdm=False, **adapter_arguments)
        if adapter_arguments and llm.llm_engine.vllm_config.model_config.enable_sleep_mode:
            llm.sleep(1)  # the next call wakes it
    samples = []
    for (index, number, _, request), output in zip(numbered_seeds, outputs, strict=True):
        ids = list(output.outputs[0].token_ids)
        tokens = zip(ids, output.outputs[0].logprobs, strict=True)
        logprobs = [by_token[token].logprob for token, by_token in tokens]
        samples.append(
            make_sample(loaded.tokenizer, ids, ends, request.stops, (index, number), logprobs)
        )
    return samples


@contextlib.contextmanager
def _adapter_arguments(llm: Any, model: Any) -> Iterator[dict[str, Any]]:
    """The argument that hands a shared engine the adapter; none where TRL has merged it, or before
    there is one. By a file and not by its tensors: Unsloth would hand over those of every adapter
    of the model, and the reference is one.
    """
    if getattr(model, "vllm_engine", None) is not llm or not hasattr(model, "peft_config"):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="agentlite-adapter-") as folder:
        model.save_lora(folder, selected_adapters=["default"])
        # numbered anew: vLLM keeps none by its name
        yield {"lora_request": model.load_lora(folder)}
