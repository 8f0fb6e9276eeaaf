"""sft, dpo and grpo before they train: what they read, refuse, forecast and suggest."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.generated_run import stage
from support.samples import DATA

import agentlite
from agentlite.config.settings import DpoSettings, SftSettings
from agentlite.core.errors import UserError
from agentlite.core.records import PreferencePair, Side, from_row
from agentlite.core.row_files import read_rows
from agentlite.rendering import PROTOCOLS, training_rows
from agentlite.stages import dpo, sft
from agentlite.workspace import lookup
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import finished_stage

SMALL: dict[str, Any] = {"batch_size": 2, "gradient_accumulation": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a prep for the embedded model."""
    run = tmp_path_factory.mktemp("stages")
    agentlite.prep(str(DATA / "weather.jsonl"), run=str(run), model="smollm2-135m", seed=3)
    return run


@pytest.fixture(scope="module")
def lengths(run: Path) -> list[int]:
    """Tokens of each training row, in order."""
    template, protocol = load_template("smollm2-135m"), prepared_protocol(run)
    rows = [from_row(row) for row in read_rows(run / "prep" / "train.jsonl")]
    return [
        len(encoded.input_ids)
        for row in rows
        for encoded in training_rows(row, PROTOCOLS[protocol], template)
    ]


def prepared_protocol(run: Path) -> str:
    return str(lookup.read_plan(run / "prep").settings["protocol"])


def forecast(command: Any, run: Path, **changed: Any) -> dict[str, Any]:
    return dict(command(run=str(run), dry_run=True, **{"out": "never", **SMALL, **changed}).figures)


def test_a_dry_run_of_sft_says_its_steps_and_tokens(run: Path, lengths: list[int]) -> None:
    figures = forecast(agentlite.sft, run, num_epochs=2.0)
    assert figures["rows"] == len(lengths) and figures["longest_row"] == max(lengths)
    assert figures["steps"] == math.ceil(2 * len(lengths) / 6)
    tokens = sum(lengths) / len(lengths) * 6 * figures["steps"]
    assert figures["tokens"] == pytest.approx(tokens, abs=1)
    assert figures["folder"] == "new" and figures["memory_gib"]["total"] > 0
    short = forecast(agentlite.sft, run, max_steps=2)
    assert short["steps"] == 2
    assert short["tokens"] == pytest.approx(sum(lengths) / len(lengths) * 12, abs=1)


def test_a_row_longer_than_max_length_is_refused_with_its_line_and_the_length_it_needs(
    run: Path, lengths: list[int]
) -> None:
    template, longest = load_template("smollm2-135m"), max(lengths)
    settings = SftSettings(model="smollm2-135m", max_length=longest)
    rows = sft.encode_rows(settings, finished_stage(run / "prep", "prep"), "train", template)
    assert [len(row.input_ids) for row in rows] == lengths
    for most in (longest - 1, min(lengths) - 1, 1):  # one of them is too long, or all
        settings = SftSettings(model="smollm2-135m", max_length=most)
        with pytest.raises(UserError, match=f"longest has {longest} tokens") as error:
            sft.encode_rows(settings, finished_stage(run / "prep", "prep"), "train", template)
        assert f"--max-length {longest}," in error.value.fix
        assert error.value.location.endswith(f"train.jsonl:{lengths.index(longest) + 1}")


def pairs_of(run: Path, texts: list[tuple[str, str]], split: str = "train") -> Path:
    """A finished pairs of one record, with these chosen and rejected answers."""
    row = next(read_rows(run / "prep" / "train.jsonl"))
    record, protocol = from_row(row), prepared_protocol(run)
    pairs = [
        PreferencePair(
            record.id,
            record.prompted_turns[0],
            protocol,
            Side(chosen, "turn", "m", 0, 1.0),
            Side(rejected, "turn", "m", 1, 0.5),
        )
        for chosen, rejected in texts
    ]
    settings = {"split": split, "model": "smollm2-135m", "protocol": protocol}
    folder = run / "-".join(["pairs", split, str(len(list(run.iterdir())))])
    stage(
        folder,
        {"command": "pairs", "settings": settings, "inputs": {}},
        {"records.jsonl": [row], "pairs.jsonl": map(msgspec.to_builtins, pairs)},
        {"pairs": len(pairs)},
    )
    return folder


def read_pairs(folder: Path, max_length: int = 2048) -> list[Any]:
    settings = DpoSettings(model="smollm2-135m", max_length=max_length)
    pairs = finished_stage(folder, "pairs")
    return dpo.read_preferences(settings, pairs, load_template("smollm2-135m"))


def test_a_pair_longer_than_max_length_is_refused_with_its_line_and_the_length_it_needs(
    run: Path,
) -> None:
    folder = pairs_of(run, [("a", "b"), ("a", "b " * 50), ("c " * 20, "d")])
    rows = read_pairs(folder)
    needed = max(len(row.prompt) + max(len(row.chosen), len(row.rejected)) for row in rows)
    assert len(read_pairs(folder, needed)) == 3
    for most in (needed - 1, 1):
        with pytest.raises(UserError, match=f"longest has {needed} tokens") as error:
            read_pairs(folder, most)
        assert error.value.fix.endswith(f"--max-length {needed}.")
        assert error.value.location.endswith("pairs.jsonl:2")


@pytest.mark.parametrize(
    ("settings", "said", "fix"),
    [
        ({"group_size": 4}, "a step holds 6 answers", "2, 3, 6"),
        ({"group_size": 12}, "a step holds 6 answers", "2, 3, 6"),
        ({"group_size": 3, "max_new_tokens": 64, "max_length": 64}, "no room", "--max-length"),
    ],
)
def test_what_grpo_cannot_do_is_refused_with_what_it_can(
    settings: dict[str, Any], said: str, fix: str, run: Path
) -> None:
    with pytest.raises(UserError, match=said) as error:
        forecast(agentlite.grpo, run, model="smollm2-135m", **settings)
    assert fix in error.value.fix


OF_GROUPS = {
    "env": "shop.py:Shop",
    "vllm": True,
    "rest_epochs": 2.0,
    "full": True,
    "loss_type": "gspo",
    "scale_rewards": "batch",
}


@pytest.mark.parametrize(("key", "other"), OF_GROUPS.items(), ids=OF_GROUPS)
def test_ppo_refuses_what_belongs_to_groups_and_names_it(key: str, other: Any, run: Path) -> None:
    given = {"model": "smollm2-135m", "group_size": 3, "rollouts": 12, key: other}
    with pytest.raises(UserError) as refused:
        forecast(agentlite.grpo, run, advantage="value", **given)
    assert refused.value.location == f"grpo.{key}"
