"""A wheel in an environment of its own, without extras: what works there, and what says what to
install.
"""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import pytest
from support.samples import DATA, ROOT

from agentlite.cli.main import COMMANDS
from agentlite.workspace.input_files import embedded_folder, load_template

HEAVY = {
    "torch",
    "transformers",
    "trl",
    "peft",
    "unsloth",
    "datasets",
    "accelerate",
    "pyarrow",
    "gguf",
}
SHAPE = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 49152,
}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not importlib.util.find_spec("uv"), reason="uv is not installed: pip install uv"
    ),
]


class Alone(NamedTuple):
    """The environment's programs, and a folder to work in that is far from the checkout."""

    wheel: Path
    bin: Path
    folder: Path

    def __call__(
        self, *arguments: str, code: int = 0, **more: str
    ) -> subprocess.CompletedProcess[str]:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "HF_HUB_OFFLINE": "1",
            "NO_COLOR": "1",
            "AGENTLITE_CACHE": str(self.folder / "cache"),
            **more,
        }
        run = subprocess.run(
            [str(self.bin / "agentlite"), *arguments],
            cwd=self.folder,
            env=environ,
            text=True,
            capture_output=True,
            timeout=60,
            input="Is it wet in Oslo?\n",
        )
        assert run.returncode == code, run.stderr
        assert "Traceback" not in run.stderr
        return run


def uv(*arguments: Any) -> subprocess.CompletedProcess[str]:
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    return subprocess.run(
        [sys.executable, "-m", "uv", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environ,
    )


def do(*arguments: Any) -> None:
    """Skips where the package registry cannot be reached."""
    if (done := uv(*arguments)).returncode == 0:
        return
    asked = uv(
        "pip",
        "install",
        "--dry-run",
        "--refresh",
        "--python",
        sys.executable,
        "--reinstall",
        "click",
    )
    if asked.returncode:
        pytest.skip(
            f"the package registry cannot be reached: {asked.stderr.strip().splitlines()[-1]}"
        )
    raise AssertionError(done.stderr)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """With the rows of tests/support/rows, and a model's folder that has a tokenizer and no weights
    to speak of.
    """
    made = tmp_path_factory.mktemp("wheel")
    do("build", "--quiet", "--wheel", "--out-dir", made / "dist", ROOT)
    (wheel,) = (made / "dist").glob("*.whl")
    do("venv", "--quiet", "--python", sys.executable, made / "venv")
    do("pip", "install", "--quiet", "--python", made / "venv" / "bin" / "python", wheel)
    folder = made / "work"
    (folder / "m").mkdir(parents=True)
    shutil.copyfile(DATA / "weather.jsonl", folder / "weather.jsonl")
    load_template("smollm2-135m")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(embedded_folder("smollm2-135m") / name, folder / "m" / name)
    (folder / "m" / "config.json").write_text(json.dumps(SHAPE))
    (folder / "m" / "model.safetensors").touch()
    ready = Alone(wheel, made / "venv" / "bin", folder)
    ready("prep", "weather.jsonl", "--model", "m", "--test", "0.4", "--dev", "0")
    return ready


def test_the_wheel_holds_every_file_of_the_package_and_the_settings(alone):
    inside = set(ZipFile(alone.wheel).namelist())
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "agentlite").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    configs = {
        f"agentlite/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "configs").rglob("*.*")
    }
    assert len(configs) > 10 and package | configs <= inside
    assert not [name for name in inside if name.startswith(("tests", "docs", "scripts"))]


def test_every_command_says_its_help(alone):
    listed = alone("--help").stdout
    for name in COMMANDS:
        assert alone(name, "--help").stdout.startswith("Usage: agentlite"), name
    assert len(listed.splitlines()) <= 60


def test_it_is_itself_and_brings_nothing_heavy(alone):
    assert alone("--version").stdout.startswith("agentlite, version ")
    listed = uv("pip", "list", "--format", "json", "--python", alone.bin / "python").stdout
    installed = {package["name"] for package in json.loads(listed)}
    assert "agentlite" in installed and not installed & HEAVY


def test_the_first_half_hour_begins_here(alone):
    alone("init", "weather")
    assert (
        len((alone.folder / "weather" / "data.jsonl").read_text(encoding="utf-8").splitlines())
        == 78
    )
    found = json.loads(alone("doctor", "--json").stdout)
    (packages,) = [one for one in found["findings"] if one["name"] == "packages"]
    assert packages["state"] == "warning" and "agentlite[train]" in packages["fix"]
    assert "prep" in alone("runs").stdout


def test_predictions_made_elsewhere_are_scored_and_drawn(alone):
    rows = [
        json.loads(line)
        for line in (alone.folder / "runs/default/prep/test.jsonl").read_text().splitlines()
    ]
    with open(alone.folder / "others.jsonl", "w", encoding="utf-8") as file:
        for row in rows:
            calls = next(
                (said["tool_calls"] for said in row["messages"] if said.get("tool_calls")), []
            )
            file.write(
                json.dumps({"id": row["id"], "calls": [call["function"] for call in calls]}) + "\n"
            )
    told = json.loads(alone("eval", "--predictions", "others.jsonl", "--json").stdout)
    assert told["figures"]["others"]["metrics"]["exact_call"]["mean"] == 1
    page = (alone.folder / "runs/default/report.html").read_text(encoding="utf-8")
    assert "others" in page and "</html>" in page and "<script" in page


@pytest.mark.parametrize(
    "command", ["sft", "grpo --model m", "eval --model m", "chat m", "export m --merged out"]
)
def test_what_needs_a_model_says_what_to_install_and_leaves_nothing(alone, command):
    before = sorted(alone.folder.rglob("*.json*"))
    run = alone(*command.split(), code=5)
    assert run.stdout == ""
    assert (
        "training or asking a model needs what is not installed: torch, transformers, "
        in run.stderr
    )
    install = f'Run `uv pip install --python {alone.bin}/python "agentlite[train]"`.\n'
    assert run.stderr.endswith(install) and len(run.stderr.splitlines()) == 2
    assert sorted(alone.folder.rglob("*.json*")) == before


def test_the_embedded_model_names_the_command_after_which_prep_works(alone, tmp_path):
    told = alone("prep", "weather.jsonl", "--out", "small", code=5).stderr
    (command,) = re.findall("Run `uv (.*)`", told)
    do(*shlex.split(command), "--quiet", "--target", tmp_path)
    alone("prep", "weather.jsonl", "--out", "small", PYTHONPATH=str(tmp_path))
    assert '"smollm2-135m"' in (alone.folder / "runs/default/small/plan.json").read_text()
