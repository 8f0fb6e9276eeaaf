"""Java and JavaScript literals -> values, by the declared type, as BFCL reads them.

A schema says what it declares in `format`: "Java ArrayList<String>". Text that is not a literal of
the type stays text, so that it can name a variable. Oddities of BFCL are kept: elements of a Java
array keep their quotes, those of a list do not.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

# characters; longer text stays text, as some patterns below take time that grows with its square
LONGEST = 10_000
Read = Callable[[str, str], Any]  # (text, the type of the elements) -> value


class DeclaredType(NamedTuple):
    """The JSON Schema of a declared type, and how its literals are read."""

    json: str
    read: Read


class Literal(NamedTuple):
    """An argument as a value, and the schema that it is now to be held to."""

    value: Any
    schema: dict[str, Any]


def is_literal(schema: dict[str, object]) -> bool:
    """Whether values of the schema are texts in another language."""
    declared = schema.get("format")
    return isinstance(declared, str) and declared.partition(" ")[0] in LANGUAGES


def read_literal(text: str, schema: dict[str, Any]) -> Literal:
    """The value of a text whose schema `is_literal`; a type that is not known is read as text."""
    language, _, declared = schema["format"].partition(" ")
    name, _, inner = declared.rstrip(">").partition("<")
    kinds = LANGUAGES[language]
    kind = kinds.get(name, TEXT)
    plain = {"type": kind.json} | (
        {"items": {"type": kinds.get(inner, TEXT).json}} if kind.json == "array" else {}
    )
    if len(text) > LONGEST:
        return Literal(text, plain)
    try:
        return Literal(kind.read(text, inner), plain)
    except ValueError:  # a number of thousands of digits
        return Literal(text, plain)


def _text(text: str, inner: str) -> str:
    return text


def _boolean(text: str, inner: str) -> bool | str:
    return text == "true" if text in ("true", "false") else text


def _number(pattern: str, number: type[int] | type[float], suffix: str = "") -> Read:
    whole = re.compile(rf"^{pattern}$")  # as in BFCL, a newline may follow

    def read(text: str, inner: str) -> Any:
        return number(text.rstrip("\n").rstrip(suffix)) if whole.match(text) else text

    return read


WHOLE, EXPONENT = r"-?\d+", r"([eE][+-]?\d+)?"
TEXT = DeclaredType("string", _text)

# --- Java ---

AS_LIST = re.compile(r"new\s+ArrayList<\w*>\(Arrays\.asList\((.+?)\)\)")
NEW_LIST = re.compile(r"new\s+ArrayList<\w*>\(\)")
FILLED_LIST = re.compile(r"new\s+ArrayList<\w*>\(\)\s*\{\{")
ADDED = re.compile(r"add\((.+?)\)")
ARRAY = re.compile(r"new\s+\w+\[\]\s*\{(.*?)\}")
NEW_MAP = re.compile(r"new\s+HashMap<.*?>\s*\(\)", re.DOTALL)
FILLED_MAP = re.compile(r"new\s+HashMap<.*?>\s*\(\)\s*\{", re.DOTALL)
PUT = re.compile(r"put\(\"(.*?)\",\s*(.*?)\)")


def _java_list(text: str, inner: str) -> object:
    if listed := AS_LIST.search(text):
        elements = listed[1].split(",")
    elif (opening := FILLED_LIST.search(text)) and (end := text.find("}}", opening.end() + 1)) >= 0:
        elements = ADDED.findall(text[opening.end() : end])
    else:
        return [] if NEW_LIST.search(text) else text
    if inner in ("char", "String"):
        return [element.strip()[1:-1] for element in elements]
    return [_java_element(element.strip(), inner) for element in elements]


def _java_array(text: str, inner: str) -> object:
    if not (found := ARRAY.search(text)):
        return text
    elements = (element.strip() for element in found[1].split(","))
    return [_java_element(element, inner) for element in elements if element]


def _java_element(text: str, inner: str) -> object:
    return JAVA[inner].read(text, "") if inner in JAVA else _java_value(text)


def _java_map(text: str, inner: str) -> object:
    if (opening := FILLED_MAP.search(text)) and (end := text.find("}", opening.end())) >= 0:
        return {
            key: _java_value(value.strip()) for key, value in PUT.findall(text[opening.end() : end])
        }
    return {} if NEW_MAP.search(text) else text


def _java_value(text: str) -> object:
    """A value of which no type is declared."""
    for literal in ("long", "float"):
        if (value := JAVA[literal].read(text, "")) is not text:
            return value
    return _undeclared(text, '"')


def _undeclared(text: str, quotes: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    if any(text.startswith(quote) and text.endswith(quote) for quote in quotes):
        return text[1:-1]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


JAVA: dict[str, DeclaredType] = {
    **dict.fromkeys(("byte", "short", "integer"), DeclaredType("integer", _number(WHOLE, int))),
    "long": DeclaredType("integer", _number(rf"{WHOLE}[lL]", int, "lL")),
    "float": DeclaredType("number", _number(rf"{WHOLE}(\.\d+)?{EXPONENT}[fF]", float, "fF")),
    "double": DeclaredType("number", _number(rf"{WHOLE}(\.\d+)?{EXPONENT}", float)),
    "boolean": DeclaredType("boolean", _boolean),
    **dict.fromkeys(("char", "String", "any"), TEXT),
    "Array": DeclaredType("array", _java_array),
    "ArrayList": DeclaredType("array", _java_list),
    "HashMap": DeclaredType("object", _java_map),
}

# --- JavaScript ---

FLAT = re.compile(r"\[(.*?)\]|\bnew\s+Array\((.*?)\)")
ROWS = {"]": re.compile(r"\[\s*\["), ")": re.compile(r"new\s+Array\(\s*\[")}
ROW = re.compile(r"\[(.*?)\]")
CLOSING, BLANKS = re.compile(r"\]"), re.compile(r"\s*")
NEXT_ROW = re.compile(r",\s*\[")
OBJECT = re.compile(r"\{(.*?)\}")
PAIR = re.compile(r"([^:]+):\s*(.*?)(?:,\s*(?=[^,]+:)|$)")


def _script_text(text: str, inner: str) -> str:
    quoted = any(text.startswith(quote) and text.endswith(quote) for quote in "\"'")
    return text[1:-1] if quoted else text


def _script_array(text: str, inner: str) -> object:
    text = text.strip()
    for close, opening in ROWS.items():
        if (found := opening.match(text)) and (end := _end_of_rows(text, found.end(), close)):
            first, *others = (row.strip() for row in ROW.findall(text[:end]))
            return [_row(row) for row in (first.removeprefix("["), *others)]
    if not (flat := FLAT.match(text)):
        return text
    elements = (flat[1] if flat[1] is not None else flat[2]).strip()
    kind = JAVASCRIPT.get(inner)
    if not elements:
        return []
    return (
        [kind.read(element.strip(), "") for element in elements.split(",")]
        if kind
        else _row(elements)
    )


def _row(elements: str) -> list[object]:
    return [_undeclared(element.strip(), "\"'") for element in elements.split(",")]


def _end_of_rows(text: str, start: int, close: str) -> int:
    """Where an array of arrays ends whose first row begins at `start`; 0 if it does not.

    A row ends at a bracket behind which the array ends, or another row begins: if the rest cannot
    be read from there, it cannot from a later one. BFCL's own pattern tries them all, and never
    ends on a long array that was cut off.
    """
    row: int | None = start
    while row is not None:
        line = text.find("\n", row)
        ends = (
            found.end() for found in CLOSING.finditer(text, row, len(text) if line < 0 else line)
        )
        row = None
        for end in ends:
            after = BLANKS.match(text, end).end()  # type: ignore[union-attr]
            if text.startswith(close, after):
                return after + 1
            if following := NEXT_ROW.match(text, after):
                row = following.end()
                break
    return 0


def _script_object(text: str, inner: str) -> object:
    text = text.strip()
    if not (found := OBJECT.match(text)):
        return text
    return {
        key.strip().strip("'\""): _member(value.strip()) for key, value in PAIR.findall(found[1])
    }


def _member(text: str) -> object:
    for read, (opening, closing) in ((_script_array, "[]"), (_script_object, "{}")):
        if text.startswith(opening) and text.endswith(closing):
            return read(text, "")
    return _undeclared(text.strip("'\"").strip(), "\"'")


JAVASCRIPT: dict[str, DeclaredType] = {
    "integer": DeclaredType("integer", _number(WHOLE, int)),
    "Bigint": DeclaredType("integer", _number(rf"{WHOLE}n", int, "n")),
    "float": DeclaredType("number", _number(rf"{WHOLE}(\.\d+)?", float)),
    "Boolean": DeclaredType("boolean", _boolean),
    "String": DeclaredType("string", _script_text),
    "any": TEXT,
    "array": DeclaredType("array", _script_array),
    "dict": DeclaredType("object", _script_object),
}
LANGUAGES = {"Java": JAVA, "JavaScript": JAVASCRIPT}
