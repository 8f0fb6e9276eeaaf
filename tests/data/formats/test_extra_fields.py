"""What stands under keys that a format does not know is heeded, whatever the format: what rows say
of themselves. Words, calls and results are refused there.
"""

import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from support.damaged_rows import refused
from support.examples import sample

from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.curation.coreset import wording
from agentlite.data.curation.task_labels import classify
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, detect_format, find_samples, to_record
from agentlite.data.formats.openai import THOUGHT_KEYS, THOUGHT_PART_KEYS

# rows of these hold what agentlite or BFCL wrote, and nothing else
CLOSED = {"agentlite", "bfcl"}
LOCATIONS = {
    "the row": lambda fields: fields,
    "metadata": lambda fields: {"metadata": fields},
    "meta": lambda fields: {"meta": fields},
}

PAIRS = [*product([name for name in FORMATS if name not in CLOSED], LOCATIONS)]


def read(name: str, fields: dict[str, Any]) -> Record:
    row = json.loads(FORMATS[name].example)
    row = {key: value for key, value in row.items() if key != "split"} | fields
    _, parts = find_samples(row, name)
    return to_record(parts[0], name)


@pytest.mark.parametrize(
    ("given", "kept"),
    [(0, "0"), ("0", "0"), (7, "7"), ("row 7", "row 7"), ("", None), (None, None)],
)
def test_the_id_of_a_row_is_kept_also_if_it_is_the_first(given: object, kept: str | None) -> None:
    assert read("alpaca", {"id": given}).meta.get("source_id") == kept


@pytest.mark.parametrize(("name", "location"), sample(26, PAIRS))
def test_the_loss_of_a_row_is_its_proxy_loss_in_every_format(name: str, location: str) -> None:
    record = read(name, LOCATIONS[location]({"loss": 3.25}))
    assert wording(record).proxy_loss == 3.25
    unsaid = read(name, LOCATIONS[location]({"other": 3.25}))
    assert wording(unsaid).proxy_loss != 3.25


@pytest.mark.parametrize(("name", "location"), sample(26, PAIRS))
def test_the_task_type_of_a_row_is_its_task_in_every_format(name: str, location: str) -> None:
    if name == "sage_benchmark":  # whose own task_type says how its truth is written
        return
    names = {"tool_retrieval": "tool_retrieval", "timing_judgment": "timing_decision"}
    for said, task in names.items():
        record, rule = classify(read(name, LOCATIONS[location]({"task_type": said})))
        assert (record.task, rule) == (task, "said")
    unknown = read(name, LOCATIONS[location]({"task_type": "a task of nobody"}))
    assert classify(unknown)[0].task == classify(read(name, {}))[0].task


@pytest.mark.parametrize(("name", "location"), sample(26, PAIRS))
def test_the_split_that_a_row_names_is_its_split_in_every_format(name: str, location: str) -> None:
    refuses_others = name in ("sage_sft", "sage_benchmark") and location == "the row"
    names = {"train": "train", "dev": "dev", "test": "test"}
    others = {"validation": "dev", "Val": "dev", "train_sft": "", "": "", 3: ""}
    for said, split in (names if refuses_others else names | others).items():
        assert read(name, LOCATIONS[location]({"split": said})).split == split


# --- words, calls and results ---

