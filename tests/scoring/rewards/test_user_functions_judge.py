"""scripts/examples/judge_reward.py: a judge behind a server as a reward, in a child process."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from support.listening import listen
from support.samples import ROOT

from agentlite.core.records import Gold, Message, Parsed, Tool
from agentlite.scoring.rewards import Attempt, ComponentError
from agentlite.scoring.rewards.user_functions import UserFunctions

REWARD = f"{ROOT / 'scripts/examples/judge_reward.py'}:judged"


class Grader(BaseHTTPRequestHandler):
    """Gives 4 to an answer that calls a tool, no score to one that is empty, and 1 to others."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = body["messages"][-1]["content"]
        assert "Tools: get_weather" in question and "Oslo" in question
        assert self.headers["Authorization"] == "Bearer secret" and body["model"] == "grader"
        answer = question.rpartition("<answer")[2]
        score = 4 if "get_weather" in answer else 1
        text = "no idea" if "nothing" in answer else json.dumps({"reason": "so", "score": score})
        reply = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Grader) as server:
        listen(server)
        monkeypatch.setenv("JUDGE_URL", f"http://127.0.0.1:{server.server_port}/v1")
        monkeypatch.setenv("JUDGE_MODEL", "grader")
        monkeypatch.setenv("JUDGE_KEY", "secret")
        yield
        server.shutdown()


def attempt(text: str) -> Attempt:
    return Attempt(
        Parsed(text),
        Gold((), known=False),
        [Tool("get_weather", "The weather of a city.")],
        text=text,
        messages=[Message("user", "Is it wet in Oslo?")],
    )


@pytest.mark.long
@pytest.mark.usefixtures("judge")
def test_a_judge_scores_candidates_of_prompts_without_gold() -> None:
    with UserFunctions([REWARD]) as functions:
        judged = functions["judged"]
        assert judged(attempt('get_weather(city="Oslo")')) == 0.8
        assert judged(attempt("It may be.")) == 0.2
        with pytest.raises(ComponentError, match="no score in the judge's text"):
            judged(attempt("nothing"))
