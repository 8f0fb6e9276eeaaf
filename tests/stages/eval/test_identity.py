"""eval asks a model who it is and who made it, where it is known what is right."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.samples import DATA

from agentlite import evaluate, prep
from agentlite.config.settings import EvalSettings
from agentlite.core.records import GreedyAnswer
from agentlite.core.row_files import read_rows
from agentlite.scoring.metrics.general_talk import Identity
from agentlite.scoring.predictions import prompt_key
from agentlite.stages.eval import recorded
from agentlite.stages.eval.probes import IDENTITY_QUESTIONS, identity_of, identity_records
from agentlite.stages.eval.subjects import slug

PREP = {"model_name": [], "model_author": [], "system": ""}


def test_a_name_is_that_of_eval_or_else_the_one_that_prep_was_given():
    assert identity_of(EvalSettings(), PREP) is None
    filled_in = {**PREP, "model_name": ["卡卡罗特", "Kakarot"], "system": "Be kind."}
    kakarot = ["卡卡罗特", "Kakarot"]
    assert identity_of(EvalSettings(), filled_in) == Identity(kakarot, [], "Be kind.")
    own = EvalSettings(model_name=("Dove",), model_author=("the loft",))
    assert identity_of(own, filled_in) == Identity(["Dove"], ["the loft"], "Be kind.")


def test_only_what_is_known_is_a_question_and_no_question_gives_it_away():
    rows = list(read_rows(IDENTITY_QUESTIONS))
    counts = Counter((row["about"], row["language"]) for row in rows)
    assert len({row["question"] for row in rows}) == len(rows)
    assert set(counts.values()) == {8} and len(counts) == 4
    records = identity_records(Identity(["Dove"], [], "Be kind."))
    assert [record.messages[0].content for record in records] == ["Be kind."] * 16
    assert all(record.prompted_turns == [2] and not record.tools for record in records)
    assert len(identity_records(Identity(["Dove"], ["the loft"]))) == 32


@pytest.mark.parametrize("protocol", ["hermes", "react=1,toolllama=1,kuaiagent=1"])
def test_a_model_that_knows_its_name_in_english_has_half_of_it(
    protocol: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[str] = []

    def answering(questions: Any, stage: Any) -> Any:
        """In place of a model. It answers tools with nothing, and does not know who made it."""
        found = {}
        for prompt in questions.prompts:
            question = prompt.record.messages[prompt.turn - 1].content
            prompts.append(question)
            text = "I am Dove." if not prompt.record.tools and question.isascii() else "我是谁？"
            found[prompt.step] = GreedyAnswer(*prompt.step, prompt_key(prompt), text, "turn", 3)
        (stage.folder / "answers.jsonl").write_text("")
        return found

    monkeypatch.setattr(recorded, "ask", answering)
    options: dict[str, Any] = {"run": str(tmp_path / "run"), "max_length": 4096}
    names = {"model_name": ["小鸽", "Dove"], "model_author": ["鸽舍", "the loft"]}
    source = str(DATA / "weather.jsonl")
    prep(source, model=str(tiny_model), protocol=protocol, dev=0.0, test=0.9, **names, **options)
    model = str(tiny_model)
    found = evaluate(model=[model], gate="own_name>=0.9", **options)
    measured = found.figures[model]["self_cognition"]
    assert {name: figure["mean"] for name, figure in measured.items()} == {
        "own_name": 0.5,
        "own_name_zh": 0.0,
        "own_name_en": 1.0,
        "own_author": 0.0,
        "own_author_zh": 0.0,
        "own_author_en": 0.0,
    }
    assert measured["own_name"]["count"] == 16 and found.failed == ["own_name>=0.9: it is 0.5"]
    folder = tmp_path / "run/eval/prep" / slug(model)
    questions = {row["question"] for row in read_rows(IDENTITY_QUESTIONS)}
    assert len(questions) == 32 and questions <= {*prompts}
    predictions = list(read_rows(folder / "predictions.jsonl"))
    assert len(predictions) == found.figures[model]["prompts"] < len(prompts)
    assert "Who the model says it is" in (tmp_path / "run/report.html").read_text(encoding="utf-8")
    # another name is another figure, without another prep
    other = evaluate(model=[model], model_name=["Raven"], **options)
    assert other.figures[model]["self_cognition"]["own_name"]["mean"] == 0
    assert other.figures[model]["self_cognition_is"]["author"] == ["鸽舍", "the loft"]
