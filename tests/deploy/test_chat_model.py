"""Which protocol a model talks in, and how long its answer may be: nothing is loaded."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.core.errors import UserError
from agentlite.deploy import chat_model
from agentlite.deploy.answer_form import AnswerForm
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

    def stream(
        loaded: Any, ids: Any, decoding: Decoding, listener: Any, guide: Any, *, likely: bool
    ) -> Any:
        assert guide is None and not likely
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


@pytest.mark.parametrize("formed", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_tokens_are_kept_with_their_probabilities_but_not_of_an_answer_that_is_made_to_fit(
    tmp_path, monkeypatch, keeps, formed
):
    """Of such an answer the text is completed, so that the tokens are not all of it."""
    made, wanted = model(tmp_path), list[bool]()
    made.loaded, made.keeps_probabilities = None, keeps  # type: ignore[assignment]

    def stream(*_: Any, likely: bool) -> Any:
        wanted.append(likely)
        return StreamedAnswer('{"a": 1', "stop", 2, (7, 8), (-1.0, -2.0) if likely else ())

    monkeypatch.setattr(chat_model, "stream", stream)
    form: Any = AnswerForm(None, str, endings={"{": "}"}) if formed else None  # type: ignore[arg-type]
    turn = made.answer(made.opened([{"role": "user", "content": "Hi"}], []), Decoding(9), form=form)
    assert wanted == [keeps and not formed] and turn.text == ('{"a": 1}' if formed else '{"a": 1')
    assert turn.ids == (() if formed else (7, 8))
    assert turn.log_probabilities == ((-1.0, -2.0) if keeps and not formed else ())


def test_a_model_is_loaded_as_it_is_named(tmp_path):
    made = model(
        tmp_path, engine="hf", max_length=77, max_new_tokens=5, load_in_4bit=True, load_in_8bit=True
    )
    assert made.loading == Loading("hf", 77, load_in_4bit=True, load_in_8bit=True)
    assert model(tmp_path).loading == Loading("unsloth", 2048)


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_libraries_are_looked_for_before_anything_is_loaded(tmp_path, monkeypatch, engine):
    made, calls = model(tmp_path, engine=engine), list[object]()
    monkeypatch.setattr(chat_model, "load_for_inference", lambda *_: calls.append("loaded"))
    monkeypatch.setattr(chat_model, "check_libraries", calls.append)
    made.load()
    assert calls == [engine, "loaded"]


def test_a_system_text_stands_before_messages_alone_that_have_none(tmp_path):
    made, question = model(tmp_path, system="Be kind."), {"role": "user", "content": "Hi"}
    assert made.with_system([]) == []
    assert made.with_system([question]) == [{"role": "system", "content": "Be kind."}, question]
    for role in ("system", "developer"):
        own = [{"role": role, "content": "Be brief."}, question]
        assert made.with_system(own) == own


def test_a_plain_text_begins_as_the_tokenizer_begins_every_text(tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    made = model(tmp_path)
    whole = Tokenizer.from_str(made.template.tokenizer.to_str())
    plain = made.opened_text("Once").ids
    begin = whole.token_to_id("<|im_start|>")
    whole.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", begin)]
    )
    made.template = SimpleNamespace(tokenizer=whole)  # type: ignore[assignment]
    assert made.opened_text("Once").ids == [begin, *plain]


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
