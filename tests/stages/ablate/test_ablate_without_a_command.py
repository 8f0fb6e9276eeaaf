"""Ablate without a command that is run: times, estimates, names, the key figures, and when the
candidates of the workspace are ranked.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.generated_run import stage

import agentlite
from agentlite.config import resolve
from agentlite.config.resolve import Given
from agentlite.config.settings import AblateSettings
from agentlite.core.errors import UserError
from agentlite.engine.planning.estimate import RowLengths
from agentlite.scoring.ablation_table import AblationTable, CellRow
from agentlite.scoring.metrics.confidence import summary
from agentlite.stages.ablate import _key_figures, _sampled_already, _seconds, estimate, key_figure
from agentlite.stages.ablate.cells import folder_name, read_ablation
from agentlite.stages.ablate.estimate import in_words, total
from agentlite.workspace.model_source import find_model
from agentlite.workspace.run_folder import RunTarget

MODEL = "smollm2-135m"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h30min", 5400),
        ("1.5 h", 5400),
        ("2h", 7200),
        ("90min", 5400),
        ("90m", 5400),
        ("2h 0.5min", 7230),
        ("0", 0),
        ("0min", 0),
        ("", math.inf),
        (" ", math.inf),
    ],
)
def test_a_budget_is_hours_and_minutes_and_none_is_no_limit(text: str, seconds: float) -> None:
    assert _seconds(text) == seconds


@pytest.mark.parametrize("text", ["1.2.3h", ".h", "h"])
def test_a_budget_without_a_number_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not a time"):
        _seconds(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (40, "40 s"),
        (89, "89 s"),
        (120, "2 min"),
        (89 * 60, "89 min"),
        (90 * 60, "1 h 30 min"),
        (2 * 3600, "2 h"),
        (2 * 3600 + 29, "2 h"),
        (None, "an unknown time"),
    ],
)
def test_a_time_is_said_in_the_unit_that_it_needs(seconds: float | None, words: str) -> None:
    assert in_words(seconds) == words


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert total([]) == 0 and total([1.0, 2.0]) == 3.0 and total([1.0, None]) is None


def row(name: str, state: Any, mean: float | None = None) -> CellRow:
    figures = {} if mean is None else {"exact_call": summary([mean, mean], 0)}
    return CellRow(name=name, differs="", state=state, figures=figures)


def test_the_key_figures_count_each_state_and_name_the_first_of_the_best() -> None:
    cells = [
        row("a", "done", 0.25),
        row("b", "done", 0.75),
        row("c", "same", 0.75),
        row("d", "failed"),
        row("e", "dropped", 1.0),
        row("f", "dropped"),
        row("g", "not run"),
        *(row(f"h{number}", "not run") for number in range(2)),
    ]
    table = AblationTable(
        by="dpo",
        split="test",
        prompts=2,
        metric="exact_call",
        metrics=["exact_call"],
        start=None,
        cells=cells,
        verdict=[],
    )
    figures = _key_figures(table)
    counts = {"cells": 9, "done": 3, "failed": 1, "dropped": 2, "not_run": 3}
    assert figures == {**counts, "best": "b (exact_call 75 %)"}
    assert key_figure(figures) == "3 of 9 cells, best b (exact_call 75 %)"
    assert key_figure({**figures, "best": ""}) == "3 of 9 cells"


# --- a workspace whose prep, model and grid are there ---


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A workspace with a prep and an adapter, and a grid of two betas."""
    run = tmp_path / "run"
    settings = {"model": MODEL, "protocol": "hermes", "sources": ["dialogs.jsonl"]}
    rows = {f"{split}.jsonl": [{}] for split in ("train", "dev", "test")}
    stage(run / "prep", {"command": "prep", "settings": settings, "inputs": {}}, rows, {})
    (run / "sft" / "adapter").mkdir(parents=True)
    weights = {"adapter/adapter_model.safetensors": [{}]}
    plan = {"command": "sft", "settings": {"model": MODEL, "data": "prep"}, "inputs": {}}
    stage(run / "sft", plan, weights, {})
    (tmp_path / "grid.yaml").write_text("by: dpo\nsettings: {dpo.beta: [0.1, 0.2]}\n")
    return run


