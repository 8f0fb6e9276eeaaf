"""What sft, dpo and grpo hand on: rows and levels, the inputs of a plan, the length that memory is
planned for.
"""

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from support.generated_run import stage
from support.sampled_pairs import sampled
from support.samples import DATA, TIME, WEATHER

import agentlite
from agentlite.config import gpu_profiles
from agentlite.config.settings import COMMANDS, DpoSettings, GrpoSettings, SftSettings
from agentlite.core.errors import UserError
from agentlite.core.records import Call, Message, PreferencePair, Record, Side, from_row, to_row
from agentlite.core.row_files import read_rows
from agentlite.data.curriculum import FORMAT, SEVERAL, SINGLE, level
from agentlite.data.prompt_records import find_prompts
from agentlite.rendering import PROTOCOLS, prompts, training_rows
from agentlite.rendering.template import Template
from agentlite.stages import dpo, grpo, sft
from agentlite.stages.training_prompts import fitting_prompts
from agentlite.workspace import run_folder
from agentlite.workspace.model_source import find_model, load_template
from agentlite.workspace.run_folder import Plan, RunTarget

MODEL = "smollm2-135m"
SMALL = {"batch_size": 2, "gradient_accumulation": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trainers")
    agentlite.prep(
        str(DATA / "weather.jsonl"), run=str(run), model=MODEL, protocol="hermes", dev=0.2, test=0.0
    )
    return run


def records_of(run: Path, split: str = "train") -> list[Record]:
    return [from_row(row) for row in read_rows(run / "prep" / f"{split}.jsonl")]


@pytest.mark.parametrize("order", ["shuffled", "curriculum"])
def test_sft_trains_on_the_rows_of_train_and_their_levels_and_measures_on_dev(
    order: Any, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(sft, "train_stage", lambda *_, train, **__: train(run / "never"))
    monkeypatch.setattr(sft, "begin_within_memory", lambda *_: None)
    monkeypatch.setattr(sft.sft, "train", lambda *args: given.append(args) or {})
    figures: Any = sft.run(SftSettings(model=MODEL, order=order), RunTarget(run, "never"))
    [(_, _, _, rows, dev, levels)] = given
    template, hermes = load_template(MODEL), PROTOCOLS["hermes"]
    expected = [(one, training_rows(one, hermes, template)) for one in records_of(run)]
    assert rows == [row for _, of_one in expected for row in of_one] and rows != dev
    assert len(dev) >= len(records_of(run, "dev")) > 0
    in_order = [level(one, one.turns) for one, of_one in expected for _ in of_one]
    assert list(levels) == (in_order if order == "curriculum" else [])
    labels = [label for row in rows for label in row.labels]
    share = sum(label != -100 for label in labels) / len(labels)
    assert figures == {"rows": len(rows), "trained_share": pytest.approx(share, abs=5e-5)}


def test_a_row_is_as_hard_as_what_is_learned_of_it(
    tmp_path: Path, templates: dict[str, Template]
) -> None:
    """A turn with two calls is hard, unless it is only read."""
    calls = tuple(Call("get_weather", {"city": city}, city) for city in ("Oslo", "Rome"))
    messages = (
        Message("user", "Is it wet in Oslo, and in Rome?"),
        Message("assistant", calls=calls),
        Message("tool", "4 mm", call_id="Oslo"),
        Message("tool", "0 mm", call_id="Rome"),
        Message("assistant", "<think>4 mm.</think>In Oslo it is."),
        Message("user", "Are you sure?"),
        Message("assistant", "Quite sure."),
    )
    hard = Record(messages=messages, tools=(WEATHER, TIME))
    read = replace(messages[1], loss=False)
    easy = replace(hard, messages=(messages[0], read, *messages[2:]))
    rows = [hard, easy, replace(easy, tools=(WEATHER,))]
    plan = {"command": "prep", "settings": {"protocol": "hermes"}, "inputs": {}}
    stage(tmp_path, plan, {"train.jsonl": map(to_row, rows)}, {})
    settings = SftSettings(model=MODEL)
    _, levels = sft.read_encoded(settings, tmp_path, "train", templates["smollm2"])
    assert levels == [SEVERAL, SINGLE, FORMAT]
    # a template that rewrites its history makes several rows of a dialog, and all are as hard
    encoded, levels = sft.read_encoded(settings, tmp_path, "train", templates["forgets"])
    assert len(encoded) == len(levels) > len(rows) and levels == sorted(levels, reverse=True)


def test_a_dry_run_of_sft_names_the_free_disk_and_no_minutes_on_a_gpu(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2_540_000_000))
    options = {"run": str(run), "out": "never", "profile": "cpu", "dry_run": True}
    figures = agentlite.sft(**options).figures
    assert figures["disk_free_gb"] == 2.5 and figures["minutes_on_two_cores"] > 0
    monkeypatch.setattr(gpu_profiles, "has_gpu", lambda: True)
    assert "minutes_on_two_cores" not in agentlite.sft(**options).figures


@pytest.mark.parametrize("command", [agentlite.sft, agentlite.grpo, agentlite.pairs])
def test_memory_is_planned_for_the_longest_row_with_its_answer(
    command: Any, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[int] = []
    module = sys.modules[f"agentlite.stages.{command.__name__}"]
    monkeypatch.setattr(module, "dry_run_memory", lambda *given: planned.append(given[3]) or {})
    options: dict[str, Any] = {"run": str(run), "model": MODEL, "out": "never", "dry_run": True}
    options |= {} if command is agentlite.sft else {"max_new_tokens": 20}
    figures = command(**options).figures
    longest = figures.get("longest_row") or figures["longest_prompt"] + 20
    assert planned == [longest]


class BeginsWithError(Exception):
    """In place of a training: what its micro-batch is planned for."""


@pytest.mark.parametrize("command", ["sft", "grpo", "dpo"])
def test_a_run_begins_with_a_micro_batch_for_its_longest_row(
    command: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begins(name: str, settings: Any, target: Any, base: str, longest: int) -> None:
        raise BeginsWithError(name, longest)

    module = sys.modules[f"agentlite.stages.{command}"]
    monkeypatch.setattr(module, "train_stage", lambda *_, train, **__: train(run / "begun"))
    monkeypatch.setattr(module, "begin_within_memory", begins)
    (run / "begun").mkdir(exist_ok=True)
    template, hermes = load_template(MODEL), PROTOCOLS["hermes"]
    if command == "sft":
        settings: Any = SftSettings(model=MODEL)
        rows = [row for one in records_of(run) for row in training_rows(one, hermes, template)]
        longest = max(len(row.input_ids) for row in rows)
    elif command == "grpo":
        settings = GrpoSettings(model=MODEL, max_new_tokens=20)
        found = prompts(records_of(run), lambda _: hermes, template)
        longest = max(len(one.ids) for one in found) + 20
    else:
        folder = pairs_of(run, ("a", "b"), ("a", "b " * 50))
        settings = DpoSettings(model=MODEL, data=folder.name)
        longest = max(one.longest for one in dpo.read_preferences(settings, folder, template))
    with pytest.raises(BeginsWithError) as begun:
        module.run(settings, RunTarget(run, "begun"))
    assert begun.value.args == (command, longest)


@pytest.mark.parametrize("command", ["sft", "grpo"])
def test_a_model_is_measured_next_on_the_prep_that_it_was_trained_on(
    command: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[f"agentlite.stages.{command}"]
    monkeypatch.setattr(module, "train_stage", lambda *_, **given: given["evaluate"])
    shutil.copytree(run / "prep", run / "prep-5", dirs_exist_ok=True)
    for data, option in (("prep", ""), ("prep-5", " --data prep-5")):
        settings = COMMANDS[command](model=MODEL, data=data)
        assert module.run(settings, RunTarget(run, "never")) == option


def test_a_limit_takes_so_many_records_and_another_seed_takes_others(run: Path) -> None:
    source = find_model(MODEL, run)
    prepared = find_prompts("prep", "train", MODEL, source, run)
    records = [one for one in prepared.records() if one.prompted_turns]
    chosen = []
    for seed in range(4):
        settings = GrpoSettings(limit=2, seed=seed)
        fitting = fitting_prompts("grpo", settings, prepared, source, records, 20)
        chosen.append(frozenset(prompt.record.id for prompt in fitting.prompts))
    assert len(records) > 2 and {len(one) for one in chosen} == {2} and len({*chosen}) > 1


# --- what is read is an input, and nothing else ---

READ = {
    "sigmoid": {"pairs.jsonl", "records.jsonl"},
    "kto": {"candidates.jsonl", "scores.jsonl", "records.jsonl"},
    "kto of pairs that were ranked again": {"pairs.jsonl", "records.jsonl"},
}


@pytest.mark.parametrize("loss", READ)
def test_other_rows_of_what_dpo_reads_are_another_plan(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs: list[object] = []
    monkeypatch.setattr(dpo, "train_stage", lambda *_, **given: inputs.append(given["inputs"]))
    names = {*READ["sigmoid"], *(() if " " in loss else READ["kto"]), "stats.json"}
    first = {name: str(number) * 64 for number, name in enumerate(sorted(names))}
    settings = DpoSettings(model=MODEL, loss_type=loss.split()[0])  # type: ignore[arg-type]
    for outputs in (first, *({**first, name: "d" * 64} for name in sorted(names))):
        finished = SimpleNamespace(outputs=outputs)
        monkeypatch.setattr(run_folder, "finished", lambda *_, finished=finished: finished)
        plan = Plan("pairs", {"protocol": "hermes"}, {}, {})
        monkeypatch.setattr(run_folder, "read_plan", lambda _, plan=plan: plan)
        dpo.run(settings, RunTarget(tmp_path, "dpo"))
    changed = {
        name for name, found in zip(sorted(names), inputs[1:], strict=True) if found != inputs[0]
    }
    assert changed == READ[loss]


@pytest.mark.parametrize("loss", ["sigmoid", "robust", "exo_pair"])
def test_a_loss_that_is_smoothed_takes_a_smoothing(loss: Any) -> None:
    dpo._refuse_settings(DpoSettings(loss_type=loss, label_smoothing=0.1))


def test_what_grpo_leaves_beside_its_weights_and_depends_on(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpo, "train_stage", lambda *_, **given: given)
    settings = GrpoSettings(model=MODEL, rewards=(f"{tmp_path / 'own.py'}:short",))
    inputs = []
    for text in ("", "# changed\n"):
        (tmp_path / "own.py").write_text(f"{text}def short(attempt):\n    return 1\n")
        given: Any = grpo.run(settings, RunTarget(run, "grpo"))
        assert given["outputs"] == ("records.jsonl", "rollouts.jsonl")
        inputs.append(given["inputs"])
    assert inputs[0]["data"] == inputs[1]["data"] and inputs[0] != inputs[1]


def test_the_length_of_recorded_rows_is_none_of_an_environment(tmp_path: Path) -> None:
    plan = Plan("prep", {"max_length": 9000}, {}, {})
    with run_folder.open_stage(tmp_path / "prep", plan, force=False) as prepared:
        prepared.finish([], {})
    assert grpo.inherit(GrpoSettings(), tmp_path) == {"max_length": (9000, "prep")}
    assert grpo.inherit(GrpoSettings(env="shop.py:Shop"), tmp_path) == {}


# --- answers that are too long ---


def pairs_of(run: Path, *texts: tuple[str, str]) -> Path:
    """A finished pairs without candidates: one of recorded preferences."""
    row = next(read_rows(run / "prep" / "train.jsonl"))
    turn = from_row(row).prompted_turns[0]
    pairs = [
        PreferencePair(
            from_row(row).id,
            turn,
            "hermes",
            *(Side(text, "turn", "m", n, 1.0 - n) for n, text in enumerate(both)),
        )
        for both in texts
    ]
    folder = run / f"pairs-{len(list(run.iterdir()))}"
    settings = {"split": "train", "model": MODEL, "protocol": "hermes"}
    rows = {"records.jsonl": [row], "pairs.jsonl": map(msgspec.to_builtins, pairs)}
    stage(folder, {"command": "pairs", "settings": settings, "inputs": {}}, rows, {"pairs": 1})
    return folder


def answers(folder: Path, max_length: int) -> list[Any]:
    settings = DpoSettings(model=MODEL, loss_type="kto", max_length=max_length)
    return list(dpo.read_answers(settings, folder, load_template(MODEL)))


@pytest.mark.parametrize("texts", [("b " * 50, "a"), ("a", "b " * 50)], ids=["chosen", "rejected"])
def test_either_side_of_a_pair_that_is_too_long_is_refused_with_its_line(
    texts: tuple[str, str], run: Path
) -> None:
    folder = pairs_of(run, ("a", "b"), texts, ("c", "d"))
    longest = max(row.longest for row in answers(folder, 2048))
    assert len(answers(folder, longest)) == 6
    with pytest.raises(UserError, match=f"longest has {longest} tokens") as refused:
        answers(folder, longest - 1)
    assert refused.value.location.endswith("pairs.jsonl:2")


def test_a_candidate_that_is_too_long_is_refused_with_its_line(run: Path) -> None:
    sampled(run, "candidates")
    rows = answers(run / "candidates", 2048)
    longest = max(row.longest for row in rows)
    assert answers(run / "candidates", longest) == rows
    with pytest.raises(UserError, match=f"longest has {longest} tokens") as refused:
        answers(run / "candidates", longest - 1)
    line = int(refused.value.location.rpartition("candidates.jsonl:")[2])
    lines = (run / "candidates" / "candidates.jsonl").read_text(encoding="utf-8").splitlines()
    assert '"model": "sft"' in lines[line - 1]
