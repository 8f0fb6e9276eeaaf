"""BFCL's Java and JavaScript functions -> schemas, and values -> texts in those languages."""

from typing import Any

from agentlite.core.records import plain

LANGUAGES = {"simple_java": "Java", "simple_javascript": "JavaScript"}
# of a Java array; any other type by its own name
ELEMENT = {"integer": "int", "boolean": "boolean", "any": "Object"}
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
    return _in_java(value, name, inner) if language == "Java" else plain(value)


def _in_java(value: Any, name: str, inner: str = "") -> str:
    """A literal of the type `name`; `inner`: the type of its elements."""
    match name:
        case "long":
            return f"{value}L"
        case "float":
            return f"{value}f"
        case "char":
            return f"'{value}'"
        case "ArrayList":
            elements = ", ".join(_in_java(element, inner) for element in value)
            return f"new ArrayList<>({f'Arrays.asList({elements})' if value else ''})"
        case "Array":  # texts stand without quotes: BFCL would take those for a part of the text
            elements = ", ".join(
                element if isinstance(element, str) else _in_java(element, inner)
                for element in value
            )
            return f"new {ELEMENT.get(inner, inner or 'Object')}[]{{{elements}}}"
        case "HashMap":
            puts = " ".join(f"put({plain(key)}, {plain(one)});" for key, one in value.items())
            return f"new HashMap<>() {{{{ {puts} }}}}" if puts else "new HashMap<>()"
    return plain(value)
