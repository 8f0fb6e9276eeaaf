"""PPO without a model: the answers of its rounds, its figures, and a step in micro-batches."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.trainers import grpo

from agentlite.core.errors import UserError
from agentlite.engine import grpo as grpo_trainer
from agentlite.engine import ppo
from agentlite.engine.decoding import Decoding
from agentlite.engine.grpo import AnswerReward, GrpoTask, LearnedRow
from agentlite.engine.local_sampler import Sample, SampleRequest
from agentlite.engine.ppo import Experience

SOURCE: Any = None
PROMPTS = [[10 + number] for number in range(5)]
ROUND: dict[str, Any] = {
    "advantage": "value",
    "rollouts": 8,
    "ppo_epochs": 2,
    "group_size": 2,
    "batch_size": 2,
    "gradient_accumulation": 1,
}


def task(**changes: Any) -> GrpoTask:
    of_answers: Any = lambda answers: [AnswerReward({"even": 1.0})] * len(answers)  # noqa: E731
    known = GrpoTask(PROMPTS, [()] * 5, of_answers, {"even": 2.0}, Decoding(3), [])
    return known._replace(**changes)


class Run:
    """The rounds of a run whose sampler answers each prompt with its own ids."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any):
        self.seeds: list[str] = []
        self.measured: Any = defaultdict(list)
        self.settings = grpo(**ROUND, **changes)
        plan = grpo_trainer.schedule(self.settings, len(PROMPTS))
        self.rounds = ppo._Rounds(folder, self.settings, task(), plan, None)
        monkeypatch.setattr(ppo.grpo, "draw", self.draw)
        monkeypatch.setattr(ppo._Rounds, "_read", self.read)

    def draw(self, loaded: Any, requests: list[SampleRequest], decoding: Any) -> list[Sample]:
        self.seeds += [seed for one in requests for seed in one.seeds]
        return [
            Sample(index, number, [*one.prompt], "", "turn", (-1.0,))
            for index, one in enumerate(requests)
            for number in range(len(one.seeds))
        ]

    def read(self, trl_trainer: Any, model: Any, rows: list[LearnedRow]) -> list[Experience]:
        return [
            Experience([*row.prompt], [*row.ids], 1.0, {"even": 1.0}, [-1.0], [-1.0], [0.0])
            for row in rows
        ]

    def rows(self, step: int) -> list[Experience]:
        trl_trainer = SimpleNamespace(_metrics={"train": self.measured})
        return [row.one for row in self.rounds.rows(trl_trainer, None, step)]


def test_each_round_takes_the_next_prompts_and_learns_from_each_answer_in_every_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, steps, taken = Run(tmp_path, monkeypatch), 8, list[int]()
    for start in (0, steps):
        learned = [one for step in range(start, start + steps) for one in run.rows(step)]
        assert all(one.prompt == one.ids for one in learned)  # an answer stands behind its prompt
        sampled = [one.prompt[0] - 10 for one in map(as_experience, lines(tmp_path))]
        assert sampled[::2] == sampled[1::2]  # two answers to each
        taken += sampled[::2]
        assert Counter(one.prompt[0] - 10 for one in learned) == {
            prompt: 2 * count for prompt, count in Counter(sampled).items()
        }
    assert taken == grpo_trainer.prompt_order(5, 8, run.settings.seed)
    assert len(run.seeds) == len({*run.seeds}) == 16


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / ppo.EXPERIENCE).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def as_experience(row: dict[str, Any]) -> Experience:
    return Experience(**row)


def test_another_seed_takes_the_prompts_and_the_answers_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, orders = [], []
    for seed in (1, 2):
        run = Run(tmp_path, monkeypatch, seed=seed)
        run.rows(0)
        found.append([row["prompt"] for row in lines(tmp_path)])
        orders.append(ppo.round_order(run.settings, 0))
    assert found[0] != found[1] and orders[0] != orders[1]


def test_a_round_is_measured_over_its_tokens_and_what_it_learns_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch)
    experience = [
        Experience([1], [7, 8, 9], 1.0, {"even": 0.5}, [-1.0] * 3, [-1.3] * 3, [0.0] * 3),
        Experience([1], [7], 0.0, {"even": 0.0}, [-1.0], [-1.0], [0.0]),
        Experience([1], [7, 8], None, {}, [-1.0] * 2, [-1.0] * 2, [9.0] * 2),
    ]
    run.rounds.learned = ppo.whitened(experience, grpo(**ROUND, beta=0.0, gae_lambda=1.0))
    run.rounds._log(run.measured)
    found = {name: values[0] for name, values in run.measured.items()}
    assert found == pytest.approx(
        {
            "answer_tokens": 2.0,
            "kl": 3 * 0.3 / 6,  # of all tokens
            "reward": 0.5,  # of the two that have one
            "rewards/even": 0.25,
            "explained": 0.0,
        }
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 0.0, 0.5, 0.5], 1.0),  # what was earned was known before
        ([5.0, 5.0, 5.0, 5.0], 0.0),
        ([0.5, 0.0, 0.25, 0.25], 0.75),  # half of each: a quarter of the variance is left
    ],
)
def test_the_share_that_is_explained_is_that_of_the_variance_of_returns(
    values: list[float], expected: float
) -> None:
    def learned(returns: list[float], values: list[float]) -> Any:
        count = len(values)
        one = Experience([1], [7] * count, 1.0, {}, [0.0] * count, [0.0] * count, values)
        return ppo._LearnedAnswer(one, [0.0] * count, returns)

    returns = [1.0, 0.0, 0.5, 0.5]
    rows = [learned(returns[:1], values[:1]), learned(returns[1:], values[1:])]
    assert ppo._explained(rows) == pytest.approx(expected)
    assert ppo._explained([learned([2.0, 2.0], values[:2])]) == ppo._explained([]) == 0.0


