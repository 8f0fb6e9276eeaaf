"""The ranking of a retriever in whatever folder it lies."""

import numpy
from support.generated_run import stage

from agentlite.engine import sentence_encoder
from agentlite.stages.tool_retrieval import tuned_ranker
from agentlite.workspace.lookup import finished_stage


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
        tuned_ranker(finished_stage(folder), numpy.eye(2))
        source, length = loaded.pop()
        assert source.base == str(folder / "model") and length == (place == "there")
        assert source.name == "retriever's model"
