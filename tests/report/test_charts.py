"""Where the curves and intervals of a page are drawn."""

import pytest

from agentlite.report.charts import scale


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
