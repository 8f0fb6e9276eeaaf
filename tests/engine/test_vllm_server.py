"""grpo whose answers a vLLM server samples: plain TRL and its client, over a simulated card.

Simulated, not run on a GPU: of vLLM there is what support.simulated_vllm_server has.
"""

import subprocess
import sys
from importlib import util
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.examples import turn
from support.processes import TIMEOUT, environment, free_port, run
from support.samples import DATA
from support.simulated_card import environment_with
from support.simulated_cuda import needs_simulation, simulated

import agentlite
from agentlite.config.gpu_profiles import Gpu
from agentlite.config.settings import GrpoSettings
from agentlite.core.errors import NETWORK, USAGE, UserError
from agentlite.engine import training_log, vllm_sampler, vllm_server
from agentlite.engine.grpo import AnswerReward

CARD = Gpu("NVIDIA GeForce RTX 3060", 12, 11.5, 8.6)
URL = "http://127.0.0.1:8000"


@pytest.fixture
def machine(monkeypatch):
    """With a card and vLLM."""
    find = util.find_spec
    monkeypatch.setattr(vllm_sampler, "card", lambda: CARD)
    monkeypatch.setattr(util, "find_spec", lambda name: name == "vllm" or find(name))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"vllm": True}, "either here or on the server"),
        ({"load_in_4bit": True}, "none of 4 or 8 bits"),
        ({"load_in_8bit": True}, "none of 4 or 8 bits"),
        ({"vllm_server": "localhost:8000"}, "not the address"),
        ({"vllm_server": "http://me:secret@host"}, "holds a name, a password"),
    ],
    ids=str,
)
def test_what_a_server_cannot_sample_is_refused_with_the_cause(machine, settings, problem):
    with pytest.raises(UserError) as error:
        vllm_sampler.refuse(GrpoSettings(**{"vllm_server": URL, **settings}))
    assert problem in error.value.problem and error.value.exit_code == USAGE and error.value.fix
    assert error.value.location == "grpo.vllm_server"


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
@pytest.mark.parametrize("settings", [{}, {"full": True}, {"peft": {"use_dora": True}}], ids=str)
def test_what_a_server_can_sample_is_not_refused(machine, settings, engine):
    vllm_sampler.refuse(GrpoSettings(vllm_server=URL, engine=engine, **settings))


def test_a_server_that_is_not_there_is_an_error_that_says_how_to_start_it():
    port = free_port()
    with pytest.raises(UserError) as error:
        vllm_server.check(GrpoSettings(vllm_server=f"http://127.0.0.1:{port}/v1"))
    assert error.value.exit_code == NETWORK and error.value.location.endswith(str(port))
    assert "VLLM_SERVER_DEV_MODE=1 vllm serve" in error.value.fix


@pytest.mark.torch
@pytest.mark.parametrize(
    ("started", "problem", "fix"),
    [
        ({"weights": False}, "takes no weights", "VLLM_SERVER_DEV_MODE=1"),
        ({"longest": 99}, "takes 99 tokens, and max_length is 128", "--max-model-len 128"),
    ],
)
def test_a_server_that_cannot_serve_the_run_is_refused(tiny_model, started, problem, fix):
    from support.simulated_vllm_server import VllmServer

    server = VllmServer(tiny_model, **started)
    with pytest.raises(UserError, match=problem) as error:
        vllm_server.check(GrpoSettings(vllm_server=server.url, max_length=128))
    assert fix in error.value.fix and error.value.exit_code == USAGE
    server.close()


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_an_address_is_taken_with_and_without_the_path_that_clients_write(end):
    assert vllm_server.address(GrpoSettings(vllm_server=f"{URL}{end}")) == URL


@pytest.mark.parametrize(
    ("url", "proxies"),
    [
        *((f"http://{host}:8000", False) for host in ("localhost", "127.0.0.1", "[::1]")),
        ("http://gpu.example:8000/v1", True),
    ],
)
def test_a_server_on_this_machine_is_asked_without_a_proxy(url, proxies, monkeypatch):
    import httpx

    asked: list[tuple[str, bool]] = []

    def get(url: str, *, timeout: float, trust_env: bool) -> httpx.Response:
        asked.append((url, trust_env))
        return httpx.Response(200, json={"data": [{"max_model_len": 128}]})

    monkeypatch.setattr(httpx, "get", get)
    vllm_server.check(GrpoSettings(vllm_server=url, max_length=128))  # rows as long as it takes
    base = url.removesuffix("/v1")
    assert asked == [(f"{base}/v1/models", proxies), (f"{base}/get_world_size", proxies)]
    with pytest.raises(UserError, match="takes 128 tokens, and max_length is 129"):
        vllm_server.check(GrpoSettings(vllm_server=url, max_length=129))


def test_another_server_than_vllms_is_refused(monkeypatch):
    import httpx

    monkeypatch.setattr(httpx, "get", lambda *_, **__: httpx.Response(200, text="<html>"))
    with pytest.raises(UserError, match="is not a vLLM server"):
        vllm_server.check(GrpoSettings(vllm_server=URL))


