"""A model that makes data: asked once, cached; its servers, and the order of its answers."""

from pathlib import Path
from typing import Any

import pytest
from support.scripted_server import ScriptedServer

from agentlite.config.settings import QueriesSettings
from agentlite.core.errors import NETWORK, UserError
from agentlite.core.openai_client import Endpoint
from agentlite.stages import teacher
from agentlite.stages.teacher import Teacher, TeacherReply, answers, question, teacher_of


@pytest.fixture
def server():
    server = ScriptedServer(lambda body: f"{body['messages'][0]['content']} ({len(server.bodies)})")
    yield server
    server.close()


def opened(folder, server):
    endpoint = Endpoint(server.url, "writer", tries=1, pause=0.01, timeout=20.0)
    return Teacher([endpoint], folder / "replies.jsonl")


def texts(asked):
    return [reply.text for _, reply in sorted(asked, key=lambda item: item[0])]


def test_equal_questions_are_asked_once_whoever_asks_and_whenever(tmp_path, server):
    asked = [question("a"), question("b"), question("a"), question("a", temperature=1)]
    with opened(tmp_path, server) as teacher:
        first = texts(teacher.ask(asked))
        assert first[0] == first[2] != first[3] and len(server.bodies) == 3
        assert texts(teacher.ask(asked)) == first
    with opened(tmp_path, server) as teacher:  # another run
        assert texts(teacher.ask(asked[::-1])) == first[::-1] and len(server.bodies) == 3


@pytest.mark.parametrize(
    ("message", "text", "calls", "cut"),
    [
        ({"content": "It \ud83d rains."}, "It \ufffd rains.", False, False),
        ({"content": "It rai", "finish_reason": "length"}, "It rai", False, True),
        ({"content": None, "tool_calls": [{"id": "a"}]}, "", True, False),
        ({"content": ""}, "", False, False),
    ],
)
def test_a_reply_is_kept_as_it_is_read_again(tmp_path, server, message, text, calls, cut):
    server.reply = lambda _: dict(message)
    for _ in range(2):
        with opened(tmp_path, server) as teacher:
            [(_, found)] = teacher.ask([question("a")])
            assert (found.text, found.calls, found.cut) == (text, calls, cut)


@pytest.mark.parametrize(
    ("failing", "share", "refused"), [(1, 0.25, False), (1, 0.2, True), (2, 0.5, False)]
)
def test_answers_come_in_the_order_of_their_questions_and_a_share_may_be_missing(
    failing: int,
    share: float,
    refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Backwards:
        """In place of servers: the last question is answered first."""

        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> "Backwards":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def ask(self, questions: Any) -> Any:
            for number in reversed(range(len(questions))):
                problem = "silent" if number < failing else ""
                yield number, TeacherReply(f"{number}", f"answer {number}", problem=problem)

    monkeypatch.setattr(teacher, "Teacher", Backwards)
    settings = QueriesSettings(endpoint=("http://a/v1",), model="m", max_failures=share)
    served = teacher_of(settings, "make queries")
    asked = [question(f"{number}") for number in range(4)]
    if not refused:
        found = answers(served, asked, settings, tmp_path / "replies.jsonl", "title")
        assert [one.text for one in found] == [f"answer {number}" for number in range(4)]
        return
    with pytest.raises(UserError) as caught:
        answers(served, asked, settings, tmp_path / "replies.jsonl", "title")
    assert (caught.value.exit_code, caught.value.location) == (NETWORK, "--endpoint")
