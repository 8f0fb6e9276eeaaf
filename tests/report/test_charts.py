"""Where the curves and intervals of a page are drawn."""

import pytest

from agentlite.report.charts import charts, scale


@pytest.mark.parametrize(
    ("figures", "ends"),
    [
        ([{"mean": 0.5, "low": 0.4, "high": 0.6}], (0.0, 1.0)),
        ([{"mean": 0.5}, {"mean": 1.0}], (0.0, 1.0)),
        ([{"mean": 0.5, "low": -0.1, "high": 0.6}], (-0.1, 0.6)),
        ([{"mean": 2.0, "low": 1.5, "high": 2.5}], (0.0, 2.5)),
        ([{"mean": -0.01}], (-0.01, 0.05)),
    ],
)
def test_a_scale_is_0_to_1_or_holds_every_interval_and_0(figures, ends):
    assert scale(figures) == ends


def test_components_of_a_reward_stand_on_one_scale_from_0_to_1_or_higher():
    rows = [{"step": 1, "reward/a": 0.25, "reward/b": 0.5}]
    _, components = charts(rows)
    assert [(one.lines[0].name, one.low, one.high) for one in components] == [
        ("a", 0.0, 1.0),
        ("b", 0.0, 1.0),
    ]
    _, components = charts([*rows, {"step": 2, "reward/b": 2.5, "reward/a": -1.0}])
    assert {(one.low, one.high) for one in components} == {(0.0, 2.5)}
