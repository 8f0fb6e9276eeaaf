"""Distillation without a model: the seeds of its answers, the longest row, and its figures."""

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.trainers import distill, distill_task

from agentlite.engine import distill as distill_trainer
from agentlite.engine import teacher
from agentlite.engine.distill import DistillPrompt
from agentlite.engine.load import Loaded
from agentlite.engine.local_sampler import Sample, SampleRequest

SOURCE: Any = None


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The requests that the answers of a step make to a sampler, by its number and the seed."""

    def requests_of(step: int, seed: int = 0, stops: tuple[str, ...] = ()) -> list[SampleRequest]:
        found: list[SampleRequest] = []

        def sample(loaded: Any, requests: list[SampleRequest], decoding: Any) -> list[Sample]:
            found.extend(requests)
            return [Sample(place, 0, [7], "", "turn") for place in range(len(requests))]

        monkeypatch.setattr(distill_trainer.local_sampler, "sample", sample)
        task = distill_task()
        task = task._replace(prompts=[one._replace(stops=stops) for one in task.prompts])
        settings = distill(seed=seed, lmbda=1.0)
        answers = distill_trainer._Answers(None, SOURCE, settings, task, 9)
        answers(None, [3, 1, 3], step)
        return found

    return requests_of


def test_no_two_answers_of_a_run_or_of_another_seed_are_sampled_by_the_same_numbers(
    requested: Any,
) -> None:
    seeds = [
        seed
        for number in (0, 1)
        for step in (0, 1, 2)
        for one in requested(step, number)
        for seed in one.seeds
    ]
    assert len(seeds) == len({*seeds}) == 2 * 3 * 3
    assert requested(2) == requested(2)  # a step that is taken again


def test_an_answer_ends_at_the_stops_of_its_prompt(requested: Any) -> None:
    assert [one.stops for one in requested(0, stops=("Observation:",))] == [("Observation:",)] * 3


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"lmbda": 1.0, "max_new_tokens": 9}, 3 + 9),
        ({"lmbda": 0.5, "max_new_tokens": 2}, 3 + 5),  # the recorded answer is longer
        ({"lmbda": 0.0, "max_new_tokens": 9}, 3 + 5),  # nothing is sampled
        ({"lmbda": 0.0, "fade": 0.5, "max_new_tokens": 9}, 3 + 9),
        ({"lmbda": 0.0, "off_policy": "teacher", "max_new_tokens": 9}, 3 + 9),
    ],
    ids=str,
)
def test_the_longest_row_is_the_prompt_with_the_longer_of_the_answers_that_it_may_get(
    changes: dict[str, Any], expected: int
) -> None:
    prompt = DistillPrompt([1] * 3, (), [2] * 5)
    assert distill_trainer.longest(prompt, distill(**changes)) == expected


@pytest.mark.parametrize(
    ("count", "first", "last"),
    [(12, 2.0, 9.0), (4, 0.5, 2.5), (1, 0.0, 0.0)],  # five steps, or half of a shorter run
)
def test_figures_are_means_of_the_first_and_of_the_last_steps(
    count: int, first: float, last: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*_: Any) -> dict[str, Any]:
        rows = [
            {"step": n + 1, "loss": float(n), "agreement": n / 10, "unlikely_starts": n / 20}
            for n in range(count)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "metrics.jsonl").write_text(lines, encoding="utf-8")
        return {"steps": count}

    monkeypatch.setattr(distill_trainer, "prepare", lambda loading: None)
    monkeypatch.setattr(distill_trainer.trainer, "train", train)
    figures = distill_trainer.train(SOURCE, SOURCE, distill(), tmp_path, distill_task())
    assert figures == {
        "steps": count,
        "first_divergence": first,
        "last_divergence": last,
        "first_agreement": first / 10,
        "last_agreement": last / 10,
        "unlikely_starts": last / 20,
    }


@pytest.mark.parametrize(
    ("beta", "shares", "at_once", "at_the_end"),
    [
        (1.0, [0.5, 0.3, 0.4, 0.4, 0.4, 0.2, 0.2], "40%", "27%"),
        (1.0, [0.0, 0.0, 0.0, 0.0, 0.2, 0.6, 0.9], "", "57%"),  # too few at first
        (0.5, [0.5, 0.3, 0.4, 0.4, 0.4, 0.0, 0.0], "40%", "13%"),
        (0.0, [0.5, 0.3, 0.4, 0.4, 0.4, 0.0, 0.0], "", "13%"),  # its gradient does not vanish
        (1.0, [0.9, 0.0, 0.0], "", ""),  # a run of fewer steps than are looked at
        (1.0, [0.0] * 7, "", ""),
    ],
)
def test_a_student_that_would_never_begin_as_its_teacher_is_noticed_early_and_at_the_end(
    beta: float,
    shares: list[float],
    at_once: str,
    at_the_end: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def train(make: Any, folder: Path, plan: Any, watch: Any) -> dict[str, Any]:
        rows = [{"step": n, "unlikely_starts": share} for n, share in enumerate(shares, 1)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "metrics.jsonl").write_text(lines, encoding="utf-8")
        for row in rows:
            watch.at_step(row["step"], row)
        print("at the end of the steps", file=sys.stderr)
        return {}

    monkeypatch.setattr(distill_trainer, "prepare", lambda loading: None)
    monkeypatch.setattr(distill_trainer.trainer, "train", train)
    distill_trainer.train(SOURCE, SOURCE, distill(beta=beta), tmp_path, distill_task())
    early, end = capsys.readouterr().err.split("at the end of the steps")
    for shown, share in ((early, at_once), (end, at_the_end)):
        assert f"{share} of the answers" in shown if share else "of the answers" not in shown
    assert ("--beta 0" in early) == bool(at_once)


def test_teacher_and_student_are_both_models_whose_logits_are_the_heads_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The teacher is loaded as the student is, but for what a student of whole weights needs."""
    loads: list[Any] = []
    checked: list[str] = []

    def load(source: Any, loading: Any, *, trainable: bool) -> Loaded:
        loads.append((source, loading.full, trainable))
        return Loaded(SimpleNamespace(name=source, eval=lambda: None), None)

    def train(make: Any, *_: Any) -> dict[str, Any]:
        make(None)
        (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n', encoding="utf-8")
        return {}

    monkeypatch.setattr(distill_trainer, "prepare", lambda loading: None)
    monkeypatch.setattr(distill_trainer, "load", load)
    monkeypatch.setattr(
        distill_trainer, "check_head", lambda model, *words: checked.append(model.name)
    )
    widths: list[int] = []
    monkeypatch.setattr(
        distill_trainer, "make_trainer", lambda student, taught, *_: widths.append(taught.width)
    )
    monkeypatch.setattr(distill_trainer.trainer, "train", train)
    settings, sources = distill(full=True), ["the student", "the teacher"]
    distill_trainer.train(*sources, settings, tmp_path, distill_task())  # type: ignore[arg-type]
    assert loads == [("the teacher", False, False), ("the student", True, True)]
    assert checked == ["the teacher", "the student"] and widths == [distill_task().width]


def test_what_a_teacher_has_written_before_is_read_with_the_width_of_the_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / teacher.STORED).touch()
    monkeypatch.setattr(
        distill_trainer,
        "StoredTeacher",
        lambda path, width: SimpleNamespace(mass=0.875, path=path, width=width),
    )
    settings = distill(top_k=8, lmbda=0.0)
    live: Any = lambda: pytest.fail("the teacher was loaded")  # noqa: E731
    found = distill_trainer._stored(settings, tmp_path, distill_task(), live)
    assert (found.path, found.width) == (tmp_path / teacher.STORED, distill_task().width)
    assert "the 8 likeliest tokens hold 87.50%" in capsys.readouterr().err


