"""What is judged while a trainer runs: divergence, the rows of metrics.jsonl, stops and signals."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.core.errors import UserError
from agentlite.engine.watch import Follower, Watch

INF, NAN = float("inf"), float("nan")


def follower_of(folder: Path, caught: Any = (), watch: Watch | None = None) -> Follower:
    model = SimpleNamespace(parameters=list)
    return Follower(folder, 9, watch or Watch(), model, [*caught], lambda *_: None, None)


def ended_at(run: Follower, steps: list[tuple[float, float]], scaled: bool) -> int | None:
    """The step at which the run is ended as diverged."""
    for step, (loss, grad_norm) in enumerate(steps, 1):
        try:
            run.check_step(step, loss, grad_norm, scaled=scaled)
        except UserError:
            return step
    return None


GOOD, BAD, OVERFLOW = (1.0, 1.0), (NAN, 1.0), (1.0, INF)


@pytest.mark.parametrize(
    ("steps", "scaled", "expected"),
    [
        ([(NAN, INF)] * 20, True, 3),  # the loss itself is none: no skip of the scaling
        ([BAD, BAD, GOOD, BAD, BAD, GOOD, BAD, BAD], False, None),  # never three in a row
        ([GOOD, BAD, BAD, BAD], False, 4),
        ([BAD, BAD, BAD], True, 3),
        ([OVERFLOW, BAD, (NAN, NAN)], False, 3),  # loss or gradient
        ([(INF, 1.0), (-INF, 1.0), (1.0, NAN)], False, 3),
        ([OVERFLOW] * 15 + [GOOD] + [OVERFLOW] * 15, True, None),
        ([OVERFLOW] * 16, True, 16),
        ([OVERFLOW] * 3, False, 3),
        ([OVERFLOW] * 15 + [BAD, BAD], True, None),
    ],
)
def test_three_bad_steps_in_a_row_end_a_run_and_sixteen_that_float16_skips(
    steps: list[tuple[float, float]], scaled: bool, expected: int | None, tmp_path: Path
) -> None:
    assert ended_at(follower_of(tmp_path), steps, scaled) == expected


@pytest.mark.parametrize(
    ("step", "strategy", "caught", "halt", "expected"),
    [
        (8, "steps", False, False, (False, False, False)),
        (9, "steps", False, False, (True, True, False)),
        (9, "no", False, False, (True, False, False)),
        (10, "steps", False, False, (True, True, False)),
        (3, "steps", True, False, (True, False, True)),
        (3, "steps", False, True, (True, False, True)),
    ],
)
def test_the_last_step_is_saved_and_measured_and_a_stop_saves_its_step(
    step: int,
    strategy: str,
    caught: bool,
    halt: bool,
    expected: tuple[bool, bool, bool],
    tmp_path: Path,
) -> None:
    watch = Watch(halt=[RuntimeError()] if halt else [])
    follower = follower_of(tmp_path, [2] if caught else [], watch)
    control = SimpleNamespace(should_save=False, should_evaluate=False, should_training_stop=False)
    follower.on_step_end(
        SimpleNamespace(eval_strategy=strategy), SimpleNamespace(global_step=step), control
    )
    found = (control.should_save, control.should_evaluate, control.should_training_stop)
    assert found == expected
