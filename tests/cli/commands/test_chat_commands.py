"""chat: the commands of a person, at the prompt for a message and at that for a result."""

import io
import sys
from typing import Any

import pytest

from agentlite.cli.commands import chat
from agentlite.cli.commands.chat import HELP, LEAVING, Prompter
from agentlite.core.errors import UserError
from agentlite.core.records import Call
from agentlite.deploy.chat_session import GivenUp

CALL = Call("get_weather", {"city": "Oslo"})


class Talk:
    """A model that answers a message with a call, and the call's result with words."""

    def __init__(self, prompter: Prompter):
        self.prompter, self.tools, self.messages = prompter, [{"name": "get_weather"}], []

    def say(self, line: str, decoding: Any) -> None:
        self.messages.append(line)
        try:
            self.messages.append(self.prompter.result(CALL))
        except (GivenUp, UserError):
            self.undo()
            raise
        self.messages.append("an answer")

    def undo(self) -> bool:
        found = bool(self.messages)
        del self.messages[-(len(self.messages) % 3 or 3) :]  # a whole turn is three
        return found

    def prompt(self) -> str:
        return f"prompt of {len(self.messages)}"


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Lines that are typed -> the messages of the dialog, and what stderr says."""

    def run(*lines: str) -> tuple[list[str], str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        prompter = Prompter()
        prompter.talk = Talk(prompter)
        chat._talk(prompter, prompter.talk, None)
        return prompter.talk.messages, capsys.readouterr().err

    return run


TURN = ["Is it wet?", "4 mm", "an answer"]


def test_messages_and_results_are_what_is_typed(talk):
    assert talk("Is it wet?", "4 mm", "", "Hm", "5 mm")[0] == [*TURN, "Hm", "5 mm", "an answer"]
    assert talk(" \t", "  Is it? ", " 4 mm ")[0] == ["  Is it? ", " 4 mm ", "an answer"]


@pytest.mark.parametrize("command", sorted(HELP.keys() - {*LEAVING}))
def test_what_a_command_says_at_either_prompt_is_no_message(talk, command):
    messages, said = talk(command, "Is it wet?", command, "4 mm", command)
    assert messages == TURN
    expected = {"/tools": "get_weather", "/prompt": "prompt of ", "/help": "/undo"}[command]
    assert said.count(expected) == 3


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
