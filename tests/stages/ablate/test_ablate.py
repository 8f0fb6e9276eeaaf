"""agentlite ablate: what cells share is run once, what fails is a row, and nothing is run twice;
with commands that leave the files of a stage without a model.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import agentlite
from agentlite.core.errors import DISK, DIVERGED, LOCKED, OTHER_PLAN, UserError
from agentlite.core.records import (
    Call,
    Gold,
    GoldCall,
    Message,
    Parsed,
    Prediction,
    PreferencePair,
    Record,
    Side,
    Tool,
)
from agentlite.core.row_files import read_structs, write_json, write_rows
from agentlite.scoring.metrics.dialogs import dialogs
from agentlite.scoring.metrics.step_metrics import score_step
from agentlite.scoring.metrics.summarize import figures
from agentlite.scoring.predictions import to_prediction_row
from agentlite.workspace import lookup, stage_folder

TOOL = Tool("get_weather", "Weather.", {"type": "object", "properties": {}})
STEPS = 40  # of a whole training


def option(words: Sequence[str], name: str, otherwise: str = "") -> str:
    """The last one counts, as on the command line."""
    return next((words[i + 1] for i in range(len(words) - 2, 0, -1) if words[i] == name), otherwise)


def pair_by(weights: Mapping[str, float]) -> dict[str, Any]:
    """A pair that every weight decides but `timing_quality`, by which only its total differs."""
    text = json.dumps({name: weights[name] for name in weights if name != "timing_quality"})
    chosen = Side(text, "turn", "sft", 0, weights.get("timing_quality", 1.0))
    rejected = Side("other", "turn", "sft", 1, 0.0)
    return msgspec.to_builtins(PreferencePair("r", 1, "hermes", chosen, rejected))


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    pairs = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    return {name: json.loads(value) for name, _, value in (text.partition("=") for text in pairs)}


class Commands:
    """In place of `run_command`: each command leaves plan.json and done.json, and what the next one
    reads; one that has ended is up to date, or was made with other settings. `skill`: how many of
    100 questions a cell with such settings answers rightly.
    """

    def __init__(self, run: Path):
        self.run, self.ran = run, list[list[str]]()
        self.made: dict[str, object] = {}
        self.fails: dict[str, tuple[int, str]] = {}
        self.stops_at: int | None = None
        self.skill = lambda settings, split, steps: 50

    def __call__(self, words: Sequence[str], caught: Sequence[int]) -> UserError | None:
        words = list(words)
        workspace = Path(option(words, "--run"))
        read = [workspace / option(words, name) for name in ("--from", "--data") if name in words]
        assert all(map(lookup.is_finished, read)), words
        folder = workspace / option(words, "--out")
        given = [word for word in words if word != "--force"]
        read.append(workspace / option(words, "--model"))
        asked = [given, [lookup.read_stage(one).outputs for one in read]]
        key = f"{folder} {option(words, '--model') * (words[0] == 'eval')}"
        if key in self.made and "--force" not in words:
            same = self.made[key] == asked
            return None if same else UserError("was made otherwise.", exit_code=OTHER_PLAN)
        if self.stops_at is not None and len(self.ran) == self.stops_at:
            raise KeyboardInterrupt
        self.ran.append(words)
        for part, (code, problem) in self.fails.items():
            if part in " ".join(words):
                return UserError(problem, exit_code=code)
        getattr(self, words[0])(words, folder)
        self.made[key] = asked
        return None

    def count(self, command: str) -> int:
        return sum(words[0] == command for words in self.ran)

    def pairs(self, words: list[str], folder: Path) -> None:
        sampled = "--from" not in words
        weights = settings_of(words).get("pairs.weights", {})
        others = {key: value for key, value in settings_of(words).items() if "weights" not in key}
        rows = {"pairs.jsonl": [pair_by(weights)], "records.jsonl": [others]}
        if sampled:
            rows |= {"candidates.jsonl": [{}], "scores.jsonl": [{}]}
        stage(folder, "pairs", {"model": option(words, "--model")}, rows, {"pairs": 30})

    def train(self, words: list[str], folder: Path) -> None:
        cell = {**settings_of(words), "pairs": self._pairs(words)}
        figures = {"steps": STEPS, "gpu_gib": 9.5}
        stage(folder, words[0], cell, {"metrics.jsonl": [{"step": 1, **cell}]}, figures)
        (folder / "checkpoints").mkdir()

    sft = dpo = grpo = train

    def _pairs(self, words: list[str]) -> Any:
        folder = Path(option(words, "--run")) / option(words, "--data")
        path = folder / "pairs.jsonl"
        pairs = [*read_structs(path, PreferencePair)] if path.exists() else []
        return json.loads(pairs[0].chosen.text) if pairs else {}

    def eval(self, words: list[str], folder: Path) -> None:
        model, split = option(words, "--model"), option(words, "--split", "test")
        trained = Path(option(words, "--run")) / model
        cell = lookup.read_plan(trained).settings
        right = self.skill(cell, split, cell.get("dpo.max_steps"))
        evaluate(folder / "prep" / trained.name, model, right)


def stage(
    folder: Path,
    command: str,
    settings: Mapping[str, Any],
    files: Mapping[str, Sequence[Any]],
    found: Mapping[str, Any],
) -> None:
    plan = lookup.Plan(command, dict(settings), {}, {})
    with stage_folder.open_stage(folder, plan, force=True) as held:
        for name, rows in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            write_rows(folder / name, rows)
        held.finish(files, dict(found))


RECORDS = [
    Record(
        messages=(
            Message("user", f"Is it wet in town {number}?"),
            Message("assistant", calls=(Call("get_weather", {}),)),
        ),
        tools=(TOOL,),
    )
    for number in range(100)
]


def evaluate(folder: Path, model: str, right: int) -> None:
    """An evaluation in which the first so many of 100 questions are answered rightly."""
    said = []
    for number, record in enumerate(RECORDS):
        calls = (Call("get_weather", {}),) if number < right else ()
        parsed = Parsed("", calls, "")
        gold = Gold((GoldCall("get_weather", {}),))
        metrics = {**score_step(parsed, gold, record.tools), "expected": 1.0}
        said.append(Prediction(record.id, 1, "", "", calls, metrics, {"tools": "1"}))
    every = {record.id: record for record in RECORDS}
    whole = dialogs(said, every)
    with stage_folder.open_stage(
        folder, lookup.Plan("eval", {"model": model}, {}, {}), force=True
    ) as held:
        write_rows(folder / "predictions.jsonl", map(to_prediction_row, said))
        write_rows(folder / "dialogs.jsonl", (one._asdict() for one in whole))
        write_json(folder / "metrics.json", figures(said, whole, every, 0))
        held.finish(["predictions.jsonl", "dialogs.jsonl", "metrics.json"], {})


GRID = """
by: dpo
weights:
  default: {}
  no-efficiency: {efficiency: 0}
