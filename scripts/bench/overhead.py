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
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ALIAS = "smollm2-135m"
WARM_UP = 1
NEW_TOKENS, GROUP = 24, 4
LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.0}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=SIDES)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SIDES[options.command][options.side](options)))
        return
    measured: dict[str, list[dict[str, Any]]] = {"ours": [], "bare": []}
    for pair in range(options.pairs):
        for side in list(measured) if pair % 2 == 0 else reversed(list(measured)):
            measured[side].append(one_run(side, options))
            seconds = statistics.median(measured[side][-1]["seconds"])
            print(f"{side}: {seconds:.2f} s a step", file=sys.stderr)
    report(measured)


def one_run(side: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, options.command, "--side", side]
    command += ["--steps", str(options.steps)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
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
        "largest_difference": max(
            abs(a - b) for other in losses for a, b in zip(other, losses[0], strict=True)
        ),
        "losses": losses[0],
        "seconds": {side: round(seconds, 3) for side, seconds in medians.items()},
        "runs": {side: len(runs) for side, runs in measured.items()},
    }
    print(json.dumps(result, indent=2))


def steps() -> list[Any]:
    """Prompts with a tool, of different lengths."""
    from agentlite.core.records import Call, Message, Record, Tool
    from agentlite.rendering import choose, prompts
    from agentlite.workspace.model_source import load_template

    template = load_template(ALIAS)
    schema = {
        "type": "object",
        "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}},
    }
    tool = Tool("add_numbers", "Adds whole numbers.", schema)
    records = []
    for size in range(2, 26):
        numbers = [(7 * size * place) % 100 for place in range(size)]
        question = Message("user", f"What is the sum of {', '.join(map(str, numbers))}?")
        answer = Message("assistant", calls=(Call("add_numbers", {"numbers": numbers}),))
        records.append(Record(messages=(question, answer), tools=(tool,)))
    return list(prompts(records, choose("hermes", template).of, template))


def pairs_of_ids() -> list[tuple[list[int], list[int], list[int]]]:
    """Of every step the prompt, the right call and a wrong one, the end of turn included."""
    from agentlite.rendering import encode_answer
    from agentlite.workspace.model_source import load_template

    template = load_template(ALIAS)
    return [
        (
            one.ids,
            encode_answer(one.answer, one.ended, template, one.ids),
            encode_answer(one.answer.replace("add_numbers", "sum"), one.ended, template, one.ids),
        )
        for one in steps()
    ]


def settings(command: str, steps: int) -> Any:
    from agentlite.config.settings import DpoSettings, GrpoSettings, SftSettings

    shared = {"model": ALIAS, "max_steps": steps, "save_steps": 10_000, "learning_rate": 1e-4}
    shared["warmup_ratio"] = 0.0  # ours does not begin at a rate of 0
    if command == "sft":
        return SftSettings(**shared, batch_size=1, gradient_accumulation=2)
    if command == "dpo":
        return DpoSettings(**shared, batch_size=1, gradient_accumulation=2)
    return GrpoSettings(
        **shared, batch_size=4, gradient_accumulation=2, group_size=GROUP, max_new_tokens=NEW_TOKENS
    )


def rows_of_ids() -> list[Any]:
    """Every prompt with its right call, as sft trains them."""
    from agentlite.rendering import Encoded

    return [
        Encoded(prompt + answer, [-100] * len(prompt) + answer)
        for prompt, answer, _ in pairs_of_ids()
    ]


def ours_sft(options: argparse.Namespace) -> dict[str, Any]:
    from agentlite.engine import sft
    from agentlite.engine.watch import Watch

    chosen, rows = settings("sft", options.steps), rows_of_ids()
    return _ours(
        chosen,
        lambda source, folder, plan: sft.make_trainer(source, chosen, folder, rows, [], plan),
        Watch(),
        sft.schedule(chosen, rows),
    )


