"""`grpo --env` before a model is loaded: what goes together, and what the first worlds say."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.config.settings import GrpoSettings
from agentlite.core.errors import REJECTS, UserError
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import WorldError
from agentlite.stages.grpo_live import _refuse_options, _score_names


@pytest.mark.parametrize("credit", ["trajectory", "turn", "state"])
@pytest.mark.parametrize("scale", ["group", "batch", "none", "component"])
def test_only_turns_that_are_compared_need_their_own_group(credit: Any, scale: Any) -> None:
    settings = GrpoSettings(env="shop.py:Shop", credit=credit, scale_rewards=scale)
    if credit == "trajectory" or scale in ("group", "none"):
        _refuse_options(settings)
        return
    with pytest.raises(UserError) as refused:
        _refuse_options(settings)
    assert refused.value.location == "--scale-rewards"


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


def test_where_five_worlds_are_lost_the_first_is_named() -> None:
    with pytest.raises(UserError, match="task t0 is lost: no world 0") as refused:
        _score_names(SETTINGS, acting(5, {"env": 0.0}))
    assert refused.value.exit_code == REJECTS and refused.value.location == "shop.py:Shop"


def test_a_reward_of_the_user_stands_in_for_scores_of_a_world() -> None:
    with pytest.raises(UserError, match="no score"):
        _score_names(SETTINGS, acting(0, {}))
    own = GrpoSettings(env="shop.py:Shop", rewards=("own.py:f",))
    assert _score_names(own, acting(0, {})) == []


def test_a_state_is_needed_only_where_turns_are_compared_by_it() -> None:
    assert _score_names(SETTINGS, acting(0, {"env": 0.0}, None)) == ["env"]
    with pytest.raises(UserError, match="no state"):
        _score_names(SETTINGS, acting(0, {"env": 0.0}, None, states=True))
