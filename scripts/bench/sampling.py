"""Tokens a second of `pairs`' sampler against generate(num_return_sequences) prompt by prompt and
against generate on a padded batch, on one model.

    .venv/bin/python scripts/bench/sampling.py [--engine unsloth|hf] [--model NAME]
    [--prompts 32] [--tools 5] [--samples 8] [--new-tokens 32] [--batch 4]

Every answer is forced to the same length, so that both sides make as many tokens. The prompts are
questions with the tools they offer, made from numbers, all of 500 tokens and more; 35 tools make
prompts as long as those of long dialogs, of 2,500 tokens and more. The sides take turns, a batch of
prompts each, in one process. The ratio is that of the sums; the medians of the batches stand beside
it.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common import make_parser, show

ALIAS = "smollm2-135m"
SHORTEST, MOST = 500, 8192  # tokens of a prompt, and of a prompt with its answer
Side = Callable[[Sequence[list[int]]], int]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--engine", choices=("unsloth", "hf"), default="unsloth")
    parser.add_argument("--model", default=ALIAS, help="an alias or a folder [smollm2-135m]")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--tools", type=int, default=5, help="tools of the shortest prompts [5]")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument(
        "--batch", type=int, default=4, help="prompts that the sampler draws at once"
    )
    options = parser.parse_args()
    from agentlite.core.console import stdout_to_stderr

    with stdout_to_stderr():
        questions = make_prompts(options.prompts, options.tools)
        sides = make_sides(options)
        seconds = measure(sides, questions, options.batch)
    show(report(seconds, questions, options))


def make_prompts(count: int, fewest: int) -> list[list[int]]:
    """Steps with as many tools as it takes to reach the length."""
    from agentlite.core.records import Call, Message, Record, Tool
    from agentlite.rendering import choose, prompts_of
    from agentlite.workspace.input_files import load_template

    template = load_template(ALIAS)
    protocol_of = choose("hermes", template).protocol_of
    ids: list[list[int]] = []
    for number in range(count):
        tools = [
            Tool(
                f"rate_of_{n}",
                f"The exchange rate of currency {n} on a day, as a number.",
                {
                    "type": "object",
                    "properties": {"day": {"type": "string", "description": "a date"}},
                    "required": ["day"],
                },
            )
            for n in range(number % 3 + fewest)
        ]
        call = Call(tools[0].name, {"day": f"day {number}"})
        question = f"What was the rate of currency 0 on day {number}?"
        record = Record(
            messages=(Message("user", question), Message("assistant", calls=(call,))),
            tools=tuple(tools),
        )
        ids += [prompt.ids for prompt in prompts_of([record], protocol_of, template)]
    assert min(map(len, ids)) >= SHORTEST, min(map(len, ids))
    return ids


def make_sides(options: argparse.Namespace) -> dict[str, Side]:
    """Prompts -> how many tokens were made."""
    import torch

    from agentlite.engine import load_libraries, local_sampler
    from agentlite.engine.decoding import Decoding
    from agentlite.engine.load import Loading, load_for_inference
    from agentlite.workspace.lookup import find_model

    load_libraries(options.engine)
    with tempfile.TemporaryDirectory() as folder:
        source = find_model(options.model, Path(folder))
        loaded = load_for_inference(source, Loading(options.engine, MOST))
    loaded.model.generation_config.eos_token_id = None  # nothing ends an answer before its length
    decoding = Decoding(options.new_tokens, temperature=1.0)

    def ours(batch: Sequence[list[int]]) -> int:
        requests = [
            local_sampler.SampleRequest(
                ids, tuple(f"{len(ids)} {n}" for n in range(options.samples))
            )
            for ids in batch
        ]
        return sum(len(sample.ids) for sample in local_sampler.sample(loaded, requests, decoding))

    def generate_padded(batch: Sequence[list[int]]) -> int:
        width = max(map(len, batch))
        rows = torch.tensor([[0] * (width - len(ids)) + ids for ids in batch])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in batch])
        with torch.inference_mode():
            output: Any = loaded.model.generate(
                rows.to(loaded.model.device),
                attention_mask=mask.to(loaded.model.device),
                do_sample=True,
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                num_return_sequences=options.samples,
                max_new_tokens=options.new_tokens,
                min_new_tokens=options.new_tokens,
                eos_token_id=None,
                pad_token_id=0,
            )
        return int(output[:, width:].numel())

    def generate(batch: Sequence[list[int]]) -> int:
        return sum(generate_padded([ids]) for ids in batch)

    return {"ours": ours, "generate": generate, "padded": generate_padded}


def measure(sides: dict[str, Side], prompts: list[list[int]], size: int) -> dict[str, list[float]]:
    """Seconds of every batch, by side; the first call of each side is left out."""
    for side in sides.values():
        side(prompts[:1])
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
    for number, batch in enumerate(batches):
        counts = {}
        for name in sides if number % 2 == 0 else reversed(sides):
            started = time.perf_counter()
            counts[name] = sides[name](batch)
            seconds[name].append(time.perf_counter() - started)
        assert len(set(counts.values())) == 1, counts
        print({name: round(values[-1], 1) for name, values in seconds.items()}, file=sys.stderr)
    return seconds


def report(
    seconds: dict[str, list[float]], prompts: list[list[int]], options: argparse.Namespace
) -> dict[str, Any]:
    tokens = len(prompts) * options.samples * options.new_tokens
    ours, *others = seconds
    return {
        "engine": options.engine,
        **{
            title: {name: round(of(seconds[name]) / of(seconds[ours]), 3) for name in others}
            for title, of in (("ratio", sum), ("ratio_of_medians", statistics.median))
        },
        "tokens_a_second": {
            name: round(tokens / sum(values), 1) for name, values in seconds.items()
        },
        "prompts": len(prompts),
        "prompt_tokens": [min(map(len, prompts)), max(map(len, prompts))],
        "samples": options.samples,
        "new_tokens": options.new_tokens,
        "batch": options.batch,
    }


if __name__ == "__main__":
    main()
