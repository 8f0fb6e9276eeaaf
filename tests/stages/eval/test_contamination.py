"""agentlite.stages.eval.probes: test questions on which the model was trained."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
from msgspec.structs import replace
from support.generated_run import stage
from support.samples import WEATHER, WEATHER_TOOL

from agentlite import evaluate, prep
from agentlite.core.records import Call, GreedyAnswer, Message, Record, from_row, to_row
from agentlite.core.row_files import read_rows
from agentlite.scoring.predictions import prompt_key
from agentlite.stages.eval import recorded
from agentlite.stages.eval.probes import count_learned
from agentlite.stages.eval.subjects import EvalSubject
from agentlite.workspace.input_files import file_digest
from agentlite.workspace.lookup import Plan, RunTarget, Source


def record(city: str, question: str = "Is it going to rain in {} today?") -> Record:
    call = Call("get_weather", {"city": city}, "call_0")
    messages = (Message("user", question.format(city)), Message("assistant", "", (call,)))
    return Record(messages=messages, tools=(WEATHER,))


ASKED = [record("Oslo"), record("Bergen"), record("Bodø")]
OTHERS = [record("Lima"), record("Quito")]


def data(run: Path, rows: Sequence[Record], names: Sequence[str], name: str = "data") -> str:
    """A finished stage with these rows in the first of its files; the digests of all."""
    files = {file: map(to_row, [] if at else rows) for at, file in enumerate(names)}
    stage(run / name, {"command": "prep", "settings": {}, "inputs": {}}, files, {})
    return ",".join(file_digest(run / name / file)[:16] for file in names)


def trained(
    run: Path, name: str, digest: str, model: str = "base", *, own: Any = None, **settings: Any
) -> None:
    plan = {
        "command": name,
        "settings": {"data": "data", "model": model, **settings},
        "inputs": {"data": digest},
    }
    stage(run / name, plan, {} if own is None else {"records.jsonl": map(to_row, own)}, {})


def found(run: Path, *names: str) -> dict[str, Any]:
    plan, target, source = (
        Plan("eval", {}, {}),
        RunTarget(run, "eval"),
        Source("", "base", None, ""),
    )
    subjects = [EvalSubject(name, plan, target, source) for name in names]
    return count_learned(subjects, ASKED, run)


@pytest.mark.parametrize(
    ("learned", "count"),
    [
        (OTHERS, 0),
        ([*OTHERS, ASKED[1]], 1),
        ([replace(OTHERS[0], parent=ASKED[0].id)], 1),
        ([replace(OTHERS[0], meta={"joined": [ASKED[0].id, ASKED[2].id]})], 2),
        ([record("OSLO", "is it going to rain in {} today"), *ASKED[1:]], 3),
        ([replace(ASKED[0], tools=()), ASKED[0]], 1),
    ],
    ids=["none", "the same", "a variant", "joined", "in other words", "twice"],
)
@pytest.mark.parametrize("kind", ["sft", "dpo", "distill", "grpo"])
def test_records_are_counted_that_a_model_learned_or_a_variant_of_them(
    kind: str, learned: list[Record], count: int, tmp_path: Path
) -> None:
    if kind == "sft":
        trained(tmp_path, kind, data(tmp_path, learned, ("train.jsonl", "dev.jsonl")))
    elif kind == "dpo":
        trained(tmp_path, kind, data(tmp_path, learned, ("records.jsonl", "pairs.jsonl")))
    elif kind == "distill":
        data(tmp_path, learned, ("dev.jsonl", "train.jsonl"))
        trained(tmp_path, kind, file_digest(tmp_path / "data/dev.jsonl"), split="dev")
    else:
        trained(tmp_path, kind, "of a file", own=learned, split="train")
    expected = {kind: {"records": 3, "by_stage": {kind: count}}} if count else {}
    assert found(tmp_path, kind) == expected
    at_a_step = {f"{kind}@50": counted for counted in expected.values()}
    assert found(tmp_path, f"{kind}@50") == at_a_step


def test_eval_names_the_questions_that_a_model_has_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answering(questions: Any, stage: Any) -> Any:
        (stage.folder / "answers.jsonl").write_text("")
        return {
            one.step: GreedyAnswer(*one.step, prompt_key(one), "No.", "turn", 3)
            for one in questions.prompts
        }

    rows = tmp_path / "rows.jsonl"
    call = {"name": "get_weather", "arguments": {"city": "Oslo"}}
    letters = random.Random(0)
    lines = [
        {
            "messages": [
                {"role": "user", "content": "".join(letters.choices(ascii_lowercase, k=40))},
                {"role": "assistant", "content": "", "tool_calls": [{"function": call}]},
            ],
            "tools": [WEATHER_TOOL],
        }
        for _ in range(40)
    ]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(recorded, "ask", answering)
    monkeypatch.setattr(recorded, "check_libraries", lambda engine: None)
    run = tmp_path / "run"

    def prepared(out: str, **options: Any) -> None:
        prep(str(rows), run=str(run), out=out, model="smollm2-135m", test=0.3, **options)

    def measured(data: str) -> tuple[str, Any]:
        result = evaluate(run=str(run), data=data, model=["sft"])
        return capsys.readouterr().err, result.figures["sft"].get("learned_before")

    prepared("prep")
    (run / "sft/adapter").mkdir(parents=True)
    files = ("train.jsonl", "dev.jsonl")
    digest = ",".join(file_digest(run / "prep" / name)[:16] for name in files)
    plan = {
        "command": "sft",
        "settings": {"data": "prep", "model": "smollm2-135m", "protocol": "hermes"},
        "inputs": {"data": digest},
    }
    stage(run / "sft", plan, {"adapter/weights.jsonl": [{}]}, {})

    # nothing of the same prep, some of another split of its rows
    notices, learned = measured("prep")
    assert learned is None and "trained on" not in notices
    prepared("prep2", seed=3)
    trained_on = {from_row(row).id for row in read_rows(run / "prep/train.jsonl")}
    asked = [from_row(row).id for row in read_rows(run / "prep2/test.jsonl")]
    count = len(trained_on & {*asked})
    sentence = (
        f"{count} of {len(asked)} records ask what sft was trained on: the figures of sft show "
        "what it remembers"
    )
    notices, learned = measured("prep2")
    assert 0 < count < len(asked)
    assert learned == {"records": len(asked), "by_stage": {"sft": count}}
    assert f"eval: {sentence}\n" in notices
    assert (run / "report.html").read_text(encoding="utf-8").count(sentence) == 1

    # after --force nobody knows
    prepared("prep", seed=3, force=True)
    prepared("prep3", seed=4)
    notices, learned = measured("prep3")
    assert learned == {"records": learned["records"], "by_stage": {"sft": None}}
    assert "whether sft learned these questions cannot be seen" in notices
