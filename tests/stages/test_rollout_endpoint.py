"""A model behind a server acts: its calls are carried out; a server that fails costs a rollout."""

import json
from collections import Counter

import pytest
from support.scripted_server import ScriptedServer
from support.shop import ITEMS, shop, tasks

import agentlite
from agentlite.core.errors import UserError
from agentlite.core.row_files import read_rows

pytestmark = pytest.mark.long  # a process for each world


class Server(ScriptedServer):
    """Knows the shop. `broken`: the items about which it is silent after their second turn."""

    def __init__(self):
        super().__init__(self.answer)
        self.broken, self.asked = set(), Counter()

    def answer(self, body):
        """As `script` of the shop, in OpenAI's own format."""
        messages = body["messages"]
        turn = sum(message["role"] == "assistant" for message in messages)
        item = next(one for one in ITEMS if f"Buy a {one}." in str(messages))
        self.asked[item, turn] += 1
        if item in self.broken and turn >= 2:
            return {"role": "assistant", "content": None}
        words = {2: "One is in your cart.", 4: "Now there are two."}.get(turn)
        name, given = ("search", {"query": item}) if turn == 0 else ("buy", {"item": item})
        function = {"name": name, "arguments": json.dumps(given)}
        call = {"id": f"x{turn}", "type": "function", "function": function}
        calls = {} if words else {"tool_calls": [call]}
        return {"role": "assistant", "content": words, **calls}


@pytest.fixture
def server():
    one = Server()
    yield one
    one.close()


def rollout(folder, server, name="run", **options):
    made = {"env": f"{folder / 'shop.py'}:Shop", "tasks": str(folder / "tasks.jsonl")}
    served = {"model": "keeper", "endpoint": (server.url,), "requests": {"tries": 1}}
    defaults = {"call_seconds": 60.0, "batch_size": 2}
    return agentlite.rollout(run=str(folder / name), **{**made, **served, **defaults, **options})


def rows(folder, name="run"):
    return list(read_rows(folder / name / "rollout/trajectories.jsonl"))


def test_a_served_model_does_every_task(tmp_path, server):
    shop(tmp_path, tasks())
    result = rollout(tmp_path, server, num_samples=2)
    assert result.figures["ended"] == {"user": 8} and result.figures["scores"] == {"env": 1.0}
    assert (result.figures["calls"], result.figures["failed_calls"]) == (24, 0)
    for row in rows(tmp_path):
        assert [turn["ids"] for turn in row["turns"]] == [[]] * 5
        assert {tuple(turn["prompt_ids"]) for turn in row["turns"]} == {()}
    # each is asked in OpenAI's own format, with the tools, and with a seed of its own
    bodies = server.bodies
    assert {body["model"] for body in bodies} == {"keeper"} and len(bodies) == 40
    assert all(len(body["tools"]) == 2 and body["max_tokens"] == 256 for body in bodies)
    assert len({body["seed"] for body in bodies}) == 40
    last = max(bodies, key=lambda body: len(body["messages"]))["messages"]
    assert [one["role"] for one in last] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant", "user", "assistant", "tool",
    ]  # fmt: skip
    assert last[1]["tool_calls"][0]["id"] == last[2]["tool_call_id"]
    assert rollout(tmp_path, server, num_samples=2).status == "up to date"
    prepared = agentlite.prep(
        run=str(tmp_path / "run"), trajectories=("rollout",), model="smollm2-135m", out="prep"
    )
    assert prepared.figures["read"] == 8 and prepared.figures["kept"] > 0


def test_too_many_end_the_run_and_the_same_command_goes_on_at_that_turn(tmp_path, server):
    shop(tmp_path, tasks())
    rollout(tmp_path, server, "whole")
    server.asked.clear()
    server.broken = {"pear"}
    with pytest.raises(UserError, match=r"1 of . rollouts have no answer") as found:
        rollout(tmp_path, server, max_failures=0)
    assert found.value.exit_code == 8 and found.value.location == server.url
    server.broken = set()
    assert rollout(tmp_path, server, max_failures=0).status == "done"
    assert rows(tmp_path) == rows(tmp_path, "whole")
    # what was answered is not asked for again
    assert server.asked.pop(("pear", 2)) == 2 and set(server.asked.values()) == {1}
