"""Where a step of `grpo` goes: seconds and peak memory of sampling, the reference and the loss.

    .venv/bin/python scripts/bench/grpo_step.py [--model NAME] [--engine unsloth|hf] [--rows 64]
    [--group 8] [--prompt 300] [--new-tokens 64] [--steps 6]

Prompts are random ids, of half the length to the whole. The last line has the medians of the steps
after the first two, and how many times the sum of its parts a step takes.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import make_parser

PARTS = ("sampling", "reference", "loss")
WARM = 2  # steps that compile and compare


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--model", default="smollm2-135m", help="an alias or a folder")
    parser.add_argument("--engine", choices=("unsloth", "hf"), default="unsloth")
    for name, default in {"rows": 64, "group": 8, "prompt": 300, "new-tokens": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    steps = measure_steps(options)
    for step in steps:
        print(json.dumps({key: round(value, 3) for key, value in step.items()}))
    steady = {key: statistics.median(step[key] for step in steps[WARM:]) for key in steps[0]}
    steady["times the parts"] = steady["step"] / sum(steady[part] for part in PARTS)
    print(json.dumps({key: round(value, 3) for key, value in steady.items()}))


class Clock:
    """Seconds and peaks by part of the step that goes on, and of those that are done."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.spent: defaultdict[str, float] = defaultdict(float)
        self.began = time.perf_counter()

    def time_part(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        on_gpu = torch.cuda.is_available()

        def inner(*arguments: Any, **keywords: Any) -> Any:
            if part == "reference" and torch.is_grad_enabled():  # the loss asks for nothing here
                return function(*arguments, **keywords)
            if on_gpu:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            started = time.perf_counter()
            result = function(*arguments, **keywords)
            if on_gpu:
                torch.cuda.synchronize()
                peak = torch.cuda.max_memory_allocated() / 2**30
                self.spent[f"{part} GiB"] = max(peak, self.spent[f"{part} GiB"])
            self.spent[part] += time.perf_counter() - started
            return result

        return inner

    def end_step(self, *_: Any) -> None:
        if self.spent:  # not after the last step
            self.steps.append({**self.spent, "step": time.perf_counter() - self.began})
        self.began = time.perf_counter()
        self.spent.clear()

    def watch(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Makes trainers whose parts are timed."""

        def make_trainer(*arguments: Any) -> Any:
            trainer = make(*arguments)
            method = "_get_per_token_logps_and_entropies"
            setattr(trainer, method, self.time_part("reference", getattr(trainer, method)))
            trainer.compute_loss = self.time_part("loss", trainer.compute_loss)
            trainer.accelerator.backward = self.time_part("loss", trainer.accelerator.backward)
            trainer.log = lambda *arguments, log=trainer.log: self.end_step(log(*arguments))
            self.began = time.perf_counter()
            return trainer

        return make_trainer


def measure_steps(options: argparse.Namespace) -> list[dict[str, float]]:
    """The figures of each step."""
    from agentlite.config.settings import GrpoSettings
    from agentlite.engine import grpo, load_libraries, local_sampler
    from agentlite.workspace.lookup import find_model

    load_libraries(options.engine)
    clock, chance = Clock(), random.Random(0)
    lengths = range(options.prompt // 2, options.prompt)
    prompts = [chance.choices(range(100, 40000), k=chance.choice(lengths)) for _ in range(64)]
    settings = GrpoSettings(
        model=options.model,
        engine=options.engine,
        batch_size=options.rows,
        gradient_accumulation=1,
        group_size=options.group,
        max_new_tokens=options.new_tokens,
        max_length=options.prompt + options.new_tokens,
        max_steps=options.steps,
        save_steps=10**6,
        learning_rate=1e-5,
    )
    decoding = grpo.Decoding(options.new_tokens, 1.0)

    def sample(draw: grpo.Draw, indices: Any, step: int) -> list[grpo.LearnedRow]:
        requests = [
            local_sampler.SampleRequest(
                prompts[index], tuple(f"{step} {index} {n}" for n in range(options.group))
            )
            for index in indices
        ]
        answers = clock.time_part("sampling", draw)(requests, decoding)
        return [
            grpo.answer_row(requests[answer.prompt].prompt, answer, {"even": answer.sample % 2.0})
            for answer in answers
        ]

    task = grpo.GrpoTask(len(prompts), sample, {"even": 1.0}, [])
    make = clock.watch(grpo.make_trainer)
    with tempfile.TemporaryDirectory() as folder:
        source = find_model(options.model, Path(folder))
        grpo.train(source, settings, Path(folder), lambda: task, make)
    return clock.steps


if __name__ == "__main__":
    main()
