"""agentlite.data.formats.ms_agent: a chain of thoughts, actions and observations in one text."""

from typing import Any

import pytest
from support.read_rows import record_of, rejected, rows_of
from support.samples import DATA

from agentlite.core.errors import RowError
from agentlite.data.curation.validate import validate
from agentlite.data.formats import to_record


def test_an_ms_agent_chain_is_split_at_its_observations() -> None:
    record = record_of("ms_agent")
    validate(record)
    assert [m.role for m in record.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    search, found, ring, rung, answer = record.messages[1:6]
    assert (search.content, search.calls[0].arguments) == (
        "先搜索绿茶。",
        {"keywords": {"种类": "绿茶"}, "limit": 2},
    )
    assert found.content == "[{'name': '龙井', 'price': '88'},\n {'name': '碧螺春', 'price': '90'}]"
    assert (ring.content, ring.calls[0].name, ring.calls[0].arguments) == (
        "现在打电话。",
        "call_shop",
        {},
    )
    assert (found.call_id, rung.call_id) == (search.calls[0].id, ring.calls[0].id)
    assert answer.content == "推荐两款：\n1. 龙井\n2. 碧螺春"
    assert not any("Observation" in m.content for m in record.messages if m.role == "assistant")


def test_the_apis_of_a_react_prompt_are_tools_and_its_frame_is_gone() -> None:
    record = record_of("ms_agent")
    assert not any(message.role == "system" for message in record.messages)
    search, ring = record.tools
    assert (search.name, search.description, ring.description) == (
        "tea_search",
        "Call this tool to interact with the tea search API. What is the tea search API useful "
        "for? .",
        "Call this tool to interact with the shop calling API. This API rings the shop.",
    )
    assert search.parameters == {
        "type": "object",
        "required": ["keywords"],
        "properties": {
            "keywords": {"description": "茶叶关键词"},
            "limit": {"description": "how many"},
        },
    }
    row = rows_of(DATA / "formats" / "ms_agent.jsonl")[0].value
    row["conversations"][0]["value"] = f"You sell tea.\n\n{row['conversations'][0]['value']}"
    assert to_record(row).messages[0].content == "You sell tea."


def test_an_api_with_the_words_of_the_frame_alone_has_no_description() -> None:
    row = rows_of(DATA / "formats" / "ms_agent.jsonl")[0].value
    own = "the shop calling API. This API rings the shop."
    frame = "the call_shop API. What is the call_shop API useful for?"
    assert own in row["conversations"][0]["value"]
    row["conversations"][0]["value"] = row["conversations"][0]["value"].replace(own, frame)
    assert to_record(row).tools[1].description == ""


@pytest.mark.parametrize("system", ["You sell tea.", "", None])
def test_a_chain_needs_no_react_prompt_before_it(system: str | None) -> None:
    row = chain("Action: f\nAction Input: {}\nObservation: 1\nFinal Answer: a")
    row["conversations"].insert(0, {"from": "system", "value": system})
    record = to_record(row)
    assert record.tools == ()
    assert [message.role for message in record.messages if message.role != "system"][1:] == [
        "assistant",
        "tool",
        "assistant",
    ]


def test_a_very_long_number_in_a_react_prompt_is_text() -> None:
    row = rows_of(DATA / "formats" / "ms_agent.jsonl")[0].value
    before = to_record(row).tools
    row["conversations"][0]["value"] = row["conversations"][0]["value"].replace(
        "\n1. ", f"\n{'9' * 5000}. x: y\n1. "
    )
    assert to_record(row).tools == before


def chain(text: str) -> dict[str, Any]:
    return {"conversations": [{"from": "user", "value": "q"}, {"from": "assistant", "value": text}]}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Action: f\nAction Input: Oslo\nObservation: 1\nFinal Answer: a", "E206"),
        ("Action: f\nAction Input: ['Oslo']\nObservation: 1\nFinal Answer: a", "E208"),
        ("Action: f\nAction Input: {'a': " + "[" * 70_000 + "\nObservation: 1", "E206"),
        ("Action: f\nAction Input: {'a': open('x')}\nObservation: 1", "E206"),
        ("Observation: 1\nFinal Answer: a", "E214"),
        ("Action: f\nObservation: 1\nFinal Answer: a", "E214"),
        ("Action: f\nFinal Answer: a", "E214"),
        ("Action: f\nAction Input: {}\nAction: g\nAction Input: {}\nObservation: 1", "E214"),
    ],
)
def test_a_chain_that_cannot_be_taken_apart_is_rejected(text: str, code: str) -> None:
    assert rejected(lambda: to_record(chain(text), "ms_agent")) == code


def test_an_answer_without_its_label_is_kept() -> None:
    text = (
        "Action: f\nAction Input: {}\nObservation: 1\nThought: I now know the final answer\nIt "
        "is one."
    )
    assert to_record(chain(text)).messages[-1].content == "It is one."