@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 1e-4), ("bfloat16", 1e-2)])
def test_it_watches_its_start_and_figures_are_means_of_the_first_and_last_steps(
    dtype: str, allowed: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches: list[Any] = []

    def train(make: Any, folder: Path, plan: Any, watch: Any) -> dict[str, Any]:
        watches.append(watch)
        rows = [
            {"step": n + 1, "reward": float(n), "kl": n / 8, "explained": n / 4} for n in range(12)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
        return {"steps": plan.steps}

    monkeypatch.setattr(ppo, "prepare", lambda loading: None)
    monkeypatch.setattr(ppo, "load", lambda *_, **__: SimpleNamespace(model=None))
    monkeypatch.setattr(ppo, "check_head", lambda *_: None)
    monkeypatch.setattr(ppo, "load_dtype", lambda: f"torch.{dtype}")
    monkeypatch.setattr(ppo.trainer, "train", train)
    figures = ppo.train(SOURCE, grpo(**ROUND, max_steps=12), tmp_path, lambda loaded: task())
    first, last = {"first_reward": 2.0}, {"last_reward": 9.0, "kl": 1.125, "explained": 2.25}
    assert figures == {"steps": 12, **first, **last}
    (watch,) = watches
    assert watch.measures["rewards/even"] == "reward/even"
    for kl in (1.1 * allowed, -1.1 * allowed, float("nan")):
        with pytest.raises(UserError, match="differ before the first step"):
            watch.at_step(1, {"kl": kl})
    watch.at_step(1, {"kl": 0.9 * allowed})
    watch.at_step(2, {"kl": 9.0})


@pytest.mark.torch
def test_a_step_has_the_same_loss_and_figures_in_smaller_micro_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    class Base:
        accelerator = SimpleNamespace(unwrap_model=lambda model: model)

    def figures(model: Any, inputs: Any, labels: Any, temperature: float) -> Any:
        return ppo.TokenFigures(inputs["likely"], inputs["new"])

    monkeypatch.setattr(ppo, "read_tokens", figures)
    names = ("likely", "new", "old", "advantages", "returns", "values")
    generator = torch.Generator().manual_seed(0)
    columns = {name: torch.randn(12, generator=generator) for name in names}
    found = []
    for cuts in ([12], [1, 11], [3, 4, 5]):
        trainer = ppo._clipping(Base, grpo(**ROUND), SOURCE)()
        trainer._metrics, trainer.micro_batches = {"train": defaultdict(list)}, len(cuts)
        parts = [
            {name: column.split(cuts)[n] for name, column in columns.items()}
            for n in range(len(cuts))
        ]
        loss = sum(
            trainer.compute_loss(None, {**part, "labels": None}, num_items_in_batch=12)
            for part in parts
        )
        measured = trainer._metrics["train"]  # TRL logs the mean over micro-batches
        means = [sum(measured[name]) / len(cuts) for name in ("clipped", "value_loss")]
        found.append([float(loss), *means])
    assert found[1] == pytest.approx(found[0]) and found[2] == pytest.approx(found[0])
    assert all(found[0])


@pytest.mark.torch
def test_the_value_head_learns_at_a_rate_of_its_own() -> None:
    import torch

    class Base:
        def __init__(self) -> None:
            self.model = torch.nn.Linear(3, 2)
            self.model.add_module(ppo.HEAD, torch.nn.Linear(3, 1))

        def create_optimizer(self) -> Any:
            weights = [*self.model.parameters()]
            return torch.optim.SGD(weights, lr=0.5, weight_decay=0.1)

    trainer = ppo._clipping(Base, grpo(**ROUND, value_learning_rate=0.25), SOURCE)()
    adapter, head = trainer.create_optimizer().param_groups
    own = [*getattr(trainer.model, ppo.HEAD).parameters()]
    assert (adapter["lr"], head["lr"], head["weight_decay"]) == (0.5, 0.25, 0.0)
    assert [id(one) for one in head["params"]] == [id(one) for one in own]
    assert {id(one) for one in adapter["params"]} == {
        id(one) for one in (trainer.model.weight, trainer.model.bias)
    }
