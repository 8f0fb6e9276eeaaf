"""llama.cpp's server in a process of its own: a GGUF file -> greedy answers to prompts."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agentlite.config.settings import EvalSettings
from agentlite.core.errors import MODEL, UserError
from agentlite.core.records import Ending, GreedyAnswer
from agentlite.engine import torch
from agentlite.rendering import Prompt, Protocol
from agentlite.rendering.template import Template


@contextlib.contextmanager
def run_server(program: Path, model: Path, max_length: int) -> Iterator[str]:
    """The address of a server that answers. Raises UserError 5 for a file that cannot be loaded."""
    import httpx

    with socket.socket() as probe:  # port 0: the system gives one that is free
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [str(program), "-m", str(model), "--host", "127.0.0.1", "--port", port]
    command += ["-c", str(max_length), "-np", "1", "-t", str(torch.get_num_threads())]
    address, sink = f"http://127.0.0.1:{port}", subprocess.DEVNULL
    with subprocess.Popen(command, stdout=sink, stderr=sink) as process:
        try:
            is_ready = False
            while not is_ready:
                if process.poll() is not None:
                    problem = f"{program.name} ended with code {process.returncode}."
                    raise UserError(problem, location=model.name, exit_code=MODEL)
                time.sleep(0.1)
                with contextlib.suppress(httpx.TransportError):  # it does not listen yet
                    is_ready = httpx.get(f"{address}/health", timeout=None).is_success
            yield address
        finally:
            process.terminate()


def ask_llama_cpp(
    program: Path,
    model: Path,
    settings: EvalSettings,
    template: Template,
    prompts: Sequence[Prompt],
    protocols: Mapping[str, Protocol],
) -> Iterator[GreedyAnswer]:
    """Prompts go as texts, which the file's own tokenizer cuts; an answer ends where the file says
    or with a stop string of its protocol. Raises what `run_server` raises.
    """
    import httpx

    with (
        run_server(program, model, settings.max_length) as address,
        httpx.Client(base_url=address, timeout=None) as client,
    ):
        for prompt in prompts:
            body = {
                "prompt": template.decode(prompt.ids),
                "temperature": 0,
                "n_predict": settings.max_new_tokens,
                "stop": protocols[prompt.protocol].stops,
            }
            reply = client.post("/completion", json=body).raise_for_status().json()
            ended: Ending = "cut" if reply["stop_type"] == "limit" else "turn"
            yield GreedyAnswer(*prompt.step, "", reply["content"] + reply["stopping_word"], ended)