settings:
  dpo.beta: [0.05, 0.1]
"""
NAMES = [
    f"{weights}, beta={beta}" for weights in ("default", "no-efficiency") for beta in (0.05, 0.1)
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A workspace with a prep and a model, and a grid of two weightings and two betas."""
    run = tmp_path / "runs/home"
    splits = {f"{split}.jsonl": [{}] for split in ("train", "dev", "test")}
    settings = {"model": "smollm2-135m", "protocol": "hermes", "sources": ["dialogs.jsonl"]}
    stage(run / "prep", "prep", settings, splits, {"kept": 3})
    weights = {"model/weights.jsonl": [{}]}
    stage(run / "sft", "sft", {"model": "smollm2-135m"}, weights, {})
    (tmp_path / "grid.yaml").write_text(GRID, encoding="utf-8")
    return run


@pytest.fixture
def ran(run: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    replaced = Commands(run)
    monkeypatch.setattr("agentlite.stages.ablate.run_command", replaced)
    return replaced


def ablate(run: Path, **options: Any) -> Any:
    given = {"grid": str(run.parents[1] / "grid.yaml"), **options}
    return agentlite.ablate(run=str(run), **given)


def regrid(run: Path, text: str) -> None:
    (run.parents[1] / "grid.yaml").write_text(text, encoding="utf-8")


def table(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "ablate/table.json").read_bytes()))


