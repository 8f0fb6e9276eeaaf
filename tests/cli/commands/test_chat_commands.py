"""chat: the commands of a person, at the prompt for a message and at that for a result."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.cli.commands import chat
from agentlite.cli.commands.chat import COMMAND_LINE, HELP, LEAVING, SAYING, Asides
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Call
from agentlite.deploy.chat_session import ChatSession, GivenUp

CALL = Call("get_weather", {"city": "Oslo"})


class Talk:
    """A model that answers a message with a call, and the call's result with words."""

    def __init__(self, asides: Asides):
        self.asides, self.tools, self.messages = asides, [{"name": "get_weather"}], []

    def say(self, line: str, decoding: Any) -> None:
        self.messages.append(line)
        try:
            self.messages.append(self.asides.typed(CALL))
        except (GivenUp, UserError):
            self.undo()
            raise
        self.messages.append("an answer")

    def undo(self) -> bool:
        found = bool(self.messages)
        del self.messages[-(len(self.messages) % 3 or 3) :]  # a whole turn is three
        return found

    def reset(self) -> None:
        self.messages.clear()

    def prompt(self) -> str:
        return f"prompt of {len(self.messages)}"


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Lines that are typed -> the messages of the dialog, and what stderr says."""

    def run(*lines: str) -> tuple[list[str], str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        asides = Asides()
        asides.talk = Talk(asides)
        chat._talk(asides, asides.talk, None)
        return asides.talk.messages, capsys.readouterr().err

    return run


TURN = ["Is it wet?", "4 mm", "an answer"]


def test_messages_and_results_are_what_is_typed(talk):
    assert talk("Is it wet?", "4 mm", "", "Hm", "5 mm")[0] == [*TURN, "Hm", "5 mm", "an answer"]
    assert talk(" \t", "  Is it? ", " 4 mm ")[0] == ["  Is it? ", " 4 mm ", "an answer"]


@pytest.mark.parametrize("command", SAYING)
def test_what_a_command_says_at_either_prompt_is_no_message(talk, command):
    messages, said = talk(command, "Is it wet?", command, "4 mm", command)
    assert messages == TURN
    expected = {"/tools": "get_weather", "/prompt": "prompt of ", "/help": "/undo"}[command]
    assert said.count(expected) == 3


def test_help_lists_every_command(talk):
    said = talk("/help")[1]
    assert all(f"{name:<8} {text}" in said for name, text in HELP.items())
    assert {*HELP} == {*SAYING, *LEAVING, "/quit"}


@pytest.mark.parametrize(
    ("typed", "left"),
    [
        (["Is it wet?", "4 mm", "/undo"], []),
        (["Is it wet?", "4 mm", "And now?", "/undo"], TURN),
        (["Is it wet?", "/undo", "Is it wet?", "4 mm"], TURN),
        (["Is it wet?", "4 mm", "And now?", "/reset", "Is it wet?", "4 mm"], TURN),
        (["Hello", "x", "/reset", "Is it wet?", "4 mm"], TURN),
        (["Is it wet?", "4 mm", "/quit", "more", "more"], TURN),
        (["Is it wet?", "4 mm", "And now?", "/quit", "more"], TURN),
    ],
)
def test_a_turn_is_taken_back_at_either_prompt(talk, typed, left):
    assert talk(*typed)[0] == left


@pytest.mark.parametrize(
    ("command", "meant"),
    [("/foo", "Known: /help"), ("/tool", "'/tools'"), ("/exit", "'/quit'"), ("/clear", "'/reset'")],
)
def test_an_unknown_command_is_refused_at_either_prompt(talk, command, meant):
    messages, said = talk(command, "Is it wet?", f"{command} now", "4 mm")
    assert messages == TURN
    assert said.count(f"no command '{command}'") == 2 and said.count(meant) == 2


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("//help", "/help"),
        ("/etc/hosts is wrong", "/etc/hosts is wrong"),
        ("/ ", "/ "),
        ("1/2",) * 2,
    ],
)
def test_other_texts_with_a_slash_are_sent(talk, typed, sent):
    assert talk(typed, typed)[0] == [sent, sent, "an answer"]
    assert not COMMAND_LINE.match(sent) or typed.startswith("//")


@pytest.mark.parametrize("result", ["", "4 mm", None])
def test_a_recorded_result_is_given_also_where_it_is_empty_and_others_are_typed(
    monkeypatch, capsys, result
):
    monkeypatch.setattr("agentlite.deploy.tool_results.recorded", lambda file: lambda call: result)
    with chat._results("rows.jsonl", "", (), 1.0, 1.0, lambda call: "typed") as observe:
        assert observe(CALL) == ("typed" if result is None else result)
    assert ("(result: " in capsys.readouterr().err) is (result is not None)


def test_the_options_of_a_talk_reach_the_model_and_the_functions(monkeypatch):
    given: dict[str, Any] = {}

    class Model:
        name, max_new_tokens, protocol = "m", 7, SimpleNamespace(name="hermes")

        def __init__(self, model: str, run: Path, **options: Any):
            given["model"] = (model, str(run), options)

        def load(self) -> None:
            pass

    class Session:
        def __init__(self, *_: Any):
            self.messages: list[Any] = []

        def say(self, line: str, decoding: Any) -> None:
            given[line] = (decoding.max_new_tokens, decoding.temperature, decoding.seed)

    @contextmanager
    def executed(*arguments: Any) -> Iterator[Any]:
        given["executed"] = arguments
        yield None

    monkeypatch.setattr("agentlite.deploy.chat_model.ChatModel", Model)
    monkeypatch.setattr("agentlite.deploy.chat_session.ChatSession", Session)
    monkeypatch.setattr("agentlite.deploy.tool_results.read_toolbox", lambda file: (file,))
    monkeypatch.setattr("agentlite.deploy.tool_results.executed", executed)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\n"))
    options = {"execute": "f.py", "seconds": 3.0, "memory": 5.0, "temperature": 0.5, "seed": 9}
    others: dict[str, Any] = {"replay": "", "save": "", "as_json": False, "debug": False}
    chat.chat("sft", "t.json", run="r", **options, **others, system="Be brief.")
    assert given == {
        "model": ("sft", "r", {"system": "Be brief."}),
        "executed": ("f.py", ("t.json",), 3.0, 5.0),
        "Hi": (7, 0.5, 9),
    }


def test_the_end_of_the_input_where_a_result_is_typed_is_an_error(talk):
    with pytest.raises(UserError, match=r"get_weather\("):
        talk("Is it wet?")


def test_a_prompt_that_cannot_be_shown_says_why(talk, monkeypatch):
    def fail(self: Talk) -> str:
        raise RowError("E203", "not now")

    monkeypatch.setattr(Talk, "prompt", fail)
    messages, said = talk("/prompt", "Is it wet?", "4 mm")
    assert messages == TURN and "(not now)" in said


def test_a_session_takes_the_turn_back_that_is_given_up(monkeypatch):
    session = ChatSession(None, (), lambda call: "", print, print)  # type: ignore[arg-type]
    monkeypatch.setattr(session, "_step", lambda decoding: (_ for _ in ()).throw(GivenUp("/undo")))
    session.messages[:] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    before = [*session.messages]
    with pytest.raises(GivenUp):
        session.say("c", None)  # type: ignore[arg-type]
    assert session.messages == before
    session.reset()
    assert session.messages == []
