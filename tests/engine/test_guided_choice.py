"""Answers of a model whose weights are random, made to fit."""

import json
from pathlib import Path

import pytest

from agentlite.core.json_guide import behind, json_guide
from agentlite.core.json_schema import fits
from agentlite.deploy.chat_model import ChatModel
from agentlite.engine.decoding import Decoding
from agentlite.engine.guided_choice import pieces
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
            json_guide(SCHEMA),
        )
        assert answer.ended == "stop" and "".join(heard) == answer.text
        assert fits(json.loads(answer.text), SCHEMA)
        texts.append(answer.text)
    assert texts[0] == texts[1] and (texts[1] != texts[2]) == (temperature > 0)


def test_an_answer_is_cut_at_its_limit_and_ends_where_nothing_fits(chat_model, ids):
    decoding = Decoding(3, turn_end=2)
    cut = stream(chat_model.loaded, ids, decoding, lambda text: True, json_guide(SCHEMA))
    assert (cut.ended, cut.new_tokens) == ("cut", 3) and cut.text.startswith("{")
    none = stream(chat_model.loaded, ids, decoding, lambda text: True, json_guide(False))
    assert (none.text, none.new_tokens) == ("", 1)


def test_a_number_ends_with_the_turn(chat_model, ids):
    decoding = Decoding(60, temperature=1.0, seed=1, turn_end=2)
    answer = stream(
        chat_model.loaded, ids, decoding, lambda text: True, behind({"n=": {"const": 7}})
    )
    assert (answer.text, answer.ended) == ("n=7", "stop")
    decoding = decoding._replace(max_new_tokens=400)
    answer = stream(
        chat_model.loaded, ids, decoding, lambda text: True, json_guide({"type": "number"})
    )
    assert isinstance(json.loads(answer.text), int | float)


def test_the_pieces_of_tokens_are_what_they_add_to_a_text(chat_model):
    tokenizer = chat_model.loaded.tokenizer
    known = pieces(tokenizer)
    for text in ("Hello, world", ' {"city": "Oslo"}\n\n', "  two"):
        found = tokenizer.encode(text, add_special_tokens=False)
        assert "".join(known[token] for token in found) == text
    assert all(known[token] == "" for token in tokenizer.all_special_ids)
