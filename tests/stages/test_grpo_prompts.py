"""rollouts.jsonl of GRPO: what a resumed run keeps, which prompts rest, what is sampled."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.config.settings import GrpoSettings
from agentlite.core.records import GOLD, Record, Score
from agentlite.core.row_files import read_rows
from agentlite.engine import checkpoints, grpo, local_sampler
from agentlite.engine.decoding import Decoding
from agentlite.rendering import PROTOCOLS, Prompt, prompts_of
from agentlite.scoring.rewards import WEIGHTS
from agentlite.scoring.rewards.scorer import Tally
from agentlite.stages.grpo_prompts import NEVER, PromptSampling, PromptSchedule, Visit


def scored(number: float) -> dict[str, float]:
    return {**dict.fromkeys(WEIGHTS, 0.0), "task_completion": number}


class FakeScorer:
    """A text earns what it says as a number; `fail` is a reward function that failed."""

    user_functions: dict[str, Any] = {}  # noqa: RUF012  (never changed)
    protocols = PROTOCOLS
    has_gold = True

    def __call__(self, candidates: Any) -> Any:
        for one in candidates:
            failed = one.text == "fail"
            number = 0.0 if failed or one.model == GOLD else float(one.text)
            yield Score(*one.key, scored(number), "", "it failed" if failed else "")


@pytest.fixture
def asked(dialog: Record, templates: Any) -> list[Prompt]:
    template = templates["smollm2"]
    return list(prompts_of([dialog], lambda record: PROTOCOLS["hermes"], template))


def log_of(folder: Path, asked: list[Prompt], **changed: Any) -> PromptSampling:
    folder.mkdir(exist_ok=True)
    sampling = PromptSampling.__new__(PromptSampling)  # without a prep and a model
    sampling.settings = GrpoSettings(model="start", group_size=2, **changed)
    sampling.folder, sampling.halt, sampling.tally = folder, [], Tally(1.0, folder, "")
    sampling.scorer, sampling.weights, sampling.records = FakeScorer(), WEIGHTS, {}  # type: ignore[assignment]
    sampling.prompts, sampling.decoding, sampling.judge = asked, Decoding(3), {}
    sampling.too_long = 0
    return sampling


def take(log: PromptSampling, texts: list[str], step: int) -> list[grpo.Reward]:
    """A step in which the first prompt is answered so."""
    answers = [
        local_sampler.Sample(0, place, [1, 2, 3], text, "turn") for place, text in enumerate(texts)
    ]
    return [row.reward for row in log.score(log.prompts[:1], answers, step)]


def kept(folder: Path) -> list[tuple[str, int, int]]:
    return [
        (row["model"], row["sample"], row["trained"])
        for row in read_rows(folder / "rollouts.jsonl")
        if row["model"] != GOLD
    ]


def test_the_gold_is_scored_once_and_answers_are_numbered_through_the_run(
    tmp_path: Path, asked: list[Prompt]
) -> None:
    folder = tmp_path / "grpo"
    with log_of(folder, asked) as log:
        found = take(log, ["0.5", "fail"], 0)
        take(log, ["0.25", "1"], 3)
    assert found == [scored(0.5), None]
    assert kept(folder) == [("grpo", 0, 0), ("grpo", 1, 0), ("grpo", 6, 3), ("grpo", 7, 3)]
    rows = list(read_rows(folder / "rollouts.jsonl"))
    assert [row["model"] for row in rows].count(GOLD) == len(asked)
    assert rows[-1]["new_tokens"] == 3 and rows[-1]["components"] == scored(1.0)
    assert log.figures() == {"failed_rewards": 1, "too_long": 0}


def test_a_resumed_run_keeps_the_answers_before_its_checkpoint(
    tmp_path: Path, asked: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "grpo"
    with log_of(folder, asked) as log:
        for step in range(4):
            take(log, ["0.5", "0.5"], step)
    monkeypatch.setattr(checkpoints, "restore_log", lambda *_: 2)
    with log_of(folder, asked):
        pass
    assert kept(folder) == [("grpo", number, number // 2) for number in range(4)]
    monkeypatch.setattr(checkpoints, "restore_log", lambda *_: 0)
    with log_of(folder, asked):
        pass
    assert kept(folder) == []
    assert [row["model"] for row in read_rows(folder / "rollouts.jsonl")].count(GOLD) == len(asked)


def test_what_rests_is_the_same_after_a_kill(
    tmp_path: Path, asked: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, one_group = tmp_path / "grpo", {"batch_size": 2, "gradient_accumulation": 1}
    with log_of(folder, asked, **one_group, rest_epochs=2.0) as log:
        take(log, ["0.5", "1"], 0)
        assert log.schedule.select([0], 1) == [0]
        take(log, ["0.5", "0.5"], 1)
        assert log.schedule.select([0], 2) == [1]
        at_two = dict(log.schedule.visits)
        take(log, ["0.5", "fail"], 2)  # one score alone teaches nothing
        assert log.schedule.select([0], 3) == [1]
    monkeypatch.setattr(checkpoints, "restore_log", lambda *_: 2)
    with log_of(folder, asked, **one_group, rest_epochs=2.0) as log:
        assert log.schedule.visits == at_two
    with log_of(folder, asked, **one_group) as log:  # by default nothing rests
        assert log.schedule.select([0], 2) == [0]


def test_the_answers_of_a_step_stand_group_by_group_in_whatever_order_they_are_sampled(
    tmp_path: Path, asked: list[Prompt]
) -> None:
    requested: list[local_sampler.SampleRequest] = []

    def draw(requests: Any, decoding: Decoding) -> list[local_sampler.Sample]:
        requested.extend(requests)
        every = [
            local_sampler.Sample(index, n, [index, n], f"{n}", "turn", (-1.0, -2.0))
            for index, request in enumerate(requests)
            for n in range(len(request.seeds))
        ]
        return random.Random(4).sample(every, len(every))

    with log_of(tmp_path / "grpo", asked) as log:
        for step in (0, 1):
            rows = log.sample(draw, [1, 0, 1], step)  # one prompt twice
            groups = [asked[index].ids for index in (1, 0, 1)]
            assert [row.prompt for row in rows] == [ids for ids in groups for _ in range(2)]
            assert [row.ids for row in rows] == [[group, n] for group in range(3) for n in range(2)]
            assert [row.reward for row in rows] == [scored(n) for n in (0.0, 1.0)] * 3
            assert grpo.surprisal(rows) == 1.5
    assert requested[0].stops == PROTOCOLS["hermes"].stops
    # no two answers of a run are sampled by the same numbers, also those to the same prompt
    seeds = [seed for request in requested for seed in request.seeds]
    assert len(seeds) == len({*seeds}) == 12


COUNT = 6
indexes = st.integers(0, COUNT - 1)
histories = st.lists(st.tuples(indexes, st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=3)))


def schedule_of(count: int, rest: float) -> PromptSchedule:
    """A step has a group for each prompt."""
    groups = {"batch_size": 2 * count, "gradient_accumulation": 1, "group_size": 2}
    return PromptSchedule(GrpoSettings(rest_epochs=rest, **groups), range(count))  # type: ignore[arg-type]


def after(history: list[tuple[int, list[float]]], rest: float) -> PromptSchedule:
    schedule = schedule_of(COUNT, rest)
    for step, (index, totals) in enumerate(history):
        for total in totals or [None]:
            schedule.add(index, step, total)
    return schedule


@given(histories, st.lists(indexes, min_size=1, max_size=4, unique=True), st.integers(0, 12))
def test_who_rests_is_passed_over_while_others_are_there(history, groups, rest):
    schedule, step = after(history, rest), len(history)
    last = {
        index: max(place for place, (one, _) in enumerate(history) if one == index)
        for index, _ in history
    }
    asleep = {
        index
        for index, place in last.items()
        if len({*history[place][1]}) < 2 and step - place < rest
    }
    chosen = schedule.select(groups, step)
    assert len({*chosen}) == len(chosen) == len(groups)
    awake = {*range(COUNT)} - asleep - {*groups}
    for planned, taken in zip(groups, chosen, strict=True):
        assert taken == planned or (planned in asleep and taken in awake)
    # whoever rests is taken only where nobody is left
    assert not asleep & {*chosen} or awake <= {*chosen}


def test_in_its_place_comes_the_one_that_was_learned_from_least_and_longest_ago():
    schedule = schedule_of(4, 9)
    for step, index in enumerate([1, 2, 3, 3, 0]):
        for total in (0.0, 1.0) if index else (1.0, 1.0):
            schedule.add(index, step, total)
    assert schedule.select([0], 5) == [1]
    assert schedule.select([0, 1], 5) == [2, 1]
    assert schedule.visits == {
        0: Visit(4, 1, frozenset([1.0])),
        1: Visit(0, 1, frozenset([0.0, 1.0])),
        2: Visit(1, 1, frozenset([0.0, 1.0])),
        3: Visit(3, 2, frozenset([0.0, 1.0])),
    }
    assert schedule.select([0], 13) == [0] and NEVER.times == 0