def test_a_number_out_of_its_order_is_part_of_a_description() -> None:
    apis = (
        "1. weather: The weather.\n3. snow: none before noon. Parameters: []\n"
        '2. clock: The time. Parameters: [{"name": "zone"}]'
    )
    system = (
        "Answer the following questions as best you can. You have access to the following APIs:\n"
        f"{apis}\n\nUse the following format:\n\nThought: so\nBegin!"
    )
    turns = [("system", system), ("user", "Is it wet?"), ("assistant", "Yes.")]
    record = to_record({"conversations": [{"from": of, "value": text} for of, text in turns]})
    assert [tool.name for tool in record.tools] == ["weather", "clock"]
    assert record.tools[0].description == "The weather.\n3. snow: none before noon."
    assert [*record.tools[1].parameters["properties"]] == ["zone"]


@pytest.mark.parametrize("loss", [True, False])
def test_an_input_that_goes_on_into_a_result_is_refused_where_it_is_learned(loss: bool) -> None:
    tool = {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}}
    chain = "Action: weather\nAction Input: Oslo\nResult: 4\nObservation: 4 mm\nFinal Answer: Yes."
    turns = [("user", "Wet?", {}), ("assistant", chain, {"loss": loss})]
    messages = [{"role": of, "content": text, **more} for of, text, more in turns]
    row = {"messages": messages, "tools": [tool]}
    if loss:
        with pytest.raises(RowError, match="an input that holds a result"):
            to_record(row)
    else:
        call, result, answer = to_record(row).messages[1:]
        assert call.calls[0].arguments == {"city": "Oslo\nResult: 4"}
        assert (result.content, answer.content) == ("4 mm", "Yes.")


@pytest.mark.parametrize("end", ["Final Answer: a", "Thought: It is a."])
def test_an_empty_observation_ends_a_chain_only_where_nothing_follows(end: str) -> None:
    step = "Action: f\nAction Input: {}\nObservation:"
    whole = to_record(chain(f"{step}\nThought: Again.\n{step} 4\n{end}"), "ms_agent")
    roles = [message.role for message in whole.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [one.content for one in whole.messages if one.role == "tool"] == ["", "4"]
    begun = to_record(chain(f"{step} 4\n{step}"), "ms_agent")
    assert [message.role for message in begun.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.parametrize("label", ["", "Question: "])
@pytest.mark.parametrize("blank", ["\n", "\n\n", " \n  \n"])
def test_the_steps_that_a_prompt_ends_with_are_turns_that_are_not_learned(
    label: str, blank: str
) -> None:
    system = rows_of(DATA / "formats" / "ms_agent.jsonl")[0].value["conversations"][0]["value"]
    steps = "Thought: I ring.\nAction: call_shop\nAction Input: {}\nObservation: open\nThought:"
    prompt = f"{system}\n{label}Is it open?{blank}{steps}"
    record = to_record({"instruction": prompt, "output": "I know.\nFinal Answer: Yes."})
    validate(record)
    question, call, result, answer = record.messages
    assert (question.role, question.content) == ("user", "Is it open?")
    assert (call.content, call.calls[0].name, call.loss) == ("I ring.", "call_shop", False)
    assert (result.content, answer.loss) == ("open", True)


@pytest.mark.parametrize(
    ("begin", "between", "end"), [("", "\n", ""), ("[\n", ",\n", "\n]"), ("[", " ,\n", ",]")]
)
@pytest.mark.parametrize("dot", ["", "."])
def test_a_classic_list_of_tools_gives_each_its_name_and_description_and_one_input(
    begin: str, between: str, end: str, dot: str
) -> None:
    tools = {
        "weather": "The weather, today, of a town.",
        "tea_search": "Finds tea [green, black].",
        "say": "Name: what is said, Description: how",
    }
    apis = between.join(f"Name: {name}{dot} Description: {about}" for name, about in tools.items())
    system = (
        "Answer the following questions as best you can. You have access to the following tools:\n"
        f"{begin}{apis}{end}\n\nUse the following format:\n\nThought: so\nBegin!"
    )
    turns = [("system", system), ("user", "Is it wet?"), ("assistant", "Yes.")]
    record = to_record({"conversations": [{"from": of, "value": text} for of, text in turns]})
    assert {tool.name: tool.description for tool in record.tools} == tools
    assert {(*tool.parameters["properties"],) for tool in record.tools} == {("input",)}


@pytest.mark.parametrize("begin", ["", " ", "\t"])
@pytest.mark.parametrize("end", ["", " ", "\n", " \n\n"])
def test_blanks_around_a_result_change_nothing_in_the_chain_or_in_a_turn_of_its_own(
    begin: str, end: str
) -> None:
    step, result = "Action: f\nAction Input: {}", f"{begin}Observation: 4 mm{end}"
    within = chain(f"{step}\n{result}\nFinal Answer: Yes.")
    turns = [
        ("user", "q"),
        ("assistant", step),
        ("user", result),
        ("assistant", "Final Answer: Yes."),
    ]
    apart = {"conversations": [{"from": of, "value": text} for of, text in turns]}
    for row in (within, apart):
        _, call, found, answer = to_record(row, "ms_agent").messages
        assert (call.calls[0].name, found.content, answer.content) == ("f", "4 mm", "Yes.")