@pytest.mark.torch
def test_a_step_has_its_answers_in_its_micro_batches_and_their_mean_length() -> None:
    import torch

    class Base:
        accelerator = SimpleNamespace(unwrap_model=lambda model: model)
        processing_class = SimpleNamespace(pad_token_id=0)
        model, state = None, SimpleNamespace(global_step=4)

        def get_batch_samples(self, *_: Any) -> Any:
            return [{"prompt_number": torch.tensor(some)} for some in ([2, 0], [1])], None

    class Answers:
        share = 0.25

        def __call__(self, model: Any, numbers: list[int], step: int) -> list[teacher.AnswerRow]:
            assert (numbers, step) == ([2, 0, 1], 4)
            return [
                teacher.AnswerRow(number, [5], [7] * count)
                for number, count in zip(numbers, (1, 2, 6), strict=True)
            ]

    made = distill_trainer._distilling(Base, SOURCE, 1.0, Answers())()
    made._metrics = {"train": defaultdict(list)}
    batches, tokens = made.get_batch_samples()
    assert tokens == 9 and [one["prompt_number"].tolist() for one in batches] == [[2, 0], [1]]
    assert batches[0]["labels"].tolist() == [[-100, 7, -100], [-100, 7, 7]]
    assert made._metrics["train"] == {"answer_tokens": [3.0], "sampled_share": [0.25]}


@pytest.mark.torch
@pytest.mark.parametrize("top_k", [3, 7, 8, 99])
def test_what_a_teacher_holds_for_likely_are_tokens_of_the_tokenizer(top_k: int) -> None:
    """The matrices of both models are wider: their last two rows are padding, and large here."""
    import torch

    width, generator = 8, torch.Generator().manual_seed(0)
    head = torch.nn.Linear(4, width + 2)
    with torch.no_grad():
        head.bias[width:] = 50.0
    model: Any = SimpleNamespace(get_output_embeddings=lambda: head, eval=lambda: None)
    live = teacher.LiveTeacher(Loaded(model, None), width)
    states, logits = (torch.randn(5, size, generator=generator) for size in (4, width + 2))
    logits[:, width:] = 50.0
    own, other = live.compare(logits, states)
    assert own.shape == other.shape == (5, width)
    for one in (own, other):
        assert one.exp().sum(-1).allclose(torch.ones(5))

    ids, likely = teacher._top(live, states, top_k)
    kept = min(top_k, width - 1)  # the rest is one token at least
    assert ids.shape == (5, kept) and likely.shape == (5, kept + 1) and ids.max() < width
    assert likely[:, :kept].allclose(other.gather(-1, ids))
    assert likely.exp().sum(-1).allclose(torch.ones(5))
    stored = object.__new__(teacher.StoredTeacher)
    stored.width = width
    own, other = stored.compare(logits, ids, likely)
    assert own.shape == other.shape and own.exp().sum(-1).allclose(torch.ones(5))
