"""What is followed while a trainer runs: each step's row, and whether training has diverged."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentlite.core import console
from agentlite.core.errors import DIVERGED, UserError
from agentlite.engine import coordinate
from agentlite.engine.training_log import Journal, or_none

BAD_STEPS = 3  # in a row, whose loss or gradient is not a finite number: training has diverged
# Seconds of steps that a crash may cost, however many steps --save-steps puts between checkpoints;
# and how many times as long as a save the steps before it have to take at least.
MOST_LOST, LEAST_PER_SAVE = 600, 20
SCALINGS = 16  # steps in a row that float16's loss scaling may skip while it looks for a scale


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
    """The events of transformers' TrainerCallback, the import of whose class takes seconds."""

    folder: Path
    steps: int  # of the whole run
    watch: Watch
    model: Any
    caught: list[int]  # signals
    advance: console.Advance
    journal: Journal | None  # of the first process alone

    def __post_init__(self) -> None:
        self.bad: list[int] = []  # the last steps, if something in them is not a finite number
        self.skipped: list[int] = []  # likewise, if float16's loss scaling took them for nothing
        self.ended = self.saved = time.monotonic()  # the last step, and the last save
        self.save_seconds = 0.0  # of that save

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.ended = time.monotonic()
        late = self.ended - self.saved > max(MOST_LOST, LEAST_PER_SAVE * self.save_seconds)
        if state.global_step >= self.steps:
            control.should_save = True
            control.should_evaluate = args.eval_strategy != "no"
        elif coordinate.any_of(late):
            control.should_save = True
        if coordinate.any_of(bool(self.caught or self.watch.halt)):
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.saved = time.monotonic()
        self.save_seconds = self.saved - self.ended

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        if "loss" not in logs:
            return
        step, loss = state.global_step, float(logs["loss"])
        self.judge(step, loss, float(logs.get("grad_norm", 0.0)), scaled=args.fp16)
        names = {key: key for key in ("loss", "learning_rate", "grad_norm")}
        row = {
            name: round(float(logs[key]), 8)
            for key, name in {**names, **self.watch.measures}.items()
            if logs.get(key) is not None
        }
        self.watch.at_step(step, row)
        if self.journal:
            self.journal.add(step, {name: or_none(value) for name, value in row.items()})
            self.journal.note_pace(step, self.steps)
            self.advance(step, f"loss {loss:.3f}")

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: dict[str, Any], **_: Any
    ) -> None:
        step, loss = state.global_step, round(float(metrics["eval_loss"]), 6)
        if not math.isfinite(loss) and step not in self.bad:
            self.judge(step, loss, 0.0, scaled=False)
        if self.journal:
            self.journal.add(step, {"dev_loss": or_none(loss)})

    def judge(self, step: int, loss: float, grad_norm: float, *, scaled: bool) -> None:
        """Raises UserError 6 where training has diverged. `scaled`: in float16."""
        if math.isfinite(loss) and math.isfinite(grad_norm):
            self.bad.clear()
            self.skipped.clear()
            return
        overflow = scaled and math.isfinite(loss)
        steps, most = (self.skipped, SCALINGS) if overflow else (self.bad, BAD_STEPS)
        steps.append(step)
        if len(steps) >= most:
            raise self.diverged()

    def diverged(self) -> UserError:
        first = min(self.bad + self.skipped)
        return UserError(
            f"loss, gradient or weights are not finite numbers since step {first}.",
            "Lower --learning-rate (a tenth is a good try) and start over with --force.",
            location=str(self.folder),
            exit_code=DIVERGED,
        )

    def is_sound(self, step: int) -> bool:
        """Of a step that is about to be saved, and whose row is whole: it is written now. A step
        may ruin weights, and only the next one's loss would say so.
        """
        if self.journal:
            self.journal.flush()
        trained = (weight for weight in self.model.parameters() if weight.requires_grad)
        is_bad = bool(self.bad) or not all(bool(weight.isfinite().all()) for weight in trained)
        if coordinate.any_of(is_bad):
            self.bad.append(step)
        return not self.bad

    def dev_loss(self, step: int) -> float | None:
        return self.journal.dev.get(step) if self.journal else None


def follow(trainer: Any, follower: Follower) -> None:
    """It sees the trainer's events, in place of the callback that prints every row."""
    from transformers import PrinterCallback, TrainerCallback

    class Following(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        on_step_end = staticmethod(follower.on_step_end)
        on_save = staticmethod(follower.on_save)
        on_log = staticmethod(follower.on_log)
        on_evaluate = staticmethod(follower.on_evaluate)

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Following())
