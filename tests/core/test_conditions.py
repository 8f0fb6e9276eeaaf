"""A condition on a figure is read as it was written, holds where it says, or is refused."""

import pytest

from agentlite.core.conditions import Condition, parse_condition
from agentlite.core.errors import UserError


@pytest.mark.parametrize(
    ("text", "condition", "holding", "failing"),
    [
        ("env>=1", Condition("env", ">=", 1.0), (1.0, 2.0), (0.999,)),
        (" forgetting <= 2% ", Condition("forgetting", "<=", 0.02), (0.02, -1.0), (0.021,)),
        ("pass^4>.5", Condition("pass^4", ">", 0.5), (0.51,), (0.5,)),
        ("mrr>=0.12345", Condition("mrr", ">=", 0.12345), (0.12345,), (0.12344,)),
        ("turns<-1e-3", Condition("turns", "<", -0.001), (-0.002,), (-0.001, 0.0)),
    ],
)
def test_a_condition_holds_where_it_says(text, condition, holding, failing):
    read = parse_condition(text, "--gate", "env>=1")
    assert read == condition
    assert all(map(read.holds, holding)) and not any(map(read.holds, failing))
    assert parse_condition(str(read), "--gate", "env>=1") == read


@pytest.mark.parametrize(
    "text", ["", "env", "env=1", "env>=", "env>=one", ">=1", "env>=1 2", "١>=1"]
)
def test_a_text_that_is_not_a_condition_is_refused_with_an_example(text):
    with pytest.raises(UserError, match="is not a condition") as found:
        parse_condition(text, "--keep", "--keep 'env>=1'")
    assert (found.value.location, found.value.exit_code) == ("--keep", 2)
    assert "--keep 'env>=1'" in found.value.fix
