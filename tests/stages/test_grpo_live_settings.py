"""`grpo --env` before a model is loaded: what goes together, and what the first worlds say."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.config.settings import GrpoSettings
from agentlite.core.errors import UserError
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import WorldError
from agentlite.stages.grpo_live import _score_names


def acting(
    lost: int, scores: dict[str, float], state: str | None = "s", states: bool = False
) -> Any:
    """Seven tasks; the worlds of the first so many cannot be built."""

    class World:
        def reset(self, row: dict[str, Any]) -> None:
            if row["number"] < lost:
                raise WorldError(f"no world {row['number']}")

        def scores(self) -> dict[str, float]:
            return scores

        def state(self) -> str | None:
            return state

    @contextmanager
    def world(limits: Any) -> Any:
        yield World()

    tasks = [EnvironmentTask(f"t{number}", (), {"number": number}) for number in range(7)]
    setup = SimpleNamespace(environment=SimpleNamespace(world=world), limits=None, states=states)
    return SimpleNamespace(tasks=tasks, setup=setup)


SETTINGS = GrpoSettings(env="shop.py:Shop")


def test_a_reward_of_the_user_stands_in_for_scores_of_a_world() -> None:
    with pytest.raises(UserError, match="no score"):
        _score_names(SETTINGS, acting(0, {}))
    own = GrpoSettings(env="shop.py:Shop", rewards=("own.py:f",))
    assert _score_names(own, acting(0, {})) == []


def test_a_state_is_needed_only_where_turns_are_compared_by_it() -> None:
    assert _score_names(SETTINGS, acting(0, {"env": 0.0}, None)) == ["env"]
    with pytest.raises(UserError, match="no state"):
        _score_names(SETTINGS, acting(0, {"env": 0.0}, None, states=True))
