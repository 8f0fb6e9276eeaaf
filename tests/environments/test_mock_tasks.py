"""Tools in a file and tasks that are done with them: what the world gets, and what is refused."""

import json

import pytest

from agentlite.core.errors import UserError
from agentlite.environments.mock_tasks import mock_tasks, read_tools_file

TOOLS = [{"type": "function", "function": {"name": "buy"}}]


def written(folder, **columns):
    (folder / "tasks.jsonl").write_text(json.dumps(columns) + "\n")
    return mock_tasks(TOOLS, folder / "tasks.jsonl")


def test_the_world_gets_its_tools_what_holds_in_it_and_the_right_calls(tmp_path):
    call = {"name": "buy", "arguments": {"item": "fig"}}
    columns = {"prompt": "A fig.", "user_turns": ["Two."], "gold": [[call], [call]]}
    (task,) = written(tmp_path, **columns, world={"figs": 2}, other=1)
    assert task.row == {
        "tools": TOOLS,
        "world": '{"figs": 2}',
        "user_turns": ["Two."],
        "gold": [call, call],
    }
    (bare,) = written(tmp_path, prompt="A fig.", world="No figs.", user={"goal": "a"})
    assert bare.row == {"tools": TOOLS, "world": "No figs.", "user_turns": [], "gold": None}
    assert bare.user == {"goal": "a"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "is not a list of tools"),
        ("[1]", "is not a list of tools"),
        ('[{"type": "function", "function": {}}]', "a tool without a name"),
    ],
)
def test_a_file_of_tools_that_cannot_be_used_is_refused(tmp_path, content, problem):
    path = tmp_path / "tools.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=problem) as found:
        read_tools_file(path)
    assert found.value.exit_code == 2 and found.value.location == str(path)
