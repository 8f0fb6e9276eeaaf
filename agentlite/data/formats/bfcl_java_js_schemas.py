"""BFCL's Java and JavaScript functions -> schemas, and values -> texts in those languages."""

from collections.abc import Callable
from typing import Any

from agentlite.core.records import plain

LANGUAGES = {"simple_java": "Java", "simple_javascript": "JavaScript"}
ELEMENT = {
    "integer": "int",
    "boolean": "boolean",
    "any": "Object",
}  # a Java array's; any other type by its own name
Parameter = dict[str, Any]


def as_text(parameter: Parameter, language: str) -> Parameter:
    """A parameter as models see it: a string; what it has to be a literal of stands in `format`."""
    kept = {key: value for key, value in parameter.items() if key != "items"}
    name, inner = parameter["type"], (parameter.get("items") or {}).get("type")
    kind = f"{language} {name}<{inner}>" if inner else f"{language} {name}"
    description = f"{parameter.get('description') or ''} (text: {kind})".lstrip()
    return {**kept, "type": "string", "format": kind, "description": description}


def written(value: object, declared: str) -> str:
    """The text of a value whose `format` is `declared`. Text stays as it is: it is one, or it names
    a variable.
    """
    language, _, kind = declared.partition(" ")
    name, _, inner = kind.rstrip(">").partition("<")
    if isinstance(value, str):
        return value
    return JAVA.get(name, _literal)(value, inner) if language == "Java" else _literal(value, inner)


def _literal(value: object, inner: str) -> str:
    return plain(value)


def _list(value: list[object], inner: str) -> str:
    if not value:
        return "new ArrayList<>()"
    return (
        "new "
        f"ArrayList<>(Arrays.asList({', '.join(_element(element, inner) for element in value)}))"
    )


def _array(value: list[object], inner: str) -> str:
    """Texts stand without quotes: BFCL would take those for a part of the text."""
    elements = [
        element if isinstance(element, str) else _element(element, inner) for element in value
    ]
    return f"new {ELEMENT.get(inner, inner or 'Object')}[]{{{', '.join(elements)}}}"


def _element(value: object, inner: str) -> str:
    return JAVA.get(inner, _literal)(value, "")


def _map(value: dict[str, object], inner: str) -> str:
    puts = " ".join(f"put({plain(key)}, {plain(one)});" for key, one in value.items())
    return f"new HashMap<>() {{{{ {puts} }}}}" if puts else "new HashMap<>()"


JAVA: dict[str, Callable[[Any, str], str]] = {
    "long": lambda value, inner: f"{value}L",
    "float": lambda value, inner: f"{value}f",
    "char": lambda value, inner: f"'{value}'",
    "ArrayList": _list,
    "Array": _array,
    "HashMap": _map,
}
