"""agentlite ablate: what is equal is run once, what fails is a row, and nothing is run twice; with
commands that leave the files of a stage without a model.
"""

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import agentlite
from agentlite.core.errors import DISK, DIVERGED, GATE, UserError
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
from agentlite.core.row_files import write_json, write_rows
from agentlite.scoring.metrics.dialogs import dialogs
from agentlite.scoring.metrics.measure_predictions import figures
from agentlite.scoring.metrics.tool_calls import score_step
from agentlite.scoring.predictions import to_prediction_row
from agentlite.scoring.preference_pairs import read_pairs
from agentlite.stages import ablate as stages_ablate
from agentlite.stages.ablate import commands
from agentlite.stages.ablate.commands import CommandRun, EndedCommand
from agentlite.stages.ablate.estimate import expected
from agentlite.workspace import run_folder
from agentlite.workspace.run_folder import Result, RunTarget

TOOL = Tool("get_weather", "Weather.", {"type": "object", "properties": {}})
STEPS = 40  # of a whole training


def option(words: Sequence[str], name: str, otherwise: str = "") -> str:
    """The last one counts, as on the command line."""
    return next((words[i + 1] for i in range(len(words) - 2, 0, -1) if words[i] == name), otherwise)


def pair_by(weights: Mapping[str, float]) -> dict[str, Any]:
    """A pair that every weight decides but `timing_quality`, by which only its total differs."""
    texts = (
        json.dumps({name: weights[name] for name in weights if name != "timing_quality"}),
        "other",
    )
    sides = [
        Side(text, "turn", "sft", number, total)
        for number, (text, total) in enumerate(
            zip(texts, (weights.get("timing_quality", 1.0), 0.0), strict=True)
        )
    ]
    return msgspec.to_builtins(PreferencePair("r", 1, "hermes", *sides))


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    pairs = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    return {name: json.loads(value) for name, _, value in (text.partition("=") for text in pairs)}


class Commands:
    """In place of `run_command`: each command leaves plan.json and done.json, and what the next one
    reads. `skill`: how many of 100 questions a cell with such settings answers rightly.
    """

    def __init__(self, run: Path):
        self.run, self.ran = run, list[list[str]]()
        self.fails: dict[str, tuple[int, str]] = {}
        self.stops_at: int | None = None
        self.gate = False  # whether the answers of a model miss a gate
        self.skill = lambda settings, split, steps: 50
        self.checked = list[Any]()  # the settings of each dry run of a cell
        self.unfit = lambda settings: False

    def check(self, command: str, settings: Any, target: RunTarget) -> Result:
        """In place of a dry run in this process."""
        assert target.dry_run and not target.folder.exists()
        assert run_folder.is_finished(run_folder.find_stage(settings.data, target.run))
        self.checked.append(settings)
        if self.unfit(settings):
            raise UserError("2 rows are too long.", "Raise it.", location="runs/home/prep/train:7")
        return Result(command, "dry run", "", {}, [], 0.0)

    def __call__(self, words: Sequence[str], caught: Sequence[int]) -> CommandRun:
        words = list(words)
        read = option(words, "--from") or option(words, "--data")
        assert run_folder.is_finished(Path(option(words, "--run")) / read), words
        if "--dry-run" in words:
            return CommandRun(0, {"figures": {"steps": STEPS}}, 0.1, 0.1)
        if self.stops_at is not None and len(self.ran) == self.stops_at:
            raise KeyboardInterrupt
        self.ran.append(words)
        folder = Path(option(words, "--run")) / option(words, "--out", words[0])
        for part, (code, problem) in self.fails.items():
            if part in " ".join(words):
                error = {"location": "", "problem": problem, "fix": ""}
                return CommandRun(code, {"error": error}, 1.0, 0.5)
        getattr(self, words[0])(words, folder)
        code = GATE if words[0] == "eval" and self.gate else 0
        return CommandRun(code, {"figures": {}}, 2.0, 1.5)

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
        stage(folder, words[0], cell, {"metrics.jsonl": [{"step": 1}]}, {"steps": STEPS})
        (folder / "checkpoints").mkdir()

    sft = dpo = grpo = train

    def _pairs(self, words: list[str]) -> Any:
        folder = Path(option(words, "--run")) / option(words, "--data")
        path = folder / "pairs.jsonl"
        pairs = [*read_pairs(path)] if path.exists() else []
        return json.loads(pairs[0].chosen.text) if pairs else {}

    def eval(self, words: list[str], folder: Path) -> None:
        model, split = option(words, "--model"), option(words, "--split", "test")
        trained = Path(option(words, "--run")) / model
        cell = run_folder.read_plan(trained).settings if trained.is_relative_to(self.cells) else {}
        evaluate(
            folder / "prep" / trained.name,
            model,
            self.skill(cell, split, cell.get("dpo.max_steps")),
        )

    @property
    def cells(self) -> Path:
        return self.run / "ablate/cells"


