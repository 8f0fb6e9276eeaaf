"""BFCL v4 questions with their accepted answers -> Record."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentlite.config.settings import default
from agentlite.core.errors import RowError, UserError, nearest
from agentlite.core.json_schema import fits as fits_schema
from agentlite.core.json_schema import schema_at
from agentlite.core.optional_deps import how
from agentlite.core.records import ANY_TOOL, Call, Gold, GoldCall, Message, Record, Tool, choices_of
from agentlite.core.row_files import read_rows
from agentlite.data.formats.bfcl_java_js_schemas import LANGUAGES, as_text, written
from agentlite.data.formats.check_call import first_accepted, parameters_of
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
    """The file of the questions and, where calls are expected, that of the answers."""
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
    category, tools, question = _category(row["id"]), tools_of(row), _question(row["question"])
    expected: tuple[GoldCall, ...] = ()
    calls: list[Call] = []
    answer, fit = no_call_answer, True
    if category in ANY_CALL:
        expected, answer, fit = (GoldCall(ANY_TOOL),), ANY_CALL_ANSWER, False
    elif category not in NO_CALL:
        for accepted in row["ground_truth"]:
            ((name, arguments),) = accepted.items()
            call = GoldCall(name, arguments)
            schema = parameters_of(name, tools)
            _refuse_impossible(call, schema)
            values = _written(first_accepted(call, tools, full=accepted_answer == "full"), schema)
            calls.append(Call(name, values, f"call_{len(calls)}"))
            expected = (*expected, call)
            fit = fit and fits_schema(values, schema)
    return Record(
        messages=(*question, Message("assistant", "" if calls else answer, tuple(calls))),
        tools=tools,
        gold={len(question): Gold(expected)},
        task="tool_selection" if calls else "timing_decision",
        # what breaks its own tool's schema is judged, and never learned
        split="" if fit else "test",
        meta={"bfcl_id": row["id"], "category": category},
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
    tools = []
    for function in row["function"]:
        name, parameters = function["name"], function["parameters"]
        properties = {
            key: _parameter(value, language) for key, value in parameters["properties"].items()
        }
        schema = json_schema({**parameters, "properties": properties}, name)
        tools.append(Tool(name, function.get("description") or "", schema))
    return tuple(tools)


def _parameter(parameter: dict[str, object], language: str) -> dict[str, object]:
    """Of Python's types only "tuple" says more than its JSON type: BFCL takes no tuple where a list
    is declared.
    """
    if language:
        return as_text(parameter, language)
    return {**parameter, "format": TUPLE} if parameter["type"] == "tuple" else parameter


def _written(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Values for functions of Java and JavaScript as text."""
    for name, value in arguments.items():
        declared = schema_at(schema, "properties", name).get("format", "")
        if declared.startswith(tuple(LANGUAGES.values())):
            arguments[name] = written(value, declared)
    return arguments


def _refuse_impossible(call: GoldCall, schema: dict[str, Any]) -> None:
    """Refuses gold that no call can satisfy."""
    known = schema.get("properties", {})
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
        if declared in LISTS_OF_TEXTS and all(
            isinstance(value, list) and not all(isinstance(inner, str) for inner in value)
            for value in accepted
        ):
            raise RowError(
                "E210", f"the accepted answer wants more than texts in {name}, a {declared}"
            )
