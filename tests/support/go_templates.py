"""As much of Go's text/template as an exported Modelfile uses: texts, variables, range, if, eq, ne,
and, len, index.
"""

import json
import re
from typing import Any

ACTION = re.compile(r'\{\{(-?)((?:"(?:[^"\\]|\\.)*"|[^"}]|\}(?!\}))*?)(-?)\}\}')
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[()]|[^\s()]+')
Tree = list[Any]


def execute(template: str, messages: list[dict[str, str]]) -> str:
    tree, rest = _parse(_pieces(template))
    assert not rest
    out: list[str] = []
    _run(tree, {"$": {"Messages": messages}, ".": {"Messages": messages}}, out)
    return "".join(out)


def _pieces(template: str) -> list[tuple[str, str]]:
    """("text", ...) and ("do", ...); a dash takes the blanks on its side of the text."""
    pieces: list[tuple[str, str]] = []
    at, trim = 0, False
    for action in ACTION.finditer(template):
        text = template[at : action.start()]
        text = text.lstrip() if trim else text
        pieces += [("text", text.rstrip() if action[1] else text), ("do", action[2].strip())]
        at, trim = action.end(), bool(action[3])
    return [*pieces, ("text", template[at:].lstrip() if trim else template[at:])]


def _parse(pieces: list[tuple[str, str]]) -> tuple[Tree, list[tuple[str, str]]]:
    """Up to the `end` or `else` that closes this level, which stays in the rest."""
    tree: Tree = []
    while pieces:
        kind, text = pieces[0]
        word = text.split(" ")[0] if kind == "do" else ""
        if word in ("end", "else"):
            return tree, pieces
        pieces = pieces[1:]
        if word == "range":
            body, pieces = _parse(pieces)
            tree.append(("range", text, body))
            pieces = pieces[1:]
        elif word == "if":
            node, pieces = _branches(text[3:], pieces)
            tree.append(node)
        else:
            tree.append((kind, text, None))
    return tree, []


def _branches(condition: str, pieces: list[tuple[str, str]]) -> tuple[Any, list[tuple[str, str]]]:
    body, pieces = _parse(pieces)
    _, closing = pieces[0]
    if closing == "end":
        return ("if", condition, (body, [])), pieces[1:]
    if closing.startswith("else if "):
        other, pieces = _branches(closing.removeprefix("else if "), pieces[1:])
        return ("if", condition, (body, [other])), pieces
    other, pieces = _parse(pieces[1:])
    return ("if", condition, (body, other)), pieces[1:]


def _run(tree: Tree, names: dict[str, Any], out: list[str]) -> None:
    for kind, text, inner in tree:
        if kind == "text":
            out.append(text)
        elif kind == "range":
            variables, _, over = text.removeprefix("range ").partition(" := ")
            number, element = variables.split(", ")
            for index, value in enumerate(_value(over, names)):
                _run(inner, {**names, number: index, element: value, ".": value}, out)
        elif kind == "if":
            _run(inner[0] if _value(text, names) else inner[1], names, out)
        elif " := " in text:
            name, _, given = text.partition(" := ")
            names[name] = _value(given, names)
        else:
            out.append(str(_value(text, names)))


def _value(text: str, names: dict[str, Any]) -> Any:
    value, rest = _call(WORD.findall(text), names)
    assert not rest, text
    return value


def _call(words: list[str], names: dict[str, Any]) -> tuple[Any, list[str]]:
    """A function and its arguments, or a single value, up to the end or to a closing bracket."""
    known = {
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: a != b,
        "and": lambda a, b: a and b,
        "not": lambda a: not a,
        "len": len,
        "index": lambda a, i: a[i],
        "slice": lambda a, i: a[i:],
    }
    function, words = (known[words[0]], words[1:]) if words[0] in known else (None, words)
    values = []
    while words and words[0] != ")":
        value, words = _single(words, names)
        values.append(value)
    return (function(*values) if function else values[0]), words


def _single(words: list[str], names: dict[str, Any]) -> tuple[Any, list[str]]:
    word, *rest = words
    if word == "(":
        value, rest = _call(rest, names)
        _, *rest = rest
        while rest and rest[0].startswith("."):  # a field of what stands in brackets
            value, rest = value[rest[0][1:]], rest[1:]
        return value, rest
    if word.startswith('"'):
        return json.loads(word), rest
    if word.isdigit():
        return int(word), rest
    name, *fields = word.split(".")
    value = names[name or "."]
    for field in fields:
        value = value[field]
    return value, rest
