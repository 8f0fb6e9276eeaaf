"""Distillation without a model: the seeds of its answers, the longest row, and its figures."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.trainers import distill, distill_task

from agentlite.engine import distill as distill_trainer
from agentlite.engine.distill import DistillPrompt
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
        rows = [{"step": n + 1, "loss": float(n), "agreement": n / 10} for n in range(count)]
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
    }
