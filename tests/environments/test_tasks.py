"""A file of tasks is read as TRL has it, and a line that is none is named."""

import gzip
import json

import pytest

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Message
from agentlite.environments.tasks import (
    for_class,
    read_task_rows,
    read_tasks,
    refuse_silent,
    write_task_rows,
)


def read(folder, *lines, completed=for_class):
    path = folder / "tasks.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return list(read_tasks(path, completed))


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
    assert read_task_rows(tmp_path / "none") == {}
    write_task_rows(tmp_path, made)
    kept = read_task_rows(tmp_path)
    assert kept == {task.id: task.kept for task in made}
    assert [task.fewest_calls for task in kept.values()] == [3, 4, 2, 0, None]
    assert [task.row["prompt"] for task in kept.values()] == [*"ABCDE"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"promt": "Wet?"}', "a task has no prompt, and has promt"),
        ('{"Prompt": "Wet?"}', "a task has no prompt, and has Prompt"),
        ('{"prompts": ["Wet?"], "city": "Oslo"}', "a task has no prompt, and has prompts"),
        ('{"prompt": ""}', "no prompt with words of the user's"),
        ('{"prompt": " \\n"}', "no prompt with words of the user's"),
        ("null", "a row is a JSON object, and this is null"),
        ("3", "a row is a JSON object"),
        ('["Wet?"]', "a row is a JSON object, and this is a list"),
        ('{"prompt": Wet?}', "not JSON: a value is missing"),
        ('{"prompt": "Wet?"', "not JSON"),
        ('{"prompt": "Wet?", "gold": 3}', "gold is not a list"),
        ('{"prompt": "Wet?", "gold": [{"name": "rain"}]}', "gold is not a list"),
        ('{"prompt": "Wet?", "gold": [[{"arguments": {}}]]}', "a call without a name"),
        ('{"prompt": "Wet?", "optimal_steps": 0}', "optimal_steps is not a whole number"),
        ('{"prompt": "Wet?", "optimal_steps": true}', "optimal_steps is not a whole number"),
        ('{"prompt": "Wet?", "optimal_steps": "2"}', "optimal_steps is not a whole number"),
        ('{"prompt": 3}', "not a text or a list"),
        ('{"prompt": null}', "not a text or a list"),
        ('{"prompt": ["Wet?"]}', "no role and text"),
        ('{"prompt": [{"role": "user"}]}', "no role and text"),
        ('{"prompt": [{"role": "user", "content": 3}]}', "no role and text"),
        ('{"prompt": [{"role": "assistant", "content": "x"}]}', "another role than system or user"),
        ('{"prompt": [{"role": 1, "content": "x"}]}', "another role than system or user"),
    ],
)
def test_a_line_that_is_no_task_is_named(tmp_path, line, problem):
    with pytest.raises(UserError) as found:
        read(tmp_path, '{"prompt": "Wet?"}', line)
    assert found.value.location.endswith("tasks.jsonl:2") and problem in found.value.problem
    assert found.value.fix and "--force" not in found.value.fix
    assert "E2" not in found.value.problem  # a sentence, without the code of a reject


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([("user", "Wet?")], [("system", "Be brief."), ("user", "WET")], True),
        ([("system", "A."), ("user", "Wet?")], [("system", "B."), ("user", "Wet?")], True),
        ([("user", "Wet?")], [("user", "Dry?")], False),
        ([("user", "Wet?")], [("user", "Wet?"), ("user", "Now?")], False),
        ([("system", "Wet?"), ("user", "Now?")], [("system", "Now?"), ("user", "Wet?")], False),
    ],
)
def test_tasks_with_the_same_words_of_the_user_are_a_group(tmp_path, one, other, same):
    """They fall on one side of a split, whatever the system text says."""
    rows = [
        {"prompt": [{"role": role, "content": text} for role, text in said]}
        for said in (one, other)
    ]
    first, second = read(tmp_path, *map(json.dumps, rows))
    assert (first.group == second.group) is same


def test_a_key_that_is_nearly_prompt_is_the_one_that_was_meant(tmp_path):
    with pytest.raises(UserError) as found:
        read(tmp_path, '{"promt": "Wet?"}')
    assert found.value.fix == "Did you mean 'prompt'?"
    # columns of a world that has the first words itself
    rows = read(tmp_path, '{"prompt_id": 3}', '{"promt": "a column", "prompt": "Wet?"}')
    assert [task.asks for task in rows] == [False, True]


SILENT = ('{"city": "Oslo"}', '{"prompt": []}', '{"prompt": [{"role": "system", "content": "B"}]}')


@pytest.mark.parametrize("line", [*SILENT, '{"prompt": [{"role": "user", "content": " "}]}'])
def test_a_class_may_have_the_first_words_and_no_other_world_is_silent(tmp_path, line):
    (task,) = read(tmp_path, line)
    assert not task.asks

    def completed(task):
        refuse_silent(task)
        return task

    with pytest.raises(UserError, match="no prompt with words of the user's"):
        read(tmp_path, line, completed=completed)


def test_an_array_packed_rows_and_blank_lines_are_read_as_prep_reads_them(tmp_path):
    rows = [{"prompt": "Wet?"}, {"prompt": "Dry?"}]
    texts = {
        "array.json": json.dumps(rows, indent=1),
        "blank.jsonl": "\ufeff\n" + "\n\n".join(map(json.dumps, rows)),
    }
    contents = {name: text.encode() for name, text in texts.items()}
    contents["packed.jsonl.gz"] = gzip.compress("\n".join(map(json.dumps, rows)).encode())
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        made = list(read_tasks(tmp_path / name, for_class))
        assert [task.row for task in made] == rows
        assert all(task.place.startswith(f"{tmp_path / name}:") for task in made)


def test_bytes_that_are_not_utf_8_are_named_with_their_line(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes('{"prompt": "Wet?"}\n{"prompt": "Nässe?"}\n'.encode("latin-1"))
    with pytest.raises(UserError) as found:
        list(read_tasks(path, for_class))
    assert found.value.location == f"{path}:2" and "not UTF-8" in found.value.problem
    assert "in UTF-8" in found.value.fix and "--repair" not in found.value.fix


def test_a_task_is_named_by_its_id_and_its_place(tmp_path):
    (task,) = read(tmp_path, '{"prompt": "Wet?"}')
    assert task.name == f"{task.id} ({tmp_path / 'tasks.jsonl'}:1)"
    assert task._replace(place="").name == task.id
