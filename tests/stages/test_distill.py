"""distill as a stage: what it refuses, forecasts and learns from, and what it leaves."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.generated_run import stage
from support.samples import DATA, WEATHER

import agentlite
from agentlite.config.settings import DistillSettings
from agentlite.core.errors import MODEL, UserError
from agentlite.core.records import ANY_ARGUMENTS, Call, Gold, GoldCall, Message, Record
from agentlite.data.prompt_records import Prompts
from agentlite.stages import distill
from agentlite.workspace import lookup
from agentlite.workspace.input_files import load_template

SMALL: dict[str, Any] = {"batch_size": 2, "gradient_accumulation": 3, "max_new_tokens": 100}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a prep for the embedded model, and stages that hold no weights: `sft`, and
    `alike`, which learned the protocol of the prep.
    """
    run = tmp_path_factory.mktemp("distill")
    agentlite.prep(str(DATA / "weather.jsonl"), run=str(run), model="smollm2-135m", seed=3)
    for name, protocol in (("sft", "react"), ("alike", "hermes")):
        settings = {"model": "smollm2-135m", "data": "prep", "protocol": protocol}
        plan = {"command": "sft", "settings": settings, "inputs": {}}
        (run / name / "adapter").mkdir(parents=True)
        stage(run / name, plan, {"adapter/adapter_model.safetensors": [{}]}, {"steps": 1})
    return run


def forecast(run: Path, **changed: Any) -> dict[str, Any]:
    given = {"out": "never", "dry_run": True, **SMALL, **changed}
    return dict(agentlite.distill(run=str(run), **given).figures)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"teacher": "smollm2-135m"}, "is the model that learns"),
        ({"max_new_tokens": 2048}, "leaves no room"),
        ({"max_length": 101}, "holds no prompt of 1 tokens"),
        ({"lmbda": 0.0, "max_length": 60}, "holds no prompt of 59 tokens"),
        ({"out": "sft"}, "sft was made from it"),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_way_out(
    run: Path, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words) as refused:
        forecast(run, **changed)
    assert refused.value.fix


def test_a_teacher_with_another_tokenizer_is_refused(
    run: Path, tiny_model: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in tiny_model.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    tokenizer = json.loads((other / "tokenizer.json").read_bytes())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = [*vocabulary][300:302]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(
        UserError, match=r"another tokenizer than .* \(2 tokens differ\)"
    ) as refused:
        forecast(run, teacher=str(other))
    assert refused.value.exit_code == MODEL and "prep --from pairs" in refused.value.fix
    assert forecast(run, teacher=str(tiny_model))["prompts"] > 0  # the same one, another model


def asking(question: str, arguments: Any) -> Record:
    messages = (Message("user", question), Message("assistant", calls=(Call("get_weather", {}),)))
    gold = {1: Gold((GoldCall("get_weather", arguments),))}
    return Record(messages=messages, tools=(WEATHER,), gold=gold)


def test_an_answer_whose_arguments_nobody_knows_is_a_prompt_and_not_learned(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, unknown = asking("Is it wet?", {}), asking("Is it dry?", ANY_ARGUMENTS)
    monkeypatch.setattr(Prompts, "records", lambda _: iter([unknown, known]))
    template, prepared = load_template("smollm2-135m"), Prompts("rows", "", "hermes", True)

    def asked(**changed: Any) -> list[str]:
        prompts, _ = distill.read_prompts(DistillSettings(**changed), prepared, template)
        texts = [template.decode(prompt.ids) for prompt in prompts]
        return ["known" if "wet" in text else "unknown" for text in texts]

    assert asked(lmbda=1.0) == ["unknown", "known"] and asked(lmbda=0.0) == ["known"]
    monkeypatch.setattr(Prompts, "records", lambda _: iter([unknown]))
    with pytest.raises(UserError, match="no recorded answer"):
        asked(lmbda=0.5)


def test_a_stage_of_the_workspace_teaches(caller: Path) -> None:
    """Whether the student comes closer is tested with the trainer: here are eight steps."""
    options: dict[str, Any] = {
        "run": str(caller),
        "out": "distilled",
        "max_steps": 8,
        "save_steps": 4,
        "lmbda": 0.5,
        "max_new_tokens": 40,
        "learning_rate": 2e-2,
        "batch_size": 2,
        "gradient_accumulation": 1,
    }
    result = agentlite.distill(**options)
    figures = result.figures
    assert result.status == "done" and figures["lineage"][-1] == "distilled"
    assert figures["taught_by"][-1] == "sft"
    assert figures["first_divergence"] > 0 and figures["last_divergence"] > 0
    assert (caller / "distilled" / "adapter" / "adapter_model.safetensors").exists()
    assert "--model distilled --model sft" in result.next
    assert agentlite.distill(**options).status == "up to date"
    plan = lookup.read_plan(caller / "distilled")
    assert plan.settings["teacher"] == "sft" and plan.inputs["teacher"]