def untimed(run: Path) -> list[dict[str, Any]]:
    return [{**cell, "seconds": 0} for cell in table(run)["cells"]]


def cells(run: Path) -> dict[str, Any]:
    return {cell["name"]: cell for cell in table(run)["cells"]}


@pytest.mark.long
def test_every_cell_is_compared_with_the_first(run: Path, ran: Commands) -> None:
    ran.skill = lambda cell, *_: 80 if cell.get("dpo.beta") == 0.1 else 50
    result = ablate(run)
    first, *others = result.figures["cells"]
    assert [cell["name"] for cell in result.figures["cells"]] == NAMES
    assert [cell["differs"] for cell in others] == [
        "beta=0.1",
        "weights efficiency=0",
        "weights efficiency=0, beta=0.1",
    ]
    assert not first["differences"] and first["figures"]["exact_call"]["mean"] == 0.5
    assert [cell["gib"] for cell in (first, *others)] == [9.5] * 4
    gained = [cell["differences"]["exact_call"]["mean"] for cell in others]
    assert gained == pytest.approx([0.3, 0.0, 0.3])
    assert result.status == "done" and "default, beta=0.1 (+30.0 points" in result.sentences[0]
    assert result.figures["start"]["name"] == "sft (start)"


@pytest.mark.long
def test_candidates_are_sampled_once_and_pairs_ranked_once_for_each_weighting(
    run: Path, ran: Commands
) -> None:
    ablate(run)
    assert [option(words, "--from") for words in ran.ran if words[0] == "pairs"] == [
        "",
        "candidates",
        "candidates",
    ]
    assert ran.count("dpo") == 4 and ran.count("eval") == 5  # the model before is asked once
    assert not list((run / "ablate").glob("*/checkpoints"))


@pytest.mark.long
@pytest.mark.parametrize("after", range(0, 12, 3))
def test_a_run_that_was_stopped_ends_with_the_same_table(
    run: Path, ran: Commands, after: int
) -> None:
    whole = shutil.copytree(run, run.with_name("whole"))
    ran.run = whole
    ablate(whole)
    ran.run, ran.stops_at = run, len(ran.ran) + after
    with pytest.raises(KeyboardInterrupt):
        ablate(run)
    ran.stops_at, before = None, len(ran.ran)
    ablate(run)
    assert untimed(run) == untimed(whole)
    assert len(ran.ran) - before == 12 - after  # nothing that had ended was run again


@pytest.mark.long
def test_a_cell_that_fails_is_a_row_with_its_reason_and_its_command(
    run: Path, ran: Commands
) -> None:
    ran.fails = {"--out dpo-default-beta=0.1": (DIVERGED, "loss is not a finite number.")}
    result = ablate(run)
    failed = cells(run)["default, beta=0.1"]
    assert (failed["state"], failed["note"]) == ("failed", "loss is not a finite number.")
    assert failed["command"].startswith("agentlite dpo ") and "dpo.beta=0.1" in failed["command"]
    assert [cell["state"] for cell in cells(run).values()] == ["done", "failed", "done", "done"]
    assert "1 cell failed." in result.sentences
    count = len(ran.ran)
    ran.fails = {}
    assert ablate(run).status == "done"
    assert len(ran.ran) == count + 2  # its dpo and its eval
    assert cells(run)["default, beta=0.1"]["state"] == "done"
    assert ablate(run).status == "up to date" and len(ran.ran) == count + 2


@pytest.mark.parametrize(
    ("part", "code"), [("pairs", 8), ("--model ../sft", 2), ("dpo", DISK), ("dpo", LOCKED)]
)
def test_what_fails_all_cells_or_the_machine_ends_the_run(
    run: Path, ran: Commands, part: str, code: int
) -> None:
    ran.fails = {part: (code, "is broken.")}
    with pytest.raises(UserError, match=r"is broken\.") as caught:
        ablate(run)
    assert caught.value.exit_code == code and caught.value.location.startswith("agentlite ")
    assert len(ran.ran) <= 4 and not lookup.is_finished(run / "ablate")


