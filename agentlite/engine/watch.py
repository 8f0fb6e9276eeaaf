"""What is followed while a trainer runs: each step's row, and whether training has diverged."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core import console
from agentlite.core.errors import DIVERGED, UserError
from agentlite.engine import checkpoints, coordinate
from agentlite.engine.training_log import Journal, Pace, or_none

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


class TrainerRun(NamedTuple):
    """What is followed while a trainer runs."""

    folder: Path
    steps: int  # of the whole run
    journal: "Journal | None"  # of the first process alone
    advance: console.Advance
    caught: list[int]
    watch: Watch
    model: Any
    bad: list[int]  # the last steps, if something in them is not a finite number
    skipped: list[int]  # the last steps, if float16's loss scaling took them for nothing
    pace: Pace | None = None  # of the first process alone

    def facts(self, step: int) -> checkpoints.StepFacts:
        """Of a step that is about to be saved, and whose row is whole: it is written now. Raises
        UserError 74.
        """
        if self.journal:
            self.journal.flush()
        if coordinate.any_of(not (self.bad or _is_finite(self.model))):
            self.bad.append(step)
        return checkpoints.StepFacts(
            self.journal.dev.get(step) if self.journal else None, not self.bad
        )

    def judge(self, step: int, loss: float, grad_norm: float, *, scaled: bool) -> None:
        """Raises UserError 6 where training has diverged. `scaled`: in float16."""
        overflow = scaled and math.isfinite(loss) and not math.isfinite(grad_norm)
        steps, most = (self.skipped, SCALINGS) if overflow else (self.bad, BAD_STEPS)
        if math.isfinite(loss) and math.isfinite(grad_norm):
            self.bad.clear()
            self.skipped.clear()
            return
        steps.append(step)
        if len(steps) >= most:
            raise diverged(self)


def _is_finite(model: Any) -> bool:
    """Whether every weight that is trained is: a step may ruin them, and only the next one's loss
    would say so.
    """
    return all(
        bool(weight.isfinite().all()) for weight in model.parameters() if weight.requires_grad
    )


def diverged(run: TrainerRun) -> UserError:
    first = min(run.bad + run.skipped)
    return UserError(
        f"loss, gradient or weights are not finite numbers since step {first}.",
        "Lower --learning-rate (a tenth is a good try) and start over with --force.",
        location=str(run.folder),
        exit_code=DIVERGED,
    )


def listen(trainer: Any, callback: Any) -> None:
    """Ours in place of the one that prints every row."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(callback)


def follower(run: TrainerRun) -> Any:
    """A TrainerCallback; built here because its base class costs seconds to import."""
    from transformers import TrainerCallback

    journal = run.journal

    class Follow(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        ended = saved = time.monotonic()  # the last step, and the last save
        took = 0.0  # seconds of that save

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.ended = time.monotonic()
            late = self.ended - self.saved > max(MOST_LOST, LEAST_PER_SAVE * self.took)
            if state.global_step >= run.steps:
                control.should_save = True
                control.should_evaluate = args.eval_strategy != "no"
            elif coordinate.any_of(late):
                control.should_save = True
            if coordinate.any_of(bool(run.caught or run.watch.halt)):
                control.should_save = control.should_training_stop = True

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.saved = time.monotonic()
            self.took = self.saved - self.ended

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any
        ) -> None:
            if "loss" not in logs:
                return
            run.judge(
                state.global_step,
                float(logs["loss"]),
                float(logs.get("grad_norm", 0.0)),
                scaled=args.fp16,
            )
            names = {key: key for key in ("loss", "learning_rate", "grad_norm")} | dict(
                run.watch.measures
            )
            row = {
                name: round(float(logs[key]), 8)
                for key, name in names.items()
                if logs.get(key) is not None
            }
            run.watch.at_step(state.global_step, row)
            if not journal:
                return
            journal.add(state.global_step, {name: or_none(value) for name, value in row.items()})
            run.advance(state.global_step, f"loss {float(logs['loss']):.3f}")
            if run.pace:
                run.pace.note(state.global_step, run.steps)

        def on_evaluate(
            self, args: Any, state: Any, control: Any, metrics: dict[str, Any], **_: Any
        ) -> None:
            loss = round(float(metrics["eval_loss"]), 6)
            if not math.isfinite(loss) and state.global_step not in run.bad:
                run.judge(state.global_step, loss, 0.0, scaled=False)
            if not journal:
                return
            journal.add(state.global_step, {"dev_loss": or_none(loss)})
            if not math.isfinite(loss):
                return
            journal.dev[state.global_step] = loss

    return Follow()
