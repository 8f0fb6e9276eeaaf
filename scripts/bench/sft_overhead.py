"""What `sft` costs over a loop written by hand with the same Unsloth and TRL calls: losses and step
time, side by side.

    .venv/bin/python scripts/bench/sft_overhead.py [--steps 14] [--pairs 3]

Both sides get the same rows in the same order. Each run is a process of its own; the sides take
turns (ours, bare, bare, ours, ...). A step's time is that from its beginning to the next one's, so
that logging counts; the first two are left out. The ratio is that of the medians.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ALIAS = "smollm2-135m"
WARM_UP = 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--side", choices=["ours", "bare"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SIDES[options.side](options.steps)))
        return
    measured: dict[str, list[dict[str, Any]]] = {"ours": [], "bare": []}
    for pair in range(options.pairs):
        for side in ("ours", "bare") if pair % 2 == 0 else ("bare", "ours"):
            measured[side].append(one_run(side, options.steps))
            print(
                f"{side}: {statistics.median(measured[side][-1]['seconds']):.3f} s a step",
                file=sys.stderr,
            )
    report(measured)


def one_run(side: str, steps: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--side", side, "--steps", str(steps)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def report(measured: dict[str, list[dict[str, Any]]]) -> None:
    medians = {
        side: statistics.median(s for run in runs for s in run["seconds"])
        for side, runs in measured.items()
    }
    losses = [run["losses"] for runs in measured.values() for run in runs]
    result = {
        "step_time_ratio": round(medians["ours"] / medians["bare"], 4),
        "losses_equal": all(other == losses[0] for other in losses),
        "seconds_ours": round(medians["ours"], 4),
        "seconds_bare": round(medians["bare"], 4),
        "steps": len(losses[0]),
        "runs_a_side": len(measured["ours"]),
    }
    print(json.dumps(result, indent=2))


def settings(steps: int) -> Any:
    from agentlite.config.settings import SftSettings

    return SftSettings(
        model=ALIAS,
        max_steps=steps,
        batch_size=1,
        gradient_accumulation=1,
        save_steps=10_000,
        learning_rate=1e-3,
    )


def rows() -> list[Any]:
    """Short dialogs with one call; the numbers make their lengths differ."""
    from agentlite.core.records import Call, Message, Record, Tool
    from agentlite.rendering import choose, encode, render
    from agentlite.workspace.model_source import load_template

    template = load_template(ALIAS)
    protocol = choose("hermes", template).protocols["hermes"]
    schema = {
        "type": "object",
        "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}},
    }
    tool = Tool("add_numbers", "Adds whole numbers.", schema)
    records = []
    for size in range(2, 26):
        numbers = [(7 * size * place) % 100 for place in range(size)]
        call = Call("add_numbers", {"numbers": numbers})
        question = f"What is the sum of {', '.join(map(str, numbers))}?"
        records.append(
            Record(
                messages=(Message("user", question), Message("assistant", calls=(call,))),
                tools=(tool,),
            )
        )
    return [
        encode(row, template) for record in records for row in render(record, protocol, template)
    ]


def ours(steps: int) -> dict[str, Any]:
    from agentlite.core.console import stdout_to_stderr
    from agentlite.engine import sft
    from agentlite.engine import trainer as training
    from agentlite.engine.load import load, loading_of
    from agentlite.workspace.model_source import find_model

    with stdout_to_stderr(), tempfile.TemporaryDirectory() as folder:
        chosen = settings(steps)
        loaded = load(find_model(ALIAS, Path(folder)), loading_of(chosen), trainable=True)
        told = sft.arguments(chosen, Path(folder), rows(), [], sft.schedule(chosen, rows()))
        trainer = sft.make_trainer(loaded, chosen, told, rows(), [])
        clock = _clock()
        trainer.add_callback(clock)
        training.train(lambda micro: trainer, Path(folder), sft.schedule(chosen, rows()))
        return {"losses": _losses(trainer), "seconds": clock.seconds()}


def bare(steps: int) -> dict[str, Any]:
    """The loop a reader of Unsloth's and TRL's pages would write; only rows and their order come
    from agentlite.
    """
    from agentlite.core.console import stdout_to_stderr
    from agentlite.engine import trainer as training
    from agentlite.engine.embedded_model import convert

    with stdout_to_stderr(), tempfile.TemporaryDirectory() as folder:
        import unsloth  # noqa: F401, I001  (first, as Unsloth asks)
        import torch
        from datasets import Dataset
        from transformers import PrinterCallback
        from trl import SFTConfig, SFTTrainer
        from unsloth import FastLanguageModel

        model, tokenizer = FastLanguageModel.from_pretrained(
            str(convert(ALIAS)),
            max_seq_length=2048,
            dtype=torch.float32,
            load_in_4bit=False,
            use_gradient_checkpointing=False,
        )
        torch.manual_seed(0)
        model = FastLanguageModel.get_peft_model(
            model,
            r=16,
            lora_alpha=32,
            lora_dropout=0.0,
            random_state=0,
            use_gradient_checkpointing=False,
            target_modules=[
                "q_proj",
                "k_proj",
                "v_proj",
                "o_proj",
                "gate_proj",
                "up_proj",
                "down_proj",
            ],
        )
        encoded = rows()
        order = training.row_order(
            [len(row.input_ids) for row in encoded], training.Schedule(steps, 1, 1), 0
        )
        ordered = [{"input_ids": encoded[i].input_ids, "labels": encoded[i].labels} for i in order]
        arguments = SFTConfig(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=1,
            learning_rate=1e-3,
            warmup_steps=-(-steps // 10),
            lr_scheduler_type="cosine",
            optim="adamw_torch",
            bf16=False,
            use_cpu=True,
            gradient_checkpointing=False,
            train_sampling_strategy="sequential",
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            report_to="none",
            seed=0,
            max_length=2048,
            dataset_kwargs={"skip_prepare_dataset": True},
        )
        trainer = SFTTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_list(ordered),
            processing_class=tokenizer,
        )
        trainer.remove_callback(PrinterCallback)
        clock = _clock()
        trainer.add_callback(clock)
        trainer.train()
        return {"losses": _losses(trainer), "seconds": clock.seconds()}


def _clock() -> Any:
    from transformers import TrainerCallback

    class Clock(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        def __init__(self) -> None:
            self.began: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began.append(time.perf_counter())

        def seconds(self) -> list[float]:
            return [
                after - before for before, after in zip(self.began, self.began[1:], strict=False)
            ][WARM_UP:]

    return Clock()


def _losses(trainer: Any) -> list[float]:
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


SIDES = {"ours": ours, "bare": bare}

if __name__ == "__main__":
    main()
