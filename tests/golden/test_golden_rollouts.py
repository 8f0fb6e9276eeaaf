"""Trajectories of 20 rollouts: BFCL's right calls, and a scripted model in a shop."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.golden import Golden, digests
from support.scripted_server import ScriptedServer
from support.shop import ITEMS, shop, tasks

import agentlite

CALLS = {0: ("search", "query"), 1: ("buy", "item"), 3: ("buy", "item")}


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """A good shopper; with figs it names a tool that is not there, with plums an argument."""
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    item = next(item for item in ITEMS if re.search(f"Buy a {item}", str(body["messages"])))
    if turn not in CALLS:
        return {"content": f"There are {turn // 2} in the cart."}
    name, key = CALLS[turn]
    if item == "fig" and turn == 1:
        name = "steal"
    if item == "plum" and turn == 1:
        key = "thing"
    function = {"name": name, "arguments": json.dumps({key: item})}
    return {"content": None, "tool_calls": [{"id": f"x{turn}", "function": function}]}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer(answer)
    yield server
    server.close()


def test_a_scripted_model_in_a_shop(tmp_path: Path, server: ScriptedServer, golden: Golden) -> None:
    more = [{**task, "id": f"{task['id']}-{n}", "stock": n} for n in range(3) for task in tasks()]
    shop(tmp_path, more)
    agentlite.rollout(
        env=f"{tmp_path / 'shop.py'}:Shop",
        tasks=str(tmp_path / "tasks.jsonl"),
        model="shopper",
        endpoint=(server.url,),
        call_seconds=60.0,
        run=str(tmp_path),
    )
    golden("shop", digests(tmp_path / "rollout"))


def test_the_right_calls_of_bfcl(tmp_path: Path, golden: Golden) -> None:
    agentlite.rollout(
        env="bfcl:multi_turn_base", model="gold", limit=8, call_seconds=60.0, run=str(tmp_path)
    )
    golden("bfcl", digests(tmp_path / "rollout"))
