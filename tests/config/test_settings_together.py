"""Settings that mean something together: rows in memory at once, answers that are learned from."""

from typing import Any

import pytest

from agentlite.config.settings import (
    DistillSettings,
    DpoSettings,
    GrpoSettings,
    InMemory,
    PairsSettings,
    RolloutSettings,
)


@pytest.mark.parametrize("batch_size", [3, 5])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (DpoSettings(loss_type="kto"), {"rows": 1, "reference": True}),
        (DpoSettings(loss_type="kto", reference_free=True), {"rows": 1}),
        (DpoSettings(loss_type="ipo"), {"rows": 2, "reference": True}),
        (DpoSettings(loss_type="simpo"), {"rows": 2}),
        (DpoSettings(loss_type="orpo"), {"rows": 2}),
        # rollouts share no prompt, whatever the size of a group
        (
            GrpoSettings(env="x", gradient_accumulation=4, group_size=2),
            {"rows": 1, "reference": True, "prompts": 4, "samples": 1},
        ),
        (
            GrpoSettings(gradient_accumulation=6, group_size=3),
            {"rows": 1, "reference": True, "prompts": 2, "samples": 3},
        ),
        (DistillSettings(gradient_accumulation=6), {"rows": 1, "prompts": 6, "samples": 1}),
        (DistillSettings(gradient_accumulation=6, lmbda=0), {"rows": 1}),
        (RolloutSettings(), {"prompts": 1, "samples": 1}),
        (RolloutSettings(num_samples=4), {"prompts": 1, "samples": 1}),
        (PairsSettings(num_samples=7), {"prompts": 1, "samples": 7}),
    ],
)
def test_what_is_in_memory_grows_with_the_batch(settings, expected, batch_size):
    """`expected`: of a batch of one."""
    from msgspec.structs import replace

    counts: dict[str, Any] = {
        name: count * batch_size if name in ("rows", "prompts") else count
        for name, count in expected.items()
    }
    assert replace(settings, batch_size=batch_size).in_memory(True) == InMemory(**counts)


@pytest.mark.parametrize(
    ("given", "uses_records", "samples"),
    [
        ({}, False, True),
        ({"lmbda": 0.5}, True, True),
        ({"lmbda": 0}, True, False),
        ({"lmbda": 0, "fade": 0.1}, True, True),
        ({"lmbda": 0, "off_policy": "teacher"}, False, True),
        ({"lmbda": 0.5, "off_policy": "teacher"}, False, True),
    ],
)
def test_the_answers_that_a_student_learns_from_are_recorded_or_sampled(
    given, uses_records, samples
):
    settings = DistillSettings(**given)
    assert (settings.uses_records, settings.samples) == (uses_records, samples)


@pytest.mark.parametrize(
    ("given", "epochs"),
    [
        ({}, 0.0),
        ({"env": "x"}, 2.0),
        ({"rest_epochs": 3.0}, 3.0),
        ({"rest_epochs": 0.0, "env": "x"}, 0.0),
    ],
)
def test_a_prompt_rests_by_default_only_in_an_environment(given, epochs):
    assert GrpoSettings(**given).rested_epochs == epochs


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        ({}, 1),
        ({"ppo_epochs": 3}, 1),
        ({"ppo_epochs": 3, "advantage": "value"}, 3),
    ],
)
def test_how_often_an_answer_is_learned_from(given, passes):
    settings = GrpoSettings(**given)
    assert settings.passes == passes
