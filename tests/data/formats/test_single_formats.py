"""Single formats: what the tables of test_formats_tables.py cannot say of them."""

import json
from typing import Any

import pytest
from support.chain_rows import CONTAINERS
from support.damaged_rows import Row, rows

from agentlite.core.errors import RowError
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, detect_format, questions, sage, to_record
from agentlite.data.formats import find_samples as samples_of
from agentlite.rendering import choose, renderer
from agentlite.rendering.protocols import kuaiagent
from agentlite.rendering.template import Template

# --- prompts ---


def test_what_may_be_left_out_is_not_written() -> None:
    parameters = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    gold = [{"name": "weather", "arguments": {"city": ["Oslo"], "days": ["", 3]}}]
    row = {"prompt": "Wet?", "tools": [{"name": "weather", "parameters": parameters}], "gold": gold}
    (call,) = to_record(row).messages[1].calls
    assert call.arguments == {"city": "Oslo"}


# --- self_cognition ---

ROWS = rows("self_cognition")
NAMES = {"names": {"name": ("小鸽", "Little Dove"), "author": ("鸽舍", "the loft")}}
EXPECTED: list[tuple[str, str, dict[str, Any]]] = [
    ("你是谁？", "我是小鸽，由鸽舍训练。", {"tag": "zh"}),
    ("Who are you?", "I'm Little Dove, made by the loft. Little Dove!", {"tag": "en"}),
    ("Are you Little Dove?", "Yes.", {"tag": "en"}),
    ("hello", 'Hello! {"a": {}} {{name}}', {"source_id": "3", "tag": "en"}),
    ("你叫小鸽吗", "是的。", {"tag": "zh", "extra": {"rank": 2}}),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_pair_is_filled_in_by_the_language_of_the_row(
    row: Row, expected: tuple[str, str, dict[str, Any]]
) -> None:
    record = to_record(row, "self_cognition", NAMES)
    assert questions.SELF_COGNITION.fits(row)
    assert (*(message.content for message in record.messages), record.meta) == expected
    assert [message.role for message in record.messages] == ["user", "assistant"]
    assert record.task == "self_cognition"
    validate(record)


@pytest.mark.parametrize("container", sorted({*CONTAINERS} - {"self_cognition"}))
@pytest.mark.parametrize("marks", [("{{NAME}}", "{{AUTHOR}}"), ("{{name}}", "{{author}}")])
def test_placeholders_are_filled_in_or_refused_in_every_container(
    container: str, marks: tuple[str, str]
) -> None:
    for said, names in (("我是{}，由{}训练。", "小鸽 鸽舍"), ("I am {}, by {}.", "Dove loft")):
        row = CONTAINERS[container]("", [("Who?", said.format(*marks))])
        options = {"names": {"name": ("小鸽", "Dove"), "author": ("鸽舍", "loft")}}
        record = to_record(row, options=options)
        assert said.format(*names.split()) in record.messages[-1].content
        assert record.task == "self_cognition" or container == "agentlite"
        one = {"names": {"name": ("Ada",), "author": ("Ada",)}}
        assert said.format("Ada", "Ada") in to_record(row, options=one).messages[-1].content
        for lacking in ({"names": {}}, {"names": {"name": ("Ada",)}}):
            with pytest.raises(RowError, match=r"E216.* would be learned as it stands"):
                to_record(row, options=lacking)


def test_a_placeholder_in_code_or_in_what_the_user_says_is_no_name() -> None:
    letters = ("Dear {{name}}, I am glad.", "Written by {{author}}.", "{{name}} prints a variable.")
    for text in ("`{{name}}`", "<b>{{name}}</b>", "{% if x %}{{author}}", "{{ NAME }}", *letters):
        row = {"instruction": "Who is {{NAME}}?", "output": text}
        assert [m.content for m in to_record(row, options={"names": {}}).messages] == [
            "Who is {{NAME}}?",
            text,
        ]


# --- text ---


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"id": "1", "url": "http://rain.example", "timestamp": "2026-01-01"}, ""),  # C4
        ({"dump": "CC", "file_path": "s3://x", "language_score": 0.9}, ""),  # FineWeb
        ({"meta": {"pile_set_name": "Books3"}, "added": "2026", "source": "dolma"}, ""),
        ({"title": "Rain", "category": "weather", "label": None}, ""),
        ({"label": 1}, "label"),
        ({"id": "1", "summary": "Rain."}, "summary"),
        ({"answer": "Yes.", "url": "x"}, "answer"),
        ({"chosen": "a", "rejected": "b"}, "chosen, rejected"),
        ({"entities": []}, "entities"),
    ],
)
def test_a_text_is_plain_text_beside_metadata_alone(more: Row, named: str) -> None:
    row = {"text": "x", **more}
    if not named:
        assert detect_format(row) == "text"
        return
    with pytest.raises(RowError, match=named) as caught:
        samples_of(row)
    assert caught.value.code == "E202"
    assert "--format text" in caught.value.hint
    assert samples_of(row, "text") == ("text", [row])  # the user says so


