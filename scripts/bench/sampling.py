"""Tokens a second of `pairs`' sampler against generate(num_return_sequences) prompt by prompt, on
one model.

    .venv/bin/python scripts/bench/sampling.py [--prompts 32] [--samples 8] [--new-tokens 32]
    [--batch 4]

Every answer is forced to the same length, so that both sides make as many tokens. The prompts are
questions with the tools they offer, made from numbers, all of 500 tokens and more. The sides take
turns, a batch of prompts each, in one process. The ratio is that of the sums; the medians of the
batches stand beside it.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ALIAS = "smollm2-135m"
SHORTEST = 500
Side = Callable[[Sequence[list[int]]], int]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument(
        "--batch", type=int, default=4, help="prompts that the sampler draws at once"
    )
    options = parser.parse_args()
    from agentlite.core.console import stdout_to_stderr

    with stdout_to_stderr():
        asked = prompts(options.prompts)
        sides = make_sides(options)
        seconds = measure(sides, asked, options.batch)
    print(json.dumps(report(seconds, asked, options), indent=2))


def prompts(count: int) -> list[list[int]]:
    """Steps with as many tools as it takes to reach the length."""
    from agentlite.core.records import Call, Message, Record, Tool
    from agentlite.rendering import choose, prompts
    from agentlite.workspace.model_source import load_template

    template = load_template(ALIAS)
    protocol_of = choose("hermes", template).of
    found: list[list[int]] = []
    for number in range(count):
        tools = [
            Tool(
                f"rate_of_{place}",
                f"The exchange rate of currency {place} on a day, as a number.",
                {
                    "type": "object",
                    "properties": {"day": {"type": "string", "description": "a date"}},
                    "required": ["day"],
                },
            )
            for place in range(number % 3 + 5)
        ]
        call = Call(tools[0].name, {"day": f"day {number}"})
        question = f"What was the rate of currency 0 on day {number}?"
        record = Record(
            messages=(Message("user", question), Message("assistant", calls=(call,))),
            tools=tuple(tools),
        )
        found += [one.ids for one in prompts([record], protocol_of, template)]
    assert min(map(len, found)) >= SHORTEST, min(map(len, found))
    return found


def make_sides(options: argparse.Namespace) -> dict[str, Side]:
    """Prompts -> how many tokens were made."""
    import torch

    from agentlite.engine import load_libraries, local_sampler
    from agentlite.engine.decoding import Decoding
    from agentlite.engine.load import Loading, load_for_inference
    from agentlite.workspace.model_source import find_model

    load_libraries("unsloth")
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_for_inference(find_model(ALIAS, Path(folder)), Loading("unsloth", 2048))
    loaded.model.generation_config.eos_token_id = None  # nothing ends an answer before its length
    decoding = Decoding(options.new_tokens, temperature=1.0)

    def ours(batch: Sequence[list[int]]) -> int:
        asked = [
            local_sampler.SampleRequest(
                ids, tuple(f"{len(ids)} {n}" for n in range(options.samples))
            )
            for ids in batch
        ]
        return sum(len(drawn.ids) for drawn in local_sampler.sample(loaded, asked, decoding))

    def generate(batch: Sequence[list[int]]) -> int:
        made = 0
        for ids in batch:
            prompt = torch.tensor([ids])
            with torch.inference_mode():
                output: Any = loaded.model.generate(
                    prompt,
                    attention_mask=torch.ones_like(prompt),
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
            made += output[:, len(ids) :].numel()
        return made

    return {"ours": ours, "generate": generate}


def measure(sides: dict[str, Side], asked: list[list[int]], size: int) -> dict[str, list[float]]:
    """Seconds of every batch, by side; the first call of each side is left out."""
    for side in sides.values():
        side(asked[:1])
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    batches = [asked[start : start + size] for start in range(0, len(asked), size)]
    for number, batch in enumerate(batches):
        made = {}
        for name in sides if number % 2 == 0 else reversed(sides):
            started = time.perf_counter()
            made[name] = sides[name](batch)
            seconds[name].append(time.perf_counter() - started)
        assert len(set(made.values())) == 1, made
        print({name: round(values[-1], 1) for name, values in seconds.items()}, file=sys.stderr)
    return seconds


def report(
    seconds: dict[str, list[float]], asked: list[list[int]], options: argparse.Namespace
) -> dict[str, Any]:
    tokens = len(asked) * options.samples * options.new_tokens
    return {
        "ratio": round(sum(seconds["generate"]) / sum(seconds["ours"]), 3),
        "ratio_of_medians": round(
            statistics.median(seconds["generate"]) / statistics.median(seconds["ours"]), 3
        ),
        "tokens_a_second": {
            name: round(tokens / sum(values), 1) for name, values in seconds.items()
        },
        "prompts": len(asked),
        "prompt_tokens": [min(map(len, asked)), max(map(len, asked))],
        "samples": options.samples,
        "new_tokens": options.new_tokens,
        "batch": options.batch,
    }


if __name__ == "__main__":
    main()
