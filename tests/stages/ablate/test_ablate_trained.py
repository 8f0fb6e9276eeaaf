"""agentlite ablate with a model that is trained: its cells, and the table of them."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import processes
from support.samples import WEATHER_TOOL

import agentlite
from agentlite.core.errors import UserError
from agentlite.workspace.lookup import stages_in

GRID = """
weights: {default: {}, exact: {exact: 1, task_completion: 0}}
settings:
  dpo.beta: [0.05, 0.5]
  dpo.max_steps: 3
"""
TRAIN = {"batch_size": 2, "gradient_accumulation": 1, "learning_rate": 1e-2}
SHORT = {"max_new_tokens": 16, "max_length": 512}
FILES = {"pairs": {**SHORT, "gold": True, "margin": 0.0}, "dpo": TRAIN, "eval": SHORT}


def dialog(city: str) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    call = {"id": "a", "type": "function", "function": function}
    messages = [
        {"role": "user", "content": f"Is it wet in {city}?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    return {"messages": messages, "tools": [WEATHER_TOOL]}


@pytest.fixture(scope="module")
def prepared(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a grid, settings and a workspace: a prep of short dialogs, and candidates."""
    folder = tmp_path_factory.mktemp("home")
    cities = "Oslo Paris Rome Lyon Graz Bonn Bern Turin Kyiv Riga Cork Gent Nice Lille"
    rows = [json.dumps(dialog(city)) for city in cities.split()]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "grid.yaml").write_text(GRID, encoding="utf-8")
    (folder / "settings.yaml").write_text(json.dumps(FILES), encoding="utf-8")
    agentlite.prep(
        str(folder / "rows.jsonl"),
        run=str(folder / "run"),
        model=str(tiny_model),
        protocol="hermes",
        test=0.3,
        dev=0.2,
        split_by="query",
    )
    return folder


def in_the_warm_python(words: Sequence[str], caught: Sequence[int]) -> UserError | None:
    """As run_command, in a fork that has loaded torch."""
    done = processes.run(
        [sys.executable, "-m", "agentlite", *words, "--json"], capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr, done.stderr
    error = json.loads(done.stdout).get("error")
    return UserError(error["problem"], exit_code=done.returncode) if error else None


def ablate(folder: Path, **options: Any) -> Any:
    return agentlite.ablate(
        run=str(folder / "run"),
        grid=str(folder / "grid.yaml"),
        config=str(folder / "settings.yaml"),
        model=str(options.pop("model")),
        **options,
    )


def test_a_grid_is_trained_to_its_table(
    prepared: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentlite.stages.ablate.run_command", in_the_warm_python)
    folder, result = prepared, ablate(prepared, model=tiny_model)
    cells = result.figures["cells"]
    assert [cell["name"] for cell in cells] == [
        "default, beta=0.05",
        "default, beta=0.5",
        "exact, beta=0.05",
        "exact, beta=0.5",
    ]
    assert {cell["state"] for cell in cells} == {"done"}
    assert all(cell["figures"]["exact_call"]["count"] for cell in cells)
    made = [one.name for one in stages_in(folder / "run/ablate")]
    assert [name for name in made if not name.startswith("dpo")] == [
        "candidates",
        "pairs-default",
        "pairs-exact",
    ]
    assert all(cell["seconds"] for cell in cells)
    assert ablate(folder, model=tiny_model).status == "up to date"
    text = GRID.replace("0.05, 0.5", "0.05, 0.5, 0.1")
    (folder / "grid.yaml").write_text(text, encoding="utf-8")
    pairs = (folder / "run/ablate/pairs-exact/done.json").stat().st_mtime_ns
    grown = {cell["name"]: cell for cell in ablate(folder, model=tiny_model).figures["cells"]}
    assert len(grown) == 6
    assert [grown[cell["name"]]["figures"] for cell in cells] == [one["figures"] for one in cells]
    assert (folder / "run/ablate/pairs-exact/done.json").stat().st_mtime_ns == pairs


TALK = """
class Talk:
    def reset(self, prompt, **row):
        self.said = ""

    def next_user(self, words):
        self.said = words

    def get_reward(self):
        return sum(letter < "n" for letter in self.said) / max(1, len(self.said))
"""


def test_weights_are_tried_in_an_environment_without_a_prep(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentlite.stages.ablate.run_command", in_the_warm_python)
    (tmp_path / "talk.py").write_text(TALK, encoding="utf-8")
    tasks = [json.dumps({"prompt": f"Tell me of {fruit}."}) for fruit in ("figs", "pears")]
    (tmp_path / "tasks.jsonl").write_text("\n".join(tasks), encoding="utf-8")
    (tmp_path / "grid.yaml").write_text(
        "{by: grpo, weights: {usual: {}, calls: {env: 2, failed_calls: -1}, wrong: {envy: 1}}}"
    )
    world = {"env": f"{tmp_path / 'talk.py'}:Talk", "tasks": str(tmp_path / "tasks.jsonl")}
    world |= {"call_seconds": 60.0, "max_new_tokens": 8, "max_length": 512}
    train = {"group_size": 2, "gradient_accumulation": 1, "max_steps": 1, "dev": 0.0, "test": 0.0}
    settings = {"grpo": {**world, **train}, "eval": {**world, "split": "all"}}
    (tmp_path / "settings.yaml").write_text(json.dumps(settings), encoding="utf-8")
    result = ablate(tmp_path, model=tiny_model)
    usual, calls, wrong = result.figures["cells"]
    assert result.figures["metric"] == "env" and usual["figures"]["env"]["count"] == 2
    assert calls["differs"] == "weights env=2,failed_calls=-1" and calls["differences"]["env"]
    assert wrong["state"] == "failed" and "envy" in wrong["note"]
    with pytest.raises(UserError, match="no metric 'exact'"):
        ablate(tmp_path, model=tiny_model, metric="exact", out="other")
    (tmp_path / "talk.py").write_text(f"{TALK}# another", encoding="utf-8")
    with pytest.raises(UserError, match=r"input eval\.env"):
        ablate(tmp_path, model=tiny_model)