def test_a_dry_run_adds_up_what_is_done_once_and_what_each_cell_takes(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranking takes no time to speak of; asking the first model and sampling are done once."""
    seconds = {"eval": 10.0, "dpo": 100.0, "pairs": 1000.0}
    monkeypatch.setattr(estimate, "calculated", lambda ablation, command, cell: seconds[command])
    grid = str(run.parent / "grid.yaml")
    figures = agentlite.ablate(run=str(run), grid=grid, dry_run=True).figures
    assert {name: cell["seconds"] for name, cell in figures["cells"].items()} == {
        "beta=0.1": 110.0,
        "beta=0.2": 110.0,
    }
    assert (figures["shared_seconds"], figures["seconds"]) == (1010.0, 1230.0)
    assert (figures["by"], figures["candidates"]) == ("dpo", "sampled once")
    Path(grid).write_text("by: sft\nsettings: {sft.lora_r: [8, 16]}\n")
    seconds["sft"] = 5.0
    monkeypatch.setattr("agentlite.stages.ablate.execute", lambda *_: None)
    figures = agentlite.ablate(run=str(run), grid=grid, dry_run=True).figures
    assert (figures["candidates"], figures["seconds"]) == ("none", 10.0 + 2 * 15.0)
    seconds["eval"] = None  # type: ignore[assignment]
    figures = agentlite.ablate(run=str(run), grid=grid, dry_run=True).figures
    assert figures["seconds"] is None


@pytest.mark.long
def test_a_grid_depends_on_the_rows_of_the_prep_and_on_the_model(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Any] = []
    monkeypatch.setattr(
        "agentlite.stages.ablate._dry_run", lambda _, plan, journal: plans.append(plan)
    )

    def inputs(changed: str = "") -> dict[str, str]:
        settings = {"model": MODEL, "protocol": "hermes", "sources": ["dialogs.jsonl"]}
        names = ("train.jsonl", "dev.jsonl", "test.jsonl", "provenance.jsonl")
        rows = {name: [{"changed": name == changed}] for name in names}
        stage(run / "prep", {"command": "prep", "settings": settings, "inputs": {}}, rows, {})
        grid = str(run.parent / "grid.yaml")
        agentlite.ablate(run=str(run), grid=grid, dry_run=True, budget="1h", retry=True)
        found: dict[str, str] = plans[-1].inputs
        return found

    first = inputs()
    assert inputs("provenance.jsonl") == first
    others = [inputs(f"{split}.jsonl") for split in ("train", "dev", "test")]
    assert len({one["data"] for one in (first, *others)}) == 4
    assert {one["model"] for one in others} == {find_model("sft", run).digest}
    assert not {"budget", "retry"} & plans[-1].settings.keys()


def with_candidates(
    run: Path, settings: Mapping[str, Any] = {}, files: tuple[str, ...] = ("candidates.jsonl",)
) -> None:
    """Pairs of the workspace that were sampled from its adapter with the usual settings."""
    usual = resolve.plain_settings(resolve.resolve("pairs", Given()).settings)
    plan = {
        "command": "pairs",
        "settings": {**usual, "data": "prep", "model": "sft", **settings},
        "inputs": {"model": find_model("sft", run).digest},
    }
    stage(run / "pairs", plan, {name: [{}] for name in ("pairs.jsonl", *files)}, {"pairs": 3})


def sampled(run: Path, sets: tuple[str, ...] = (), **options: Any) -> str:
    given = Given(sets=sets)
    settings = AblateSettings(grid=str(run.parent / "grid.yaml"), **options)
    ablation = read_ablation(settings, RunTarget(run, "ablate", given=given))
    return _sampled_already(ablation.placed({}), find_model(ablation.model, run))


def test_candidates_of_the_workspace_that_were_sampled_alike_are_ranked(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sampled(run) == ""
    with_candidates(run)
    assert sampled(run) == "pairs" and "which were sampled alike" in capsys.readouterr().err
    with_candidates(run, {"margin": 0.5, "weights": {"exact": 1.0}})  # of a ranking
    assert sampled(run) == "pairs"
    assert sampled(run, candidates="other") == "other"


def edited(run: Path) -> None:
    (run / "pairs" / "candidates.jsonl").write_text("{}\n{}\n", encoding="utf-8")


OTHERWISE: dict[str, Callable[[Path], object]] = {
    "another temperature": lambda run: with_candidates(run, {"temperature": 0.1}),
    "another prep": lambda run: with_candidates(run, {"data": "prep-2"}),
    "recorded preferences": lambda run: with_candidates(run, files=()),
    "an edited file": edited,
    "a model that was trained on": lambda run: stage(
        run / "sft",
        {"command": "sft", "settings": {"model": MODEL, "data": "prep"}, "inputs": {}},
        {"adapter/adapter_model.safetensors": [{"other": 1}]},
        {},
    ),
    "an unfinished stage": lambda run: (run / "pairs" / "done.json").unlink(),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_candidates_that_were_sampled_otherwise_are_sampled_anew(what: str, run: Path) -> None:
    with_candidates(run)
    assert sampled(run) == "pairs"
    OTHERWISE[what](run)
    assert sampled(run) == ""


@pytest.mark.parametrize(
    ("settings", "found"), [("pairs.margin: [0.1, 0.2]", "pairs"), ("pairs.seed: [0, 1]", "")]
)
def test_cells_that_sample_otherwise_have_candidates_of_their_own(
    settings: str, found: str, run: Path
) -> None:
    with_candidates(run)
    (run.parent / "grid.yaml").write_text(f"by: dpo\nsettings: {{{settings}}}\n")
    assert sampled(run) == found


def test_a_setting_for_all_cells_is_one_of_the_sampling(run: Path) -> None:
    with_candidates(run)
    assert sampled(run, ("pairs.num_samples=9",)) == "" and sampled(run, ("dpo.seed=9",)) == "pairs"


def test_a_command_reads_as_many_rows_as_its_limit_leaves_and_dpo_those_of_its_pairs(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "data_of", lambda *_: RowLengths(100, 7, 5.0))
    settings = AblateSettings(grid=str(run.parent / "grid.yaml"))

    def rows(command: str, *sets: str) -> int:
        ablation = read_ablation(settings, RunTarget(run, "ablate", given=Given(sets=sets)))
        ablation, of = ablation.placed({}), resolve.resolve(command, ablation.given()).settings
        return estimate._rows(ablation, command, of, ablation.cells[0]).rows

    assert rows("eval") == 100 and rows("eval", "eval.limit=9") == 9
    assert rows("eval", "eval.limit=999") == 100
    # before there are pairs, at most one for each step that is sampled
    assert rows("dpo") == 100 and rows("dpo", "pairs.limit=9") == 9
    plan = {"command": "pairs", "settings": {}, "inputs": {}}
    stage(run / "ablate" / "pairs", plan, {}, {"pairs": 30})
    assert rows("dpo") == rows("dpo", "pairs.limit=9") == 30


# --- names ---


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ("dpo.seed: [0, 1]", ["seed=0", "seed=1"]),
        ("dpo.seed: [0, 1], pairs.margin: [0.1]", ["seed=0", "seed=1"]),
        (
            "dpo.seed: [0, 1], pairs.seed: [0, 1]",
            [f"dpo.seed={one}, pairs.seed={other}" for one in (0, 1) for other in (0, 1)],
        ),
    ],
)
def test_a_setting_is_called_by_its_command_where_two_have_it(
    settings: str, names: list[str], run: Path
) -> None:
    (run.parent / "grid.yaml").write_text(f"by: dpo\nsettings: {{{settings}}}\n")
    found = read_ablation(
        AblateSettings(grid=str(run.parent / "grid.yaml")), RunTarget(run, "ablate")
    )
    assert [cell.name for cell in found.cells] == names


def test_names_that_a_file_system_takes_for_one_are_refused(run: Path) -> None:
    grid = run.parent / "grid.yaml"
    grid.write_text("by: dpo\nweights: {exact: {}, Exact: {exact: 1}}\n")
    with pytest.raises(UserError, match="two cells would be called 'exact'"):
        read_ablation(AblateSettings(grid=str(grid)), RunTarget(run, "ablate"))


def test_a_long_name_is_cut_and_stays_one_of_its_own() -> None:
    assert folder_name("a" * 80) == "a" * 80
    first, second = folder_name("a" * 81), folder_name("a" * 81 + "b")
    assert first != second and first.startswith("a" * 80 + "-") and len(first) == 87
    assert folder_name("beta=0.1, größer") == "beta=0.1-größer" and folder_name("../") == "cell"
