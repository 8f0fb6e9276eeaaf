"""`vllm serve` over the model of support.simulated_vllm: the routes that TRL's client asks for.

The client is TRL's own, over HTTP. Only NCCL is replaced: `join` and `send` stand for the trainer's
side of vLLM's weight transfer, and the tensors go over a socket, in the order and under the names,
types and shapes that were announced. Simulated, not run on a GPU.
"""

import contextlib
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from support import simulated_vllm
from support.listening import listen
from support.simulated_vllm import LLM, Names, SamplingParams, VllmLlama

SECONDS = 60  # that a side waits for the other one
GONE = object()  # in place of a response: the connection breaks off


def join(init_info: dict[str, Any]) -> Any:
    """The trainer is rank 0, at which the workers of the server arrive."""
    with socket.create_server((init_info["master_address"], init_info["master_port"])) as door:
        door.settimeout(SECONDS)
        connection, _ = door.accept()
    return Names(socket=connection, group=Names(store=None, socket=None))


def send(
    iterator: Iterator[tuple[str, torch.Tensor]],
    group: Any,
    src: int,
    post_iter_func: Callable[[tuple[str, torch.Tensor]], torch.Tensor],
) -> None:
    buffer = io.BytesIO()
    torch.save([post_iter_func(item).clone() for item in iterator], buffer)
    content = buffer.getvalue()
    group.socket.sendall(len(content).to_bytes(8, "big") + content)


class VllmServer:
    """`updates`: the weights that came, by name; `calls`: what the engine was asked. `weights`:
    whether it was started so that it takes any. `dies_after`: answers, after which it is gone.
    """

    def __init__(
        self, folder: Path, weights: bool = True, longest: int = 512, dies_after: int = 10**9
    ):
        self.llm = LLM(model=str(folder), logprobs_mode="processed_logprobs", max_model_len=longest)
        self.config = self.llm.model.config
        self.updates: list[dict[str, torch.Tensor]] = []
        self.log: list[str] = []
        self.left, self.longest, self.takes_weights = dies_after, longest, weights
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(server.get(self.path))

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers.get("content-length") or 0))
                server.log.append(self.path)
                self.reply(server.post(self.path, json.loads(content or b"{}")))

            def reply(self, found: Any) -> None:
                if found is GONE:
                    self.close_connection = True
                    return
                content = json.dumps(found).encode()
                self.send_response(404 if found is None else 200)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        listen(self.http)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    @property
    def calls(self) -> list[simulated_vllm.Call]:
        return self.llm.calls

    def get(self, path: str) -> Any:
        if path == "/get_world_size":
            return {"world_size": 1} if self.takes_weights else None
        model = {"id": "m", "max_model_len": self.longest}
        return {"/health": {}, "/v1/models": {"data": [model]}}[path]

    def post(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/init_weight_transfer_engine":
            info = body["init_info"]
            assert (info["rank_offset"], info["world_size"]) == (1, 2)
            self.trainer = self.arrive(info["master_address"], info["master_port"])
        elif path == "/start_weight_update" and not self.left:
            return None
        elif path == "/update_weights":
            self.receive(**body["update_info"])
        elif path == "/v1/completions":
            return self.complete(body)
        return {"success": True}

    def arrive(self, host: str, port: int) -> socket.socket:
        for _ in range(SECONDS * 20):
            with contextlib.suppress(ConnectionRefusedError):
                connection = socket.create_connection((host, port), SECONDS)
                if connection.getsockname() != connection.getpeername():
                    return connection
                connection.close()  # its own port was that one, and it has met itself
            threading.Event().wait(0.05)
        raise TimeoutError("the trainer did not open the port")

    def receive(self, names: list[str], dtype_names: list[str], shapes: list[list[int]]) -> None:
        with self.trainer.makefile("rb") as stream:
            size = int.from_bytes(stream.read(8), "big")
            tensors = torch.load(io.BytesIO(stream.read(size)))
        came = [[str(one.dtype).removeprefix("torch."), list(one.shape)] for one in tensors]
        assert came == [list(pair) for pair in zip(dtype_names, shapes, strict=True)]
        named = dict(zip(names, tensors, strict=True))
        with self.lock:
            self.updates.append(named)
            self.llm.model = VllmLlama(named, self.config, torch.float32)

    def complete(self, body: dict[str, Any]) -> Any:
        fields = SamplingParams.__dataclass_fields__.keys() & body.keys()
        assert body.keys() - fields == {
            "model",
            "prompt",
            "return_token_ids",
            "return_tokens_as_token_ids",
        }
        with self.lock:
            self.left -= 1
            if self.left < 0:
                self.http.socket.close()
                return GONE
            (prompt,) = body["prompt"]
            wanted = SamplingParams(**{name: body[name] for name in fields})
            (output,) = self.llm.generate([{"prompt_token_ids": prompt}], wanted)
        one = output.outputs[0]
        likely = [next(iter(place.values())).logprob for place in one.logprobs or []]
        logprobs = {
            "tokens": [f"token_id:{each}" for each in one.token_ids],
            "token_logprobs": likely,
            "top_logprobs": [{} for _ in likely],
        }
        choice = {"prompt_token_ids": prompt, "token_ids": one.token_ids, "logprobs": logprobs}
        return {"choices": [choice]}

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
