"""Prompt templates in files: what is refused, what a prompt holds, and that no later stage needs
the file. The properties of every protocol are in tests/rendering/test_protocols.py.
"""

import shutil

import pytest
from msgspec.structs import replace
from support.samples import PROMPT_TEMPLATES, TIME, WEATHER

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Message, Record, Tool, to_json
from agentlite.rendering import choose, mixture_of, render, renderer
from agentlite.rendering.protocols import prompt_template

CLERK = next(path for path in PROMPT_TEMPLATES if path.stem == "clerk")
TEXT = CLERK.read_text(encoding="utf-8")
by_file = pytest.mark.parametrize("path", PROMPT_TEMPLATES, ids=lambda path: path.stem)


def read(folder, text, name="mine"):
    path = folder / f"{name}.txt"
    path.write_text(text, encoding="utf-8")
    return prompt_template.read_templates(path)[0]


@by_file
def test_a_prompt_holds_every_tool_the_goal_what_was_done_and_the_system_text(
    path, smollm2, dialog
):
    record = replace(dialog, tools=(WEATHER, TIME))
    (protocol,) = choose(str(path), smollm2).protocols.values()
    first, second, third = render(record, protocol, smollm2)
    for row in (first, second, third):
        shown = row.text[: row.spans[0].start]
        assert shown.count("Be brief") == 1 and "{" + "tools}" not in shown
        assert all(tool.name in shown and tool.description in shown for tool in record.tools)
    assert "Is it wet in Oslo?" in first.text and "rain_mm" not in first.text
    assert '{"user": "Is it wet in Oslo?"}' not in first.text  # the goal stands elsewhere
    assert '{"user": "Are you sure?"}' not in third.text
    done = '{"tool": "get_weather", "result": "{\\"rain_mm\\": 4}"}'
    assert done in second.text and done in third.text
    assert "Are you sure?" in third.text and '{"user": "Is it wet in Oslo?"}' in third.text


@by_file
def test_a_step_is_a_whole_turn_whose_prompt_holds_the_profile_and_every_call(path, dialog):
    (found,) = prompt_template.read_templates(path)
    protocol = found.protocol
    assert (protocol.stops, protocol.inline) == ((), False)
    profile = dict(prompt_template.SLOT.findall(found.text))["Profile"].strip()
    finish = Tool("Finish", "Ends it.")
    record = replace(dialog, tools=(WEATHER, finish))
    for turn in record.turns:
        (exchange,) = protocol.exchanges(record, turn)
        assert f"Be brief.\n{profile}" in exchange.prompt
        calls = [call for message in record.messages[:turn] for call in message.calls]
        for call in calls:
            written = to_json({"name": call.name, "arguments": call.arguments})
            assert f'"calls": [{written}]' in exchange.prompt
        listed = "\n".join(map(prompt_template.LISTINGS[found.tools], (1, 2), record.tools))
        assert listed in exchange.prompt and exchange.prompt.count("Ends it.") == 1
        assert "Ends the task" not in exchange.prompt
        read = protocol.read(exchange.answer, record.tools)
        expected = [(call.name, call.arguments) for call in record.messages[turn].calls]
        assert [(call.name, call.arguments) for call in read.calls] == expected
        assert not exchange.answer.rstrip().endswith("Observation:")


def test_a_text_with_places_is_written_as_it_is(smollm2):
    messages = (Message("user", "What is {memory} in {tools}?"), Message("assistant", "A {goal}."))
    (protocol,) = choose(str(CLERK), smollm2).protocols.values()
    (row,) = render(Record(messages=messages, tools=(WEATHER,)), protocol, smollm2)
    assert "The request: What is {memory} in {tools}?" in row.text
    assert renderer.span_text(row, row.spans[0], smollm2) == "A {goal}."


@by_file
def test_a_prompt_explains_calls_in_the_language_of_its_template(path, smollm2):
    (found,) = prompt_template.read_templates(path)
    in_chinese = bool(prompt_template.HAN.search(found.text))
    ways = prompt_template.FORMATS[found.calls]
    for goal in ("下雨吗？", "Is it wet?"):
        messages = (Message("user", goal), Message("assistant", "x"))
        shown = prompt_template.write_prompt(found, Record(messages=messages, tools=(WEATHER,)), 1)
        assert (ways.chinese in shown, ways.english in shown) == (in_chinese, not in_chinese)


@by_file
def test_what_is_written_is_read_again(path, tmp_path):
    (found,) = prompt_template.read_templates(path)
    again = read(tmp_path, prompt_template.to_text(found), path.stem)
    assert again == found


def test_a_setting_of_a_plan_needs_no_file(tmp_path, smollm2):
    folder = tmp_path / "templates"
    folder.mkdir()
    for path in PROMPT_TEMPLATES:
        shutil.copy(path, folder)
    mixture = choose(f"hermes=2,{folder},react=.5", smollm2)
    shutil.rmtree(folder)
    again = mixture_of(mixture.setting, smollm2)
    assert again.weights == mixture.weights and again.setting == mixture.setting
    assert again.weights == {
        "hermes": 2.0,
        **{path.stem: 1.0 for path in PROMPT_TEMPLATES},
        "react": 0.5,
    }
    call = Call("get_weather", {"city": "Oslo"}, "call_0")
    record = Record(
        messages=(Message("user", "x"), Message("assistant", calls=(call,))), tools=(WEATHER,)
    )
    for name, protocol in mixture.protocols.items():
        assert render(record, again.protocols[name], smollm2) == render(record, protocol, smollm2)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("<Goal>The request: {goal}</Goal>", "", "missing slot: Goal"),
        ("</Goal>", "</Goal><Goal>{goal}</Goal>", "double slot: Goal"),
        ("</Goal>", "", "slot without an end"),
        ("</Goal>", "</Goal> Hello!", "text outside the slots: 'Hello!'"),
        ("{goal}", "it", "wrong places: Goal must hold {goal} once"),
        ("{goal}", "{goal} {goal}", "wrong places: Goal"),
        ("You keep promises.", "{tools}", "wrong places: Profile must hold no place"),
        ("You are a careful clerk. You keep promises.", " ", "empty slot: Profile"),
        ("calls: hermes", "calls: chat", "calls: 'chat' is none of hermes"),
        ("tools: json", "tools: xml", "tools: 'xml' is none of json"),
        ("tools: json", "color: red", "'color: red' is not a line of its head"),
        ("tools: json", "calls: hermes", "'calls: hermes' is not a line of its head"),
    ],
)
def test_a_file_that_is_none_is_refused_with_what_is_wrong(tmp_path, old, new, problem):
    assert old in TEXT
    with pytest.raises(UserError) as refused:
        read(tmp_path, TEXT.replace(old, new))
    assert problem in refused.value.problem
    assert refused.value.location == str(tmp_path / "mine.txt")


@pytest.mark.parametrize("name", ["hermes", "two words", "ö"])
def test_a_name_that_is_none_or_is_taken_is_refused(tmp_path, name, smollm2):
    path = tmp_path / f"{name}.txt"
    path.write_text(TEXT, encoding="utf-8")
    with pytest.raises(UserError, match="named hermes" if name == "hermes" else "not a name"):
        choose(str(path), smollm2)
