"""What a job needs: the card, the extras and keys; and what it would not find there."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from support.printed_jobs import SCHEDULERS, printed

from agentlite.config import gpu_profiles
from agentlite.core.errors import UserError

COPIED = [name for name in SCHEDULERS if name != "slurm"]
SEVEN = "Qwen/Qwen2.5-7B-Instruct"
OUT = "here-too"  # its name begins with that of the folder that is copied


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "here"
    (here / "model").mkdir(parents=True)
    (here / "model" / "config.json").write_text("{}")
    (tmp_path / OUT).mkdir()
    (tmp_path / OUT / "rows.jsonl").write_text("{}\n")
    (here / "rows.jsonl").write_text("{}\n")
    (here / "linked.jsonl").symlink_to(tmp_path / OUT / "rows.jsonl")
    for name in ("AGENTLITE_RUN", "HF_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(here)
    monkeypatch.setattr(gpu_profiles, "card", lambda: None)
    return here


def refusal(result: Result) -> UserError:
    assert isinstance(result.exception, UserError), result.output
    assert result.stdout == ""
    return result.exception


OUTSIDE: dict[str, list[str]] = {
    "a row file": ["prep", "{}/rows.jsonl"],
    "a row file above": ["prep", f"../{OUT}/rows.jsonl"],
    "a link": ["prep", "linked.jsonl"],
    "a part of a mixture": ["prep", "rows.jsonl", "--mix", "general={}/rows.jsonl:0.2"],
    "a held-out file": ["prep", "rows.jsonl", "--holdout", "{}/rows.jsonl"],
    "a model": ["sft", "--model", "{}"],
    "one of several models": ["eval", "--model", "sft", "--model", "{}"],
    "a model of --set": ["sft", "--set", "sft.model={}"],
    "an environment": ["rollout", "--env", "{}/rows.jsonl:Shop"],
    "tools of a mock": ["make", "dialogs", "--env", "mock:{}/rows.jsonl"],
    "a stage": ["sft", "--data", "{}"],
    "a configuration": ["sft", "--config", "{}/rows.jsonl"],
    "a buffer": ["prep", "rows.jsonl", "--replay", "{}"],
}


@pytest.mark.parametrize("scheduler", COPIED)
@pytest.mark.parametrize("case", OUTSIDE)
def test_what_is_outside_of_the_folder_is_refused_where_only_the_folder_is_copied(
    case, scheduler, folder
):
    if case == "a configuration":
        (folder.parent / OUT / "rows.jsonl").write_text("sft: {}\n")
    words = [word.format(folder.parent / OUT) for word in OUTSIDE[case]]
    error = refusal(printed(*words, scheduler=scheduler))
    assert "not in this folder" in error.problem and "cp -rL" in error.fix
    assert error.exit_code == 2 and error.location


@pytest.mark.parametrize("scheduler", COPIED)
def test_an_absolute_path_in_the_folder_is_refused_with_the_relative_one(scheduler, folder):
    error = refusal(printed("prep", str(folder / "rows.jsonl"), scheduler=scheduler))
    assert "is an absolute path" in error.problem and error.fix == "Name it SOURCE rows.jsonl."
    assert printed("prep", "rows.jsonl", scheduler=scheduler).exception is None


@pytest.mark.parametrize("case", [case for case in OUTSIDE if case != "a configuration"])
def test_under_slurm_it_stays_where_all_nodes_see_it(case, folder):
    words = [word.format(folder.parent / OUT) for word in OUTSIDE[case]]
    assert printed(*words, scheduler="slurm").exception is None


def test_a_model_folder_outside_is_refused_with_its_size_and_one_inside_is_named(folder):
    (folder.parent / OUT / "model.safetensors").write_bytes(b"x" * 30_000_000)
    outside = str(folder.parent / OUT)
    error = refusal(printed("sft", "--model", outside, scheduler="sky"))
    assert f"{outside} (0.03 GB)" in error.problem
    assert f"cp -rL {outside} ./{OUT}" in error.fix and f"--model {OUT}" in error.fix
    shown = printed("sft", "--model", "model", scheduler="sky").stdout
    assert "# --model is a folder of this machine, and is copied (0.00 GB)." in shown


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(
    "words",
    [
        ["prep", "none.jsonl"],
        ["prep", "rows.jsonl", "--holdout", "none.jsonl"],
        ["pairs", "--grid", "none.yaml"],
        ["rollout", "--tasks", "none.jsonl"],
        ["sft", "--deepspeed", "none.json"],
    ],
)
def test_a_file_that_is_not_here_is_refused(words, scheduler):
    error = refusal(printed(*words, scheduler=scheduler))
    assert re.match(r"the file none\.\w+ is not here", error.problem)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(
    "words",
    [
        ["prep", "bfcl:simple_python"],
        ["sft", "--deepspeed", "deepspeed/zero2.json"],
        ["sft", "--config", "recipes/demo.yaml"],
        ["prep", "rows.jsonl", "--system", "/"],
        ["prep", "rows.jsonl", "--system", "x" * 5000],
    ],
)
def test_what_is_no_file_of_the_user_is_taken(words, scheduler):
    assert printed(*words, scheduler=scheduler).exception is None


def test_stdin_is_refused():
    for words in (["prep", "-"], ["pairs", "--data", "-"]):
        assert "no stdin" in refusal(printed(*words, scheduler="slurm")).problem


@pytest.mark.parametrize("scheduler", COPIED)
@pytest.mark.parametrize("run", ["/tmp/r", "../r", ".", "a/../..", "{}"])
def test_a_workspace_that_is_no_folder_inside_is_refused(run, scheduler, folder, monkeypatch):
    run = run.format(folder / "runs")
    error = refusal(printed("sft", "--run", run, scheduler=scheduler))
    assert error.location == "--run" and "--run runs/NAME" in error.fix
    monkeypatch.setenv("AGENTLITE_RUN", run)
    assert refusal(printed("sft", scheduler=scheduler)).location == "AGENTLITE_RUN"


CARDS: list[tuple[list[str], str]] = [
    (["prep", "rows.jsonl"], "no card is needed"),
    (["sft", "--model", "Qwen/Qwen2.5-0.5B-Instruct"], "a card of 16 GB; the plan needs"),
    (["sft", "--model", SEVEN], "a card of 16 GB; the plan needs"),
    (["sft", "--model", SEVEN, "--load-in-4bit", "false"], "a card of 24 GB; the plan needs"),
    (["sft", "--model", SEVEN, "--profile", "a100"], "a card of 80 GB; as --profile a100"),
    (["sft", "--model", SEVEN, "--profile", "rtx4090"], "a card of 24 GB; as --profile rtx4090"),
    (["sft", "--model", SEVEN, "--profile", "rtx3060"], "a card of 16 GB; as --profile rtx3060"),
    (["sft", "--model", SEVEN, "--profile", "t4"], "a card of 16 GB; as --profile t4"),
    (["sft", "--profile", "cpu"], "no card is needed"),
    (["sft"], "a card of 24 GB; a guess: no model is known"),
    (["sft", "--model", "me/unknown-3b"], "a card of 24 GB; a guess: "),
    (["ablate", "--grid", "rows.jsonl"], "a card of 24 GB; a guess"),
    *(
        (["prep", "rows.jsonl", "--coreset-strategy", strategy, *more], reason)
        for strategy, more, reason in (
            ("loss_topk", [], "a card of 24 GB; a guess"),
            ("hybrid", [], "a card of 24 GB; a guess"),
            ("hybrid", ["--coreset-loss", "proxy"], "no card is needed"),
        )
    ),
    (["retriever"], "a card of 16 GB"),
    (["eval", "--predictions", "rows.jsonl"], "no card is needed"),
    (["make", "dialogs"], "no card is needed"),
]


@pytest.mark.parametrize(("words", "reason"), CARDS)
def test_the_card_is_the_smallest_that_fits(words, reason, capsys):
    for scheduler in SCHEDULERS:
        shown = printed(*words, scheduler=scheduler)
        assert reason in shown.stdout, shown.exception
        assert "profile auto" not in shown.stderr


EXTRAS: list[tuple[list[str], str]] = [
    (["prep", "rows.jsonl"], ""),
    (["sft"], "[train]"),
    (["retriever"], "[train,retriever]"),
    (["grpo", "--vllm"], "[train,vllm]"),
    (["prep", "rows.jsonl", "--retrieve", "3"], "[train,retriever]"),
    (["sft", "--deepspeed", "deepspeed/zero2.json"], "[train,deepspeed]"),
    (
        ["prep", "rows.jsonl", "--coreset-strategy", "loss_topk", "--coreset-target-size", "3"],
        "[train]",
    ),
    (
        ["prep", "rows.jsonl", "--coreset-strategy", "hybrid", "--coreset-target-size", "3"],
        "[train]",
    ),
    (
        ["prep", "rows.jsonl", "--coreset-strategy", "hybrid", "--coreset-loss", "proxy"],
        "",
    ),
]


@pytest.mark.parametrize(("words", "extras"), EXTRAS)
def test_the_extras_are_those_that_the_command_needs(words, extras):
    for scheduler in COPIED:
        shown = printed(*words, scheduler=scheduler).stdout
        assert f'agentlite-*.whl | tail -n 1){extras}"' in shown


def test_keys_are_passed_on_by_their_names_and_never_by_their_values(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
    monkeypatch.setenv("HF_TOKEN", "hf_secretofmine")
    words = ["eval", "--endpoint", "https://example.org/v1", "--model", "m"]
    named: dict[str, Any] = {
        "sky": ["--secret OPENAI_API_KEY --secret HF_TOKEN", "  OPENAI_API_KEY: null\n"],
        "dstack": ["env: [OPENAI_API_KEY, HF_TOKEN]"],
        "hf": ["--secrets OPENAI_API_KEY --secrets HF_TOKEN"],
        "slurm": [],
    }
    for scheduler, texts in named.items():
        shown = printed(*words, scheduler=scheduler).stdout
        assert all(text in shown for text in texts) and "secretofmine" not in shown
        assert "secret-of-mine" not in shown


def test_an_address_of_this_machine_and_one_with_a_password_are_pointed_out():
    for host in ("localhost", "127.0.0.1", "0.0.0.0", "[::1]", "example.org"):
        words = ["eval", "--endpoint", f"http://{host}:8000/v1", "--model", "m"]
        shown = printed(*words, scheduler="hf").stdout
        assert ("# --endpoint names this machine" in shown) is (host != "example.org")
    secret = printed("eval", "--endpoint", "https://a:b@x.org/v1", "--model", "m", scheduler="hf")
    assert "the job's file holds it too" in secret.stderr


def test_the_wheel_is_asked_for_only_where_the_folder_has_none(folder):
    assert "pip wheel --no-deps" in printed("sft", scheduler="sky").stdout
    (folder / "agentlite-0.1.0-py3-none-any.whl").write_bytes(b"")
    assert "pip wheel" not in printed("sft", scheduler="sky").stdout