@pytest.fixture(scope="module")
def workspace(tiny_model, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("run")
    agentlite.prep(str(DATA / "weather.jsonl"), run=str(run), model=str(tiny_model), dev=0, test=0)
    return run


@pytest.fixture(scope="module")
def port() -> int:
    """Over which the weights go."""
    return free_port()


def grpo(
    folder: Path, model: Path, scratch: Path, *words: object
) -> subprocess.CompletedProcess[str]:
    """Six steps on the card."""
    scratch.mkdir()
    (scratch / "mine.py").write_text(
        "def odd(attempt):\n    return sum(map(ord, attempt.text)) % 7 / 6\n"
    )
    short = "--max-steps 6 --save-steps 1 -b 2 --group-size 2 --lr 1e-2 --rewards mine.py:odd"
    return run(
        [
            *(sys.executable, "-m", "agentlite", "grpo", "--run", str(folder)),
            *("--model", str(model), "--load-in-4bit", "false", "--gradient-accumulation", "1"),
            *("--max-length", "512", "--max-new-tokens", "4", *short.split(), *map(str, words)),
        ],
        env=environment_with("rtx3060", scratch, environment(), vllm=True),
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        server="rtx3060 vllm plain",
    )


def sampled_by_what_was_sent(server: Any, rows: list[dict[str, Any]]) -> None:
    """Six steps of two answers, by other weights at each."""
    assert len(server.updates) == 6 and len(server.calls) == 12
    assert server.log[:3] == [
        "/init_weight_transfer_engine",
        "/start_weight_update",
        "/update_weights",
    ]
    assert len({call.parameters[0].seed for call in server.calls}) == 12
    assert all(call.parameters[0].include_stop_str_in_output for call in server.calls)
    name = "model.layers.1.mlp.down_proj.weight"
    sent = [update[name] for update in server.updates]
    assert all(not one.equal(other) for one, other in pairwise(sent))
    # the trainer agrees with the server at the start and five updates later
    assert [row["step"] for row in rows if "sampler_gap" in row] == [1, 6]
    assert all(row["sampler_gap_max"] < 0.05 for row in rows if "sampler_gap" in row)
    assert all(row["importance"] == pytest.approx(1, abs=0.05) for row in rows)


@pytest.mark.torch
def test_each_step_is_sampled_by_the_weights_that_trl_sent_for_it(
    workspace, tiny_model, port, tmp_path
):
    needs_simulation("rtx3060")
    from support.simulated_vllm_server import VllmServer

    server = VllmServer(tiny_model)
    words = ("--engine", "hf", "--vllm-server", server.url, "--set")
    words += (f"grpo.trl.vllm_group_port={port}",)
    done = grpo(workspace, tiny_model, tmp_path / "scratch", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    sampled_by_what_was_sent(server, training_log.logged(workspace / "grpo"))


def trained_with_unsloth(model: str, folder: str, url: str, port: int) -> list[dict[str, Any]]:
    from support import trainers

    from agentlite.engine import grpo as trainer

    settings = trainers.grpo(
        vllm_server=url,
        max_steps=6,
        batch_size=2,
        group_size=2,
        gradient_accumulation=1,
        max_new_tokens=4,
        max_length=128,
        learning_rate=1e-2,
        trl={"vllm_group_port": port},
    )
    decoding = trainers.task().decoding._replace(max_new_tokens=4)

    def judge(answers: Any) -> list[AnswerReward]:
        odd = [sum(answer.sample.ids) % 7 for answer in answers]
        return [AnswerReward({"even": one, "long": 0.0, "timeout": 0.0}) for one in odd]

    task = trainers.task(judge)._replace(decoding=decoding)
    trainer.train(trainers.source(Path(model)), settings, Path(folder), lambda _: task)
    return training_log.logged(Path(folder))


@pytest.mark.torch
def test_unsloths_model_is_sent_as_well(tiny_model, port, tmp_path):
    from support.simulated_vllm_server import VllmServer

    server = VllmServer(tiny_model)
    given = (tiny_model, tmp_path, server.url, port)
    sampled_by_what_was_sent(server, simulated(trained_with_unsloth, *given, vllm=True))


@turn(1, of=2)
@pytest.mark.torch
def test_a_server_that_dies_ends_the_run_and_the_same_command_carries_on_with_another(
    workspace, tiny_model, port, tmp_path
):
    needs_simulation("rtx3060")
    from support.simulated_vllm_server import VllmServer

    refusing = VllmServer(tiny_model, dies_after=0)
    dying, other = VllmServer(tiny_model, dies_after=7), VllmServer(tiny_model)
    words = (
        "--engine",
        "hf",
        "--out",
        "again",
        "--set",
        f"grpo.trl.vllm_group_port={port}",
        "--vllm-server",
    )
    done = grpo(workspace, tiny_model, tmp_path / "none", *words, refusing.url)
    assert done.returncode == NETWORK and "Request failed: 404" in done.stderr, done.stderr
    done = grpo(workspace, tiny_model, tmp_path / "scratch", *words, dying.url)
    assert done.returncode == NETWORK, done.stdout + done.stderr
    assert "the vLLM server failed" in done.stderr and "carries on" in done.stderr
    assert "Traceback" not in done.stderr
    kept = [row["step"] for row in training_log.logged(workspace / "again")]
    done = grpo(workspace, tiny_model, tmp_path / "more", *words, other.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert kept == [1, 2, 3] and len(other.updates) == 3
    assert [row["step"] for row in training_log.logged(workspace / "again")] == [*range(1, 7)]
