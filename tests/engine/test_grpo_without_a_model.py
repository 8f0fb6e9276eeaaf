"""GRPO without a model: its seeds, what is read again, and what was read has no part in figures."""

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.trainers import grpo

from agentlite.core.errors import OUT_OF_MEMORY, UserError
from agentlite.engine import grpo as grpo_trainer
from agentlite.engine.decoding import Decoding
from agentlite.engine.grpo import AnswerReward, GrpoTask, LearnedRow
from agentlite.engine.load import Loaded
from agentlite.engine.local_sampler import Sample, SampleRequest
from agentlite.engine.trainer import Schedule
from agentlite.workspace.model_source import Source


def task(**changes: Any) -> GrpoTask:
    of_answers: Any = lambda answers: [AnswerReward({"x": 1.0})] * len(answers)  # noqa: E731
    prompts = [[number] for number in range(6)]
    return GrpoTask(prompts, [()] * 6, of_answers, {}, Decoding(9), [])._replace(**changes)


def rolled_out(
    monkeypatch: pytest.MonkeyPatch, wanted: GrpoTask, prompts: list[str], **changes: Any
) -> dict[str, Any]:
    """A step of these prompts: the seeds, the rows that are read again, and by which top-p."""
    found: dict[str, Any] = {"seeds": [], "measured": defaultdict(list)}

    def draw(loaded: Any, requests: list[SampleRequest], *_: Any, **__: Any) -> list[Sample]:
        found["seeds"] += [seed for one in requests for seed in one.seeds]
        return [
            Sample(index, n, [*one.prompt, n], "", "turn", (-1.0, -3.0))
            for index, one in enumerate(requests)
            for n in range(len(one.seeds))
        ]

    def log_gap(run: Any, rows: list[LearnedRow], wanted: Any, top_p: float) -> None:
        found["again"], found["top_p"] = [[*row.ids] for row in rows], top_p

    monkeypatch.setattr(grpo_trainer, "draw", draw)
    monkeypatch.setattr(grpo_trainer, "_log_gap", log_gap)
    monkeypatch.setattr(grpo_trainer, "_engine", lambda *_: "an engine")
    settings = grpo(group_size=2, **changes)
    run: Any = SimpleNamespace(
        state=SimpleNamespace(global_step=0),
        model=None,
        accelerator=SimpleNamespace(unwrap_model=lambda model: model),
        _metrics={"train": found["measured"]},
    )
    each = [prompt for prompt in prompts for _ in range(2)]
    found["given"] = grpo_trainer._rollout(Loaded(None, None), settings, wanted)(each, run)
    return found


def test_another_seed_samples_every_answer_by_other_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = (
        rolled_out(monkeypatch, task(), ["1", "2"], seed=seed)["seeds"] for seed in (0, 1)
    )
    assert len(one) == 4 and not {*one} & {*other}


def test_one_answer_of_four_prompts_is_read_again_however_many_a_step_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = rolled_out(monkeypatch, task(), ["5", "3", "0", "4", "1", "2"])
    assert found["again"] == [[5, 0], [3, 0], [0, 0], [4, 0]]


@pytest.mark.parametrize(("vllm", "top_p"), [(False, 1.0), (True, 0.8)])
def test_only_what_vllm_drew_below_top_p_is_compared_with_the_tokens_that_reach_it(
    vllm: bool, top_p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rolled_out(monkeypatch, task(), ["0"], top_p=0.8, vllm=vllm)
    assert found["top_p"] == top_p
    assert found["given"]["logprobs"] == ([[-1.0, -3.0]] * 2 if vllm else None)


def test_what_a_model_has_read_is_no_surprise_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        LearnedRow([1], [2, 3, 4], [1, 0, 1], [-1.0, 0.0, -3.0], AnswerReward({})),
        LearnedRow([1], [2], [1], [-5.0], AnswerReward({})),
    ]
    wanted = task(live=lambda sample, groups, step: rows)
    found = rolled_out(monkeypatch, wanted, ["0"])
    assert found["measured"]["surprisal"] == [(1.0 + 3.0 + 5.0) / 3]
    assert found["given"]["env_mask"] == [[1, 0, 1], [1]]


def test_prompts_are_left_out_of_recorded_ones_alone() -> None:
    """Tasks that teach nothing are passed over as it is."""
    flat = [{"flat": 1.0}]
    recorded, live = (grpo_trainer.complaints(flat, live)[0] for live in (False, True))
    assert "--skip-solved" in recorded and "--skip-solved" not in live


