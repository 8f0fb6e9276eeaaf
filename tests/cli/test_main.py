"""What users script against: stdout, exit codes, errors that name the place and the fix; each in a
process.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processes import agentlite, start
from support.samples import DATA, ROOT

ROWS = (DATA / "weather.jsonl").read_bytes().splitlines(keepends=True)
SPLIT = ["--set", "prep.dev=0.2", "--set", "prep.test=0.3"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(ROWS))
    return path


@pytest.fixture(scope="module")
def workspace(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """prep, sft and eval of a tiny model, run once."""
    run = tmp_path_factory.mktemp("work") / "run with blanks"
    source = run.parent / "rows.jsonl"
    source.write_bytes(b"".join(ROWS))
    assert agentlite("prep", source, "--run", run, "--model", tiny_model, *SPLIT).returncode == 0
    done = agentlite("sft", "--run", run, *SFT, new=True)
    assert done.returncode == 0, done.stderr.decode()
    return run


SFT = ["--max-steps", 3, "--batch-size", 1, "--gradient-accumulation", 1, "--save-steps", 1]
EVAL = ["--max-new-tokens", 8, "--profile", "cpu"]


def test_each_command_prints_one_json_object_and_nothing_else_and_is_then_up_to_date(
    workspace, tiny_model
):
    source = workspace.parent / "rows.jsonl"
    prep = ["prep", source, "--run", workspace, "--model", tiny_model, *SPLIT]
    sft = ["sft", "--run", workspace, *SFT]
    evaluation = ["eval", "--run", workspace, "--model", tiny_model, "--model", "sft", *EVAL]
    first = agentlite(*evaluation, "--json")
    assert first.returncode == 0, first.stderr.decode()
    assert json.loads(first.stdout)["status"] == "done"
    before = {path: path.stat().st_mtime_ns for path in workspace.rglob("*.json*")}
    for command in (prep, sft, evaluation):
        again = agentlite(*command, "--json")
        assert again.returncode == 0, again.stderr.decode()
        assert len(again.stdout.splitlines()) == 1
        assert json.loads(again.stdout)["status"] == "up to date"
    after = {path: path.stat().st_mtime_ns for path in workspace.rglob("*.json*")}
    assert {path.name for path in before if before[path] != after.get(path)} <= {"compare.json"}


def test_sft_killed_with_sigkill_carries_on_and_no_step_is_doubled_or_missing(workspace, tmp_path):
    shutil.copytree(workspace / "prep", tmp_path / "prep")
    arguments = ["sft", "--run", tmp_path, "--max-steps", 60, "--save-steps", 5, "--batch-size", 1]
    command = [sys.executable, "-m", "agentlite", *map(str, arguments)]
    running = start(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob("sft/checkpoints/checkpoint-*/manifest.json")):
        assert running.poll() is None
        time.sleep(0.05)
    held = agentlite(*arguments)
    assert held.returncode == 75
    assert f"process {running.pid}" in held.stderr.decode()
    running.kill()
    running.wait()
    assert not (tmp_path / "sft" / "done.json").exists()
    done = agentlite(*arguments, "--json")
    assert done.returncode == 0, done.stderr.decode()
    assert "carrying on after step" in done.stderr.decode()
    steps = [
        json.loads(line)["step"]
        for line in (tmp_path / "sft" / "metrics.jsonl").read_bytes().splitlines()
    ]
    assert steps == list(range(1, 61))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_first_signal_saves_and_says_how_to_carry_on(workspace, tmp_path, sent):
    shutil.copytree(workspace / "prep", tmp_path / "prep")
    arguments = [
        "sft",
        "--run",
        tmp_path,
        "--max-steps",
        100000,
        "--save-steps",
        99999,
        "--batch-size",
        1,
    ]
    command = [sys.executable, "-m", "agentlite", *map(str, arguments)]
    running = start(command, cwd=ROOT, stderr=subprocess.PIPE)
    while (
        not (tmp_path / "sft" / "metrics.jsonl").exists()
        or not (tmp_path / "sft" / "metrics.jsonl").stat().st_size
    ):
        time.sleep(0.05)
    running.send_signal(sent)
    _, told = running.communicate(timeout=120)
    assert running.returncode == 128 + sent
    assert b"carries on" in told
    assert list(tmp_path.glob("sft/checkpoints/checkpoint-*/manifest.json"))


def test_eval_adds_only_the_predictions_that_are_missing(workspace, tiny_model):
    out = ["--run", workspace, "--out", "eval-some", *EVAL, "--model", "sft", "--json"]
    assert agentlite("eval", *out, "--limit", 1).returncode == 0
    (file,) = workspace.glob("eval-some/*/*/answers.jsonl")
    one = file.read_bytes()
    assert one.count(b"\n") == 1
    (file.parent / "done.json").unlink()  # as it is while answers are added
    file.write_bytes(one + b'{"torn')
    done = agentlite("eval", *out)
    assert done.returncode == 0, done.stderr.decode()
    assert file.read_bytes().startswith(one)
    keys = [
        (row["record_id"], row["turn"]) for row in map(json.loads, file.read_bytes().splitlines())
    ]
    assert len(keys) == len(set(keys)) > 1
    assert json.loads(done.stdout)["figures"]["sft"]["prompts"] == len(keys)
    before = file.read_bytes()
    (file.parent / "predictions.jsonl").unlink()  # scored again from what was said
    assert json.loads(agentlite("eval", *out).stdout)["status"] == "done"
    assert file.read_bytes() == before
    assert json.loads(agentlite("eval", *out).stdout)["status"] == "up to date"


def test_a_gate_that_fails_is_exit_9_after_the_figures(workspace, tiny_model):
    out = ["--run", workspace, "--out", "eval-some", *EVAL, "--model", "sft", "--json"]
    done = agentlite("eval", *out, "--gate", "tool_selection_accuracy>=0.99")
    assert done.returncode == 9
    assert json.loads(done.stdout)["figures"]["sft"]["prompts"] > 1
    assert b"tool_selection_accuracy>=0.99: it is 0" in done.stderr


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("sft.trl.wieght_decay=1", "weight_decay"),
        ("sft.trl.seed=1", "is set by agentlite"),
        ("sft.peft.r=8", "is set by agentlite"),
    ],
)
def test_a_typo_in_what_is_passed_through_is_exit_2_before_the_model_is_loaded(
    workspace, setting, told
):
    done = agentlite("sft", "--run", workspace, "--out", "sft-typo", "--set", setting)
    assert done.returncode == 2
    assert told in done.stderr.decode()
    assert (
        workspace / "sft-typo" / "failed.json"
    ).exists()  # so the next case, another plan, needs no --force
    assert not (workspace / "sft-typo" / "plan.json").exists()


@pytest.mark.long
def test_rows_to_stdout_are_the_records_alone(tmp_path, rows):
    done = agentlite("prep", rows, "--run", tmp_path / "run", "--rows", "-", *SPLIT)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(records) == len(ROWS)
    again = agentlite("prep", "-", "--run", tmp_path / "again", *SPLIT, stdin=done.stdout)
    assert again.returncode == 0, again.stderr.decode()
    for split in ("train", "dev", "test"):
        first, second = (tmp_path / run / "prep" / f"{split}.jsonl" for run in ("run", "again"))
        assert sorted(first.read_bytes().splitlines()) == sorted(second.read_bytes().splitlines())


def test_a_dry_run_touches_nothing(tmp_path, rows, workspace):
    done = agentlite("prep", rows, "--run", tmp_path / "run", "--dry-run", "--json")
    assert json.loads(done.stdout)["figures"]["kept"] == len(ROWS)
    assert not (tmp_path / "run").exists()
    before = sorted(workspace.rglob("*"))
    done = agentlite("sft", "--run", workspace, "--out", "sft-other", "--dry-run", "--json")
    assert json.loads(done.stdout)["figures"]["rows"] > 0
    assert sorted(workspace.rglob("*")) == before


@pytest.mark.long
def test_a_full_disk_is_exit_74_and_nothing_looks_done(tmp_path, rows):
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); import "
        "signal; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from agentlite.cli.main import main; main()"
    )
    command = [sys.executable, "-c", program, "prep", str(rows), "--run", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, cwd=ROOT)
    assert done.returncode == 74, done.stderr.decode()
    assert not (tmp_path / "run" / "prep" / "done.json").exists()
    assert not list((tmp_path / "run" / "prep").glob("t*.jsonl"))


@pytest.mark.long
def test_the_python_functions_are_the_commands(tmp_path, rows):
    import agentlite as package

    result = package.prep(str(rows), run=str(tmp_path / "run"), dev=0.2, test=0.3)
    assert result.status == "done"
    assert (
        package.prep(str(rows), run=str(tmp_path / "run"), dev=0.2, test=0.3).status == "up to date"
    )
    shell = agentlite("prep", rows, "--run", tmp_path / "run", *SPLIT, "--json")
    assert json.loads(shell.stdout)["status"] == "up to date"


@pytest.mark.parametrize(
    "command",
    [
        ["prep", "ROWS", "--out", "new"],
        ["sft", "--out", "new"],
        ["pairs", "--model", "sft"],
        ["grpo", "--model", "sft"],
        ["eval", "--model", "sft"],
        ["eval", "--model", "sft", "--sheet", "BLOCKED/sheet.csv"],
        ["export", "sft", "--merged", "BLOCKED/model"],
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_a_model_is_loaded(
    workspace, rows, tmp_path, command, monkeypatch
):
    from agentlite.cli.main import group
    from agentlite.core.errors import DISK, UserError

    (tmp_path / "blocked").write_bytes(b"a file is not a folder")
    for stage in ("prep", "sft"):
        shutil.copytree(workspace / stage, tmp_path / stage)
    if not any("BLOCKED" in part for part in command):
        for out in ("new", "pairs", "grpo", "eval"):
            (tmp_path / out).symlink_to(tmp_path / "blocked")
    monkeypatch.setattr(
        "agentlite.engine.be_quiet", lambda: pytest.fail("a model was to be loaded")
    )
    given = [
        part.replace("BLOCKED", str(tmp_path / "blocked")).replace("ROWS", str(rows))
        for part in command
    ]
    with pytest.raises(UserError) as told:
        group([*given, "--run", str(tmp_path)], standalone_mode=False)
    assert told.value.exit_code == DISK and str(tmp_path) in told.value.location


def test_code_that_was_planted_in_the_current_folder_is_not_run(workspace, tmp_path, monkeypatch):
    shutil.copytree(workspace / "prep", tmp_path / "prep")
    planted, mark = tmp_path / "unsloth_compiled_cache", tmp_path / "was-run"
    planted.mkdir()
    for name in ("__init__", "UnslothSFTTrainer", "unsloth_compiled_module_llama"):
        (planted / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n", encoding="utf-8")
    before = sorted(planted.iterdir())
    monkeypatch.delenv("UNSLOTH_COMPILE_LOCATION", raising=False)
    done = agentlite("sft", "--run", tmp_path, *SFT, cwd=tmp_path, new=True)
    assert done.returncode == 0, done.stderr.decode()
    assert not mark.exists() and sorted(planted.iterdir()) == before


def test_rows_that_train_nothing_are_refused_before_a_model_is_loaded(
    workspace, tmp_path, monkeypatch
):
    from agentlite import sft
    from agentlite.core.errors import MODEL, UserError
    from agentlite.workspace.input_files import file_digest

    shutil.copytree(workspace / "prep", tmp_path / "prep")
    train, done = tmp_path / "prep" / "train.jsonl", tmp_path / "prep" / "done.json"
    rows = [json.loads(line) for line in train.read_bytes().splitlines()]
    for message in (
        message for row in rows for message in row["messages"] if message["role"] == "assistant"
    ):
        message["loss"] = False
    train.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    told = json.loads(done.read_bytes())
    told["outputs"]["train.jsonl"] = file_digest(train)
    done.write_text(json.dumps(told), encoding="utf-8")
    monkeypatch.setattr(
        "agentlite.engine.be_quiet", lambda: pytest.fail("a model was to be loaded")
    )
    with pytest.raises(UserError, match="no token of this row would be trained") as caught:
        sft(run=str(tmp_path), max_steps=1)
    assert caught.value.exit_code == MODEL
