"""BFCL v4 questions with their accepted answers -> Record."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentlite.config.settings import default
from agentlite.core.errors import RowError, UserError, install_fix, suggest
from agentlite.core.json_schema import fits, schema_at
from agentlite.core.records import (
    ANY_TOOL,
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    Tool,
    choices_of,
    to_json,
)
from agentlite.core.row_files import read_rows
from agentlite.data.formats.check_call import argument_of, gold_arguments, parameters_of
from agentlite.data.formats.format import Format, Row
from agentlite.data.formats.openai import ROLES
from agentlite.data.formats.tool_calls import json_schema

NO_CALL_ANSWER: str = default("prep", "no_call_answer")
NO_CALL = ("irrelevance", "live_irrelevance")
ANY_CALL = ("live_relevance",)
ANY_CALL_ANSWER = "(any call of these tools)"
TUPLE = "Python tuple"
LANGUAGES = {"simple_java": "Java", "simple_javascript": "JavaScript"}
# of a Java array; any other type by its own name
ELEMENT_TYPES = {"integer": "int", "boolean": "boolean", "any": "Object"}
# no multi-turn (it needs its tools to be run)
CATEGORIES = (
    "simple_python",
    *LANGUAGES,
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
        categories = f"Known: {', '.join(CATEGORIES)}."
        fix = f"{suggest(category, CATEGORIES, fallback='')} {categories}".lstrip()
        raise UserError(f"no BFCL category '{category}'.", fix, location=f"bfcl:{category}")
    folder, name = data_folder(category), f"BFCL_v4_{category}.json"
    if category in (*NO_CALL, *ANY_CALL):
        return [folder / name]
    return [folder / name, folder / "possible_answer" / name]


def data_folder(category: str) -> Path:
    """Where the package bfcl-eval has its data. Raises UserError where it is not installed."""
    package = importlib.util.find_spec("bfcl_eval")
    if not package or not package.origin:
        fix = install_fix("pip install --no-deps bfcl-eval==2026.3.23")
        raise UserError("the package bfcl-eval is not installed.", fix, location=f"bfcl:{category}")
    return Path(package.origin).parent / "data"


def rows(paths: list[Path]) -> Iterator[Row]:
    """The questions, each with its answers under "ground_truth"."""
    answers = {row["id"]: row["ground_truth"] for path in paths[1:] for row in read_rows(path)}
    for row in read_rows(paths[0]):
        yield {**row, "ground_truth": answers[row["id"]]} if row["id"] in answers else row


def read(row: Row, no_call_answer: str = NO_CALL_ANSWER) -> Record:
    """A question and its gold. The assistant turn is the answer that says least: the first accepted
    values of what may not be left out.

    Where any call is right there is none to learn: such a row is for tests, and its turn only marks
    the place.

    Raises RowError E210 where no call could ever satisfy the gold.
    """
    category, tools, question = _category(row["id"]), tools_of(row), _question(row)
    expected: tuple[GoldCall, ...] = ()
    calls: list[Call] = []
    answer, fits_schema = no_call_answer, True
    if category in ANY_CALL:
        expected, answer, fits_schema = (GoldCall(ANY_TOOL),), ANY_CALL_ANSWER, False
    elif category not in NO_CALL:
        for accepted in row["ground_truth"]:
            # {"geo.area": {"w": [3], "unit": ["", "cm"]}}
            ((name, arguments),) = accepted.items()
            schema = parameters_of(name, tools)
            _refuse_impossible_gold(name, arguments, schema)
            if category in LANGUAGES:
                arguments = {
                    key: [literal_of(v, schema_at(schema, "properties", key)) for v in values]
                    for key, values in arguments.items()
                }
            call = GoldCall(name, arguments)
            values = gold_arguments(call, tools)
            calls.append(Call(name, values, f"call_{len(calls)}"))
            expected = (*expected, call)
            fits_schema = fits_schema and fits(values, schema)
    return Record(
        messages=(*question, Message("assistant", "" if calls else answer, tuple(calls))),
        tools=tools,
        gold={len(question): Gold(expected)},
        task="tool_selection" if calls else "timing_decision",
        # what breaks its own tool's schema is judged, and never learned
        split="" if fits_schema else "test",
        meta={"bfcl_id": row["id"], "category": category},
    )


def _category(row_id: str) -> str:
    # "live_simple_106-63-0" -> "live_simple"
    category = re.split(r"_\d", row_id, maxsplit=1)[0]
    if category not in CATEGORIES:
        raise RowError("E201", f"{row_id}: no category of single turns with accepted answers")
    return category


def _question(row: Row) -> list[Message]:
    """The messages asked. Several of a user in a row are one, as BFCL itself joins them for models
    that alternate.

    What the assistant said before is given, not gold: it is not learned.
    """
    messages: list[Message] = []
    for turn in row["question"][0]:
        role, content = ROLES[turn["role"]], turn["content"]
        if role == "user" and messages and messages[-1].role == "user":
            content = f"{messages.pop().content}\n\n{content}"
        messages.append(Message(role, content, loss=role != "assistant"))
    return messages


def tools_of(row: Row) -> tuple[Tool, ...]:
    """Models see values of Java and JavaScript functions as text, and must give them as text, which
    is compared as any text is. Of Python's types only "tuple" says more than its JSON type: BFCL
    takes no tuple where a list is declared.
    """
    language, tools = LANGUAGES.get(_category(row["id"]), ""), []
    for function in row["function"]:
        name, parameters = function["name"], function["parameters"]
        properties = dict(parameters["properties"])
        for key, value in properties.items():
            if language:
                properties[key] = as_text(value, language)
            elif value["type"] == "tuple":
                properties[key] = {**value, "format": TUPLE}
        schema = json_schema({**parameters, "properties": properties}, name)
        tools.append(Tool(name, function.get("description") or "", schema))
    return tuple(tools)


def as_text(parameter: Row, language: str) -> Row:
    """A parameter as models see it: a string; what it has to be a literal of stands in `format`."""
    fields = {key: value for key, value in parameter.items() if key != "items"}
    # {"type": "ArrayList", "items": {"type": "String"}} -> "Java ArrayList<String>"
    type_name, inner = parameter["type"], (parameter.get("items") or {}).get("type")
    literal = f"{language} {type_name}<{inner}>" if inner else f"{language} {type_name}"
    description = f"{parameter.get('description') or ''} (text: {literal})".lstrip()
    return {**fields, "type": "string", "format": literal, "description": description}


def literal_of(accepted: object, schema: Row) -> str:
    """An accepted value in the language that `format` names. A text is one, or a variable."""
    value = argument_of(accepted, schema)
    if isinstance(value, str):
        return value
    # "Java ArrayList<String>" -> "Java", "ArrayList", "String"
    language, _, literal = schema.get("format", "").partition(" ")
    type_name, _, inner = literal.rstrip(">").partition("<")
    return _java_literal(value, type_name, inner) if language == "Java" else to_json(value)


def _java_literal(value: Any, type_name: str, inner: str = "") -> str:
    """A literal of the type `type_name`; `inner`: the type of its elements."""
    match type_name:
        case "long":
            return f"{value}L"
        case "float":
            return f"{value}f"
        case "char":
            return f"'{value}'"
        case "ArrayList":
            elements = ", ".join(_java_literal(element, inner) for element in value)
            return f"new ArrayList<>({f'Arrays.asList({elements})' if value else ''})"
        case "Array":  # texts stand without quotes: BFCL would take those for a part of the text
            elements = ", ".join(
                element if isinstance(element, str) else _java_literal(element, inner)
                for element in value
            )
            return f"new {ELEMENT_TYPES.get(inner, inner or 'Object')}[]{{{elements}}}"
        case "HashMap":
            puts = " ".join(f"put({to_json(key)}, {to_json(item)});" for key, item in value.items())
            return f"new HashMap<>() {{{{ {puts} }}}}" if puts else "new HashMap<>()"
    return to_json(value)


def _refuse_impossible_gold(function: str, arguments: Row | None, schema: Row) -> None:
    """Refuses gold that no call can satisfy."""
    for name, accepted in (arguments or {}).items():
        if name not in schema.get("properties", {}) and "" not in accepted:
            raise RowError("E210", f"the answer wants {name}, which {function} does not take")
        objects = [value for value in accepted or () if isinstance(value, dict)]
        if not accepted or any(choices_of(value) is not value for value in objects):
            raise RowError("E210", f"the answer has no list of values for {name}, or inside it")


FORMAT = Format("bfcl", read, {"question": list, "function": list})
