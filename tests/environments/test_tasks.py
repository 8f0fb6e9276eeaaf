"""A file of tasks is read as TRL has it, and a line that is none is named."""

import pytest

from agentlite.core.errors import UserError
from agentlite.core.records import Message
from agentlite.environments.tasks import read_tasks


def read(folder, *lines):
    path = folder / "tasks.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return list(read_tasks(path))


def test_a_prompt_is_a_text_or_messages_or_left_to_the_world(tmp_path):
    text, messages, none = read(
        tmp_path,
        '{"prompt": "Wet?", "city": "Oslo", "id": "oslo"}',
        '{"prompt": [{"role": "system", "content": "B"}, {"role": "user", "content": "W"}]}',
        '{"city": "Rome"}',
    )
    assert text.id == "oslo" and text.messages == (Message("user", "Wet?"),)
    assert text.row == {"prompt": "Wet?", "city": "Oslo", "id": "oslo"}
    assert messages.messages == (Message("system", "B"), Message("user", "W"))
    assert none.messages == () and none.id != messages.id and len(none.id) == 16


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"prompt": 3}', "neither a text nor a list"),
        ('{"prompt": null}', "neither a text nor a list"),
        ('{"prompt": ["Wet?"]}', "no role and text"),
        ('{"prompt": [{"role": "user"}]}', "no role and text"),
        ('{"prompt": [{"role": "user", "content": 3}]}', "no role and text"),
        ('{"prompt": [{"role": "assistant", "content": "x"}]}', "neither the system's nor"),
        ('{"prompt": [{"role": 1, "content": "x"}]}', "neither the system's nor"),
    ],
)
def test_a_line_that_is_no_task_is_named(tmp_path, line, problem):
    with pytest.raises(UserError) as found:
        read(tmp_path, '{"prompt": "Wet?"}', line)
    assert found.value.location.endswith("tasks.jsonl:2") and problem in found.value.problem
