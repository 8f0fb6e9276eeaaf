"""A training run as it goes: its signals, metrics.jsonl, and whether it has diverged."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from agentlite.core import console
from agentlite.core.errors import DIVERGED, UserError
from agentlite.core.row_files import Appender, read_rows
from agentlite.engine import processes

MAX_BAD_STEPS = 3  # in a row, whose loss or gradient is not a finite number: training has diverged
# Seconds of steps that a crash may cost, however many steps --save-steps puts between checkpoints;
# and how many times as long as a save the steps before it have to take at least.
MOST_LOST_SECONDS, SAVE_FACTOR = 600, 20
MAX_SKIPPED_STEPS = 16  # in a row, by float16's loss scaling while it looks for a scale


class Stopped(Exception):
    """A signal came: the step was finished and saved."""

    def __init__(self, number: int):
        self.exit_code = 128 + number


@contextmanager
def note_signals() -> Iterator[list[int]]:
    """The first signal that ends a process is noted, and the step finished; the second one acts as
    it always did. A closed terminal sends SIGHUP more than once, and nohup has it ignored.
    """
    signals: list[int] = []
    handlers: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        name = signal.Signals(number).name
        if name == "SIGHUP":
            signal.signal(number, signal.SIG_IGN)
            console.notice(f"{name}: finishing the step and saving")
            return
        console.notice(f"{name}: finishing the step and saving; once more stops at once")
        for signum in handlers.keys() & {signal.SIGINT, signal.SIGTERM}:
            signal.signal(signum, handlers[signum])

    with contextlib.suppress(ValueError):  # not the main thread: signals are its caller's business
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(signum) != signal.SIG_IGN:
                handlers[signum] = signal.signal(signum, note)
    try:
        yield signals
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl."""
    return list(read_rows(folder / "metrics.jsonl"))


def mean(rows: Iterable[Mapping[str, Any]], name: str) -> float:
    """Over the rows that have it, since not every step measures everything. 0 if none has."""
    values = [row[name] for row in rows if row.get(name) is not None]
    return round(sum(values) / len(values), 4) if values else 0.0


@dataclass
class Watch:
    """What a trainer measures beside its loss, and who looks on.

    `measures`: what the library logs -> its name in metrics.jsonl. `at_step` sees the number of
    each optimizer step and its row, and may raise. An exception in `halt` ends the run once the
    step that is under way is saved.
    """

    measures: Mapping[str, str] = field(default_factory=dict)
    at_step: Callable[[int, Mapping[str, float]], None] = lambda step, row: None
    halt: list[Exception] = field(default_factory=list)


@dataclass
class Follower:
    """The events of transformers' TrainerCallback, the import of whose class takes seconds. Writes
    metrics.jsonl: one row per step, which waits until its dev loss may have come.
    """

    folder: Path
    steps: int  # of the whole run
    watch: Watch
    model: Any
    signals: list[int]  # that came
    advance: console.Advance
    metrics: Appender | None  # of the first process alone

    def __post_init__(self) -> None:
        self.row: dict[str, Any] = {}
        self.bad_steps: list[int] = []  # the last ones, if something in them is not a finite number
        self.skipped_steps: list[int] = []  # likewise, if float16's loss scaling left them out
        self.step_time = self.save_time = time.monotonic()  # ends of the last step and last save
        self.save_seconds = 0.0  # of that save

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.step_time = time.monotonic()
        limit = max(MOST_LOST_SECONDS, SAVE_FACTOR * self.save_seconds)
        is_late = self.step_time - self.save_time > limit
        if state.global_step >= self.steps:
            control.should_save = True
            control.should_evaluate = args.eval_strategy != "no"
        elif processes.any_of(is_late):
            control.should_save = True
        if processes.any_of(bool(self.signals or self.watch.halt)):
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.save_time = time.monotonic()
        self.save_seconds = self.save_time - self.step_time

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        if "loss" not in logs:
            return
        step, loss = state.global_step, float(logs["loss"])
        self.check_step(step, loss, float(logs.get("grad_norm", 0.0)), scaled=args.fp16)
        names = {key: key for key in ("loss", "learning_rate", "grad_norm")}
        row = {
            name: round(float(logs[key]), 8)
            for key, name in {**names, **self.watch.measures}.items()
            if logs.get(key) is not None
        }
        self.watch.at_step(step, row)
        self.add(step, row)
        if self.metrics:
            self.advance(step, f"loss {loss:.3f}")

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: dict[str, Any], **_: Any
    ) -> None:
        step, loss = state.global_step, round(float(metrics["eval_loss"]), 6)
        if not math.isfinite(loss) and step not in self.bad_steps:
            self.check_step(step, loss, 0.0, scaled=False)
        self.add(step, {"dev_loss": loss})

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """What is not a finite number is null: JSON has no NaN."""
        if self.row and self.row["step"] != step:
            self.flush()
        finite = {key: value if math.isfinite(value) else None for key, value in values.items()}
        self.row = {"step": step, **self.row, **finite}

    def flush(self) -> None:
        if self.metrics and "loss" in self.row:
            self.metrics.append(self.row)
        self.row = {}

    def check_step(self, step: int, loss: float, grad_norm: float, *, scaled: bool) -> None:
        """Raises UserError 6 where training has diverged. `scaled`: in float16."""
        if math.isfinite(loss) and math.isfinite(grad_norm):
            self.bad_steps.clear()
            self.skipped_steps.clear()
            return
        steps, limit = self.bad_steps, MAX_BAD_STEPS
        if scaled and math.isfinite(loss):
            # only the scaled gradient was too large for float16: the step was skipped, and the
            # scale halved
            steps, limit = self.skipped_steps, MAX_SKIPPED_STEPS
        steps.append(step)
        if len(steps) >= limit:
            raise self.divergence_error()

    def divergence_error(self) -> UserError:
        first = min(self.bad_steps + self.skipped_steps)
        return UserError(
            f"loss, gradient or weights are not finite numbers since step {first}.",
            "Lower --learning-rate (a tenth is a good try) and start over with --force.",
            location=str(self.folder),
            exit_code=DIVERGED,
        )

    def check_save(self, step: int) -> tuple[bool, float | None]:
        """Of a step that is about to be saved: whether it is sound, and its dev loss. Its row is
        whole, and written now. A step may ruin weights, and only the next one's loss would say so.
        """
        dev_loss = self.row.get("dev_loss") if self.row.get("step") == step else None
        self.flush()
        weights = (weight for weight in self.model.parameters() if weight.requires_grad)
        are_finite = all(bool(weight.isfinite().all()) for weight in weights)
        if processes.any_of(bool(self.bad_steps) or not are_finite):
            self.bad_steps.append(step)
        return not self.bad_steps, dev_loss


def follow(trainer: Any, follower: Follower) -> None:
    """It sees the trainer's events, in place of the callback that prints every row."""
    from transformers import PrinterCallback, TrainerCallback

    # TrainerCallback has an empty method for every event that Follower leaves alone
    class Following(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        on_step_end = staticmethod(follower.on_step_end)
        on_save = staticmethod(follower.on_save)
        on_log = staticmethod(follower.on_log)
        on_evaluate = staticmethod(follower.on_evaluate)

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Following())
