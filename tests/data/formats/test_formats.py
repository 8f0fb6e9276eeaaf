"""agentlite.data.formats: rows of any shape become records, or rejects that say why."""

import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from support.damaged_rows import FILES, rows, rows_in
from support.examples import sample
from support.samples import DATA

from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record
from agentlite.data.curation.validate import validate
from agentlite.data.formats import DIALOG_KEYS, FORMATS, detect_format, find_samples, to_record
from agentlite.data.formats.tool_calls import read_tools

TURNS = json.loads(FORMATS["openai"].example)["messages"]


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ({"message": TURNS}, "messages"),
        ({"dialog": TURNS}, "messages"),
        ({"conversatons": [{"from": "human", "value": "q"}]}, "conversations"),
        ({"instructions": "q", "input": "", "output": "a"}, "instruction"),
        ({"txt": "a"}, "text"),
    ],
)
def test_a_key_that_is_misspelt_gets_the_name_by_which_the_row_fits(row: Any, right: str) -> None:
    with pytest.raises(RowError) as caught:
        to_record(row)
    (wrong,) = row.keys() & {caught.value.at}
    assert caught.value.hint == f"Did you mean '{right}' in place of '{wrong}'?"
    to_record({right if key == wrong else key: value for key, value in row.items()})


@pytest.mark.parametrize("case", rows_in(DATA / "products.jsonl"), ids=lambda case: case["product"])
def test_a_row_of_a_product_is_read_right_or_refused_by_its_name(case: dict[str, Any]) -> None:
    """Never is a call kept as words. `towns`: of its calls; `refused`: what is said."""

    def read() -> Record:
        name, parts = find_samples(case["row"])
        record = to_record(parts[0], name)
        validate(record)
        return record

    if said := case.get("refused"):
        with pytest.raises(RowError) as refused:
            read()
        assert said in f"{refused.value.reason} {refused.value.hint}"
        return
    messages = read().messages
    towns = case.get("towns", ["Oslo"])
    calls = [call for message in messages for call in message.calls]
    assert [(call.name, call.arguments["city"]) for call in calls] == [
        ("get_rain", t) for t in towns
    ]
    assert all("4" in message.content for message in messages if message.role == "tool")
    words = [m.content for m in messages if m.role != "tool"]
    assert not [text for text in words if "get_rain" in text or "<" in text[-9:]]
    learned = [m for m in messages if m.role == "assistant"]
    assert all(m.loss for m in learned) and (learned[-1].calls or learned[-1].content)


def sample_rows(*names: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in names:
        for line in (DATA / f"formats/{name}.jsonl").read_text(encoding="utf-8").splitlines():
            yield name, json.loads(line)


@pytest.mark.parametrize("mark", [{"loss": False}, {"weight": 0}], ids=str)
def test_a_turn_that_says_so_is_not_learned_in_any_format_of_turns(mark: dict[str, Any]) -> None:
    formats = set()
    for name, row in sample_rows(
        *("anthropic", "apigen_mt", "hermes_fc", "ms_agent", "ms_agent_exec", "ms_bench"),
        *("ms_swift", "openai", "sharegpt", "toolace", "toolllama"),
    ):
        turns = row.get("messages") or row.get("conversations") or row.get("conversation") or []
        speakers = ("assistant", "gpt", "function_call", "tool_call")
        learned = [t for t in turns if t.get("from", t.get("role")) in speakers]
        for turn in learned:
            turn.update(mark)
        if learned:
            formats.add(name)
            messages = to_record(row, "ms_bench" if name == "ms_bench" else None).messages
            assert not [m for m in messages if m.role == "assistant" and m.loss], (name, row)
            assert all(m.loss for m in messages if m.role != "assistant") or name == "openai"
    assert len(formats) == 11


def test_a_system_text_beside_the_turns_comes_first_in_every_format_that_has_one() -> None:
    tested = set()
    for name, row in sample_rows(
        *("agentinstruct", "alpaca", "anthropic", "apigen_mt", "hermes_fc", "ms_agent"),
        *("ms_agent_exec", "ms_bench", "ms_swift", "sharegpt", "toolace"),
    ):
        record = to_record(row)
        if row.get("system") or record.messages[0].role == "system":
            continue
        with_system = to_record({**row, "system": "Be kind."}, detect_format(row))
        expected = (Message("system", "Be kind."), *record.messages)
        assert with_system.messages == expected, (name, row)
        tested.add(name)
    assert len(tested) == 11


SECOND = ("messages", "conversations", "prompt", "input", "contents")
OTHERS = [name for name in FORMATS if name not in ("agentlite", "bfcl")]


@pytest.mark.parametrize(("name", "key"), sample(30, [*product(OTHERS, SECOND)]))
def test_a_second_dialog_in_a_row_is_kept_or_refused_and_not_lost(name: str, key: str) -> None:
    own = json.loads(FORMATS[name].example)
    turns = [{"role": "user", "content": "Say 317."}, {"role": "assistant", "content": "317."}]
    row = {**own, key: turns}
    if key in own or not FORMATS[name].fits(row) or detect_format(row) != name:
        return
    try:
        record = to_record(row, name)
    except RowError as error:
        refused = error
    else:
        kept = str((record.messages, record.meta))
        assert "Say 317." in kept and repr(to_record(own, name).messages[0].content) in kept
        return
    assert refused.code == "E201" and repr(key) in str(refused)


# --- tools under a key that no format knows ---

OFFERED = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}},
    {"name": "tide", "description": "Looks it up.", "inputSchema": {"port": {"type": "str"}}},
]
TALKS = ("alpaca", "anthropic", "gemini", "langchain", "ms_swift", "openai", "prompt_completion")


