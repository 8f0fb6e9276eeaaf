"""What a task of an MCP server says, and the line of one that says it wrongly."""

import json

from agentlite.environments.mcp_tasks import mcp_tasks


def written(folder, **columns):
    (folder / "tasks.jsonl").write_text(json.dumps(columns) + "\n")
    return mcp_tasks("python server.py", folder / "tasks.jsonl")


def test_the_world_gets_the_server_the_user_and_the_right_calls(tmp_path):
    buy = {"name": "buy", "arguments": '{"item": "fig"}'}
    read = {"name": "buy", "arguments": {"item": "fig"}}
    columns = {"prompt": "A fig.", "user_turns": ["Two."], "gold": [[buy], [], [buy]]}
    (task,) = written(tmp_path, **columns, reset_calls=[{"name": "open"}], level=3)
    assert task.row == {
        "server": "python server.py",
        "user_turns": ["Two."],
        "reset_calls": [{"name": "open", "arguments": {}}],
        "gold": [read, read],
    }
    assert task.messages[0].content == "A fig." and len(task.gold) == 3
    (bare,) = written(tmp_path, prompt="A fig.")
    nothing = {"user_turns": [], "reset_calls": [], "gold": None}
    assert bare.row == {"server": "python server.py", **nothing}