def ours_dpo(options: argparse.Namespace) -> dict[str, Any]:
    from agentlite.engine import dpo
    from agentlite.engine import trainer as training
    from agentlite.engine.watch import Watch

    chosen = settings("dpo", options.steps)
    rows = [dpo.Preference(*row) for row in pairs_of_ids()]
    return _ours(
        chosen,
        lambda source, folder, plan: dpo.make_trainer(source, chosen, folder, rows, plan),
        Watch(dpo.MEASURES),
        training.schedule(chosen, len(rows)),
    )


def ours_grpo(options: argparse.Namespace) -> dict[str, Any]:
    """The command's own way: rewards in a child process, every part of the score,
    rollouts.jsonl.
    """
    from msgspec.structs import replace

    from agentlite.engine import grpo
    from agentlite.engine.decoding import Decoding
    from agentlite.engine.load import load, loading_of
    from agentlite.engine.watch import Watch
    from agentlite.rendering import PROTOCOLS
    from agentlite.scoring.rewards import WEIGHTS
    from agentlite.scoring.rewards.scorer import Scorer, Tally
    from agentlite.scoring.rewards.user_functions import UserFunctions
    from agentlite.stages.grpo_prompts import PromptSampling

    asked = steps()
    with tempfile.TemporaryDirectory() as folder, UserFunctions([f"{__file__}:digits_of"]) as own:
        weights = {**dict.fromkeys(WEIGHTS, 0.0), "digits_of": 1.0}
        chosen = replace(settings("grpo", options.steps), weights=weights)
        decoding = Decoding(NEW_TOKENS, temperature=1.0)
        sampling: Any = PromptSampling.__new__(PromptSampling)  # without a prep
        records = {one.record.id: one.record for one in asked}
        vars(sampling).update(
            settings=chosen,
            folder=Path(folder),
            halt=[],
            tally=Tally(1.0, Path(folder), ""),
            scorer=Scorer(records, PROTOCOLS, own),
            prompts=asked,
            records=records,
            weights=weights,
            decoding=decoding,
        )
        with sampling as log:
            task = grpo.GrpoTask(len(asked), log.sample, log.weights, [])
            return _ours(
                chosen,
                lambda source, run, plan: grpo.make_trainer(
                    load(source, loading_of(chosen), trainable=True), chosen, run, task, plan
                ),
                Watch(grpo.MEASURES),
                grpo.schedule(chosen, len(asked)),
            )


def digits_of(attempt: Any) -> float:
    return digits(attempt.text)


def digits(text: str) -> float:
    """A reward that differs within a group."""
    return sum(letter.isdigit() for letter in text) / (len(text) + 1)


def _ours(
    chosen: Any, make: Callable[[Any, Path, Any], Any], watch: Any, plan: Any
) -> dict[str, Any]:
    from agentlite.core.console import stdout_to_stderr
    from agentlite.engine import trainer as training
    from agentlite.engine.load import loading_of, prepare
    from agentlite.workspace.model_source import find_model

    with stdout_to_stderr(), tempfile.TemporaryDirectory() as folder:
        prepare(loading_of(chosen))
        trainer = make(find_model(ALIAS, Path(folder)), Path(folder), plan)
        clock = _clock()
        trainer.add_callback(clock)
        training.train(lambda micro: trainer, Path(folder), plan, watch)
        return {"losses": _losses(trainer), "seconds": clock.seconds()}


def bare_sft(options: argparse.Namespace) -> dict[str, Any]:
    """The loop a reader of TRL's pages would write; only rows and their order come from
    agentlite.
    """

    def make(model: Any, tokenizer: Any, folder: str) -> Any:
        from datasets import Dataset
        from trl import SFTConfig, SFTTrainer

        from agentlite.engine import trainer as training

        rows = rows_of_ids()
        lengths = [len(row.input_ids) for row in rows]
        order = training.row_order(lengths, training.Schedule(options.steps, 1, 2), 0)
        ordered = [{"input_ids": rows[i].input_ids, "labels": rows[i].labels} for i in order]
        arguments = SFTConfig(
            **_arguments(folder, options.steps),
            per_device_train_batch_size=1,
            max_length=2048,
            dataset_kwargs={"skip_prepare_dataset": True},
        )
        return SFTTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_list(ordered),
            processing_class=tokenizer,
        )

    return _bare(make)


