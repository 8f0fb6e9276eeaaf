"""A model that makes data: asked once, cached; its servers, and the order of its answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.scripted_server import ScriptedServer

from agentlite.config.settings import QueriesSettings, Requests
from agentlite.core.errors import NETWORK, UserError
from agentlite.core.kept_replies import KeptReply
from agentlite.core.openai_client import Question
from agentlite.stages import teacher


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer(lambda body: f"{body['messages'][0]['content']} ({len(server.bodies)})")
    yield server
    server.close()


def question(text: str, **parameters: object) -> Question:
    return Question([{"role": "user", "content": text}], parameters)


def ask(
    folder: Path, server: ScriptedServer, asked: list[Question], share: float = 0.0
) -> list[KeptReply]:
    settings = QueriesSettings(
        endpoint=(server.url,), model="m", max_failures=share, requests=Requests(tries=1)
    )
    served = teacher.endpoints_of(settings, "make queries")
    return teacher.ask(served, asked, settings, folder / "replies.jsonl", "title")


def test_equal_questions_are_asked_once_whenever(tmp_path: Path, server: ScriptedServer) -> None:
    asked = [question("a"), question("b"), question("a"), question("a", temperature=1)]
    first = [reply.text for reply in ask(tmp_path, server, asked)]
    assert first[0] == first[2] != first[3] and len(server.bodies) == 3
    again = ask(tmp_path, server, asked[::-1])  # another run
    assert [reply.text for reply in again] == first[::-1] and len(server.bodies) == 3


@pytest.mark.parametrize(
    ("message", "text", "cut"),
    [
        ({"content": "It \ud83d rains."}, "It \ufffd rains.", False),
        ({"content": "It rai", "finish_reason": "length"}, "It rai", True),
        ({"content": None, "tool_calls": [{"id": "a"}]}, "", False),
        ({"content": ""}, "", False),
    ],
)
def test_a_reply_is_kept_as_it_is_read_again(
    tmp_path: Path, server: ScriptedServer, message: dict[str, Any], text: str, cut: bool
) -> None:
    server.reply = lambda _: dict(message)
    for _ in range(2):
        [found] = ask(tmp_path, server, [question("a")])
        assert (found.text, found.cut) == (text, cut)


@pytest.mark.parametrize(
    ("failing", "share", "refused"), [(29, 0.58, False), (29, 0.57, True), (2, 0.5, False)]
)
def test_answers_come_in_the_order_of_their_questions_and_a_share_may_be_missing(
    failing: int, share: float, refused: bool, tmp_path: Path, server: ScriptedServer
) -> None:
    def reply(body: dict[str, Any]) -> str:
        asked = body["messages"][0]["content"]
        return "REFUSES" if asked.isdigit() and int(asked) < failing else f"answer {asked}"

    server.reply = reply
    asked = [question(f"{number}") for number in range(50)]
    if not refused:
        found = ask(tmp_path, server, asked, share)
        assert [one.text for one in found[failing:]] == [f"answer {n}" for n in range(failing, 50)]
        assert all(one.problem for one in found[:failing])
        return
    with pytest.raises(UserError) as caught:
        ask(tmp_path, server, asked, share)
    assert (caught.value.exit_code, caught.value.location) == (NETWORK, "--endpoint")
