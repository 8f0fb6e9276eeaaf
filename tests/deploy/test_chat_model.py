"""Which protocol a model talks in, and how long its answer may be: nothing is loaded."""

from pathlib import Path
from typing import Any

import pytest

from agentlite.deploy import chat_model
from agentlite.deploy.chat_model import ChatModel
from agentlite.workspace import lookup
from agentlite.workspace.lookup import find_model


def model(tmp_path: Path, **options: Any) -> ChatModel:
    return ChatModel("smollm2-135m", tmp_path, **options)


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
    source = find_model("smollm2-135m", tmp_path)._replace(settings={"protocol": trained})
    monkeypatch.setattr(chat_model, "find_model", lambda name, run: source)
    assert model(tmp_path, protocol=named).protocol.name == expected


def test_a_dialog_without_a_system_turn_gets_the_one_that_is_named_or_that_of_the_prep(
    tmp_path, monkeypatch
):
    plans = {
        "dpo": {"model": "sft", "data": "pairs", "protocol": "hermes"},
        "pairs": {"data": "prep"},
        "prep": {"system": "You are Xiaozhi."},
        "other": {"data": "elsewhere", "protocol": "hermes"},
    }

    base = find_model("smollm2-135m", tmp_path)
    monkeypatch.setattr(lookup, "stored_settings", lambda name, run: plans.get(name, {}))
    monkeypatch.setattr(
        chat_model, "find_model", lambda name, run: base._replace(settings=plans.get(name, {}))
    )
    question = [{"role": "user", "content": "Who are you?"}]
    own = [{"role": "system", "content": "Be brief."}, *question]

    def shown(name, messages, **options):
        made = ChatModel(name, tmp_path, **options)
        return made.template.decode(made.open_dialog(messages, []).ids)

    assert "You are Xiaozhi." in shown("dpo", question)
    assert "Be brief." in shown("dpo", own) and "Xiaozhi" not in shown("dpo", own)
    assert "Be kind." in shown("dpo", question, system="Be kind.")
    assert "Xiaozhi" not in shown("dpo", question, system="")
    assert "Xiaozhi" not in shown("other", question)
    # the same tokens as those of a row that prep gave the text
    assert shown("dpo", question) == shown(
        "other", [{"role": "system", "content": "You are Xiaozhi."}, *question]
    )
