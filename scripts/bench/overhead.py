"""What `sft`, `dpo` and `grpo` cost over TRL loops written by hand on the same engine: losses and
step time, side by side.

    .venv/bin/python scripts/bench/overhead.py sft|dpo|grpo [--steps 6] [--pairs 3]

Both sides get the same rows in the same order, and start from the same new adapter. Each run is a
process of its own; the sides take turns (ours, bare, bare, ours, ...). A step's time is that from
its beginning to the next one's, so that logging and, for grpo, sampling and scoring count; the
first is left out. The ratio is that of the medians. grpo draws at random: every answer is forced to
the same length, and its losses are not compared.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import make_parser, python, show

ALIAS = "smollm2-135m"
WARM_UP = 1
NEW_TOKENS, GROUP = 24, 4
STEP = {"sft": (1, 2), "dpo": (1, 2), "grpo": (4, 2)}  # rows of a micro-batch, micro-batches
SHARED = {"learning_rate": 1e-4, "seed": 0}
LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.0}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
Maker = Callable[[Any, Any, dict[str, Any]], Any]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("command", choices=OURS)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(one_run(options)))
        return
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "bare": []}
    for pair in range(options.pairs):
        for side in list(runs) if pair % 2 == 0 else reversed(list(runs)):
            words = (options.command, "--side", side, "--steps", options.steps)
            runs[side].append(python(__file__, *words))
            seconds = statistics.median(runs[side][-1]["seconds"])
            print(f"{side}: {seconds:.2f} s a step", file=sys.stderr)
    show(compare(runs))


def one_run(options: argparse.Namespace) -> dict[str, Any]:
    from agentlite.core.console import stdout_to_stderr

    with stdout_to_stderr(), tempfile.TemporaryDirectory() as folder:
        if options.side == "bare":
            return bare(BARE[options.command], options, folder)
        from agentlite.engine import load_libraries

        load_libraries("unsloth")
        clock = make_clock()
        OURS[options.command](options.steps, Path(folder))
        return {"losses": clock.losses, "seconds": clock.seconds()}


def compare(runs_by_side: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    medians = {
        side: statistics.median(s for run in runs for s in run["seconds"])
        for side, runs in runs_by_side.items()
    }
    losses = [run["losses"] for runs in runs_by_side.values() for run in runs]
    return {
        "step_time_ratio": round(medians["ours"] / medians["bare"], 4),
        "losses_equal": all(other == losses[0] for other in losses),
        "largest_difference": max(
            abs(a - b) for other in losses for a, b in zip(other, losses[0], strict=True)
        ),
        "losses": losses[0],
        "seconds": {side: round(seconds, 3) for side, seconds in medians.items()},
        "runs": {side: len(runs) for side, runs in runs_by_side.items()},
    }


# --- Rows ---


def questions() -> list[Any]:
    """Records with a tool, of different lengths."""
    from agentlite.core.records import Call, Message, Record, Tool

    schema = {
        "type": "object",
        "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}},
    }
    tool = Tool("add_numbers", "Adds whole numbers.", schema)
    records = []
    for size in range(2, 26):
        numbers = [(7 * size * n) % 100 for n in range(size)]
        question = Message("user", f"What is the sum of {', '.join(map(str, numbers))}?")
        answer = Message("assistant", calls=(Call("add_numbers", {"numbers": numbers}),))
        records.append(Record(messages=(question, answer), tools=(tool,)))
    return records


def pairs_of_ids() -> list[tuple[list[int], list[int], list[int]]]:
    """Of every question the prompt, the right call and a wrong one, the end of turn included."""
    from agentlite.rendering import choose, encode_answer, prompts_of
    from agentlite.workspace.input_files import load_template

    template = load_template(ALIAS)
    return [
        (
            p.ids,
            encode_answer(p.answer, p.ended, template, p.ids),
            encode_answer(p.answer.replace("add_numbers", "sum"), p.ended, template, p.ids),
        )
        for p in prompts_of(questions(), choose("hermes", template).protocol_of, template)
    ]


def in_order(rows: list[Any], lengths: list[int], steps: int) -> list[Any]:
    from agentlite.engine import trainer

    schedule = trainer.Schedule(steps, *STEP["sft"])
    return [rows[index] for index in trainer.row_order(lengths, schedule, 0)]


# --- Ours: the engine, and for grpo the command itself ---


def settings(command: str, steps: int) -> dict[str, Any]:
    rows, accumulation = STEP[command]
    return {
        **SHARED,
        "model": ALIAS,
        "max_steps": steps,
        "save_steps": 10_000,
        "warmup_ratio": 0.0,  # ours does not begin at a rate of 0
        "batch_size": rows,
        "gradient_accumulation": accumulation,
    }


def ours_sft(steps: int, folder: Path) -> None:
    from agentlite.config.settings import SftSettings
    from agentlite.engine import sft
    from agentlite.rendering import Encoded
    from agentlite.workspace.lookup import find_model

    rows = [Encoded(p + answer, [-100] * len(p) + answer) for p, answer, _ in pairs_of_ids()]
    sft.train(find_model(ALIAS, folder), SftSettings(**settings("sft", steps)), folder, rows, [])


def ours_dpo(steps: int, folder: Path) -> None:
    from agentlite.config.settings import DpoSettings
    from agentlite.engine import dpo
    from agentlite.workspace.lookup import find_model

    rows = [dpo.Preference(*row) for row in pairs_of_ids()]
    dpo.train(find_model(ALIAS, folder), DpoSettings(**settings("dpo", steps)), folder, rows)


def ours_grpo(steps: int, folder: Path) -> None:
    """With rewards in a child process, every part of the score, and rollouts.jsonl."""
    import agentlite
    from agentlite.core.records import wire_message
    from agentlite.core.row_files import write_rows
    from agentlite.scoring.rewards import WEIGHTS

    rows = [
        {
            "messages": [*map(wire_message, record.messages)],
            "tools": [tool.schema for tool in record.tools],
        }
        for record in questions()
    ]
    write_rows(folder / "rows.jsonl", rows)
    no_filters = {"dev": 0.0, "test": 0.0, "duplicates": ("none",), "no_call_share": 0.0}
    prep_settings = {"sources": (str(folder / "rows.jsonl"),), "protocol": "hermes", "model": ALIAS}
    agentlite.prep(run=str(folder), **prep_settings, **no_filters)
    agentlite.grpo(
        run=str(folder),
        **settings("grpo", steps),
        group_size=GROUP,
        max_new_tokens=NEW_TOKENS,
        rewards=(f"{__file__}:digits_of",),
        weights={**dict.fromkeys(WEIGHTS, 0.0), "digits_of": 1.0},
        max_flat_steps=0,
    )


def digits_of(attempt: Any) -> float:
    return digits(attempt.text)


def digits(text: str) -> float:
    """A reward that differs within a group."""
    return sum(letter.isdigit() for letter in text) / (len(text) + 1)


# --- Bare: the loop that a reader of TRL's pages would write, on the same rows ---


def bare_sft(model: Any, tokenizer: Any, arguments: dict[str, Any]) -> Any:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    rows = [
        {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}
        for prompt, answer, _ in pairs_of_ids()
    ]
    ordered = in_order(rows, [len(row["input_ids"]) for row in rows], arguments["max_steps"])
    skip = {"skip_prepare_dataset": True}
    return SFTTrainer(
        model=model,
        args=SFTConfig(**arguments, max_length=2048, dataset_kwargs=skip),
        train_dataset=Dataset.from_list(ordered),
        processing_class=tokenizer,
    )


def bare_dpo(model: Any, tokenizer: Any, arguments: dict[str, Any]) -> Any:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    class Tokenised(DPOTrainer):  # type: ignore[misc]  # trl is untyped here
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

    rows = pairs_of_ids()
    lengths = [2 * len(p) + len(c) + len(r) for p, c, r in rows]
    names = ("prompt_ids", "chosen_ids", "rejected_ids")
    ordered = in_order(rows, lengths, arguments["max_steps"])
    return Tokenised(
        model=model,
        args=DPOConfig(**arguments, max_length=2048, beta=0.1),
        train_dataset=Dataset.from_list([dict(zip(names, row, strict=True)) for row in ordered]),
        processing_class=tokenizer,
    )


def bare_grpo(model: Any, tokenizer: Any, arguments: dict[str, Any]) -> Any:
    """TRL's own sampling, from the text of the same prompts."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from agentlite.engine import grpo

    def reward(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [digits(tokenizer.decode(ids)) for ids in completion_ids]

    prompts = [tokenizer.decode(ids) for ids, _, _ in pairs_of_ids()]
    rows, accumulation = STEP["grpo"]
    groups = arguments["max_steps"] * rows * accumulation // GROUP
    order = grpo.prompt_order(len(prompts), groups, 0)
    config = GRPOConfig(
        **arguments,
        num_generations=GROUP,
        beta=0.1,
        max_completion_length=NEW_TOKENS,
        temperature=1.0,
        shuffle_dataset=False,
        generation_kwargs={"min_new_tokens": NEW_TOKENS, "eos_token_id": None},
    )
    return GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [prompts[index] for index in order]}),
        processing_class=tokenizer,
    )


