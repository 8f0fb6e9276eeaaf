"""agentlite.environments.making.walk: what a walk holds, a fresh world returns again."""

import pytest

from agentlite.environments.making.walk import (
    MOST_READ,
    is_error,
)
from agentlite.environments.world import CallResult


@pytest.mark.parametrize(
    ("text", "failed", "error"),
    [
        ("fine", True, True),
        ("Error: no", False, True),
        ("No such file", False, True),
        ('{"error": "none left"}', False, True),
        ('{"error": null, "errors": [], "error_count": 0, "error_text": ""}', False, False),
        ('{"success": false}', False, True),
        ('{"success": true, "open": false}', False, False),
        ('{"name": "Stock not found"}', False, True),
        (f'{{"text": "{"a" * (MOST_READ - 8)} unknown"}}', False, True),
        (f'{{"text": "{"a" * MOST_READ} unknown"}}', False, False),
    ],
)
def test_a_call_has_failed_where_its_world_or_its_result_says_so(text, failed, error):
    assert bool(is_error(CallResult(text, failed=failed))) is error