@pytest.mark.long
def test_a_cell_that_is_added_is_run_alone(run: Path, ran: Commands) -> None:
    ablate(run)
    count = len(ran.ran)
    regrid(run, GRID.replace("0.1]", "0.1, 0.2]"))
    assert ablate(run).status == "done"
    assert [words[0] for words in ran.ran[count:]] == ["dpo", "eval"] * 2


@pytest.mark.long
def test_what_follows_a_stage_that_was_made_again_is_made_again(run: Path, ran: Commands) -> None:
    ablate(run)
    count = len(ran.ran)
    regrid(run, GRID.replace("efficiency: 0", "efficiency: 0.4"))
    ablate(run)
    assert [words[0] for words in ran.ran[count:]] == ["pairs", "dpo", "eval", "dpo", "eval"]


def test_a_dry_run_lists_the_cells_and_writes_nothing(run: Path, ran: Commands) -> None:
    result = ablate(run, dry_run=True)
    assert [*result.figures["cells"]] == NAMES
    assert not ran.ran and not (run / "ablate").exists()


@pytest.mark.long
def test_settings_for_all_cells_are_passed_on_and_are_part_of_the_plan(
    run: Path, ran: Commands
) -> None:
    ablate(run, set="dpo.max_steps=7")
    assert all("dpo.max_steps=7" in words for words in ran.ran)
    with pytest.raises(UserError, match=r"dpo\.max_steps 7 -> 8"):
        ablate(run, set="dpo.max_steps=8")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("by: dpo\nsettings: {dpo.beta: [0.1, none]}", "does not fit"),
        ("by: dpo\nsettings: {dpo.betta: [0.1, 0.2]}", "Did you mean"),
        ("by: dpo\nsettings: {sft.lora_r: [8, 16]}", "a cell of dpo runs no sft"),
        ("by: dpo\nsettings: {dpo.data: [a, b]}", "is the same for all cells"),
        ("by: grpo\nweights: {a: {}}\nsettings: {grpo.weights: [{}]}", "is the same for all cells"),
        ("by: dpo\nsettings: {dpo.beta: [0.1]}", "is one cell"),
        ("by: dpo\nsettings: {dpo.beta: [0.1, 0.1]}", "is one cell"),
        ("weights: {a b: {}, a-b: {exact: 1}}", "two cells would be called"),
        ("by: eval\nsettings: {dpo.beta: [0.1, 0.2]}", "'eval' trains no model"),
        ("by: sft\nweights: {a: {}, b: {exact: 1}}", "a cell of sft runs no pairs"),
        ("weights: {a: {}, b: {efficiencie: 1}}", "no component 'efficiencie'"),
        ("weights: {a: {}, b: {exact: 1}}\nseting: {}\nsettings: {}", "unknown field `seting`"),
        ("settings: {dpo.beta: []}", "nothing to compare"),
    ],
)
def test_a_mistake_in_the_grid_is_found_before_anything_is_run(
    run: Path, ran: Commands, text: str, problem: str
) -> None:
    regrid(run, text)
    with pytest.raises(UserError) as caught:
        ablate(run)
    assert problem in str(caught.value)
    assert not ran.ran and not (run / "ablate").exists()


@pytest.mark.long
def test_weights_go_to_a_stage_with_rewards_of_its_own(run: Path, ran: Commands) -> None:
    regrid(run, "weights: {default: {}, exact: {exact: 1}}")
    ablate(run, by="grpo")
    assert not ran.count("pairs") and ran.count("grpo") == 2
    assert [settings_of(words) for words in ran.ran if words[0] == "grpo"] == [
        {"grpo.weights": {}},
        {"grpo.weights": {"exact": 1.0}},
    ]


def test_the_report_has_the_table(run: Path, ran: Commands) -> None:
    ran.skill = lambda cell, *_: 80 if cell.get("dpo.beta") == 0.1 else 50
    ran.fails = {"--out dpo-no-efficiency-beta=0.05": (DIVERGED, "loss <b>is</b> not a number.")}
    ablate(run)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Better than default, beta=0.05 beyond noise" in page
    assert "+30.0 [" in page and "beyond noise" in page
    assert "dpo.beta=0.05" in page  # the command of the cell that failed
    assert "<b>is</b>" not in page and '<section id="ablation">' in page
