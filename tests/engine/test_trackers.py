"""--report-to: a tracker follows the run as metrics.jsonl does, and none is asked by itself."""

import importlib.util
from typing import get_args

import pytest

from agentlite.config.settings import Tracker
from agentlite.core.errors import MODEL, UserError
from agentlite.engine.trainer import check_trackers


@pytest.mark.parametrize("name", get_args(Tracker))
def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_loaded(name, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one: None if one == name else find(one))
    with pytest.raises(UserError, match=f"pip install {name}") as refused:
        check_trackers([name])
    assert "setup.sh" not in refused.value.fix
    assert refused.value.exit_code == MODEL and refused.value.location == f"--report-to {name}"
    check_trackers([])