@pytest.mark.parametrize("name", [*TALKS, "responses", "sharegpt"])
@pytest.mark.parametrize(
    "written", [list, json.dumps, repr, lambda tools: [*map(json.dumps, tools)]]
)
def test_tools_under_any_key_are_offered(name: str, written: Callable[[Any], Any]) -> None:
    """To a depth of three, and whether the row calls or not."""
    row = {key: value for key, value in json.loads(FORMATS[name].example).items() if key != "tools"}
    rows = [row, {"messages": TURNS[:1] + TURNS[-1:]}]
    for key, row in product(("available_tools", "x"), rows):
        value = written(OFFERED)
        for place in (value, {key: value}, [{"y": {key: value}}], json.dumps({key: value})):
            record = to_record({**row, key: place})
            assert record.tools == read_tools(OFFERED), (key, place)
    turns = [{**TURNS[0], "tools": written(OFFERED)}, *TURNS[1:]]
    assert to_record({"messages": turns}).tools == read_tools(OFFERED)
    calls = [{"name": "weather", "parameters": {"type": "rain"}}]
    assert not to_record({"messages": TURNS[-1:], "expected": written(calls)}).tools
    with pytest.raises(RowError, match="different lists of tools under 'a' and 'b'"):
        to_record({**row, "a": written(OFFERED), "b": written([{**OFFERED[1], "name": "b"}])})
    both = {"candidate_tools": written(OFFERED), "gold_tools": written(OFFERED[:1])}
    assert to_record({**row, **both}).tools == read_tools(OFFERED)


# --- calls ---

CALLS = [{"name": "weather", "arguments": {"city": city}} for city in ("Oslo", "Rome]}")]
WRITTEN = [*map(json.dumps, CALLS)]


@pytest.mark.parametrize("key", ["recipient", "to", "tool_name"])
@pytest.mark.parametrize("name", ["functions.weather", "weather"])
def test_a_turn_that_is_sent_to_a_tool_is_a_call_or_refused(key: str, name: str) -> None:
    """As gpt-oss writes it, with its thoughts in a message of their own."""
    thought = {"role": "assistant", "channel": "analysis", "content": "I look."}
    sent = {"role": "assistant", "channel": "commentary", key: name, "content": '{"city": "Oslo"}'}
    turns = [{"role": "developer", "content": "Be brief."}, TURNS[0], thought, sent]
    result = {"role": "tool", "name": name, "content": "4 mm"}
    row = {"messages": [*turns, result, TURNS[-1]], "tools": OFFERED}
    for place in ("tools", "available"):
        record = to_record({"messages": row["messages"], place: OFFERED})
        (call,) = record.messages[2].calls
        assert (call.name, call.arguments) == ("weather", {"city": "Oslo"})
        assert record.messages[3].call_id == call.id
    said = [*turns[:3], {**sent, "content": "print(1)"}]
    with pytest.raises(RowError, match=r"E206.*arguments are not JSON: 'print\(1\)'"):
        to_record({**row, "messages": said})


@pytest.mark.parametrize("name", ["openai", "sharegpt", "ms_swift", "alpaca"])
@pytest.mark.parametrize(
    "written",
    [
        f"<tool_call>[{', '.join(WRITTEN)}]</tool_call>",
        f"<tool_call>\n{WRITTEN[0]}\n{WRITTEN[1]}\n</tool_call>",
        f"<tool_call>{CALLS}</tool_call>",
        "".join(f"<tool_call>{call}</tool_call>" for call in WRITTEN),
    ],
)
def test_calls_may_share_a_tag_as_a_list_or_one_under_the_other(name: str, written: str) -> None:
    row = {
        "openai": {"messages": [TURNS[0], {"role": "assistant", "content": written}]},
        "sharegpt": {
            "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": written}]
        },
        "ms_swift": {"query": "q", "response": written},
        "alpaca": {"instruction": "q", "output": written},
    }[name]
    calls = to_record({**row, "tools": OFFERED}).messages[-1].calls
    assert [{"name": call.name, "arguments": call.arguments} for call in calls] == CALLS
    assert len({call.id for call in calls}) == 2


