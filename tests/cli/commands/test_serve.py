"""serve: what it needs."""

import sys

import pytest

from agentlite.cli.commands.serve import ServeOptions, serve
from agentlite.core.errors import UserError


def test_the_extra_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(UserError, match=r"starlette.*\n.*pip install 'agentlite\[serve\]'"):
        serve(ServeOptions())
