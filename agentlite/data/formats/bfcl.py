"""BFCL v4 questions with their accepted answers -> Record."""

import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agentlite.config.settings import default
from agentlite.core.errors import RowError, UserError, nearest
from agentlite.core.json_schema import fits as fits_schema
from agentlite.core.optional_deps import how
from agentlite.core.records import (
    ANY_TOOL,
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    Tool,
    choices_of,
)
from agentlite.core.row_files import read_rows
from agentlite.data.formats.accepted_values import first_accepted, parameters_of
from agentlite.data.formats.bfcl_java_js_schemas import LANGUAGES, as_text, written
from agentlite.data.formats.openai import ROLES
from agentlite.data.formats.tool_calls import json_schema

EXAMPLE = '{"id": "simple_python_9", "question": [[{"role": "user", "content": "Area of 3 by 4?"}]], "function": [{"name": "geo.area", "description": "", "parameters": {"type": "dict", "properties": {"w": {"type": "integer"}, "h": {"type": "integer"}, "unit": {"type": "string"}}, "required": ["w", "h"]}}], "ground_truth": [{"geo.area": {"w": [3], "h": [4], "unit": ["", "cm"]}}]}'  # noqa: E501  (a row is one line)
FIELDS = {"question": list, "function": list}
NO_CALL_ANSWER: str = default("prep", "no_call_answer")
NO_CALL = ("irrelevance", "live_irrelevance")
ANY_CALL = ("live_relevance",)
ANY_CALL_ANSWER = "(any call of these tools)"
TUPLE = "Python tuple"
LISTS_OF_TEXTS = ("Java ArrayList<any>", "Java Array<any>")  # as BFCL reads them
# no multi-turn (it needs its tools to be run)
CATEGORIES = (
    "simple_python",
    "simple_java",
    "simple_javascript",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    *NO_CALL,
    *ANY_CALL,
)


def files(category: str) -> list[Path]:
    """The file of the questions and, where calls are expected, that of the answers. Raises
    UserError."""
    if category not in CATEGORIES:
        known = f"Known: {', '.join(CATEGORIES)}."
        fix = f"{nearest(category, CATEGORIES, other='')} {known}".lstrip()
        raise UserError(f"no BFCL category '{category}'.", fix, location=f"bfcl:{category}")
    folder, name = data_folder(category), f"BFCL_v4_{category}.json"
    return [folder / name] + (
        [] if category in (*NO_CALL, *ANY_CALL) else [folder / "possible_answer" / name]
    )


def data_folder(category: str) -> Path:
    """Where the package bfcl-eval has its data. Raises UserError where it is not installed."""
    package = importlib.util.find_spec("bfcl_eval")
    if not package or not package.origin:
        fix = how("pip install --no-deps bfcl-eval==2026.3.23")
        raise UserError("the package bfcl-eval is not installed.", fix, location=f"bfcl:{category}")
    return Path(package.origin).parent / "data"


def rows(paths: list[Path]) -> Iterator[dict[str, Any]]:
    """The questions, each with its answers under "ground_truth"."""
    answers = {row["id"]: row["ground_truth"] for path in paths[1:] for row in read_rows(path)}
    for row in read_rows(paths[0]):
        yield {**row, "ground_truth": answers[row["id"]]} if row["id"] in answers else row


def read(
    row: dict[str, Any], no_call_answer: str = NO_CALL_ANSWER, accepted_answer: str = "least"
) -> Record:
    """A question and its gold. The assistant turn is the answer that says least: the first accepted
    values of what may not be left out; or, as the `accepted_answer` "full", of all that has one.

    Where any call is right there is none to learn: such a row is for tests, and its turn only marks
    the place.

    Raises RowError E210 where no call could ever satisfy the gold.
    """
    category = _category(row["id"])
    tools = tools_of(row)
    question = _question(row["question"])
    expected = _expected(row, category)
    for call in expected:
        _refuse_impossible(call, tools)
    calls = (
        ()
        if category in ANY_CALL
        else tuple(
            _answer(call, tools, f"call_{i}", accepted_answer == "full")
            for i, call in enumerate(expected)
        )
    )
    answer = ANY_CALL_ANSWER if category in ANY_CALL else no_call_answer
    return Record(
        messages=(*question, Message("assistant", "" if calls else answer, calls)),
        tools=tools,
        gold={len(question): Gold(expected)},
        task="tool_selection" if calls else "timing_decision",
        # what breaks its own tool's schema is judged, and never learned
        split="test" if category in ANY_CALL or not _all_fit(calls, tools) else "",
        meta={"bfcl_id": row["id"], "category": category},
    )


