"""An OpenAI-compatible server whose replies a test writes itself; not a test itself."""

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from support.listening import listen

USAGE = {"prompt_tokens": 100, "completion_tokens": 10}  # of every reply
# a text, a whole message, or what the server does in place of a reply
Scripted = str | dict[str, Any] | Literal["HANGS", "DIES", "REFUSES"]


def ranking(question: str) -> str:
    """What a judge says who prefers short answers, and takes those of one length for equal."""
    answers = re.findall(r"<answer_(\d+) \w+>\n(.*?)\n</answer_", question, re.DOTALL)
    tiers: dict[int, list[int]] = {}
    for number, text in sorted(answers, key=lambda answer: len(answer[1])):
        tiers.setdefault(len(text), []).append(int(number))
    tied = [tier if len(tier) > 1 else tier[0] for tier in tiers.values()]
    return f"So:\n{json.dumps({'reason': 'short', 'ranking': tied})}"


class ScriptedServer:
    """`bodies`: of all requests but probes, in order; `keys`: what each was authorized with."""

    def __init__(self, reply: Callable[[dict[str, Any]], Scripted]):
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.reply = reply
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.keys.add(self.headers.get("authorization", ""))
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if body["messages"][-1]["content"] == "Say yes.":
                    said: Scripted = "Yes."
                else:
                    server.bodies.append(body)
                    said = server.reply(body)
                if said == "HANGS":
                    server.closing.wait(20)
                    return
                message = said if isinstance(said, dict) else {"content": said}
                finish = message.pop("finish_reason", "stop")
                choice = {"index": 0, "message": message, "finish_reason": finish}
                content = json.dumps({"choices": [choice], "usage": USAGE}).encode()
                self.send_response(400 if said == "REFUSES" else 200)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[:20] if said == "DIES" else content)
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        listen(self.http)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"

    def close(self) -> None:
        self.closing.set()
        self.http.shutdown()
        self.http.server_close()
