"""agentlite.core.reject_codes: every code that a row can get is explained."""

import re
from pathlib import Path

import pytest

import agentlite
from agentlite.core.errors import UserError
from agentlite.core.reject_codes import CODES, explain_code

SOURCES = sorted(Path(agentlite.__file__).parent.rglob("*.py"))


def test_every_code_that_the_package_names_is_explained_and_no_other() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    assert {*re.findall(r'"([EDF]\d{3})"', text)} == {*CODES}
    for code, known in CODES.items():
        assert explain_code(code) == f"{code}: {known.meaning}\n{known.hint}"


def test_explain_names_the_nearest_code() -> None:
    with pytest.raises(UserError, match="Did you mean 'E2"):
        explain_code("E266")
