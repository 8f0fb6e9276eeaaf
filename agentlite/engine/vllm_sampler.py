"""Sampling by vLLM: each answer of a step with its own seed and stop strings.

With Unsloth there is one engine in the process: vLLM loads the weights, the trained model is built
around the same tensors, and the adapter is handed over as a file before each call. With plain TRL
vLLM holds a copy of the weights, into which TRL merges the adapter before each step.
"""

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from agentlite.engine.decoding import Decoding, ends_of
from agentlite.engine.load import Loaded
from agentlite.engine.local_sampler import Sample, SampleRequest, read


class VllmAnswer(NamedTuple):
    """The ids that vLLM drew, and the logarithms of the probabilities they were drawn by."""

    ids: Sequence[int]
    log_probabilities: Sequence[float]


# prompts, the parameters of each by vLLM's names -> an answer to each
Answers = Callable[[Sequence[Sequence[int]], Sequence[dict[str, Any]]], Sequence[VllmAnswer]]


def sample(
    answers: Answers, loaded: Loaded, requests: Sequence[SampleRequest], decoding: Decoding
) -> list[Sample]:
    """The samples of every request, by the weights as they are now.

    The log-probabilities are those the token was drawn by: at the temperature, after top-p. vLLM
    rounds otherwise in another batch, so a seed gives the same answer only mostly.
    """
    ends = ends_of(loaded.model, decoding.turn_end)
    wanted = [
        (index, number, seed, request)
        for index, request in enumerate(requests)
        for number, seed in enumerate(request.seeds)
    ]
    parameters = [
        {
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "max_tokens": decoding.max_new_tokens,
            "seed": random.Random(seed).getrandbits(31),
            "stop": list(request.stops),
            "include_stop_str_in_output": True,
            "stop_token_ids": sorted(ends),
            "skip_special_tokens": False,  # a stop string may be a special token
            "logprobs": 0,  # of the drawn token alone
        }
        for _, _, seed, request in wanted
    ]
    prompts = [list(request.prompt) for *_, request in wanted]
    samples = []
    for (index, number, _, request), answer in zip(
        wanted, answers(prompts, parameters), strict=True
    ):
        one = read(loaded.tokenizer, list(answer.ids), ends, request.stops, (index, number))
        likelihoods = tuple(answer.log_probabilities[: len(one.ids)])
        samples.append(one._replace(log_probabilities=likelihoods))
    return samples


def of_engine(llm: Any, model: Any) -> Answers:
    """The answers of an engine in this process, all in one call."""

    def answers(
        prompts: Sequence[Sequence[int]], parameters: Sequence[dict[str, Any]]
    ) -> list[VllmAnswer]:
        from vllm import SamplingParams

        with _adapter(llm, model) as handed:
            outputs = llm.generate(
                [{"prompt_token_ids": prompt} for prompt in prompts],
                [SamplingParams(**each) for each in parameters],
                use_tqdm=False,
                **handed,
            )
            if handed and llm.llm_engine.vllm_config.model_config.enable_sleep_mode:
                llm.sleep(1)  # the next call wakes it
        found = []
        for output in outputs:
            ids, likely = output.outputs[0].token_ids, output.outputs[0].logprobs
            likelihoods = [place[token].logprob for token, place in zip(ids, likely, strict=True)]
            found.append(VllmAnswer(ids, likelihoods))
        return found

    return answers


@contextlib.contextmanager
def _adapter(llm: Any, model: Any) -> Iterator[dict[str, Any]]:
    """The argument that hands a shared engine the adapter; none where TRL has merged it, or before
    there is one. By a file and not by its tensors: Unsloth would hand over those of every adapter
    of the model, and the reference is one.
    """
    if getattr(model, "vllm_engine", None) is not llm or not hasattr(model, "peft_config"):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="agentlite-adapter-") as folder:
        model.save_lora(folder, selected_adapters=["default"])
        yield {
            "lora_request": model.load_lora(folder)
        }  # numbered anew: vLLM keeps none by its name
