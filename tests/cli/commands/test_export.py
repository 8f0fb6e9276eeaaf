"""An option of `export` that would change nothing is refused, whatever the target."""

from pathlib import Path
from typing import Any

import click
import pytest

from agentlite.cli.commands.export import COMMAND, GGUF_OPTIONS, ONLY_FOR, _next, _present
from agentlite.cli.main import group
from agentlite.cli.options import Option
from agentlite.core.errors import UserError
from agentlite.deploy.export.targets import KINDS

VALUES = {"llama_cpp": "nowhere", "outtype": "f16", "quantize": "Q4_K_M", "tools": "nowhere.json"}


def refusal(*words: str) -> UserError:
    """The error of an export. No model has this name, so there always is one."""
    with pytest.raises(UserError) as error:
        group.main(["export", "nowhere", *words], "agentlite", standalone_mode=False)
    return error.value


def test_every_option_of_some_targets_only_is_known() -> None:
    options = [one for one in COMMAND.params if isinstance(one, Option)]
    found = {one.name for one in options if one.section == GGUF_OPTIONS}
    assert found == ONLY_FOR.keys() == VALUES.keys()
    assert {kind for kinds in ONLY_FOR.values() for kind in kinds} <= KINDS.keys()


def test_a_file_of_gguf_is_made_with_or_without_ollama_and_only_ollama_is_given_tools() -> None:
    taken = {kind: {key for key, kinds in ONLY_FOR.items() if kind in kinds} for kind in KINDS}
    of_gguf = {"llama_cpp", "outtype", "quantize"}
    ollama = {*of_gguf, "tools"}
    assert taken == {"merged": set(), "adapter": set(), "gguf": of_gguf, "ollama": ollama}


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("merged", "agentlite serve 'x/a b'"),
        ("adapter", "less 'x/a b'/README.md"),
        ("gguf", "llama-server -m 'x/a b' --jinja"),
        ("ollama", "cd 'x/a b' && ollama create 'a b'"),
    ],
)
def test_the_next_command_uses_what_was_written(kind: str, command: str) -> None:
    assert _next(kind, Path("x/a b")) == command


@pytest.mark.parametrize("pushed", ["", "https://hub/me/model/commit/1"])
def test_an_export_is_shown_by_its_parts_and_large_files(capsys: Any, pushed: str) -> None:
    summary = {
        "target": "out",
        "lineage": ["base", "sft"],
        "weights": "16 bit.",
        "settings": {"protocol": "hermes"},
        "stops": ["<|im_end|>", "Observation:"],
        "proof": {"dialogs": 7, "renderers": ["jinja", "minijinja"]},
        "bytes": {"small": 99_999, "large": 100_000, "model": 2_560_000},
        "seconds": 12.6,
        "next": "agentlite serve out",
        **({"pushed": pushed} if pushed else {}),
    }
    _present(summary)
    head, *rows, last = capsys.readouterr().out.splitlines()
    cells = [" ".join(row.split()) for row in rows]
    assert (head, last) == ("export: done in 13 s, out", "next: agentlite serve out")
    assert cells == [
        "model base -> sft",
        "weights 16 bit",
        "protocol hermes",
        "answers end with <|im_end|> or Observation:",
        "template 7 dialogs as in training, by jinja, minijinja",
        "large 0.1 MB",
        "model 2.6 MB",
        *([f"uploaded: {pushed}"] if pushed else []),
    ]


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


def test_the_variable_of_llama_cpp_may_stay_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_CPP", "llama.cpp")
    assert refusal("--merged", str(tmp_path / "x")).location != "--llama-cpp"


def test_exactly_one_target_is_named(tmp_path: Path) -> None:
    named = [word for kind in KINDS for word in (f"--{kind}", str(tmp_path / kind))]
    for words in ([], named[:4], named):
        assert "--merged FOLDER" in refusal(*words).fix
    with pytest.raises(click.UsageError):
        group.main(["export"], "agentlite", standalone_mode=False)
