"""What a function of the user's returns, as the child reads it."""

import asyncio

import pytest

from agentlite.scoring.rewards.user_functions import _value


@pytest.mark.parametrize(
    ("value", "problem"), [(0.5, ""), (1, ""), ("1", "returned '1', not a number from 0 to 1")]
)
def test_a_reward_that_is_awaited_is_the_one_that_it_gives(value, problem):
    async def rewarded(attempt):
        await asyncio.sleep(0)
        return value

    found, reason = _value(rewarded, None)
    assert reason == problem and found == (0.0 if problem else value)
