"""What k turns of an agent cost over one prefill of the whole text plus its decoding.

    .venv/bin/python scripts/bench/turns.py [--engine unsloth|hf] [--model NAME] [--dialogs 2]
    [--turns 5] [--new-tokens 16] [--prompt 600] [--result 100] [--rounds 3]

Three sides decode the same number of tokens of the same dialogs, `--dialogs` at once: `once` reads
the final text, without its last answer, in one prefill, and decodes as many tokens as all turns
have; `ours` goes turn by turn, as rollouts do, and keeps what it has read; `again` is the model's
own `generate`, asked turn by turn with the text up to there. Every answer is forced to its length.
The sides take turns in one process. The ratios are those of the sums.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ALIAS = "smollm2-135m"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("unsloth", "hf"), default="unsloth")
    parser.add_argument("--model", default=ALIAS, help="an alias or a folder [smollm2-135m]")
    parser.add_argument("--dialogs", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=600, help="tokens of the first prompt")
    parser.add_argument("--result", type=int, default=100, help="tokens between two answers")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from agentlite.core.console import stdout_to_stderr

    with stdout_to_stderr():
        sides = make_sides(options)
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(options.rounds + 1):
            for name in sides if number % 2 else reversed(sides):
                start = time.perf_counter()
                sides[name](number)
                if number:  # the first round warms up
                    seconds[name].append(time.perf_counter() - start)
                print(f"{name}: {time.perf_counter() - start:.2f} s", file=sys.stderr)
    sums = {name: sum(of_side) for name, of_side in seconds.items()}
    print(
        json.dumps(
            {
                **{name: getattr(options, name) for name in vars(options)},
                "seconds": sums,
                "ours / once": round(sums["ours"] / sums["once"], 3),
                "again / ours": round(sums["again"] / sums["ours"], 2),
            },
            indent=2,
        )
    )


def make_sides(options: argparse.Namespace) -> dict[str, Callable[[int], None]]:
    import torch

    from agentlite.engine import load_libraries, local_sampler
    from agentlite.engine.decoding import Decoding
    from agentlite.engine.load import Loading, load_for_inference
    from agentlite.engine.read_before import ReadBefore
    from agentlite.workspace.model_source import find_model

    load_libraries(options.engine)
    with tempfile.TemporaryDirectory() as folder:
        source = find_model(options.model, Path(folder))
        loaded = load_for_inference(source, Loading(options.engine, 8192))
    loaded.model.generation_config.eos_token_id = None  # nothing ends an answer before its length

    def text(dialog: int, length: int, seed: int) -> list[int]:
        """Ids that stand for a prompt or a result; those of no two dialogs and rounds are equal."""
        return [3 + (number * 31 + dialog * 977 + seed * 131) % 40000 for number in range(length)]

    def sample(prompts: list[list[int]], count: int, before: ReadBefore | None) -> list[list[int]]:
        requests = [
            local_sampler.SampleRequest(ids, (f"{index}",)) for index, ids in enumerate(prompts)
        ]
        drawn = local_sampler.sample(loaded, requests, Decoding(count, temperature=1.0), before)
        return [one.ids for one in sorted(drawn)]

    def turn_by_turn(answer: Callable[[list[list[int]]], list[list[int]]], seed: int) -> None:
        prompts = [text(dialog, options.prompt, seed) for dialog in range(options.dialogs)]
        for turn in range(options.turns):
            prompts = [
                [*prompt, *ids, *text(dialog, options.result, seed + turn)]
                for dialog, (prompt, ids) in enumerate(zip(prompts, answer(prompts), strict=True))
            ]

    def ours(seed: int) -> None:
        before = ReadBefore()
        turn_by_turn(lambda prompts: sample(prompts, options.new_tokens, before), seed)

    def once(seed: int) -> None:
        read = options.prompt + (options.turns - 1) * options.result
        prompts = [text(dialog, read, seed) for dialog in range(options.dialogs)]
        sample(prompts, options.turns * options.new_tokens, None)

    def generated(prompts: list[list[int]]) -> list[list[int]]:
        rows = torch.tensor(prompts, device=loaded.model.device)
        with torch.inference_mode():
            output: Any = loaded.model.generate(
                rows,
                attention_mask=torch.ones_like(rows),
                do_sample=True,
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                max_new_tokens=options.new_tokens,
                min_new_tokens=options.new_tokens,
                eos_token_id=None,
                pad_token_id=0,
            )
        return [row[len(prompts[0]) :] for row in output.tolist()]

    return {"ours": ours, "once": once, "again": lambda seed: turn_by_turn(generated, seed)}


if __name__ == "__main__":
    main()
