"""JSON, letter by letter: what may follow the beginning of a text that has to fit a JSON Schema.

A text is read by all ways to go on at once. Each is a stack of what is still to come, the next one
first. The guide knows types, properties, required ones, items, enumerations, alternatives and the
lengths of texts and lists. It does not know patterns, formats or the bounds of numbers: whether the
whole fits is for `json_schema` to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from agentlite.core.json_schema import DEEPEST, TYPES

BLANKS = " \n\t\r"
MOST_BLANKS = 32  # in a row: a weak model would go on with them for ever
LONGEST_NUMBER = 24
MOST_REFERENCES = 16  # from a schema to another, without a value between
# two digits of an exponent: no float overflows
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,2})?")
BEGUN_NUMBER = re.compile(r"-?(?:(?:0|[1-9]\d*)(?:(?:\.\d*)?|(?:\.\d+)?[eE][+-]?\d{0,2}))?")
INTEGER = re.compile(r"-?(?:0|[1-9]\d*)?")
WORDS = {"boolean": ("true", "false"), "null": ("null",)}


class FixedText(NamedTuple):
    """This very text."""

    text: str


class Blanks(NamedTuple):
    left: int = MOST_BLANKS


class Value(NamedTuple):
    """A value that fits `schema`; `root` is what its references are looked up in."""

    schema: Any
    root: Any


class StringRest(NamedTuple):
    """The rest of a string, its closing quote included."""

    least: int = 0
    most: int = 1 << 30


class Escape(NamedTuple):
    """What follows a backslash: a letter, or the four digits behind a u."""

    within: StringRest
    digits: str = ""


class Number(NamedTuple):
    begun: str
    is_integer: bool


class Key(NamedTuple):
    """The rest of a name, its closing quote included."""

    schema: Any
    root: Any
    seen: frozenset[str]
    begun: str = ""


class Members(NamedTuple):
    """The rest of an object; `seen`: the names it has."""

    schema: Any
    root: Any
    seen: frozenset[str] = frozenset()


class Items(NamedTuple):
    """The rest of a list that has `so_far` values."""

    schema: Any
    root: Any
    so_far: int = 0


Stack = tuple[Any, ...]


class Guide:
    """What may follow a text; it does not change."""

    def __init__(self, stacks: Iterable[Stack]):
        self.stacks = tuple(stacks)
        self._after: dict[str, Guide | None] = {}

    def after(self, text: str) -> Guide | None:
        """The guide behind `text`; None where it may not stand here."""
        guide: Guide | None = self
        for sign in text:
            if guide is None:
                break
            guide = guide._after_sign(sign)
        return guide

    def _after_sign(self, sign: str) -> Guide | None:
        if sign not in self._after:
            stacks = [after for stack in self.stacks for after in _stepped(stack, sign)]
            self._after[sign] = Guide(stacks) if stacks else None
        return self._after[sign]

    @property
    def is_over(self) -> bool:
        """Whether nothing may follow."""
        return all(not stack for stack in self.stacks)

    @property
    def may_end(self) -> bool:
        return any(all(map(_is_optional, stack)) for stack in self.stacks)


def behind(beginnings: Mapping[str, Mapping[str, Any] | bool]) -> Guide:
    """Of one of several texts, each with a JSON value of its schema behind it."""
    return Guide(
        (*([FixedText(text)] if text else []), Value(schema, schema))
        for text, schema in beginnings.items()
    )


def _is_optional(part: Any) -> bool:
    match part:
        case Blanks():
            return True
        case Number(begun=begun):
            return bool(NUMBER.fullmatch(begun))
    return False


def _stepped(stack: Stack, sign: str) -> Iterator[Stack]:
    """The stacks behind one letter more."""
    if not stack:
        return
    part, rest = stack[0], stack[1:]
    match part:
        case FixedText(text=text):
            if text[0] == sign:
                yield (FixedText(text[1:]), *rest) if len(text) > 1 else rest
        case Blanks(left=left):
            if sign in BLANKS and left:
                yield (Blanks(left - 1), *rest)
            yield from _stepped(rest, sign)
        case StringRest():
            yield from _in_text(part, rest, sign)
        case Escape():
            yield from _in_escape(part, rest, sign)
        case Number(begun=begun, is_integer=is_integer):
            longer = begun + sign
            form = INTEGER if is_integer else BEGUN_NUMBER
            if form.fullmatch(longer) and len(longer) <= LONGEST_NUMBER:
                yield (Number(longer, is_integer), *rest)
            if NUMBER.fullmatch(begun):
                yield from _stepped(rest, sign)
        case Key():
            yield from _in_key(part, rest, sign)
        case Members():
            yield from _in_object(part, rest, sign)
        case Items():
            yield from _in_list(part, rest, sign)
        case Value(schema=schema, root=root):
            for kind, one in _kinds(schema, root):
                yield from _begun(kind, one, root, rest, sign)


def _begun(kind: str, schema: Any, root: Any, rest: Stack, sign: str) -> Iterator[Stack]:
    """The first letter of a value."""
    if kind == "enum":
        for value in schema:
            yield from _stepped((FixedText(json.dumps(value, ensure_ascii=False)), *rest), sign)
    elif kind in WORDS:
        for word in WORDS[kind]:
            yield from _stepped((FixedText(word), *rest), sign)
    elif kind == "string" and sign == '"':
        yield (
            StringRest(_count(schema, "minLength", 0), _count(schema, "maxLength", 1 << 30)),
            *rest,
        )
    elif kind in ("number", "integer") and (sign == "-" or sign in "0123456789"):
        yield (Number(sign, kind == "integer"), *rest)
    elif len(rest) > 3 * DEEPEST:  # each level of nesting leaves up to three parts to come
        return
    elif kind == "object" and sign == "{":
        yield (Blanks(), Members(schema, root), *rest)
    elif kind == "array" and sign == "[":
        yield (Blanks(), Items(schema, root), *rest)


def _in_text(text: StringRest, rest: Stack, sign: str) -> Iterator[Stack]:
    if sign == '"':
        if text.least <= 0:
            yield rest
    elif sign >= " " and text.most > 0:
        one_more = StringRest(text.least - 1, text.most - 1)
        yield (Escape(one_more), *rest) if sign == "\\" else (one_more, *rest)


def _in_escape(escape: Escape, rest: Stack, sign: str) -> Iterator[Stack]:
    digits = escape.digits
    if not digits:
        if sign in '"\\/bfnrt':
            yield (escape.within, *rest)
        elif sign == "u":
            yield (escape._replace(digits="u"), *rest)
    # half a surrogate pair is not a character
    elif sign in "0123456789abcdefABCDEF" and not (digits in ("ud", "uD") and sign > "7"):
        done = len(digits) == 4
        yield (escape.within, *rest) if done else (escape._replace(digits=digits + sign), *rest)


def _in_key(key: Key, rest: Stack, sign: str) -> Iterator[Stack]:
    names, extra, begun = _properties(key.schema), _additional(key.schema), key.begun
    is_escaped = (len(begun) - len(begun.rstrip("\\"))) % 2 == 1
    if sign != '"' or is_escaped:
        known = (_quoted(name) for name in names if name not in key.seen)
        is_known = any(name.startswith(begun + sign) for name in known)
        # a name that is not listed has no escapes: it is compared as it is written
        if is_known or (extra is not False and sign >= " " and "\\" not in begun + sign):
            yield (key._replace(begun=begun + sign), *rest)
        return
    name = next((name for name in names if _quoted(name) == begun), begun)
    if name in key.seen or (name not in names and (extra is False or "\\" in name)):
        return
    yield (
        *(Blanks(), FixedText(":"), Blanks()),
        Value(names.get(name, extra), key.root),
        Blanks(),
        Members(key.schema, key.root, key.seen | {name}),
        *rest,
    )


def _in_object(members: Members, rest: Stack, sign: str) -> Iterator[Stack]:
    schema, root, seen = members
    if sign == "}" and seen.issuperset(_required(schema)):
        yield rest
    if _additional(schema) is False and seen.issuperset(_properties(schema)):
        return
    if sign == '"' and not seen:
        yield (Key(schema, root, seen), *rest)
    elif sign == "," and seen:
        yield (Blanks(), FixedText('"'), Key(schema, root, seen), *rest)


def _in_list(items: Items, rest: Stack, sign: str) -> Iterator[Stack]:
    schema, root, so_far = items
    if sign == "]":
        if so_far >= _count(schema, "minItems", 0):
            yield rest
        return
    if so_far >= _count(schema, "maxItems", 1 << 30):
        return
    inner = schema.get("items", {})
    one = Value(inner if isinstance(inner, dict | bool) else {}, root)
    more = (one, Blanks(), Items(schema, root, so_far + 1), *rest)
    if not so_far:
        yield from _stepped(more, sign)
    elif sign == ",":
        yield (Blanks(), *more)


def _kinds(schema: Any, root: Any, references: int = 0) -> Iterator[tuple[str, Any]]:
    """The types that a schema takes, each with what is known of it; "enum" with its values."""
    if schema is True:
        schema = {}
    if not isinstance(schema, dict) or references > MOST_REFERENCES:
        return
    if isinstance(reference := schema.get("$ref"), str):
        yield from _kinds(_referred(reference, root), root, references + 1)
        return
    if schema.get("nullable") is True:
        yield "null", schema
    if "const" in schema:
        yield "enum", [schema["const"]]
        return
    if isinstance(schema.get("enum"), list):
        yield "enum", schema["enum"]
        return
    declared = schema.get("type")
    types = [t for t in (declared if isinstance(declared, list) else [declared]) if t in TYPES]
    if not types and "properties" in schema:
        types = ["object"]
    others = [schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)]
    if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) == 1:
        others.append(schema["allOf"])
    if others and not types:
        for other in others[0]:
            yield from _kinds(other, root, references + 1)
        return
    for kind in types or [kind for kind in TYPES if kind != "integer"]:
        yield kind, schema


def _referred(reference: str, root: Any) -> Any:
    """The schema that a reference within the document names; False, which nothing fits, if none."""
    path = reference.removeprefix("#").strip("/")
    found = root if reference.startswith("#") else False
    for key in path.split("/") if path else ():
        name = key.replace("~1", "/").replace("~0", "~")
        found = found.get(name, False) if isinstance(found, dict) else False
    return found


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _additional(schema: Mapping[str, Any]) -> Any:
    """The schema of a property that is not listed; False where there may be none."""
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict | bool):
        return additional
    return "patternProperties" in schema or not isinstance(schema.get("properties"), dict)


def _required(schema: Mapping[str, Any]) -> list[Any]:
    found = schema.get("required")
    return found if isinstance(found, list) else []


def _count(schema: Mapping[str, Any], key: str, otherwise: int) -> int:
    found = schema.get(key)
    return found if isinstance(found, int) else otherwise


@lru_cache(maxsize=4096)
def _quoted(name: str) -> str:
    """A name as JSON writes it between its quotes."""
    return json.dumps(name, ensure_ascii=False)[1:-1]
