"""What is judged while a trainer runs: divergence, the rows of metrics.jsonl, stops and signals."""

import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.core.errors import DISK, DIVERGED, UserError
from agentlite.core.row_files import Appender, read_rows
from agentlite.engine import watch
from agentlite.engine.signals import Stopped, noted_signals
from agentlite.engine.training_log import Journal, logged, mean, or_none
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


def test_the_first_of_the_bad_steps_in_a_row_is_named(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.judge(3, NAN, 1.0, scaled=False)
    run.judge(4, 1.0, 1.0, scaled=False)
    run.judge(5, NAN, 1.0, scaled=False)
    run.judge(6, NAN, 1.0, scaled=False)
    with pytest.raises(UserError, match="since step 5") as error:
        run.judge(7, NAN, 1.0, scaled=False)
    assert error.value.exit_code == DIVERGED and "--learning-rate" in error.value.fix


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


def test_rows_that_wait_are_written_before_a_save_and_a_full_disk_is_said(tmp_path: Path) -> None:
    def full() -> None:
        raise UserError("full.", exit_code=DISK)

    with Journal(tmp_path) as journal:
        journal.add(1, {"loss": 2.0})
        journal.dev[1] = 0.25
        assert run_of(tmp_path, journal=journal).facts(1) == (0.25, True)
        assert [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1]
    with pytest.raises(UserError, match="full"):
        run_of(tmp_path, watch=Watch(settle=full)).facts(1)


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


def test_rows_that_find_no_room_come_in_order_once_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, full = Appender.append, [True]

    def limited(self: Appender, row: Any) -> None:
        if full[0]:
            raise UserError("full.", exit_code=DISK)
        append(self, row)

    monkeypatch.setattr(Appender, "append", limited)
    with Journal(tmp_path) as journal:
        for step in (1, 2):
            journal.add(step, {"loss": 1.0})
        journal.flush()
        with pytest.raises(UserError, match="full"):
            journal.settle()
        full[0] = False
        journal.add(3, {"loss": 1.0})
        journal.settle()
    assert [row["step"] for row in logged(tmp_path)] == [1, 2, 3]


def test_rows_that_wait_are_written_at_the_end_or_the_full_disk_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, full = Appender.append, [True]

    def limited(self: Appender, row: Any) -> None:
        if full[0]:
            raise UserError("full.", exit_code=DISK)
        append(self, row)

    def interrupted(journal: Journal) -> None:
        journal.add(1, {"loss": 1.0})
        raise ZeroDivisionError

    monkeypatch.setattr(Appender, "append", limited)
    with pytest.raises(UserError, match="full"), Journal(tmp_path) as journal:
        journal.add(1, {"loss": 1.0})
    with pytest.raises(ZeroDivisionError), Journal(tmp_path) as journal:
        interrupted(journal)  # that error goes first
    with Journal(tmp_path) as journal:
        journal.add(1, {"loss": 1.0})
        journal.add(2, {"loss": 1.0})
        full[0] = False
    assert [row["step"] for row in logged(tmp_path)] == [1, 2]


def test_a_mean_is_over_the_rows_that_have_the_figure() -> None:
    rows = [{"kl": 1.0}, {"kl": None}, {}, {"kl": 0.00006}]
    assert (mean(rows, "kl"), mean(rows, "flat"), mean([], "kl")) == (0.5, 0.0, 0.0)
    assert [or_none(value) for value in (0.0, NAN, INF, -INF)] == [0.0, None, None, None]


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
def test_a_dev_loss_two_percent_above_the_least_so_far_is_overfitting(
    tmp_path: Path, capsys: Any
) -> None:
    notices = {}
    with Journal(tmp_path) as journal:
        follow = watch.follower(run_of(tmp_path, journal=journal))
        for step, loss in ((2, 2.5), (4, 2.0), (6, 2.04), (8, 2.041), (10, 1.5), (12, 1.6)):
            follow.on_evaluate(None, SimpleNamespace(global_step=step), None, {"eval_loss": loss})
            notices[step] = capsys.readouterr().err
        assert journal.dev == {2: 2.5, 4: 2.0, 6: 2.04, 8: 2.041, 10: 1.5, 12: 1.6}
    assert [step for step, notice in notices.items() if notice] == [8, 12]
    assert "dev loss 2.041 at step 8 is above the 2.000 of step 4" in notices[8]
    assert "the adapter of step 10 is kept" in notices[12]


@pytest.mark.usefixtures("no_transformers")
def test_float16_may_skip_steps_and_bfloat16_may_not(tmp_path: Path) -> None:
    for fp16, skipped, bad in ((True, [1], []), (False, [], [1])):
        run = run_of(tmp_path)
        args, state = SimpleNamespace(fp16=fp16), SimpleNamespace(global_step=1)
        watch.follower(run).on_log(args, state, None, {"loss": 1.0, "grad_norm": INF})
        assert (run.skipped, run.bad) == (skipped, bad)


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


def test_a_signal_that_is_ignored_stays_ignored(ordinary: Any) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with noted_signals() as caught:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not caught and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_handlers_come_back_after_an_error_and_are_left_alone_in_a_thread(ordinary: Any) -> None:
    with pytest.raises(ZeroDivisionError), noted_signals():
        raise ZeroDivisionError
    assert {signal.getsignal(number) for number in ordinary} == {signal.SIG_DFL}
    found: list[Any] = []

    def in_thread() -> None:
        with noted_signals() as caught:
            found.append((caught, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert found == [([], signal.SIG_DFL)]


def test_a_stop_has_the_exit_code_that_shells_give_a_signal() -> None:
    assert [Stopped(number).exit_code for number in (signal.SIGINT, signal.SIGTERM)] == [130, 143]
