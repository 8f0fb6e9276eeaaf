"""The model that the page talks to is a child of the board, and ends with it."""

import pytest
from support.processes import environment, is_running, waits_until
from support.samples import WEATHER_TOOL
from support.scripted_server import ScriptedServer

from agentlite.core.errors import UserError
from agentlite.deploy.board.chat_server import ChatServer, called


@pytest.fixture
def chat(monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    made = ChatServer()
    yield made
    made.close()


def test_without_a_model_nothing_is_answered(chat):
    assert chat.state().state == "none"
    with pytest.raises(UserError, match="no model is loaded"):
        chat.say({"messages": []})
    for name in ("", "a\0b", "x" * 501):
        with pytest.raises(UserError, match="names no model"):
            chat.load(".", name)


def test_a_message_goes_to_the_model_that_is_loaded_with_the_key_of_its_server(chat):
    server = ScriptedServer(lambda body: "Hello.")
    chat._address, chat._token = {"url": server.url, "model": "sft"}, "the key"
    asked = {"messages": [{"role": "user", "content": "Hi"}], "model": "other", "stream": True}
    assert chat.say(asked)["choices"][0]["message"]["content"] == "Hello."
    assert server.bodies == [{**asked, "model": "sft", "stream": False}]
    assert server.keys == {"Bearer the key"}
    server.reply = lambda body: "REFUSES"
    with pytest.raises(UserError, match="400"):
        chat.say(asked)
    server.reply = lambda body: "DIES"
    with pytest.raises(UserError, match="the model does not answer"):
        chat.say(asked)
    server.close()
    chat.close()
    with pytest.raises(UserError, match="no model is loaded"):
        chat.say(asked)


@pytest.mark.long
def test_a_model_that_cannot_be_loaded_says_why_and_never_its_token(chat, tmp_path):
    chat.load(tmp_path, "--debug")  # no option: a model of that name
    assert waits_until(lambda: chat.state().state == "ended", 60)
    found = chat.state()
    assert (found.run, found.model) == (str(tmp_path), "--debug")
    assert "Error:" in found.log and "--debug" in found.log and chat._token not in found.log


def test_another_model_and_the_end_of_the_board_end_the_first_one(chat, tmp_path):
    chat.load(tmp_path, "one")
    first = chat._process.pid
    chat.load(tmp_path, "two")
    second = chat._process.pid
    assert not is_running(first)
    chat.close()
    assert not is_running(second) and chat.state().state == "none"


@pytest.mark.long
def test_calls_are_answered_by_the_functions_of_a_file(tmp_path):
    file = tmp_path / "tools.py"
    file.write_text("def get_weather(city):\n    return {'rain': city}\n")
    assert called(str(file), [WEATHER_TOOL], "get_weather", '{"city": "Oslo"}') == (
        '{"rain": "Oslo"}'
    )
    assert "error" in called(str(file), [WEATHER_TOOL], "get_weather", '{"town": 1}')
    assert "no tool" in called(str(file), [WEATHER_TOOL], "__import__", "{}")
    for tools, arguments in (([WEATHER_TOOL], "[]"), ([WEATHER_TOOL], "{"), ([{"x": 1}], "{}")):
        with pytest.raises(UserError):
            called(str(file), tools, "get_weather", arguments)
    with pytest.raises(UserError, match="no such file"):
        called(str(tmp_path / "none.py"), [WEATHER_TOOL], "get_weather", "{}")