def bare_dpo(options: argparse.Namespace) -> dict[str, Any]:
    """The loop a reader of TRL's pages would write; only rows and their order come from
    agentlite.
    """

    def make(model: Any, tokenizer: Any, folder: str) -> Any:
        from datasets import Dataset
        from trl import DPOConfig, DPOTrainer

        class Tokenised(DPOTrainer):  # type: ignore[misc]  # trl is untyped here
            def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
                return dataset

        from agentlite.engine import trainer as training

        rows = pairs_of_ids()
        lengths = [2 * len(p) + len(c) + len(r) for p, c, r in rows]
        order = training.row_order(lengths, training.Schedule(options.steps, 1, 2), 0)
        names = ("prompt_ids", "chosen_ids", "rejected_ids")
        dataset = Dataset.from_list([dict(zip(names, rows[index], strict=True)) for index in order])
        arguments = DPOConfig(
            **_arguments(folder, options.steps),
            per_device_train_batch_size=1,
            max_length=2048,
            beta=0.1,
        )
        return Tokenised(
            model=model, args=arguments, train_dataset=dataset, processing_class=tokenizer
        )

    return _bare(make)


def bare_grpo(options: argparse.Namespace) -> dict[str, Any]:
    """TRL's own sampling, from the text of the same prompts."""
    return _bare(lambda *made: _bare_grpo(*made, options=options))


def _bare_grpo(model: Any, tokenizer: Any, folder: str, *, options: argparse.Namespace) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from agentlite.engine import grpo
    from agentlite.engine import trainer as training

    def reward(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [digits(tokenizer.decode(ids)) for ids in completion_ids]

    asked = steps()
    order = grpo.prompt_order(len(asked), training.Schedule(options.steps, 4, 2), GROUP, 0)
    arguments = GRPOConfig(
        **_arguments(folder, options.steps),
        per_device_train_batch_size=4,
        num_generations=GROUP,
        beta=0.1,
        max_completion_length=NEW_TOKENS,
        temperature=1.0,
        shuffle_dataset=False,
        generation_kwargs={"min_new_tokens": NEW_TOKENS, "eos_token_id": None},
    )
    dataset = Dataset.from_dict({"prompt": [tokenizer.decode(asked[index].ids) for index in order]})
    return GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=arguments,
        train_dataset=dataset,
        processing_class=tokenizer,
    )


def _arguments(folder: str, steps: int) -> dict[str, Any]:
    return {
        "output_dir": folder,
        "max_steps": steps,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-4,
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
        "seed": 0,
    }


def _bare(make: Callable[[Any, Any, str], Any]) -> dict[str, Any]:
    from agentlite.core.console import stdout_to_stderr
    from agentlite.engine.load import weights_folder

    with stdout_to_stderr(), tempfile.TemporaryDirectory() as folder:
        import unsloth  # noqa: F401, I001  (first, as Unsloth asks)
        import torch
        from transformers import PrinterCallback
        from unsloth import FastLanguageModel

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
        trainer = make(model, tokenizer, folder)
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

        def on_step_begin(self, *_: Any, model: Any, **__: Any) -> None:
            model.generation_config.eos_token_id = (
                None  # no answer ends before its length; the trainer had set it
            )
            self.began.append(time.perf_counter())

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.began.append(time.perf_counter())

        def seconds(self) -> list[float]:
            return [
                after - before for before, after in zip(self.began, self.began[1:], strict=False)
            ][WARM_UP:-1]

    return Clock()


def _losses(trainer: Any) -> list[float]:
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


SIDES: dict[str, dict[str, Callable[[argparse.Namespace], dict[str, Any]]]] = {
    "sft": {"ours": ours_sft, "bare": bare_sft},
    "dpo": {"ours": ours_dpo, "bare": bare_dpo},
    "grpo": {"ours": ours_grpo, "bare": bare_grpo},
}

if __name__ == "__main__":
    main()
