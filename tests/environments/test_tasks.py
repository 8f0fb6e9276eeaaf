"""A file of tasks is read as TRL has it, and a line that is none is named."""

import pytest

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Message
from agentlite.environments.tasks import EnvironmentTask, read_tasks, stored_tasks, write_tasks


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


def test_the_gold_is_the_right_calls_of_each_user_turn_and_the_question_the_group(tmp_path):
    known, silent = read(
        tmp_path,
        '{"prompt": "Wet?", "gold": [[{"name": "rain", "arguments": {"city": "Oslo"}}], []]}',
        '{"prompt": "WET"}',
    )
    assert known.gold == ((Call("rain", {"city": "Oslo"}),), ()) and silent.gold is None
    assert known.row["gold"] and known.group == silent.group == "wet"


def test_what_is_kept_of_a_task_comes_back_and_says_the_fewest_calls(tmp_path):
    rain = '{"name": "rain", "arguments": {"city": "Oslo"}}'
    made = read(
        tmp_path,
        f'{{"prompt": "A", "gold": [[{rain}], [], [{rain}, {rain}]]}}',
        f'{{"prompt": "B", "gold": [[{rain}]], "optimal_steps": 4}}',
        '{"prompt": "C", "optimal_steps": 2}',
        '{"prompt": "D", "gold": [[]]}',
        '{"prompt": "E"}',
    )
    assert stored_tasks(tmp_path / "none") == {}
    write_tasks(tmp_path, made)
    kept = stored_tasks(tmp_path)
    assert kept == {
        task.id: EnvironmentTask(task.id, (), task.row, task.gold, optimal_steps=task.optimal_steps)
        for task in made
    }
    assert [task.fewest_calls for task in kept.values()] == [3, 4, 2, 0, None]
    assert [task.row["prompt"] for task in kept.values()] == [*"ABCDE"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("null", "a row is a JSON object, and this is null"),
        ('{"prompt": Wet?}', "not JSON: Expecting value"),
        ('{"prompt": "Wet?", "gold": [{"name": "rain"}]}', "gold is not a list"),
        ('{"prompt": "Wet?", "gold": [[{"arguments": {}}]]}', "a call without a name"),
        ('{"prompt": "Wet?", "optimal_steps": 0}', "optimal_steps is not a whole number"),
        ('{"prompt": 3}', "not a text or a list"),
        ('{"prompt": [{"role": "user"}]}', "no role and text"),
        ('{"prompt": [{"role": "assistant", "content": "x"}]}', "another role than system or user"),
    ],
)
def test_a_line_that_is_no_task_is_named(tmp_path, line, problem):
    with pytest.raises(UserError) as found:
        read(tmp_path, '{"prompt": "Wet?"}', line)
    assert found.value.location.endswith("tasks.jsonl:2") and problem in found.value.problem
    assert found.value.fix and "--force" not in found.value.fix
    assert "E2" not in found.value.problem  # a sentence, without the code of a reject