def _expected(row: dict[str, Any], category: str) -> tuple[GoldCall, ...]:
    if category in ANY_CALL:
        return (GoldCall(ANY_TOOL),)
    return (
        () if category in NO_CALL else tuple(_gold_call(answer) for answer in row["ground_truth"])
    )


def _category(row_id: str) -> str:
    category = re.split(r"_\d", row_id, maxsplit=1)[0]
    if category not in CATEGORIES:
        raise RowError(
            "E201", f"{row_id}: the category {category} has no single turn with accepted answers"
        )
    return category


def _question(turns: list[list[dict[str, Any]]]) -> list[Message]:
    """The messages asked. Several of a user in a row are one, as BFCL itself joins them for models
    that alternate.

    What the assistant said before is given, not gold: it is not learned.
    """
    messages: list[Message] = []
    for turn in turns[0]:
        role, content = ROLES[turn["role"]], turn["content"]
        if role == "user" and messages and messages[-1].role == "user":
            content = f"{messages.pop().content}\n\n{content}"
        messages.append(Message(role, content, loss=role != "assistant"))
    return messages


def tools_of(row: dict[str, Any]) -> tuple[Tool, ...]:
    """The tools on offer. Models see values of Java and JavaScript functions as text, and must give
    them as text.
    """
    language = LANGUAGES.get(_category(row["id"]), "")
    return tuple(_tool(function, language) for function in row["function"])


def _tool(function: dict[str, Any], language: str) -> Tool:
    name, parameters = function["name"], function["parameters"]
    properties = {
        key: _parameter(value, language) for key, value in parameters["properties"].items()
    }
    schema = json_schema({**parameters, "properties": properties}, name)
    return Tool(name, function.get("description") or "", schema)


def _parameter(parameter: dict[str, object], language: str) -> dict[str, object]:
    """Of Python's types only "tuple" says more than its JSON type: BFCL takes no tuple where a list
    is declared.
    """
    if language:
        return as_text(parameter, language)
    return {**parameter, "format": TUPLE} if parameter["type"] == "tuple" else parameter


def _answer(call: GoldCall, tools: tuple[Tool, ...], call_id: str, full: bool) -> Call:
    properties = parameters_of(call.name, tools).get("properties", {})
    arguments = first_accepted(call, tools, full=full)
    for name, value in arguments.items():
        if (declared := properties.get(name, {}).get("format", "")).startswith(
            tuple(LANGUAGES.values())
        ):
            arguments[name] = written(value, declared)
    return Call(call.name, arguments, call_id)


def _gold_call(answer: dict[str, dict[str, list[Any]]]) -> GoldCall:
    ((name, arguments),) = answer.items()
    return GoldCall(name, arguments)


def _all_fit(calls: Sequence[Call], tools: tuple[Tool, ...]) -> bool:
    return all(fits_schema(call.arguments, parameters_of(call.name, tools)) for call in calls)


def _refuse_impossible(call: GoldCall, tools: tuple[Tool, ...]) -> None:
    """Refuses gold that no call can satisfy."""
    known = parameters_of(call.name, tools).get("properties", {})
    for name, accepted in (call.arguments or {}).items():
        if name not in known and "" not in accepted:
            raise RowError(
                "E210", f"the accepted answer wants {name}, which {call.name} does not take"
            )
        if not accepted or any(
            isinstance(value, dict) and choices_of(value) is not value for value in accepted
        ):
            raise RowError(
                "E210", f"the accepted answer has no list of values for {name}, or inside it"
            )
        declared = known.get(name, {}).get("format")
        if declared in LISTS_OF_TEXTS and not any(map(_holds_texts, accepted)):
            raise RowError(
                "E210",
                f"the accepted answer wants more than texts in {name}, a {declared}",
            )


def _holds_texts(value: object) -> bool:
    return not isinstance(value, list) or all(isinstance(element, str) for element in value)