ORDINARY = (
    "Here is HTML:\n```html\n<div><p>Hi</p></div>\n```\nand CSS:\n```css\na{}\n```\nDone.",
    "Use <b>bold</b>, <i>it</i> and <code>x</code>.",
    "<thinking>hm</thinking>\n<answer>4</answer>",
    "<summary>short</summary>\n<details>long</details> end",
    "<draft>one</draft>\n<final>two</final>\nThat is it.",
    "Result: 42\nThe calculation is done.",
    "# Observation\nSunny days help plants. Action: water them.",
    '{"name": "tide", "description": "d", "parameters": {"type": "object", "properties": {}}}',
    "`<tool_call>` is a tag, and 1. Thought: plan\n2. Action: search is ReAct.",
    "I cannot answer that.",
)


@pytest.mark.parametrize("text", ORDINARY)
@pytest.mark.parametrize("tools", [[], OFFERED], ids=["none", "tools"])
def test_ordinary_answers_are_kept_word_for_word(text: str, tools: list[Any]) -> None:
    prompt = "Return a draft in <draft> tags, then return the final text in <final> tags."
    system = {"role": "system", "content": f'{prompt} {{"name": "tide", "parameters": {{}}}}'}
    turns = [system, TURNS[0], {"role": "assistant", "content": text, "tool": "tide"}]
    record = to_record({"messages": turns, "tools": tools, "orig_tools": OFFERED})
    assert record.messages[-1].content == text and not record.messages[-1].calls
    assert record.tools == read_tools(tools)


def test_what_is_thought_is_there_once_and_learned_as_its_turn_is() -> None:
    def analysis(text: str, **more: object) -> dict[str, object]:
        return {"role": "assistant", "channel": "analysis", "content": text, **more}

    answer = {"role": "assistant", "content": "Yes."}
    record = to_record({"messages": [TURNS[0], analysis("a"), analysis("b"), answer]})
    assert record.messages[-1].content == "<think>\na\n\nb\n</think>\n\nYes."
    alone = to_record({"messages": [TURNS[0], answer, TURNS[0], analysis("c")]})
    assert alone.messages[-1].content == "<think>\nc\n</think>\n\n"
    apart = to_record({"messages": [TURNS[0], analysis("a", weight=0), answer]})
    with pytest.raises(RowError, match=r"E203 .*two assistant turns|E203.*two assistant turns"):
        validate(apart)
    twice = {**answer, "content": "<think>a</think>Yes.", "reasoning_content": "a"}
    once = to_record({"messages": [TURNS[0], twice]}).messages[-1].content
    assert once == "<think>\na\n</think>\n\nYes."


# --- a dialog that is written as text ---


@pytest.mark.parametrize("name", FILES)
def test_a_dialog_that_is_written_as_text_is_the_same(name: str) -> None:
    """As columns of Parquet often are."""
    for row in rows(name):
        texts = {
            key: json.dumps(row[key], ensure_ascii=False)
            for key in DIALOG_KEYS
            if isinstance(row.get(key), list)
        }
        read, parts = find_samples(row)
        assert find_samples({**row, **texts}) == (read, parts)


@pytest.mark.parametrize("text", ["[{'role': 'user', 'content': 'Hi", '[{"role": "user"}'])
def test_a_dialog_as_text_that_is_cut_is_refused(text: str) -> None:
    with pytest.raises(RowError) as caught:
        find_samples({"messages": text})
    assert (caught.value.code, caught.value.at) == ("E201", "messages")


def test_a_question_that_begins_like_a_list_is_a_text() -> None:
    question = '[{"role": "user"}, what is this?'
    _, (row,) = find_samples({"prompt": question, "completion": "A list that is not closed."})
    assert to_record(row).messages[0].content == question


def test_a_dialog_under_messages_is_not_replaced_by_one_elsewhere() -> None:
    said = [{"role": "user", "content": "Wet?"}, {"role": "assistant", "content": "Yes."}]
    other = [{"role": "user", "content": "Dry?"}, {"role": "assistant", "content": "OTHER"}]
    for row in ({"trajectory": other}, {"values": {"messages": other}}):
        _, (part,) = find_samples({"messages": said, **row}, None)
        assert part["messages"] == said


def test_words_in_the_part_of_a_call_and_a_list_of_values_are_kept() -> None:
    call = {"name": "f", "args": {}}
    returned = [{"mm": 4}, {"mm": 5}]
    parts = [
        ("user", {"text": "Wet?"}),
        ("model", {"text": "I look.", "functionCall": call}),
        ("user", {"functionResponse": {"name": "f", "response": returned}}),
        ("model", {"text": "Yes."}),
    ]
    declared = [{"functionDeclarations": [{"name": "f"}]}]
    row = {"contents": [{"role": role, "parts": [part]} for role, part in parts], "tools": declared}
    record = FORMATS["gemini"].read(row)
    assert record.messages[1].content == "I look." and record.messages[1].calls[0].name == "f"
    assert json.loads(record.messages[2].content) == returned
