"""What is judged while a trainer runs: divergence, the rows of metrics.jsonl, stops and signals."""

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.core.errors import UserError
from agentlite.engine import watch
from agentlite.engine.signals import noted_signals
from agentlite.engine.training_log import Journal, logged
from agentlite.engine.watch import TrainerRun, Watch

INF, NAN = float("inf"), float("nan")


def run_of(folder: Path, *, steps: int = 9, **changed: Any) -> TrainerRun:
    fields: dict[str, Any] = {
        "folder": folder,
        "steps": steps,
        "journal": None,
        "advance": lambda *_: None,
        "caught": [],
        "watch": Watch(),
        "model": SimpleNamespace(parameters=list),
        "bad": [],
        "skipped": [],
        **changed,
    }
    return TrainerRun(**fields)


def ended_at(run: TrainerRun, steps: list[tuple[float, float]], scaled: bool) -> int | None:
    """The step at which the run is ended as diverged."""
    for step, (loss, grad_norm) in enumerate(steps, 1):
        try:
            run.judge(step, loss, grad_norm, scaled=scaled)
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
    assert ended_at(run_of(tmp_path), steps, scaled) == expected


class Weight:
    def __init__(self, finite: bool, trained: bool = True):
        self.finite, self.requires_grad = finite, trained

    def isfinite(self) -> Any:
        return SimpleNamespace(all=lambda: self.finite)


@pytest.mark.parametrize(
    ("weights", "sound"),
    [
        ([Weight(True), Weight(True)], True),
        ([Weight(True), Weight(False)], False),
        ([Weight(False), Weight(True)], False),
        ([Weight(True), Weight(False, trained=False)], True),  # of the frozen model
    ],
)
def test_a_step_is_saved_only_where_every_trained_weight_is_finite(
    weights: list[Weight], sound: bool, tmp_path: Path
) -> None:
    run = run_of(tmp_path, model=SimpleNamespace(parameters=lambda: weights))
    assert run.facts(4) == (None, sound)
    assert run.bad == ([] if sound else [4])


def test_after_a_bad_step_nothing_is_saved_until_a_good_one(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.judge(1, NAN, 1.0, scaled=False)
    assert not run.facts(1).sound and run.bad == [1]
    run.judge(2, 1.0, 1.0, scaled=False)
    assert run.facts(2).sound


def test_a_row_has_all_of_its_step_and_what_has_no_loss_is_no_row(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.add(1, {"loss": 2.0})
        journal.add(1, {"dev_loss": 1.5})
        journal.add(2, {"dev_loss": 1.0})
        journal.add(3, {"loss": 0.5})
    assert logged(tmp_path) == [
        {"step": 1, "loss": 2.0, "dev_loss": 1.5},
        {"step": 3, "loss": 0.5},
    ]
    with Journal(tmp_path) as journal:
        assert journal.dev == {1: 1.5}
        journal.add(4, {"loss": 0.25})
    assert [row["step"] for row in logged(tmp_path)] == [1, 3, 4]


@pytest.fixture
def no_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower's base class, which does nothing, without the seconds of its import."""
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))


@pytest.mark.usefixtures("no_transformers")
def test_each_logged_step_is_a_row_and_shown_and_judged(tmp_path: Path) -> None:
    seen: list[Any] = []
    with Journal(tmp_path) as journal:
        run = run_of(
            tmp_path,
            journal=journal,
            advance=lambda *given: seen.append(given),
            watch=Watch({"rewards/margins": "margin"}, lambda *given: seen.append(given)),
        )
        follow = watch.follower(run)
        args = SimpleNamespace(fp16=False, eval_strategy="steps")
        state, control = SimpleNamespace(global_step=1), SimpleNamespace()
        logs = {"loss": 0.123456789, "grad_norm": 2.0, "learning_rate": 0.5, "epoch": 1.0}
        follow.on_log(args, state, control, {**logs, "rewards/margins": 0.25})
        follow.on_log(args, state, control, {"train_runtime": 3.0})  # no step: no row
        follow.on_evaluate(args, state, control, {"eval_loss": 0.7654321})
        state.global_step = 2
        follow.on_log(args, state, control, {"loss": NAN, "grad_norm": 1.0})
        follow.on_evaluate(args, state, control, {"eval_loss": NAN})
        assert run.bad == [2]  # the step counts once
        assert journal.dev == {1: 0.765432}
    row = {"loss": 0.12345679, "learning_rate": 0.5, "grad_norm": 2.0, "margin": 0.25}
    assert logged(tmp_path) == [
        {"step": 1, **row, "dev_loss": 0.765432},
        {"step": 2, "loss": None, "grad_norm": 1.0, "dev_loss": None},
    ]
    assert seen[:2] == [(1, row), (1, "loss 0.123")]


@pytest.mark.usefixtures("no_transformers")
def test_a_dev_loss_that_is_no_number_is_a_bad_step(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        run = run_of(tmp_path, journal=journal)
        state = SimpleNamespace(global_step=4)
        watch.follower(run).on_evaluate(None, state, None, {"eval_loss": INF})
        assert run.bad == [4] and not journal.dev


@pytest.mark.usefixtures("no_transformers")
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
    run = run_of(
        tmp_path,
        caught=[2] if caught else [],
        watch=Watch(halt=[RuntimeError()] if halt else []),
    )
    control = SimpleNamespace(should_save=False, should_evaluate=False, should_training_stop=False)
    watch.follower(run).on_step_end(
        SimpleNamespace(eval_strategy=strategy), SimpleNamespace(global_step=step), control
    )
    found = (control.should_save, control.should_evaluate, control.should_training_stop)
    assert found == expected


@pytest.mark.usefixtures("no_transformers")
def test_ten_minutes_of_steps_are_saved_and_a_long_save_is_made_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(watch.time, "monotonic", lambda: clock.now)
    follow = watch.follower(run_of(tmp_path, steps=100))
    args, saved = SimpleNamespace(eval_strategy="steps"), list[float]()
    for step in range(1, 60):
        clock.now += 100  # a step
        control = SimpleNamespace(should_save=False, should_evaluate=False)
        follow.on_step_end(args, SimpleNamespace(global_step=step), control)
        assert not control.should_evaluate  # a dev loss that others lack would choose the result
        if control.should_save:
            saved.append(clock.now - 1000)
            clock.now += 5 if len(saved) < 3 else 60
            follow.on_save(args, SimpleNamespace(global_step=step), control)
    # after the third save, which took a minute, twenty minutes pass
    assert saved == [700, 1405, 2110, 3470, 4830]


@pytest.fixture
def ordinary() -> Any:
    """The three signals at their default, and put back."""
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_next_acts_as_it_always_did(
    first: signal.Signals, ordinary: Any, capsys: Any
) -> None:
    with noted_signals() as caught:
        assert all(callable(signal.getsignal(number)) for number in ordinary)
        os.kill(os.getpid(), first)
        assert caught == [first]
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert callable(signal.getsignal(signal.SIGHUP))
    assert f"{first.name}: finishing the step and saving; once more" in capsys.readouterr().err
    assert {signal.getsignal(number) for number in ordinary} == {signal.SIG_DFL}
