"""Which protocol a model talks in, and how long its answer may be: nothing is loaded."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.core.errors import UserError
from agentlite.deploy import chat_model
from agentlite.deploy.chat_model import ChatModel
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loading
from agentlite.engine.stream import StreamedAnswer
from agentlite.workspace import lineage
from agentlite.workspace.model_source import find_model


def model(tmp_path: Path, **options: Any) -> ChatModel:
    return ChatModel("smollm2-135m", tmp_path, **options)


@pytest.mark.parametrize(("max_new_tokens", "refused"), [(99, False), (100, True), (101, True)])
def test_an_answer_leaves_room_for_a_prompt(tmp_path, max_new_tokens, refused):
    if not refused:
        assert model(tmp_path, max_length=100, max_new_tokens=max_new_tokens).max_new_tokens == 99
        return
    with pytest.raises(UserError, match="leaves no room for a prompt") as caught:
        model(tmp_path, max_length=100, max_new_tokens=max_new_tokens)
    assert caught.value.location == "--max-new-tokens"


@pytest.mark.parametrize(
    ("named", "trained", "expected"),
    [
        ("", None, "hermes"),  # this template takes no tools
        ("", "react", "react"),
        ("hermes", "react", "hermes"),
        ("", "hermes=1,react=2", "react"),
        ("", "hermes=2,react=1", "hermes"),
    ],
)
def test_the_protocol_is_the_named_one_or_that_of_the_training(
    tmp_path, monkeypatch, named, trained, expected
):
    monkeypatch.setattr(chat_model, "setting_of", lambda name, key, run: trained)
    assert model(tmp_path, protocol=named).protocol.name == expected


@pytest.mark.parametrize(
    ("most", "tools", "limit", "stops"),
    [
        (10, False, 10, ("x",)),
        (200, False, 90, ("x",)),
        (10, True, 10, ("of the protocol", "x")),
    ],
)
def test_an_answer_ends_at_its_limit_and_at_the_stops_of_calls_if_there_are_tools(
    tmp_path, monkeypatch, most, tools, limit, stops
):
    made = model(tmp_path, max_length=100, max_new_tokens=40)
    parsed = SimpleNamespace(calls=())
    protocol: Any = SimpleNamespace(
        stops=("of the protocol",), read=lambda text, tools: (text, tools, parsed)
    )
    made.protocol, made.loaded = protocol, None  # type: ignore[assignment]
    asked: list[Any] = []

    def stream(loaded: Any, ids: Any, decoding: Decoding, listener: Any, guide: Any) -> Any:
        assert guide is None
        asked.append((ids, decoding))
        return StreamedAnswer("said", "turn", 3)

    monkeypatch.setattr(chat_model, "stream", stream)
    offered = ("a tool",) if tools else ()
    dialog: Any = SimpleNamespace(ids=[0] * 10, record=SimpleNamespace(tools=offered))
    assert made.room(dialog) == 90
    turn = made.answer(dialog, Decoding(most, 0.5, stops=("x",)))
    [(ids, decoding)] = asked
    assert ids == dialog.ids and decoding.temperature == 0.5
    assert (decoding.max_new_tokens, decoding.stops) == (limit, stops)
    assert decoding.turn_end == made.template.token_id("<|im_end|>")
    assert (turn.text, turn.ended, turn.prompt_tokens, turn.new_tokens) == ("said", "turn", 10, 3)
    assert turn.parsed == ("said", offered, parsed)


def test_a_model_is_loaded_as_it_is_named(tmp_path):
    made = model(
        tmp_path, engine="hf", max_length=77, max_new_tokens=5, load_in_4bit=True, load_in_8bit=True
    )
    assert made.loading == Loading("hf", 77, load_in_4bit=True, load_in_8bit=True)
    assert model(tmp_path).loading == Loading("unsloth", 2048)


def test_a_system_text_stands_before_messages_alone_that_have_none(tmp_path):
    made, question = model(tmp_path, system="Be kind."), {"role": "user", "content": "Hi"}
    assert made.with_system([]) == []
    assert made.with_system([question]) == [{"role": "system", "content": "Be kind."}, question]
    for role in ("system", "developer"):
        own = [{"role": role, "content": "Be brief."}, question]
        assert made.with_system(own) == own


def test_a_dialog_without_a_system_turn_gets_the_one_that_is_named_or_that_of_the_prep(
    tmp_path, monkeypatch
):
    plans = {
        "dpo": {"model": "sft", "data": "pairs", "protocol": "hermes"},
        "pairs": {"data": "prep"},
        "prep": {"system": "You are Xiaozhi."},
        "other": {"data": "elsewhere", "protocol": "hermes"},
    }

    def setting_of(name, key, run):
        return plans.get(name, {}).get(key)

    monkeypatch.setattr(chat_model, "setting_of", setting_of)
    monkeypatch.setattr(lineage, "setting_of", setting_of)
    monkeypatch.setattr(chat_model, "find_model", lambda name, run: find_model("smollm2-135m", run))
    question = [{"role": "user", "content": "Who are you?"}]
    own = [{"role": "system", "content": "Be brief."}, *question]

    def shown(name, messages, **options):
        made = ChatModel(name, tmp_path, **options)
        return made.template.decode(made.opened(messages, []).ids)

    assert "You are Xiaozhi." in shown("dpo", question)
    assert "Be brief." in shown("dpo", own) and "Xiaozhi" not in shown("dpo", own)
    assert "Be kind." in shown("dpo", question, system="Be kind.")
    assert "Xiaozhi" not in shown("dpo", question, system="")
    assert "Xiaozhi" not in shown("other", question)
    # the same tokens as those of a row that prep gave the text
    assert shown("dpo", question) == shown(
        "other", [{"role": "system", "content": "You are Xiaozhi."}, *question]
    )
