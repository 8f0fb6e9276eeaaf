"""What the current folder holds and how to go on: what `agentlite` alone prints."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agentlite.cli.run_listing import ListedStage, in_words, inventory, stored_stages
from agentlite.config.pipeline import DEFAULT_MODEL, STAGES
from agentlite.core.console import print_table
from agentlite.core.errors import LOCKED, UserError
from agentlite.workspace import lookup
from agentlite.workspace.lookup import DEFAULT_RUN, RunTarget

MOST_STAGES = 3  # stages that are not done, and are named
DATA_PATTERNS = ("*.jsonl", "*.jsonl.gz", "*.parquet")  # what a user's data is mostly called


class NextStep(NamedTuple):
    command: str
    meaning: str


def show() -> None:
    """What is here, and each way to go on with its meaning below it."""
    run = workspace()
    stages = inventory(run) if run else []
    if run:
        print(f"The workspace {run} holds:")
        rows = [[s.stage, in_words(s.state, s.detail), s.figure] for s in stages]
        print_table([["", "", ""], *rows], text_columns=3)
        if others := [str(path) for path in _workspaces() if path != run]:
            print(f"Other workspaces: {', '.join(others)}.")
    elif files := _data_files():
        print(f"Nothing has been done in this folder yet. It holds {', '.join(files[:4])}.")
    else:
        print("This folder holds no data and no workspace.")
    steps = [f"  {step.command}\n      {step.meaning}" for step in next_steps(run, stages)]
    print("", "Next:", *steps, "", "All commands: agentlite --help", sep="\n")


def workspace() -> Path | None:
    """The one that was worked in last, if the usual one holds nothing."""
    default = Path(os.environ.get("AGENTLITE_RUN") or DEFAULT_RUN)
    if stored_stages(default):
        return default
    return max(_workspaces(), key=lambda path: stored_stages(path)[-1].started_at, default=None)


def _workspaces() -> list[Path]:
    return [path for path in sorted(Path("runs").glob("*")) if stored_stages(path)]


def _data_files() -> list[str]:
    return sorted({path.name for pattern in DATA_PATTERNS for path in Path().glob(pattern)})


def with_next_command(error: UserError) -> UserError:
    """An error whose location is a half-done stage, with the command line that carries it on: the
    one that `agentlite` alone prints.
    """
    folder = Path(error.location)
    stored_stage = lookup.read_stage(folder) if lookup.is_stage(folder) else None
    if not stored_stage or not stored_stage.plan or stored_stage.done or error.exit_code == LOCKED:
        return error
    # runs/x/sft -> runs/x, and of eval runs/x/eval/<data>/<model> -> runs/x
    run = folder.parents[2 if stored_stage.plan.command == "eval" else 0]
    for stage in inventory(run):
        if run / stage.stage == folder and stage.state == "half":
            step = _same_step(run, stage)
            error.fix += f"\nTo {step.meaning}: {step.command}"
    return error


def next_steps(run: Path | None, stages: Sequence[ListedStage]) -> list[NextStep]:
    """The ways to go on in a workspace with these stages, or in a folder without one."""
    if run is None and (files := _data_files()):
        line = f"agentlite prep {shlex.quote(files[0])}"
        return [NextStep(line, "check the dialogs and split them")]
    if run is None:
        return [
            NextStep("agentlite init home", "try everything: make a folder with sample dialogs"),
            NextStep("agentlite prep dialogs.jsonl", "check dialogs of your own and split them"),
            NextStep("agentlite doctor", "see what this machine can train"),
        ]
    target = RunTarget(run, "")
    if running := [stage.stage for stage in stages if stage.state == "running"]:
        meaning = f"see how far {', '.join(running)} has got"
        return [NextStep(target.next("agentlite runs"), meaning)]
    done_stages = [stage for stage in stages if stage.state == "done"]
    steps = [step._replace(command=target.next(step.command)) for step in _steps_after(done_stages)]
    repeats = [_same_step(run, s) for s in stages[::-1] if s.state != "done"][:MOST_STAGES]
    return [*steps, *repeats] if stages[-1].state == "done" else repeats


def _same_step(run: Path, stage: ListedStage) -> NextStep:
    """The same command once more, for a stage that is not done."""
    meaning = {
        "half": f"carry {stage.stage} on ({stage.detail})",
        "failed": f"start {stage.stage} over, which failed",
        "broken": f"start {stage.stage} over: {stage.detail}",
    }[stage.state]
    if stage.command == "prep" and stage.state == "half":
        meaning = f"run {stage.stage} again, which was stopped"
    command = lookup.read_stage(run / stage.stage).command_line
    if not command:
        return NextStep(RunTarget(run, "").next("agentlite runs"), f"{stage.stage}: {stage.detail}")
    return NextStep(f"{command} --force" if stage.state == "broken" else command, meaning)


def _steps_after(stages: Sequence[ListedStage]) -> list[NextStep]:
    """The ways on from stages that are all done."""
    last = stages[-1] if stages else None
    preps = [stage.stage for stage in stages if stage.command == "prep"]
    trained_models = [s.stage for s in stages if s.command in STAGES and STAGES[s.command].trains]
    if last and last.command == "make":
        line = f"agentlite prep --from {shlex.quote(last.stage)}"
        return [NextStep(line, "check and split these dialogs")]
    if not preps and not trained_models:
        return [NextStep("agentlite prep dialogs.jsonl", "check dialogs and split them")]
    if last and last.command == "pairs" and not last.figure.startswith("0 pairs"):
        data = _data_flag(last.stage, "pairs")
        out = data and f" --out {shlex.quote(f'dpo-{last.stage}')}"
        return [NextStep(f"agentlite dpo{data}{out}", "train on these pairs")]
    if not trained_models:
        data = _data_flag(preps[-1], "prep")
        return [
            NextStep(f"agentlite sft{data}", "train a model on these dialogs"),
            NextStep(f"agentlite plan{data}", "first see what memory and time that takes"),
        ]
    model = trained_models[-1]
    # eval/prep/sft -> sft
    if model not in [stage.stage.rpartition("/")[2] for stage in stages if stage.command == "eval"]:
        models = f" --model {DEFAULT_MODEL} --model {shlex.quote(model)}"
        command = "agentlite eval" if model == DEFAULT_MODEL else f"agentlite eval{models}"
        return [NextStep(command, f"measure {model} on the test dialogs")]
    name, merged = shlex.quote(model), shlex.quote(f"{model}-model")
    # the tools that `agentlite init` has put here
    files = {"--tools": "tools.json", "--exec": "tools.py"}
    tools = "".join(f" {flag} {file}" for flag, file in files.items() if Path(file).is_file())
    return [
        NextStep("agentlite report", "the result, in words and as a page"),
        NextStep(f"agentlite chat {name}{tools}", "talk to the model"),
        NextStep(f"agentlite export {name} --merged {merged}", "a model for other programs"),
        NextStep("agentlite pairs", f"sample answers of {DEFAULT_MODEL}, as preferences for dpo"),
    ]


def _data_flag(stage: str, default: str) -> str:
    return "" if stage == default else f" --data {shlex.quote(stage)}"
