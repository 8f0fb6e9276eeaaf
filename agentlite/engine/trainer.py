"""What every trainer shares: the order of rows, its arguments, and how a run starts and resumes."""

import contextlib
import dataclasses
import io
import json
import math
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import RetrieverSettings, Tracker, TrainerSettings, fields
from agentlite.core import console, distributed
from agentlite.core.errors import MODEL, OTHER_PLAN, OUT_OF_MEMORY, UserError, require, suggest
from agentlite.core.row_files import Appender, write_json
from agentlite.engine import checkpoints, load, load_dtype, on_gpu, peft, processes, torch, trl
from agentlite.engine.watch import Follower, Stopped, Watch, follow, note_signals, read_metrics
from agentlite.workspace import lookup, stage_folder

# there once a micro-batch did not fit: how many rows have fitted since
MICRO_BATCH_FILE = "micro_batch.json"
# arguments of TRL and PEFT that follow from settings with other names, and those that must be as
# they are: metrics.jsonl has every step, checkpoints follow save_steps, a micro-batch that does not
# fit is halved, and a run that is carried on is the same run (which amid several passes over an
# answer, num_iterations, it could not be)
RESERVED = {
    *("num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("warmup_steps", "lr_scheduler_type", "output_dir", "eval_steps", "eval_strategy"),
    *("save_strategy", "save_total_limit", "save_only_model", "logging_steps"),
    *("logging_strategy", "logging_first_step", "auto_find_batch_size", "ignore_data_skip"),
    *("resume_from_checkpoint", "enable_jit_checkpoint", "r", "target_modules"),
    *("loss_weights", "precompute_ref_log_probs"),
    *("num_generations", "max_completion_length", "importance_sampling_level", "reward_weights"),
    *("multi_objective_aggregation", "use_vllm", "vllm_mode"),
    *("log_completions", "generation_batch_size", "steps_per_generation", "num_iterations"),
}
# and of one command: grpo compares policy and reference without dropout; the rows of a step of
# distill are sampled, and its loss is the divergence from the teacher
RESERVED_BY_COMMAND = {
    "dpo": ("truncation_mode",),
    "grpo": ("disable_dropout", "shuffle_dataset"),
    "distill": (
        *("packing", "padding_free", "loss_type", "completion_only_loss"),
        *("assistant_only_loss", "dataset_kwargs", "remove_unused_columns"),
    ),
}


class Schedule(NamedTuple):
    """How many steps, of how many micro-batches in a process, of how many rows, in how many
    processes.
    """

    steps: int
    batch_size: int
    gradient_accumulation: int
    processes: int = 1

    @property
    def rows_a_step(self) -> int:
        return self.batch_size * self.gradient_accumulation * self.processes

    @property
    def rows(self) -> int:
        return self.steps * self.rows_a_step

    def in_batches_of(self, size: int) -> "Schedule":
        """The same steps, in other micro-batches."""
        rows = self.batch_size * self.gradient_accumulation
        return self._replace(batch_size=size, gradient_accumulation=rows // size)

    def in_smaller(self) -> "Schedule | None":
        """The same steps, in micro-batches of half as many rows or a little fewer; None where they
        have one row.
        """
        rows = self.batch_size * self.gradient_accumulation
        sizes = (size for size in range(self.batch_size // 2, 0, -1) if rows % size == 0)
        return next(map(self.in_batches_of, sizes), None)


def schedule(settings: TrainerSettings, rows: int, batch_size: int = 0) -> Schedule:
    """`rows`: of an epoch. `batch_size`: in place of that of the settings."""
    batch_size = batch_size or settings.batch_size
    step = Schedule(1, batch_size, settings.gradient_accumulation, distributed.world_size())
    steps = math.ceil(rows * settings.num_epochs / step.rows)
    return step._replace(steps=settings.max_steps or max(1, steps))


def row_order(lengths: Sequence[int], plan: Schedule, seed: int) -> list[int]:
    """Indices of the rows of every micro-batch, one after the other: the whole run's order, from
    the seed alone.

    Each epoch is shuffled; stretches of a few steps are sorted, so that a micro-batch holds rows of
    like length. The micro-batch with the longest row comes first: what does not fit fails at step
    1, not at step 900. Several processes take the micro-batches of a step in turns, so each step
    has the rows it has in one process.
    """
    generator = random.Random(seed)
    indices = shuffled_epochs(len(lengths), plan.rows, generator)
    batches: list[list[int]] = []
    stretch = 8 * plan.rows_a_step
    for start in range(0, plan.rows, stretch):
        segment = sorted(
            indices[start : min(start + stretch, plan.rows)], key=lambda row: (-lengths[row], row)
        )
        # lengths 9 8 5 5 2 1, two rows a batch: 9 8 | 5 5 | 2 1, and these in any order
        starts = range(0, len(segment), plan.batch_size)
        segment_batches = [segment[start : start + plan.batch_size] for start in starts]
        generator.shuffle(segment_batches)
        batches += segment_batches
    longest = max(
        range(len(batches)), key=lambda index: max(lengths[row] for row in batches[index])
    )
    batches.insert(0, batches.pop(longest))  # the others keep their order
    return [row for batch in batches for row in batch]


def shuffled_epochs(count: int, rows: int, generator: random.Random) -> list[int]:
    """At least `rows` indices below `count`: whole epochs, each shuffled."""
    indices: list[int] = []
    while len(indices) < rows:
        epoch = list(range(count))
        generator.shuffle(epoch)
        indices += epoch
    return indices


def check_trackers(report_to: Sequence[Tracker]) -> None:
    """Loads nothing. Raises UserError 5 for a tracker whose package is missing."""
    for name in report_to:
        # not in the tested set: TRL imports trackio in every run, where it is installed
        require("this tracker", [name], f"pip install {name}", f"--report-to {name}", in_set=False)


def transformers_arguments(
    settings: TrainerSettings | RetrieverSettings, folder: Path, plan: Schedule, *, with_dev: bool
) -> dict[str, object]:
    """TrainingArguments of transformers, for any trainer."""
    if "wandb" not in settings.report_to and "report_to" not in settings.trl:
        os.environ.setdefault("WANDB_MODE", "disabled")
    if "tensorboard" in settings.report_to:  # not among the checkpoints, which may be freed
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "tensorboard")
    return {
        "output_dir": str(folder / "checkpoints"),
        "max_steps": plan.steps,
        "per_device_train_batch_size": plan.batch_size,
        "per_device_eval_batch_size": plan.batch_size,
        "gradient_accumulation_steps": plan.gradient_accumulation,
        "learning_rate": settings.learning_rate,
        # the last step has the whole rate, also where it is the only one
        "warmup_steps": min(math.ceil(settings.warmup_ratio * plan.steps), plan.steps - 1),
        "lr_scheduler_type": settings.lr_scheduler,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # it would show the last good loss in place of a NaN
        "eval_strategy": "steps" if with_dev else "no",
        "eval_steps": settings.save_steps,
        "save_strategy": "steps",
        "save_steps": settings.save_steps,
        "prediction_loss_only": True,
        "disable_tqdm": True,
        "report_to": [*settings.report_to] or "none",
        "project": "agentlite",
        "run_name": f"{folder.resolve().parent.name}-{folder.name}",
        "seed": settings.seed,
        "dataloader_pin_memory": on_gpu(),
    }


def trl_arguments(
    settings: TrainerSettings, folder: Path, plan: Schedule, *, with_dev: bool = False
) -> dict[str, Any]:
    """The arguments of TRL's trainers. The user's `trl` mapping comes last."""
    dtype = str(load_dtype()).removeprefix("torch.")
    return {
        **transformers_arguments(settings, folder, plan, with_dev=with_dev),
        "optim": "adamw_8bit" if on_gpu() and not settings.deepspeed else "adamw_torch",
        "deepspeed": processes.join_deepspeed(settings.deepspeed) if settings.deepspeed else None,
        "bf16": dtype == "bfloat16",
        "fp16": dtype == "float16",
        "use_cpu": not on_gpu() and not settings.deepspeed,  # which has a switch of its own
        "gradient_checkpointing": on_gpu(),
        "train_sampling_strategy": "sequential",  # the order is ours: row_order
        **settings.trl,
    }


# What Unsloth's configurations keep of what they change, where they stand in TRL's place (CUDA).
KEPT_OF_UNSLOTH = {
    "gradient_checkpointing_kwargs": "its checkpointing, which keeps activations on the host, is "
    "reentrant",
    "padding_free": "None: it leaves padding out where that is faster, and its kernels can",
    "router_aux_loss_coef": "its loss of grpo has no such term",
    "generation_kwargs": "an empty mapping for None",
}


def configuration(config_class: Any, values: Mapping[str, Any]) -> Any:
    """A configuration of TRL, with what TRL's own class makes of `values`.

    On CUDA Unsloth puts a class of its own in its place, which has other defaults (a weight decay)
    and sets what was not passed: for dapo the truncated answers are masked, and every answer that
    ends at a stop string counts as one. Both engines are to train alike.
    """
    # Unsloth 2026.10.9 gives its class the name of TRL's: TRL's own is the last base that has it
    classes = [base for base in config_class.__mro__ if base.__name__ == config_class.__name__]
    trl_config = classes[-1](**values)
    if type(trl_config) is config_class:
        return trl_config
    with contextlib.redirect_stdout(io.StringIO()):  # it names the values that it sets
        unsloth_config = config_class(**values)
    for field in dataclasses.fields(trl_config):
        if field.name not in KEPT_OF_UNSLOTH:
            setattr(unsloth_config, field.name, getattr(trl_config, field.name))
    return unsloth_config


def adjust_trainer(trainer_class: Any) -> Any:
    """A trainer of a library with two changes.

    What is trained stays in its own dtype, float32. TRL casts the adapter of a quantised model to
    bfloat16: small updates would be lost, a resumed run would be another one, and a card without
    bfloat16 could not scale the gradients.

    The learning rate rises from the first step on: to 1 / (n + 1), 2 / (n + 1), ... of its peak
    over n steps. That of transformers begins at 0, so that the first step would change nothing.
    """

    class Adjusted(trainer_class):  # type: ignore[misc]  # trl is untyped here
        def __init__(self, model: Any, **arguments: Any):
            weights = [weight for weight in model.parameters() if weight.requires_grad]
            data_before = [weight.data for weight in weights]  # TRL's cast makes new tensors
            super().__init__(model=model, **arguments)
            for weight, data in zip(weights, data_before, strict=True):
                if weight.dtype != data.dtype:
                    weight.data = data

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            scheduler = super().create_scheduler(num_training_steps, optimizer)
            raise_first_rates(scheduler, self.args.get_warmup_steps(num_training_steps))
            return scheduler

    return Adjusted


def raise_first_rates(scheduler: Any, warmup: int) -> None:
    """Leaves a scheduler as it is that has no warmup, or one that begins above 0."""
    rates = getattr(scheduler, "lr_lambdas", [])
    if not warmup or not rates or any(rate(0) for rate in rates):
        return

    def with_warmup(rate: Callable[[int], float]) -> Callable[[int], float]:
        return lambda step: (step + 1) / (warmup + 1) if step < warmup else rate(step)

    scheduler.lr_lambdas = [with_warmup(rate) for rate in rates]
    # the scheduler has set the rate of its first step already, to 0: in what it tells
    # (`get_last_lr`), and in the optimizer's groups, by which the step is taken
    scheduler._last_lr = [
        peak * rate(scheduler.last_epoch)
        for peak, rate in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
    ]
    for group, first_rate in zip(scheduler.optimizer.param_groups, scheduler._last_lr, strict=True):
        group["lr"] = first_rate


def check(command: str, settings: TrainerSettings) -> None:
    """Needs no rows and no model. Raises UserError 2 for settings that this machine, TRL or PEFT
    cannot use; 5 where a library is missing.
    """
    load.prepare_libraries(load.loading_of(settings))
    # ppo is trained by TRL's SFTTrainer
    grpo_config = trl.SFTConfig if getattr(settings, "advantage", "") == "value" else trl.GRPOConfig
    config = {"dpo": trl.DPOConfig, "grpo": grpo_config}.get(command, trl.SFTConfig)
    check_passed_through(command, settings, config, RESERVED_BY_COMMAND.get(command, ()))


def check_passed_through(
    command: str, settings: Any, config_class: Any, reserved: Collection[str] = ()
) -> None:
    """Raises UserError 2 for a key of `trl` or `peft` that the library does not know, or that
    agentlite sets itself: one that is `reserved`, a setting, or among RESERVED."""
    for name, library in (("trl", config_class), ("peft", peft.LoraConfig)):
        names = library.__dataclass_fields__
        for key in getattr(settings, name, {}):
            problem, fix = "", f"`agentlite {command} --help-all` lists the settings."
            # trl.report_to takes the trackers that the setting does not know
            if key in (*RESERVED, *reserved, *fields(command)) and key != "report_to":
                problem = "is set by agentlite."
            elif key not in names:
                problem, fix = f"{name} has no such setting.", suggest(key, names, fallback="")
            if problem:
                raise UserError(problem, fix, location=f"{command}.{name}.{key}")


def train(
    make: Callable[[Schedule], Any],
    folder: Path,
    plan: Schedule,
    watch: Watch | None = None,
    *,
    restarts: bool = True,
) -> dict[str, object]:
    """Runs or carries on; leaves adapter/ or model/, and metrics.jsonl. `make` loads the model and
    makes a trainer whose rows come in the order of `plan`, in the micro-batches it is given. Of
    several processes the first returns.

    Where a micro-batch does not fit into memory, the steps since the last checkpoint are taken
    again in smaller ones, with as many rows per step; by the next process, if this one `restarts`
    none, or others wait for it. Raises UserError 6, 7 or 74, what `watch` raises, and Stopped after
    a signal.
    """
    micro, size_file = plan, folder / MICRO_BATCH_FILE
    if size_file.exists():
        micro = plan.in_batches_of(json.loads(size_file.read_bytes())["batch_size"])
    while True:
        trainer = make(micro)
        try:
            figures = _run(trainer, folder, plan, watch or Watch())
            break
        except UserError as error:
            if error.exit_code != OUT_OF_MEMORY:
                raise
            if not (smaller := micro.in_smaller()):
                size_file.unlink(missing_ok=True)  # a folder is kept for it
                raise
        micro = smaller
        # for when the run is carried on: it does not try a larger one again
        write_json(size_file, {"batch_size": micro.batch_size})
        if not restarts or distributed.world_size() > 1:
            raise UserError(
                "out of the GPU's memory.",
                "Run the same command again: it carries on from the last checkpoint, in "
                f"micro-batches of {micro.batch_size}.",
                location=str(folder),
                exit_code=OUT_OF_MEMORY,
            )
        # outside the except clause, whose traceback holds the tensors of the failed step: only now
        # is there anything to free
        del trainer
        load.free_memory()
        console.notice(
            f"{folder.name}: out of memory; going on with batch_size {micro.batch_size} and "
            f"gradient_accumulation {micro.gradient_accumulation}, the same steps"
        )
    if micro != plan:
        figures["batch_size"] = micro.batch_size
        figures["gradient_accumulation"] = micro.gradient_accumulation
    if on_gpu() and (peak := torch.cuda.max_memory_reserved()):
        figures["gpu_gib"] = round(peak / 2**30, 2)
    return figures


def _run(trainer: Any, folder: Path, plan: Schedule, watch: Watch) -> dict[str, object]:
    # one process cuts the log and sets broken checkpoints aside; the others look afterwards
    if distributed.is_first():
        _restore_metrics(folder)
        stage_folder.expect_rows(folder, "metrics.jsonl", plan.steps)
    processes.barrier()
    checkpoint = next(reversed(checkpoints.manifests(folder)), None)
    if on_gpu() and not Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).exists():
        console.notice("the first step compiles kernels, once per machine: a minute or more")
    if checkpoint:
        step = checkpoints.step_of(checkpoint)
        console.notice(f"{folder.name}: carrying on after step {step} of {plan.steps}")
    path = folder / "metrics.jsonl"
    with (
        note_signals() as signals,
        console.progress(folder.name, plan.steps) as advance,
        Appender(path) if distributed.is_first() else contextlib.nullcontext() as metrics,
    ):
        follower = Follower(folder, plan.steps, watch, trainer.model, signals, advance, metrics)
        follow(trainer, follower)
        checkpoints.take_over_saving(trainer, folder, follower.check_save)
        try:
            if checkpoint:
                checkpoints.restore_threads(checkpoint)
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except Exception as error:
            raise _training_error(error, folder) from error
        finally:
            follower.flush()
    # In this order. A halt asked the trainer to stop, and so did a signal: both leave fewer steps
    # than planned, and the halt says why. A loss that is not a number is looked at last: no weights
    # are kept. The other processes leave when nothing is left that all must do.
    if watch.halt:
        raise watch.halt[0]
    if signals or trainer.state.global_step < plan.steps:
        raise Stopped(*signals[:1] or (signal.SIGTERM,))
    if follower.bad_steps:
        raise follower.divergence_error()
    if not distributed.is_first():
        sys.exit(0)
    return _keep_best(folder)


def _keep_best(folder: Path) -> dict[str, object]:
    """Copies the best checkpoint's weights to adapter/ or model/. Returns the key figures."""
    best = checkpoints.best_whole(folder)
    kind, files = load.weight_files(best)
    (folder / kind).mkdir(exist_ok=True)
    for path in files:
        shutil.copyfile(path, folder / kind / path.name)
    rows = read_metrics(folder)
    manifest = checkpoints.manifests(folder)[best]
    return {
        "steps": rows[-1]["step"],
        "kept_step": manifest.step,
        "first_loss": rows[0]["loss"],
        "last_loss": rows[-1]["loss"],
        "dev_loss": manifest.dev_loss,
    }


def _restore_metrics(folder: Path) -> None:
    """Steps after the newest checkpoint are taken again: their rows go. Raises UserError 3 where
    those would be all the steps of a run that was finished."""
    if checkpoints.restore_log("metrics.jsonl", folder):
        return
    if lookup.is_finished(folder):
        changed_files = lookup.read_stage(folder).trusted().changed_outputs()
        raise UserError(
            f"was finished, but {changed_files[0]} has changed since the stage wrote it, and there "
            "is no checkpoint to make it from.",
            "Put it back as it was, or train anew with --force.",
            location=str(folder),
            exit_code=OTHER_PLAN,
        )
    if (folder / "metrics.jsonl").exists():
        if rows := read_metrics(folder):
            console.notice(
                f"{folder.name}: no checkpoint of the {len(rows)} steps in metrics.jsonl: taking "
                "them again"
            )
        (folder / "metrics.jsonl").unlink()


def _training_error(error: Exception, folder: Path) -> Exception:
    if load.is_out_of_memory(error):
        return load.too_large_error(
            "one row alone",
            "Add --load-in-4bit true, lower --max-length, or take a smaller model; with --force.",
            str(folder),
        )
    if type(error).__name__ == "UnpicklingError":  # torch reads data alone, and this is more
        return UserError(
            "its newest checkpoint contains code, which is never run.",
            "Remove that checkpoint to carry on from the one before, or start over with --force.",
            location=str(folder),
            exit_code=MODEL,
        )
    return checkpoints.disk_full_error(error, folder) or error