Row = dict[str, Any]
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
CALL = {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
MADE = {"toolCallId": "x", "toolName": "f", "args": {"a": 1}, "result": 4}


def openai(**turn: object) -> Row:
    return {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", **turn}]}


def sharegpt(content: object = None, **turn: object) -> Row:
    answer = {"from": "gpt", "value": content, **turn}
    return {"conversations": [{"from": "human", "value": "Hi"}, answer]}


def anthropic(**turn: object) -> Row:
    return {"system": "Be brief.", **openai(**turn)}


def ms_swift(**turn: object) -> Row:
    return openai(**{"loss_scale": 1.0, **turn})


def agentinstruct(content: object = None, **turn: object) -> Row:
    row = sharegpt(content, **{"loss": True, **turn})
    row["conversations"][0]["loss"] = None
    return row


WRITERS: dict[str, Callable[..., Row]] = {
    "openai": openai,
    "sharegpt": sharegpt,
    "anthropic": anthropic,
    "ms_swift": ms_swift,
    "agentinstruct": agentinstruct,
}
# calls as other tools keep them beside the words
TOOL_CALLS_KEYS: dict[str, Row] = {
    "ai_sdk_4": {"toolInvocations": [{"state": "result", **MADE}]},
    "ai_sdk_5": {"parts": [{"type": "tool-f", "state": "output-available", **MADE}]},
    "langchain": {"additional_kwargs": {"tool_calls": [CALL]}},
    "langchain_older": {"additional_kwargs": {"function_call": {"name": "f", "arguments": "{}"}}},
    "langchain_invalid": {"invalid_tool_calls": [{"name": "f", "args": "{", "id": "x"}]},
    "gemini": {"parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]},
    "bedrock": {"blocks": [{"toolUse": {"toolUseId": "x", "name": "f", "input": {"a": 1}}}]},
    "ag2": {"tool_responses": [{"tool_call_id": "x", "role": "tool", "content": "4"}]},
}
# what clients and servers write beside a message
HARMLESS: Row = {
    "id": "msg_1",
    "timestamp": "2026-01-01T00:00:00Z",
    "usage": {"output_tokens": 3, "server_tool_use": {"web_search_requests": 0}},
    "response_metadata": {"model_name": "m", "finish_reason": "tool_calls"},
    "annotations": [],
    "invalid_tool_calls": [],
    "audio": None,
    "logprobs": {"content": [{"token": "Hi", "logprob": -0.1}]},
}


def valid(row: Row) -> Record:
    record = to_record({**row, "tools": [TOOL]})
    validate(record)
    return record


@pytest.mark.parametrize("name", WRITERS)
def test_the_rows_written_here_are_of_their_formats(name: str) -> None:
    assert detect_format(WRITERS[name](content="Hello.")) == name
    assert valid(WRITERS[name](content="Hello.")).messages[-1].content == "Hello."


@pytest.mark.parametrize(("name", "calls"), sample(20, [*product(WRITERS, TOOL_CALLS_KEYS)]))
def test_calls_beside_the_words_are_refused_where_they_are_not_read(name: str, calls: str) -> None:
    row = WRITERS[name](content="I look.", **TOOL_CALLS_KEYS[calls])
    with pytest.raises(RowError) as caught:
        valid(row)
    assert (caught.value.code, caught.value.at) == ("E206", next(iter(TOOL_CALLS_KEYS[calls])))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "key"),
    sample(12, [*product(WRITERS, ("text", "parts", "blocks", "items", "refusal"))]),
)
def test_words_under_another_key_are_named_where_a_message_has_no_content(
    name: str, key: str
) -> None:
    value = "Hello." if key in ("text", "refusal") else [{"type": "text", "text": "Hello."}]
    if (name, key) == ("anthropic", "parts"):  # as the AI SDK has it
        assert valid(WRITERS[name](content=None, parts=value)).messages[-1].content == "Hello."
        return
    with pytest.raises(RowError, match=key) as caught:
        valid(WRITERS[name](content=None, **{key: value}))
    assert caught.value.code == "E216"


@pytest.mark.parametrize("name", WRITERS)
def test_what_a_server_writes_beside_a_message_costs_no_row(name: str) -> None:
    plain = WRITERS[name](content="Hello.")
    assert valid(WRITERS[name](content="Hello.", **HARMLESS)).messages == valid(plain).messages


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("key", ["loss", "weight", "train"])
def test_a_turn_that_a_row_takes_out_of_training_is_not_learned(name: str, key: str) -> None:
    for value in (False, 0, 0.0):
        assert not valid(WRITERS[name](content="Hello.", **{key: value})).messages[-1].loss
    for value in (True, 1, None):
        assert valid(WRITERS[name](content="Hello.", **{key: value})).messages[-1].loss
    for value in ("false", "0", 0.5, []):
        assert refused(lambda v=value: valid(WRITERS[name](content="Hello.", **{key: v}))) == "E201"  # type: ignore[misc]


# --- thoughts ---

THINKS = "I greet."
SUMMARY = [{"type": "summary_text", "text": THINKS}]
PARTS: dict[str, Row] = {
    "a part of Anthropic's": {"type": "thinking", "thinking": THINKS, "signature": "x"},
    "a part of LangChain's": {"type": "reasoning", "reasoning": THINKS},
    "a part of the AI SDK's": {"type": "reasoning", "text": THINKS},
    "a part of Magistral's": {"type": "thinking", "thinking": [{"type": "text", "text": THINKS}]},
    "a summary": {"type": "reasoning", "summary": SUMMARY},
}
KEYS = [key for key in THOUGHT_KEYS if "_" in key or key in ("reasoning", "thinking", "thought")]


def thinking() -> Iterator[tuple[str, Row]]:
    """Rows of every format whose answer is `Hello.`, behind a thought."""
    for (name, writer), key in product(WRITERS.items(), KEYS):
        yield f"{name} {key}", writer(content="Hello.", **{key: THINKS})
    for kind, part in PARTS.items():
        content = [part, {"type": "text", "text": "Hello."}]
        yield kind, openai(content=content)
        langchain = [{"type": "human", "content": "Hi"}, {"type": "ai", "content": content}]
        yield f"{kind}, LangChain", {"messages": langchain}
        yield f"{kind}, twice", openai(content=content, reasoning=THINKS)
    for key in THOUGHT_PART_KEYS:
        yield key, openai(content="Hello.", **{key: [{"type": "thinking", "thinking": THINKS}]})
    parts = [{"text": THINKS, "thought": True}, {"text": "Hello."}]
    contents = [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": parts}]
    yield "gemini", {"contents": contents}
    said = {"type": "message", "role": "assistant", "content": "Hello."}
    yield "responses", {"input": "Hi", "output": [{"type": "reasoning", "summary": SUMMARY}, said]}


def test_a_thought_of_any_format_is_the_same_turn_as_in_tags() -> None:
    expected = valid(openai(content=f"<think>\n{THINKS}\n</think>\n\nHello.")).messages[-1]
    for name, row in thinking():
        assert valid(row).messages[-1] == expected, name
    for name in ("openai", "sharegpt", "ms_swift"):
        assert (
            refused(lambda n=name: valid(WRITERS[n](content="", thinking="a</think>b"))) == "E215"
        )  # type: ignore[misc]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("key", ["partial", "prefix"])
def test_an_answer_that_is_only_begun_is_not_learned(name: str, key: str) -> None:
    for value, learned in ((True, False), (False, True), (None, True)):
        assert valid(WRITERS[name](content="Sure: ", **{key: value})).messages[-1].loss is learned