def stage(
    folder: Path,
    command: str,
    settings: Mapping[str, Any],
    files: Mapping[str, Sequence[Any]],
    found: Mapping[str, Any],
) -> None:
    plan = run_folder.Plan(command, dict(settings), {}, {})
    with run_folder.open_stage(folder, plan, force=True) as held:
        for name, rows in files.items():
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
    with run_folder.open_stage(
        folder, run_folder.Plan("eval", {"model": model}, {}, {}), force=True
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


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A workspace with a prep and a model, and a grid of two weightings and two betas."""
    run = tmp_path / "runs/home"
    splits = {f"{split}.jsonl": [{}] for split in ("train", "dev", "test")}
    settings = {"model": "smollm2-135m", "protocol": "hermes", "sources": ["dialogs.jsonl"]}
    stage(run / "prep", "prep", settings, splits, {"kept": 3})
    (run / "sft/model").mkdir(parents=True)
    (run / "sft/model").rmdir()
    (run / "sft").rmdir()
    stage(run / "sft", "sft", {"model": "smollm2-135m"}, {"metrics.jsonl": []}, {})
    (run / "sft/model").mkdir()
    with run_folder.open_stage(run / "sft", run_folder.read_plan(run / "sft"), force=False) as held:
        write_rows(run / "sft/model/weights.jsonl", [{}])
        held.finish(["model/weights.jsonl"], {})
    (tmp_path / "grid.yaml").write_text(GRID, encoding="utf-8")
    return run


@pytest.fixture
def ran(run: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    replaced = Commands(run)
    monkeypatch.setattr(commands, "run_command", replaced)
    monkeypatch.setattr(stages_ablate, "execute", replaced.check)
    return replaced


def ablate(run: Path, **options: Any) -> Any:
    given = {"grid": str(run.parents[1] / "grid.yaml"), **options}
    return agentlite.ablate(run=str(run), **given)


def regrid(run: Path, text: str) -> None:
    (run.parents[1] / "grid.yaml").write_text(text, encoding="utf-8")


def table(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "ablate/table.json").read_bytes()))


def cells(run: Path) -> dict[str, Any]:
    return {cell["name"]: cell for cell in table(run)["cells"]}


@pytest.mark.long
def test_every_cell_is_compared_with_the_first(run: Path, ran: Commands) -> None:
    ran.skill = lambda cell, *_: 80 if cell.get("dpo.beta") == 0.1 else 50
    result = ablate(run)
    first, *others = result.figures["cells"]
    assert [cell["name"] for cell in result.figures["cells"]] == [
        "default, beta=0.05",
        "default, beta=0.1",
        "no-efficiency, beta=0.05",
        "no-efficiency, beta=0.1",
    ]
    assert [cell["differs"] for cell in others] == [
        "beta 0.1",
        "weights efficiency=0",
        "weights efficiency=0, beta 0.1",
    ]
    assert not first["differences"] and first["figures"]["exact_call"]["mean"] == 0.5
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
    assert not list((run / "ablate/cells").glob("*/dpo/checkpoints"))


@pytest.mark.long
def test_the_second_run_is_up_to_date_and_runs_nothing(run: Path, ran: Commands) -> None:
    ablate(run)
    before, count = (run / "ablate/table.json").read_bytes(), len(ran.ran)
    assert ablate(run).status == "up to date"
    assert len(ran.ran) == count and (run / "ablate/table.json").read_bytes() == before


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
    assert (run / "ablate/table.json").read_bytes() == (whole / "ablate/table.json").read_bytes()
    assert len(ran.ran) - before == 12 - after  # nothing that had ended was run again


@pytest.mark.long
@pytest.mark.parametrize(("weights", "ranked"), [("{}", 3), ("{timing_quality: 0.5}", 4)])
def test_weightings_that_give_the_same_pairs_are_trained_once(
    run: Path, ran: Commands, weights: str, ranked: int
) -> None:
    """Also where they make the same answers better by other totals."""
    regrid(run, GRID.replace("settings:", f"  again: {weights}\nsettings:"))
    ablate(run)
    assert ran.count("dpo") == 4 and ran.count("pairs") == ranked
    twin = cells(run)["again, beta=0.1"]
    assert (twin["state"], twin["note"]) == ("same", "default, beta=0.1")
    assert twin["figures"] == cells(run)["default, beta=0.1"]["figures"]
    assert twin["differences"] == cells(run)["default, beta=0.1"]["differences"]


@pytest.mark.long
def test_a_cell_that_fails_is_a_row_with_its_reason_and_its_command(
    run: Path, ran: Commands
) -> None:
    ran.fails = {"cells/default-beta=0.1": (DIVERGED, "loss is not a finite number.")}
    result = ablate(run)
    failed = cells(run)["default, beta=0.1"]
    assert (failed["state"], failed["note"]) == ("failed", "loss is not a finite number.")
    assert failed["command"].startswith("agentlite dpo ") and "dpo.beta=0.1" in failed["command"]
    assert [cell["state"] for cell in cells(run).values()] == ["done", "failed", "done", "done"]
    assert "1 cell failed." in result.sentences
    count = len(ran.ran)
    assert ablate(run).status == "up to date" and len(ran.ran) == count
    ran.fails = {}
    assert ablate(run, retry=True).status == "done"
    assert len(ran.ran) == count + 2  # its dpo and its eval
    assert cells(run)["default, beta=0.1"]["state"] == "done"


@pytest.mark.long
def test_a_gate_that_a_cell_does_not_pass_is_no_failure(run: Path, ran: Commands) -> None:
    ran.gate = True
    ablate(run)
    assert {cell["state"] for cell in cells(run).values()} == {"done"}


@pytest.mark.long
def test_a_full_disk_ends_the_run_which_carries_on_later(run: Path, ran: Commands) -> None:
    ran.fails = {"cells/default-beta=0.1": (DISK, "cannot write: no space left.")}
    with pytest.raises(UserError) as caught:
        ablate(run)
    assert caught.value.exit_code == DISK
    ran.fails = {}
    ablate(run)
    assert {cell["state"] for cell in cells(run).values()} == {"done"}


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 3])
def test_without_any_time_no_cell_is_run_and_each_is_named(
    run: Path, ran: Commands, times: int
) -> None:
    for _ in range(times):
        result = ablate(run, budget="0min")
    assert not ran.ran and {cell["state"] for cell in cells(run).values()} == {"not run"}
    assert "4 cells were not run." in result.sentences
    assert ablate(run).status == "done"
    assert {cell["state"] for cell in cells(run).values()} == {"done"}


@pytest.mark.long
def test_a_cell_that_takes_longer_than_what_is_left_is_not_run(
    run: Path, ran: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentlite.stages.ablate import estimate

    # two commands a cell, of a minute by calculation: of two seconds, once the first have ended
    monkeypatch.setattr(estimate, "calculated", lambda *_: 60.0)
    monkeypatch.setattr(estimate, "expected", lambda seconds, *_: seconds)
    ablate(run, budget="5min")
    states = [cell["state"] for cell in cells(run).values()]
    assert states == ["done"] * 4  # the commands take no time here: the clock says that all fit
    regrid(run, GRID.replace("0.1]", "0.1, 0.2]"))
    ablate(run, budget="1min")
    assert [cell["state"] for cell in cells(run).values()] == ["done", "done", "not run"] * 2
    assert "it takes 2 min" in cells(run)["default, beta=0.2"]["note"]


@pytest.mark.long
def test_cells_whose_long_names_begin_alike_have_folders_of_their_own(
    run: Path, ran: Commands
) -> None:
    name = "without the reward for short answers, " * 3
    regrid(run, f"by: dpo\nweights:\n  {name}a: {{efficiency: 0}}\n  {name}b: {{efficiency: 1}}\n")
    assert ablate(run).status == "done"
    assert {cell["state"] for cell in cells(run).values()} == {"done"}
    assert len([*(run / "ablate/cells").iterdir()]) == len(cells(run)) == 2


def test_a_command_takes_as_much_longer_as_those_of_its_kind_that_ended_whole() -> None:
    rows = [
        ("dpo --run a", 0, 60.0),
        ("dpo --run b", 0, 120.0),
        ("dpo --run c", 7, 6000.0),
        ("eval --run a", 0, 600.0),
    ]
    whole: dict[str, Any] = {"cell": "", "folder": "", "gib": 1.0, "calculated": 60.0}
    ended = [
        EndedCommand(command=f"agentlite {words}", exit_code=code, seconds=seconds, **whole)
        for words, code, seconds in rows
    ]
    assert expected(60.0, "dpo", ended) == pytest.approx(90)
    assert expected(60.0, "dpo", ended, 0.5) == pytest.approx(45)
    assert expected(None, "dpo", ended) == pytest.approx(90)
    assert expected(60.0, "sft", ended) == 60 and expected(None, "sft", ended) is None


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


@pytest.mark.long
def test_halving_an_odd_number_of_cells_keeps_the_larger_half(run: Path, ran: Commands) -> None:
    regrid(run, "by: dpo\nsettings: {dpo.beta: [0.1, 0.2, 0.3, 0.4]}")
    ran.skill = lambda cell, split, steps: round(100 * cell.get("dpo.beta", 0))
    ablate(run, halving=True)
    trained = [settings_of(words).get("dpo.max_steps") for words in ran.ran if words[0] == "dpo"]
    assert trained == [10] * 4 + [20] * 3 + [None] * 2


@pytest.mark.long
def test_halving_trains_all_for_a_share_and_judges_on_dev_alone(run: Path, ran: Commands) -> None:
    regrid(run, "by: dpo\nsettings: {dpo.beta: [0.1, 0.2, 0.3, 0.4, 0.5]}")
    # on dev the better ones are those of a large beta, on test the others are
    ran.skill = lambda cell, split, steps: round(
        100 * (cell.get("dpo.beta", 0) if split == "dev" else 1 - cell.get("dpo.beta", 0))
    )
    ablate(run, halving=True)
    states = {name: cell["state"] for name, cell in cells(run).items()}
    assert states == {
        "beta=0.1": "done",  # the first always goes on
        "beta=0.2": "dropped",
        "beta=0.3": "dropped",
        "beta=0.4": "dropped",
        "beta=0.5": "done",
    }
    trained = [settings_of(words).get("dpo.max_steps") for words in ran.ran if words[0] == "dpo"]
    assert trained == [10] * 5 + [20] * 3 + [None] * 2
    asked = [words for words in ran.ran if words[0] == "eval"]
    on_test = [words for words in asked if option(words, "--split", "test") == "test"]
    assert len(on_test) == 3  # the model before, and the two cells that got all their steps
    assert "20.0 % on dev after 25% of the steps" in cells(run)["beta=0.2"]["note"]
    count = len(ran.ran)
    assert ablate(run, halving=True).status == "up to date" and len(ran.ran) == count


def test_a_dry_run_lists_the_cells_and_writes_nothing(run: Path, ran: Commands) -> None:
    result = ablate(run, dry_run=True)
    assert [*result.figures["cells"]] == [
        "default, beta=0.05",
        "default, beta=0.1",
        "no-efficiency, beta=0.05",
        "no-efficiency, beta=0.1",
    ]
    assert not ran.ran and not (run / "ablate").exists()


@pytest.mark.long
def test_settings_for_all_cells_are_passed_on_and_are_part_of_the_plan(
    run: Path, ran: Commands
) -> None:
    ablate(run, set="dpo.max_steps=7")
    passed = [words for words in ran.ran if "dpo.max_steps=7" in words]
    assert [words[0] for words in passed] == ["dpo"] * 4
    with pytest.raises(UserError, match=r"dpo\.max_steps 7 -> 8"):
        ablate(run, set="dpo.max_steps=8")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("by: dpo\nsettings: {dpo.beta: [0.1, none]}", "does not fit"),
        ("by: dpo\nsettings: {dpo.betta: [0.1, 0.2]}", "Did you mean"),
        ("by: dpo\nsettings: {sft.lora_r: [8, 16]}", "a cell of dpo runs no sft"),
        ("by: dpo\nsettings: {dpo.data: [a, b]}", "is the same for all cells"),
        ("by: dpo\nsettings: {dpo.beta: [0.1]}", "is one cell"),
        ("by: dpo\nsettings: {dpo.beta: [0.1, 0.1]}", "two cells would be called"),
        ("by: eval\nsettings: {dpo.beta: [0.1, 0.2]}", "'eval' trains no model"),
        ("by: sft\nweights: {a: {}, b: {exact: 1}}", "sft has no rewards"),
        ("weights: {a: {}, b: {efficiencie: 1}}", "no component 'efficiencie'"),
        ("weights: {a: {}, b: {exact: 1}}\nseting: {}\nsettings: {}", "is not a section"),
        ("settings: {dpo.beta: []}", "has no value"),
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


@pytest.mark.parametrize(
    ("by", "setting", "values"),
    [
        ("sft", "learning_rate", "[1e-3, -1]"),
        ("dpo", "learning_rate", "[1e-3, fast]"),
        ("dpo", "beta", "[0.1, -1]"),
        ("grpo", "max_steps", "[1, many]"),
    ],
)
def test_a_value_that_does_not_fit_names_the_grid_and_the_cell(
    run: Path, ran: Commands, by: str, setting: str, values: str
) -> None:
    regrid(run, f"by: {by}\nsettings: {{{by}.{setting}: {values}}}")
    with pytest.raises(UserError) as caught:
        ablate(run)
    wrong = values.strip("[]").split(", ")[1]
    grid = run.parents[1] / "grid.yaml"
    assert caught.value.location == f"{by}.{setting} (from {grid}, cell {setting}={wrong})"
    assert "--set" not in str(caught.value)


@pytest.mark.parametrize("text", ["soon", "2", "1d", "-1h"])
def test_a_budget_that_is_not_a_time_is_refused(run: Path, ran: Commands, text: str) -> None:
    with pytest.raises(UserError, match="is not a time"):
        ablate(run, budget=text)


@pytest.mark.long
def test_weights_go_to_a_stage_with_rewards_of_its_own(run: Path, ran: Commands) -> None:
    regrid(run, "weights: {default: {}, exact: {exact: 1}}")
    ablate(run, by="grpo")
    assert not ran.count("pairs") and ran.count("grpo") == 2
    assert [settings_of(words) for words in ran.ran if words[0] == "grpo"] == [
        {"grpo.weights": {}},
        {"grpo.weights": {"exact": 1.0}},
    ]


@pytest.mark.long
def test_both_reports_have_the_table_and_a_picture(run: Path, ran: Commands) -> None:
    ran.skill = lambda cell, *_: 80 if cell.get("dpo.beta") == 0.1 else 50
    ran.fails = {"cells/no-efficiency-beta=0.05": (DIVERGED, "loss <b>is</b> not a number.")}
    ablate(run)
    text = (run / "report.md").read_text(encoding="utf-8")
    page = (run / "report.html").read_text(encoding="utf-8")
    for report in (text, page):
        assert "Better than default, beta=0.05 beyond noise" in report
        assert "+30.0 [" in report and "beyond noise" in report
        assert "dpo.beta=0.05" in report  # the command of the cell that failed
    assert "<b>is</b>" not in page and "](ablate/table.svg)" in text
    picture = (run / "ablate/table.svg").read_text(encoding="utf-8")
    assert picture.count("<circle") == 6  # two cells and the model before, in two metrics
    assert "default, beta=0.1" in picture and '<section id="ablation">' in page


@pytest.mark.long
@pytest.mark.parametrize("fails", ["dpo --run", "eval --run", "pairs --run"])
@pytest.mark.parametrize("budget", ["0", "1h"])
def test_a_cell_that_failed_keeps_its_reason_and_takes_no_time(
    run: Path, ran: Commands, capsys: pytest.CaptureFixture[str], fails: str, budget: str
) -> None:
    inside = "no-efficiency" if fails.startswith("pairs") else "cells/no-efficiency-beta=0.05"
    words = f"{fails} {run}/ablate"
    ran.fails = {
        f"{words} --out pairs-{inside}" if fails.startswith("pairs") else f"{words}/{inside}": (
            DIVERGED,
            "loss is not a finite number.",
        )
    }
    ablate(run)
    failed = {name: cell for name, cell in cells(run).items() if cell["state"] == "failed"}
    assert len(failed) == (2 if fails.startswith("pairs") else 1)
    regrid(run, GRID.replace("no-eff", "half: {exact: 0.5}\n  no-eff"))
    planned = ablate(run, dry_run=True).figures["cells"]
    assert {planned[name]["seconds"] for name in failed} == {0}
    capsys.readouterr()
    ablate(run, budget=budget)
    assert "ablate: 2 of 6 cells to run" in capsys.readouterr().err
    kept = ("state", "note", "command")
    assert all(
        [cells(run)[name][key] for key in kept] == [cell[key] for key in kept]
        for name, cell in failed.items()
    )
    states = [cells(run)[f"half, beta={beta}"]["state"] for beta in (0.05, 0.1)]
    assert states == ["not run" if budget == "0" else "done"] * 2


@pytest.mark.long
@pytest.mark.parametrize("halving", [False, True])
def test_what_is_known_of_a_cell_stays_known_where_the_first_does_not_fit(
    run: Path, ran: Commands, halving: bool
) -> None:
    regrid(run, "by: dpo\nsettings: {dpo.beta: [0.1, 0.2, 0.3, 0.4]}")
    ablate(run, halving=halving)
    before, count = cells(run), len(ran.ran)
    regrid(run, "by: dpo\nsettings: {dpo.beta: [0.5, 0.2, 0.3, 0.4]}")
    ablate(run, halving=halving, budget="0")
    states = {name: cell["state"] for name, cell in cells(run).items()}
    assert states.pop("beta=0.5") == "not run" and len(ran.ran) == count
    assert states == {name: before[name]["state"] for name in states}


WIDE = "settings:\n  dpo.beta: [0.2, 0.3]\n  dpo.max_length: 700\n  pairs.margin: [0.2, 0.3]"
GRIDS = {
    "fewer": WIDE.replace("[0.2, 0.3]", "[0.2]", 1),
    "one ranking": WIDE.replace("margin: [0.2, 0.3]", "margin: 0.3"),
    "more": WIDE.replace("700", "[700, 800]"),
    "another order": "settings:\n  pairs.margin: [0.3, 0.2]\n  dpo.max_length: [700]\n"
    "  dpo.beta: [0.3, 0.2]",
    "written otherwise": WIDE.replace("0.2, 0.3", "2e-1, .3"),
    "with a default": f"{WIDE}\n  dpo.seed: [0]",
    "with weights": f"weights: {{usual: {{}}}}\n{WIDE}",
}


@pytest.mark.long
@pytest.mark.parametrize("then", GRIDS)
def test_a_cell_is_found_by_its_settings_whatever_the_grid_calls_it(
    run: Path, ran: Commands, then: str
) -> None:
    for text in (GRIDS["one ranking"], WIDE, GRIDS[then], WIDE):
        regrid(run, f"by: dpo\n{text}")
        ablate(run)
        assert {cell["state"] for cell in cells(run).values()} == {"done"}
        assert json.loads((run / "ablate/costs.json").read_bytes()).keys() == cells(run).keys()
    different = 8 if then == "more" else 4
    trained = [words for words in ran.ran if words[0] == "dpo"]
    assert len({option(words, "--run") for words in trained}) == different
    if then in ("fewer", "one ranking", "more", "another order"):  # else a stage is up to date
        counts = [ran.count(command) for command in ("pairs", "dpo", "eval")]
        assert counts == [3, different, different + 1]


@pytest.mark.long
def test_weightings_that_exchange_their_names_keep_their_cells(run: Path, ran: Commands) -> None:
    grid = "by: dpo\nweights: {a: {}, b: {exact: 0.5}}"
    regrid(run, grid)
    ran.skill = lambda cell, *_: 80 if "exact" in str(cell) else 50
    ablate(run)
    count = len(ran.ran)
    regrid(run, "by: dpo\nweights: {b: {}, a: {exact: 0.5}}")
    ablate(run)
    assert len(ran.ran) == count
    assert cells(run)["a"]["figures"]["exact_call"]["mean"] == 0.8
    # a new weighting takes a name whose folder another one has
    regrid(run, "by: dpo\nweights: {b: {efficiency: 0}, c: {}, a: {exact: 0.5}}")
    for _ in range(2):
        ablate(run)
        assert [words[0] for words in ran.ran[count:]] == ["pairs", "dpo", "eval"]
    assert cells(run)["a"]["figures"]["exact_call"]["mean"] == 0.8


@pytest.mark.long
def test_cells_that_the_grid_has_no_longer_stay_and_are_named(
    run: Path, ran: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    regrid(run, f"by: dpo\n{WIDE}")
    ablate(run)
    assert "no longer" not in capsys.readouterr().err
    regrid(run, f"by: dpo\n{GRIDS['one ranking']}")
    ablate(run)
    [named] = [line for line in capsys.readouterr().err.splitlines() if "no longer" in line]
    removed = shlex.split(named.partition("rm -r ")[2])
    assert len(removed) == 3 and all(Path(name).is_dir() for name in removed)
    assert f"{run}/ablate/pairs-margin=0.2" in removed
    for name in removed:
        shutil.rmtree(name)
    count = len(ran.ran)
    ablate(run, retry=True)
    assert len(ran.ran) == count


@pytest.mark.long
def test_values_that_are_written_otherwise_are_one_cell(run: Path, ran: Commands) -> None:
    regrid(run, "by: dpo\nsettings: {dpo.beta: [0.2, 2e-1, 0.3]}")
    ablate(run)
    assert ran.count("dpo") == 2 and cells(run)["beta=2e-1"]["note"] == "beta=0.2"


LENGTHS = "settings: {%s.learning_rate: [1e-4, 1e-3, 1e-2], %s.max_length: [1024, 900, 300]}"


@pytest.mark.parametrize("by", ["sft", "grpo"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_cell_that_would_fail_on_its_data_is_found_before_anything_is_run(
    run: Path, ran: Commands, by: str, dry_run: bool
) -> None:
    regrid(run, f"by: {by}\n{LENGTHS % (by, by)}")
    ran.unfit = lambda settings: settings.max_length == 300
    with pytest.raises(UserError) as caught:
        ablate(run, dry_run=dry_run)
    where = f"{run.parents[1]}/grid.yaml, cell learning_rate=1e-4, max_length=300"
    assert caught.value.location == f"{where}: runs/home/prep/train:7"
    assert "Correct the cell in the grid" in caught.value.fix
    assert not ran.ran and not (run / "ablate").exists()
    # each value once, and not each of the nine cells
    ran.unfit, ran.checked = lambda settings: False, []
    ablate(run, dry_run=True)
    assert len(ran.checked) == 5


@pytest.mark.long
def test_a_cell_is_checked_once_its_pairs_are_there_and_until_it_is_run(
    run: Path, ran: Commands
) -> None:
    regrid(run, "by: dpo\nsettings: {dpo.max_length: [1024, 900]}")
    ran.fails = {"cells/max_length=900": (DIVERGED, "loss is not a finite number.")}
    ablate(run)
    assert not ran.checked  # there were no pairs before
    ablate(run)
    regrid(run, "by: dpo\nsettings: {dpo.max_length: [1024, 900, 800]}")
    ablate(run, dry_run=True)
    assert [one.max_length for one in ran.checked] == [800]
    ablate(run, dry_run=True, retry=True)
    assert [one.max_length for one in ran.checked] == [800, 900, 800]
    ran.unfit, count = lambda settings: settings.max_length == 800, len(ran.ran)
    with pytest.raises(UserError, match="cell max_length=800: runs/home/prep/train:7: 2 rows"):
        ablate(run)
    assert len(ran.ran) == count
