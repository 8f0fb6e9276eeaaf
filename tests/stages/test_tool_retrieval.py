"""Which questions of an eval its retriever has learned, what it is known by, and what it needs."""

import numpy
import pytest
from support.generated_run import stage
from support.samples import OSLO, WEATHER

from agentlite.core.records import SPLITS, Message, Record
from agentlite.core.row_files import write_rows
from agentlite.engine import sentence_encoder
from agentlite.retrieval.index import ToolIndex
from agentlite.retrieval.tool_pool import ToolPool
from agentlite.retrieval.training_pairs import PAIRS
from agentlite.stages.tool_retrieval import learned, ranker_of

QUESTION = OSLO["content"]


def asking(*questions, tools=(WEATHER,)):
    turns = [
        Message(role, text)
        for q in questions
        for role, text in (("user", q), ("assistant", "Yes."))
    ]
    return Record(messages=tuple(turns), tools=tools)


@pytest.fixture
def trained(tmp_path):
    """A workspace whose retriever has a row of its pairs for each question, in the split named."""

    def with_rows(**questions):
        path = tmp_path / "retriever" / PAIRS
        path.parent.mkdir()
        write_rows(path, [{"split": split, "query": text} for split, text in questions.items()])
        return tmp_path

    return with_rows


@pytest.mark.parametrize("split", SPLITS)
def test_only_the_questions_of_train_count_as_learned(trained, split):
    run = trained(**{split: QUESTION})
    assert learned(run / "retriever", [asking(QUESTION)]) == (split == "train")


def test_a_record_counts_once_by_any_of_its_questions_and_only_where_it_has_tools(trained):
    run = trained(train=QUESTION)
    again = asking("How far is it to Rome?", QUESTION, "is it wet in oslo")  # no case, no marks
    assert learned(run / "retriever", [again]) == 1
    assert learned(run / "retriever", [asking(QUESTION, tools=())]) == 0


def test_a_tuned_retriever_ranks_by_the_model_of_its_own_folder_wherever_it_is(
    tmp_path, monkeypatch
):
    loaded = []
    monkeypatch.setattr(sentence_encoder, "load", lambda *given: loaded.append(given))
    for length, place in enumerate(("here", "there")):
        folder = tmp_path / place / "retriever"
        plan = {"command": "retriever", "settings": {"max_length": length}, "inputs": {}}
        (folder / "model").mkdir(parents=True)
        stage(folder, plan, {"model/weights.jsonl": [{"of": place}]}, {})
    for place in ("there", "here"):
        folder = tmp_path / place / "retriever"
        ranker_of("tuned", ToolIndex(ToolPool(), numpy.eye(2)), folder)
        source, length = loaded.pop()
        assert source.base == str(folder / "model") and length == (place == "there")
        assert source.name == "retriever's model"
