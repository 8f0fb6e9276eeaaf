"""agentlite.data.formats: results of parallel calls where a row names no ids, in every format that
is written so.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agentlite.data.curation.validate import validate
from agentlite.data.formats import detected, to_record

Row = dict[str, Any]
Pairs = Sequence[tuple[str, int]]  # name of a tool, argument of its call, which its result repeats
PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = [{"name": name, "description": "", "parameters": PARAMETERS} for name in "fg"]


def openai(calls: Pairs, results: Pairs, key: str = "") -> Row:
    made = [{"function": {"name": name, "arguments": {"n": n}}} for name, n in calls]
    answers = [
        {"role": "tool", "content": str(n), **({key: name} if key else {})} for name, n in results
    ]
    first = [{"role": "user", "content": "Do it."}, {"role": "assistant", "tool_calls": made}]
    last = {"role": "assistant", "content": "Done."}
    return {"messages": [*first, *answers, last], "tools": TOOLS}


def named(calls: Pairs, results: Pairs) -> Row:
    return openai(calls, results, "name")


def ollama(calls: Pairs, results: Pairs) -> Row:
    return openai(calls, results, "tool_name")


def langchain(calls: Pairs, results: Pairs) -> Row:
    made = [{"name": name, "args": {"n": n}} for name, n in calls]
    answers = [{"type": "tool", "content": str(n), "name": name} for name, n in results]
    first = [{"type": "human", "content": "Do it."}, {"type": "ai", "tool_calls": made}]
    return {"messages": [*first, *answers, {"type": "ai", "content": "Done."}], "tools": TOOLS}


def gemini(calls: Pairs, results: Pairs) -> Row:
    made = [{"functionCall": {"name": name, "args": {"n": n}}} for name, n in calls]
    answers = [{"functionResponse": {"name": name, "response": str(n)}} for name, n in results]
    parts = {"user": [{"text": "Do it."}], "model": made}
    contents = [{"role": role, "parts": one} for role, one in parts.items()]
    contents += [
        {"role": "user", "parts": answers},
        {"role": "model", "parts": [{"text": "Done."}]},
    ]
    return {"contents": contents, "tools": [{"functionDeclarations": TOOLS}]}


def sharegpt(calls: Pairs, results: Pairs) -> Row:
    made = json.dumps([{"name": name, "arguments": {"n": n}} for name, n in calls])
    turns = [("human", "Do it."), ("function_call", made)]
    turns += [*(("observation", str(n)) for _, n in results), ("gpt", "Done.")]
    conversations = [{"from": role, "value": value} for role, value in turns]
    return {"conversations": conversations, "tools": json.dumps(TOOLS)}


def ms_swift(calls: Pairs, results: Pairs) -> Row:
    made = [json.dumps({"name": name, "arguments": {"n": n}}) for name, n in calls]
    turns = [("user", "Do it."), *(("tool_call", one) for one in made)]
    turns += [*(("tool_response", str(n)) for _, n in results), ("assistant", "Done.")]
    messages = [{"role": role, "content": content} for role, content in turns]
    return {"messages": messages, "tools": json.dumps(TOOLS)}


UNNAMED = [openai, sharegpt, ms_swift]
NAMED = [named, ollama, langchain, gemini]
CALLS: Pairs = [("f", 1), ("g", 2), ("f", 3), ("f", 4)]


def results_of(row: Row) -> list[tuple[object, str]]:
    """The argument of each call with the result that answers it."""
    record = to_record(row)
    validate(record)
    answers = {one.call_id: one.content for one in record.messages if one.role == "tool"}
    return [(call.arguments["n"], answers[call.id]) for call in record.messages[1].calls]


@pytest.mark.parametrize("form", [*UNNAMED, *NAMED])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_results_without_ids_answer_the_calls_in_their_order(
    form: Callable[[Pairs, Pairs], Row], count: int
) -> None:
    calls = CALLS[-count:]
    row = form(calls, calls)
    assert detected(row) == {"named": "openai", "ollama": "openai"}.get(
        form.__name__, form.__name__
    )
    assert results_of(row) == [(n, str(n)) for _, n in calls]


@pytest.mark.parametrize("form", NAMED)
@pytest.mark.parametrize("place", [0, 2, 3])
def test_a_name_goes_before_the_order(form: Callable[[Pairs, Pairs], Row], place: int) -> None:
    results = [one for one in CALLS if one[0] == "f"]
    results.insert(place, CALLS[1])
    assert results_of(form(CALLS, results)) == [(n, str(n)) for _, n in CALLS]