# --- kagentinstruct ---


FRAME = kuaiagent.ENGLISH


def asked(answer: str) -> Row:
    commands = '1:{"name": "f"}\n2:{"name": "g"}'
    empty = dict.fromkeys(("tasks", "history", "knowledge"), "[]")
    texts = {"steps": 5, "form": FRAME.form, "done": kuaiagent.DONE, "commands": commands, **empty}
    return {"instruction": FRAME.plan.format(goal="q", **texts), "input": "", "output": answer}


def task(name: str, **arguments: str) -> dict[str, Any]:
    return {"task_name": name, "command": {"name": name, "args": arguments}}


@pytest.mark.parametrize("fence", ["{}", "```json\n{}\n```"])
def test_tasks_in_a_list_are_the_calls_of_a_turn(fence: str) -> None:
    for tasks in ([task("f", a="1")], [task("f", a="1"), task("g")]):
        message = to_record(asked(fence.replace("{}", json.dumps(tasks)))).messages[-1]
        assert [call.name for call in message.calls] == [one["task_name"] for one in tasks]
        assert message.calls[0].arguments == {"a": "1"} and message.content.startswith("f")
    with pytest.raises(RowError, match=r"E206.*the end of a task beside other tasks"):
        to_record(asked(json.dumps([task("f"), task("task_complete")])))


@pytest.mark.parametrize("protocol", ["kuaiagent", "kuaiagent-zh", "autogpt", "hermes"])
@pytest.mark.parametrize("listed", [False, True])
def test_the_end_of_a_task_is_a_decision_that_is_learned_and_read_back(
    protocol: str, listed: bool, smollm2: Template
) -> None:
    ends = task("task_complete")
    record = to_record(asked(json.dumps([ends] if listed else ends)))
    assert [tool.name for tool in record.tools] == ["f", "g", "task_complete"]
    chosen = choose(protocol, smollm2).protocol_of(record)
    (rendered,) = rows_of = renderer.render(record, chosen, smollm2)
    renderer.check_reading(record, rows_of, chosen, smollm2)
    assert rendered.text.count('"name": "task_complete"') == 2  # on offer, and called
    assert record.gold_at(record.turns[-1]).calls[0].name == "task_complete"


# --- sage_sft ---


@pytest.mark.parametrize("inside", [False, True], ids=["beside the turns", "in metadata"])
@pytest.mark.parametrize("candidates", [None, [], ["rain_001", "tide_002"], ["tide_002", "snow"]])
def test_the_target_is_on_offer_once_whether_or_not_it_is_among_the_candidates(
    candidates: list[str] | None, inside: bool
) -> None:
    named = {"candidate_tools": candidates}
    row = {**json.loads(sage.DIALOGS.example), **({"metadata": named} if inside else named)}
    orders = [
        [tool.name for tool in sage.read_dialog({**row, "dialog_id": f"sft_{n}"}).tools]
        for n in range(40)
    ]
    names = {"rain_001", *(candidates or ())}
    assert all(sorted(order) == sorted(names) for order in orders)
    # in some dialogs every tool comes first: the place does not tell which one is the target
    assert {order[0] for order in orders} == names


# --- formats_own_words ---

BEFORE, BEHIND = "Speak like a pirate.", "Never guess."
# the formats whose system text lists the tools in a frame of theirs
FRAMED = ["glaive", "toolace", "hermes_fc", "toolllama", "ms_agent_exec", "ms_agent"]


def between_words(system: str) -> str:
    label = "SYSTEM: " if system.startswith("SYSTEM: ") else ""  # glaive's, which comes first
    return f"{label}{BEFORE}\n{system.removeprefix(label)}\n{BEHIND}"


def with_words(row: dict[str, Any]) -> dict[str, Any]:
    """The row with words of its author before and behind what its system text says."""
    if "system" in row:
        return {**row, "system": between_words(row["system"])}
    first, *rest = row["conversations"]
    return {**row, "conversations": [{**first, "value": between_words(first["value"])}, *rest]}


@pytest.mark.parametrize("name", FRAMED)
def test_words_around_a_list_of_tools_are_the_system_text_in_every_format(name: str) -> None:
    row = json.loads(FORMATS[name].example)
    plain, found = to_record(row, name), to_record(with_words(row), name)
    assert found.messages[0].role == "system"
    said = found.messages[0].content.split("\n")
    assert (said[0], said[-1]) == (BEFORE, BEHIND)
    assert "functions" not in found.messages[0].content  # the frame is gone
    assert (found.tools, found.messages[-2:]) == (plain.tools, plain.messages[-2:])
