"""Answers of a model whose weights are random, made to fit."""

import json
from pathlib import Path

import pytest

from agentlite.core.json_schema import fits
from agentlite.deploy.answer_form import json_form
from agentlite.deploy.chat_model import ChatModel
from agentlite.engine.decoding import Decoding
from agentlite.engine.stream import stream

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "days": {"type": "integer"},
        "unit": {"enum": ["c", "f"]},
    },
    "required": ["city", "unit"],
}


@pytest.fixture(scope="module")
def chat_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> ChatModel:
    made = ChatModel(str(tiny_model), tmp_path_factory.mktemp("run"), engine="hf", max_length=512)
    made.load()
    return made


@pytest.fixture(scope="module")
def ids(chat_model):
    return chat_model.opened([{"role": "user", "content": "Hi"}], []).ids


@pytest.mark.parametrize(("temperature", "top_p"), [(0.0, 1.0), (1.0, 1.0), (1.5, 0.5)])
def test_an_answer_fits_its_schema_and_goes_by_its_seed(chat_model, ids, temperature, top_p):
    texts = []
    for seed in (1, 1, 2):
        heard: list[str] = []
        answer = stream(
            chat_model.loaded,
            ids,
            Decoding(400, temperature=temperature, top_p=top_p, seed=seed, turn_end=2),
            lambda text, heard=heard: heard.append(text) or True,
            json_form(SCHEMA, chat_model.protocol, chat_model.template).grammar,
        )
        assert answer.ended == "stop" and "".join(heard) == answer.text
        assert fits(json.loads(answer.text), SCHEMA)
        texts.append(answer.text)
    assert texts[0] == texts[1] and (texts[1] != texts[2]) == (temperature > 0)
