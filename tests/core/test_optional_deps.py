"""A package that is not installed is named as pip names it, with a command for this machine."""

import pytest

from agentlite.core import optional_deps
from agentlite.core.errors import MODEL, UserError
from agentlite.core.optional_deps import need


@pytest.mark.parametrize("in_set", [True, False])
@pytest.mark.parametrize("checkout", [True, False])
def test_all_that_is_missing_is_named_with_what_installs_it(
    tmp_path, monkeypatch, checkout, in_set
):
    setup = tmp_path / "scripts" / "setup.sh"
    if checkout:
        setup.parent.mkdir()
        setup.touch()
    monkeypatch.setattr(optional_deps, "SETUP", setup)
    need("that", ["json", "pathlib"], "pip install x")
    with pytest.raises(UserError) as refused:
        need("that", ["json", "no_such_a", "no_such_b"], "pip install x", "--model", in_set)
    assert refused.value.problem == "that needs what is not installed: no-such-a, no-such-b."
    assert (refused.value.location, refused.value.exit_code) == ("--model", MODEL)
    assert "`pip install x`" in refused.value.fix
    assert ("`bash scripts/setup.sh`" in refused.value.fix) is (checkout and in_set)