def bare(make: Maker, options: argparse.Namespace, folder: str) -> dict[str, Any]:
    import unsloth  # noqa: F401, I001  (first, as Unsloth asks)
    import torch
    from transformers import PrinterCallback
    from unsloth import FastLanguageModel

    from agentlite.engine.load import weights_folder

    model, tokenizer = FastLanguageModel.from_pretrained(
        str(weights_folder(ALIAS)),
        max_seq_length=2048,
        dtype=torch.float32,
        load_in_4bit=False,
        use_gradient_checkpointing=False,
    )
    tokenizer.padding_side = "left"
    torch.manual_seed(0)
    model = FastLanguageModel.get_peft_model(
        model, **LORA, random_state=0, use_gradient_checkpointing=False, target_modules=TARGETS
    )
    rows, accumulation = STEP[options.command]
    arguments = {
        **SHARED,
        "output_dir": folder,
        "max_steps": options.steps,
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": accumulation,
        "warmup_steps": 0,
        "lr_scheduler_type": "cosine",
        "optim": "adamw_torch",
        "bf16": False,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "train_sampling_strategy": "sequential",
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "report_to": "none",
    }
    clock = make_clock()
    trainer = make(model, tokenizer, arguments)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return {"losses": clock.losses, "seconds": clock.seconds()}


def make_clock() -> Any:
    """A callback that every trainer made from now on gets."""
    from transformers import TrainerCallback, trainer

    class Clock(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        def __init__(self) -> None:
            self.began: list[float] = []
            self.losses: list[float] = []

        def on_step_begin(self, *_: Any, model: Any, **__: Any) -> None:
            # no answer ends before its length; the trainer had set it
            model.generation_config.eos_token_id = None
            self.began.append(time.perf_counter())

        def on_log(self, *_: Any, logs: dict[str, Any], **__: Any) -> None:
            self.losses += [float(logs["loss"])] if "loss" in logs else []

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.began.append(time.perf_counter())

        def seconds(self) -> list[float]:
            steps = [after - before for before, after in itertools.pairwise(self.began)]
            return steps[WARM_UP:-1]

    clock = Clock()
    trainer.DEFAULT_CALLBACKS.append(clock)
    return clock


OURS: dict[str, Callable[[int, Path], None]] = {
    "sft": ours_sft,
    "dpo": ours_dpo,
    "grpo": ours_grpo,
}
BARE: dict[str, Maker] = {"sft": bare_sft, "dpo": bare_dpo, "grpo": bare_grpo}

if __name__ == "__main__":
    main()
