"""An option of `export` that would change nothing is refused, whatever the target."""

from pathlib import Path

import click
import pytest

from agentlite.cli.commands.export import ONLY_FOR
from agentlite.cli.main import group
from agentlite.core.errors import UserError
from agentlite.deploy.export.targets import KINDS

VALUES = {"merge_base": "plain", "outtype": "bf16", "quantize": "Q4_K_M"}


def refusal(*words: str) -> UserError:
    """The error of an export. No model has this name, so there always is one."""
    with pytest.raises(UserError) as error:
        group.main(["export", "nowhere", *words], "agentlite", standalone_mode=False)
    return error.value


def test_a_file_of_gguf_is_made_with_or_without_ollama() -> None:
    taken = {kind: {key for key, kinds in ONLY_FOR.items() if kind in kinds} for kind in KINDS}
    merged, of_gguf = {"merge_base"}, {"merge_base", "outtype", "quantize"}
    assert taken == {"merged": merged, "adapter": set(), "gguf": of_gguf, "ollama": of_gguf}


@pytest.mark.parametrize("key", VALUES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_option_that_changes_nothing_is_refused(kind: str, key: str, tmp_path: Path) -> None:
    flag = f"--{key.replace('_', '-')}"
    error = refusal(f"--{kind}", str(tmp_path / "x"), flag, VALUES[key], "--run", str(tmp_path))
    assert (error.location == flag) == (kind not in ONLY_FOR[key])
    if error.location == flag:
        assert error.exit_code == 2 and f"what --{kind} writes" in error.problem
        assert all(f"--{one}" in error.problem for one in ONLY_FOR[key])
    assert not list(tmp_path.iterdir())


def test_no_file_replaces_a_folder_and_no_folder_a_file(tmp_path: Path) -> None:
    (tmp_path / "m").touch()
    assert "is a file" in refusal("--merged", str(tmp_path / "m"), "--force").problem
    assert "is a folder" in refusal("--gguf", str(tmp_path)).problem
    assert "is no name" in refusal("--merged", ".").problem


def test_the_short_help_names_every_target(capsys: pytest.CaptureFixture[str]) -> None:
    group.main(["export", "--help"], "agentlite", standalone_mode=False)
    text = capsys.readouterr().out
    assert all(f"--{kind}" in text for kind in KINDS)


def test_at_most_one_target_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no model 'nowhere'" in refusal().problem
    assert "--merged nowhere-merged" in capsys.readouterr().err
    named = [word for kind in KINDS for word in (f"--{kind}", str(tmp_path / kind))]
    for words in (named[:4], named):
        assert "--merged FOLDER" in refusal(*words).fix
    with pytest.raises(click.UsageError):
        group.main(["export"], "agentlite", standalone_mode=False)