def test_prompts_that_rest_give_their_places_to_those_that_are_awake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def awake(groups: Any, step: int) -> list[int]:
        asked.append((groups, step))
        return [4, 5]

    found = rolled_out(monkeypatch, task(awake=awake), ["1", "2"])
    assert asked == [([1, 2], 0)] and found["again"] == [[4, 0], [5, 0]]
    assert found["given"]["prompt_ids"] == [[4], [4], [5], [5]]


@pytest.mark.parametrize("live", [False, True])
def test_a_run_is_told_what_to_do_with_what_teaches_nothing(
    live: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def train(make: Any, folder: Path, plan: Any, watch: Any) -> dict[str, Any]:
        (folder / "metrics.jsonl").write_text("", encoding="utf-8")
        for step in range(1, 6):
            watch.at_step(step, {"flat": 1.0})
        return {}

    monkeypatch.setattr(grpo_trainer, "prepare", lambda loading: None)
    monkeypatch.setattr(grpo_trainer, "load", lambda *_, **__: None)
    monkeypatch.setattr(grpo_trainer.trainer, "train", train)
    wanted = task(live=lambda *_: []) if live else task()
    settings = grpo(beta=0.0, max_steps=9, max_flat_steps=0)
    grpo_trainer.train(None, settings, tmp_path, lambda loaded: wanted)  # type: ignore[arg-type]
    notice = capsys.readouterr().err
    assert "steps 1 to 5" in notice and ("--skip-solved" in notice) != live


@pytest.mark.parametrize("vllm", [False, True])
def test_with_vllm_smaller_micro_batches_wait_for_the_next_process(
    vllm: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second engine would find the memory of the first one in use."""
    loads: list[Any] = []
    made: list[Any] = []

    def train(make: Any, *_: Any) -> dict[str, Any]:
        make(Schedule(9, 4, 1))
        make(Schedule(9, 2, 2))  # the first ones did not fit
        (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward": 1.0}\n', encoding="utf-8")
        return {}

    monkeypatch.setattr(grpo_trainer, "prepare", lambda loading: None)
    monkeypatch.setattr(grpo_trainer, "_loading", lambda *_: None)
    monkeypatch.setattr(grpo_trainer, "load", lambda *_, **__: loads.append(len(loads)))
    monkeypatch.setattr(grpo_trainer, "make_trainer", lambda *given: made.append(given[-1]))
    monkeypatch.setattr(grpo_trainer.trainer, "train", train)
    source, settings = None, grpo(vllm=vllm)
    if not vllm:
        grpo_trainer.train(source, settings, tmp_path, lambda loaded: task())  # type: ignore[arg-type]
        assert made == [Schedule(9, 4, 1), Schedule(9, 2, 2)] and len(loads) == 2
        return
    with pytest.raises(UserError, match="vLLM holds what it has") as refused:
        grpo_trainer.train(source, settings, tmp_path, lambda loaded: task())  # type: ignore[arg-type]
    assert refused.value.exit_code == OUT_OF_MEMORY
    assert "micro-batches of 2" in refused.value.fix and len(loads) == 1


@pytest.mark.torch
@pytest.mark.parametrize("length", [5, 1100])
def test_gaps_are_of_sampled_tokens_and_of_a_long_row_of_the_last(length: int) -> None:
    import torch

    vocabulary, kept = 7, min(length, grpo_trainer.GAP_TOKENS)
    logits = torch.zeros(length + 3, vocabulary)

    class Model:
        device = "cpu"

        def __call__(self, *, logits_to_keep: int, **_: Any) -> Any:
            assert logits_to_keep == kept + 1
            return SimpleNamespace(logits=logits[None, -logits_to_keep:])

    likely = -torch.tensor(float(vocabulary)).log().item()
    mask = [place % 2 for place in range(length)]
    # the gap of each sampled token is its place, and what was read has none
    drawn = [likely - place if one else 0.0 for place, one in enumerate(mask)]
    row = LearnedRow([1, 2], [3] * length, mask, drawn, AnswerReward({}))
    found = grpo_trainer.sampler_gaps(Model(), [row], task())
    expected = [place for place in range(length - kept, length) if place % 2]
    assert found == pytest.approx(expected, abs=1e-3)


def test_what_an_adapter_has_learned_goes_on_being_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded to be read alone, its weights would be frozen."""
    asked: list[tuple[str, bool]] = []

    def load(source: Source, loading: Any, *, trainable: bool) -> Loaded:
        asked.append((source.name, trainable))
        raise ZeroDivisionError

    monkeypatch.setattr(grpo_trainer, "prepare", lambda *_: None)
    monkeypatch.setattr(grpo_trainer, "load", load)
    source = Source("sft", "base", tmp_path, "digest")
    with pytest.raises(ZeroDivisionError):
        grpo_trainer.train(source, grpo(), tmp_path, lambda _: task())
    assert asked == [("sft", True)]
