"""Rollouts of a training step: a step that is taken again is the same, and rows have one width."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.shop import shop, tasks

from agentlite.config.settings import GrpoSettings
from agentlite.core.row_files import read_rows
from agentlite.engine.grpo import LearnedRow
from agentlite.engine.local_sampler import Sample
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.environments.tasks import TASKS as TASKS_FILE
from agentlite.stages.grpo_tasks import TaskSampling, _align_prompts
from agentlite.workspace.lookup import RunTarget


@pytest.fixture
def acting(tmp_path):
    environment = shop(tmp_path, tasks()[:2])
    return GrpoSettings(
        env=f"{environment.files['env']}:Shop",
        tasks=str(environment.files["tasks"]),
        model="smollm2-135m",
        dev=0.0,
        test=0.0,
        batch_size=2,
        gradient_accumulation=2,
        group_size=2,
        call_seconds=60.0,
        max_failures=1.0,
    )


def opened(folder, acting, **changes):
    folder.mkdir(exist_ok=True)
    sampling = TaskSampling(replace(acting, **changes), RunTarget(folder.parent, folder.name))
    sampling.scorer = RolloutScorer(sampling.agent.tasks, {})
    sampling.weights = {"env": 1.0}
    return sampling


def live(folder, acting, steps, template):
    ids = (*template.encode("I see.", []), template.token_id(template.turn_end))

    def sample(requests, decoding):
        return [
            Sample(place, number, ids, "I see.", "turn", (-0.1,) * len(ids))
            for place, request in enumerate(requests)
            for number in range(len(request.seeds))
        ]

    with opened(folder, acting) as rollouts:
        return [rollouts.sample(sample, [0, 1], step) for step in range(steps)]


@pytest.mark.long
def test_a_step_that_is_taken_again_is_the_same(tmp_path, acting, smollm2):
    (folder := tmp_path / "grpo").mkdir()
    first = live(folder, acting, 2, smollm2)
    whole = (folder / "trajectories.jsonl").read_bytes()
    assert [row["sample"] for row in read_rows(folder / "trajectories.jsonl")] == [*range(8)]
    assert live(folder, acting, 2, smollm2) == first
    assert (folder / "trajectories.jsonl").read_bytes() == whole
    assert {path.name for path in folder.iterdir()} == {TASKS_FILE, "trajectories.jsonl"}


@st.composite
def steps(draw: st.DrawFn) -> list[LearnedRow]:
    """Rows with prompts of any length. Some are of rollouts without a turn, but never all."""
    lengths = st.tuples(st.integers(1, 40), st.integers(1, 40))
    rows = []
    for number, (before, after) in enumerate(draw(st.lists(lengths, min_size=1, max_size=6))):
        if number and draw(st.booleans()):
            rows.append(LearnedRow([0], [0], [0], [0.0], {}))
            continue
        ids = [1000 * number + place for place in range(after)]
        mask = [1, *draw(st.lists(st.integers(0, 1), min_size=after - 1, max_size=after - 1))]
        likely = [-0.5 * sampled * (place + 1) for place, sampled in enumerate(mask)]
        prompt = [-one for one in range(1, before + 1)]
        rows.append(LearnedRow(prompt, ids, mask, likely, {}))
    return draw(st.permutations(rows))


def learned(row: LearnedRow) -> list[tuple[int, float]]:
    """Each token with a part in the loss, and its log-probability."""
    columns = zip(row.ids, row.mask, row.log_probabilities, strict=True)
    return [(token, likely) for token, sampled, likely in columns if sampled]


@given(steps())
def test_a_batch_is_as_wide_as_its_longest_row_and_the_same_tokens_are_learned(rows):
    """TRL pads prompts and what follows apart: without this a batch may be twice as wide."""
    cut = _align_prompts(rows)
    assert len({len(row.prompt) for row in cut}) == 1
    width = max(len(row.prompt) for row in cut) + max(len(row.ids) for row in cut)
    assert width <= max(len(row.prompt) + len(row.ids) for row in rows)
    for before, after in zip(rows, cut, strict=True):
        assert learned(after) == learned(before)
        if any(before.mask):
            assert [*after.prompt, *after.ids] == [*before.prompt, *before.ids]
