"""JSON Schema: whether a value fits and why not, and what the schema says about its parts.

Values are checked by jsonschema-rs. A schema is read as those of tools are meant: a type that JSON
Schema does not know says nothing, and an object that lists its properties takes no others, unless
`additionalProperties` or a keyword that combines schemas says so. A schema that is itself invalid
is checked by its STRUCTURE alone: types, properties, items and what is required.
"""

import json
from collections.abc import Callable
from datetime import datetime, time
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import jsonschema_rs

Schema = dict[str, Any]
DEEPEST = 64
MOST_COMPILED = 4096  # compiled schemas that are kept
LONGEST_QUOTE = 60  # characters of a value in a message
QUOTE = "\0"  # stands for the value in the messages of jsonschema-rs
TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
STRUCTURE = frozenset(("type", "properties", "required", "items", "additionalProperties"))
COMBINING = frozenset(("allOf", "anyOf", "oneOf", "if", "then", "else", "not"))
# beside one of these an object's listed properties are not the only ones
OPENING = COMBINING | {"$ref", "patternProperties", "unevaluatedProperties"}
BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions"))
NESTED = COMBINING | {"items", "prefixItems", "additionalProperties", "contains"}
LISTS = frozenset(("allOf", "anyOf", "oneOf", "items", "prefixItems"))
# the keywords that decide what fits; descriptions and defaults do not
KEYWORDS = STRUCTURE.union(
    OPENING,
    BY_NAME,
    NESTED,
    ("enum", "const", "uniqueItems", "format"),
    ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"),
    ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)


def _reads_as(kind: type[time] | type[datetime], text: str) -> bool:
    """RFC 3339 asks for a time zone, which people mostly leave out; ISO 8601 does not."""
    try:
        return ":" in text and bool(kind.fromisoformat(text).isoformat())
    except ValueError:
        return False


# our own checks of formats; the others that count are checked by jsonschema-rs
CHECKS: dict[str, Callable[..., bool]] = {
    "date-time": partial(_reads_as, datetime),
    "time": partial(_reads_as, time),
}
FORMATS = ("date", "email", "uri", *CHECKS)


class CompiledSchema(NamedTuple):
    """`problem`: why only the structure of an invalid schema is checked; "" if it is valid."""

    validator: "jsonschema_rs.Validator"
    problem: str


def fits(value: object, schema: Schema) -> bool:
    """Whether a value fits its schema. As JSON Schema has it, 3.0 is an integer; BFCL, and so
    `argument_problem`, refuses it. Nothing fits that has more than DEEPEST levels of objects and
    lists: deeper ones cannot be read back.
    """
    return _compile(json.dumps(schema)).validator.is_valid(value) and not is_too_deep(value)


def value_problem(value: object, schema: Schema) -> str:
    """The first reason why a value does not fit its schema, with the path to it; "" if it fits."""
    if is_too_deep(value):
        return f"is nested deeper than {DEEPEST}"
    error = next(iter(_compile(json.dumps(schema)).validator.iter_errors(value)), None)
    return "" if error is None else _describe_error(error)


def _describe_error(error: "jsonschema_rs.ValidationError") -> str:
    """The path to what is wrong, and why, with a quote of it."""
    text = json.dumps(error.instance, ensure_ascii=False)
    quoted = text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
    path = ".".join(map(str, error.instance_path))
    return ": ".join(filter(None, (path, error.message.replace(QUOTE, quoted))))


def schema_problem(schema: Schema) -> str:
    """Why a schema is not valid JSON Schema, so that only its structure is checked; "" if it is."""
    return _compile(json.dumps(schema)).problem


def is_too_deep(value: object, deepest: int = DEEPEST) -> bool:
    """Whether a value has more than `deepest` levels of objects and lists."""
    level: list[Any] = [value]  # one level at a time: recursion would end at Python's own limit
    for _ in range(deepest):
        level = [
            inner
            for outer in level
            if type(outer) in (dict, list)
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in (dict, list)
        ]
        if not level:
            return False
    return True


def allows_key(schema: Schema, name: str) -> bool:
    """Whether an object may have a key. A schema that lists no properties takes any, and so does
    one with a keyword of OPENING, unless `additionalProperties` says otherwise.
    """
    properties, additional = schema.get("properties"), schema.get("additionalProperties")
    if "patternProperties" in schema or (isinstance(properties, dict) and name in properties):
        return True
    if additional is None:
        return not isinstance(properties, dict) or not OPENING.isdisjoint(schema)
    return additional is not False


def schema_at(schema: Schema, *keys: str) -> Schema:
    """The schema under some keys; an empty one, which takes any value, if there is none."""
    for key in keys:
        inner = schema.get(key)
        schema = inner if isinstance(inner, dict) else {}
    return schema


def types_of(schema: Schema) -> set[type]:
    """The Python types a schema declares: none if it is silent or its type is not one of JSON's."""
    return {TYPES[name] for name in _type_names(schema)}


def _type_names(schema: Schema) -> list[str]:
    declared = schema.get("type")
    names = declared if isinstance(declared, list) else [declared]
    return [name for name in names if isinstance(name, str) and name in TYPES]


def is_of_types(value: object, types: set[type]) -> bool:
    """Whether a value has one of the types. A bool is not an int, but an int counts as a float."""
    return type(value) in types or (type(value) is int and float in types)


@lru_cache(maxsize=MOST_COMPILED)
def _compile(text: str) -> CompiledSchema:
    """The schema whose JSON this is. Nothing is fetched for it."""
    import jsonschema_rs as rs

    schema, problem = json.loads(text), ""
    for keywords in (KEYWORDS, STRUCTURE):
        normalized = normalize(schema, keywords)
        # draft 7 takes a list of schemas as `items`, draft 4 also `"exclusiveMinimum": true`
        for draft in (rs.Draft202012Validator, rs.Draft7Validator, rs.Draft4Validator):
            try:
                validator = draft(
                    normalized, formats=CHECKS, validate_formats=True, mask=QUOTE, offline=True
                )
            except rs.ValidationError as error:
                problem = problem or _describe_error(error)
            except (rs.ReferencingError, ValueError) as error:
                problem = problem or str(error).partition("\n")[0]
            else:
                return CompiledSchema(validator, problem if keywords is STRUCTURE else "")
    raise AssertionError(f"the structure of a schema is not a schema: {normalized}")


def normalize(schema: object, keywords: frozenset[str] = KEYWORDS, is_closed: bool = True) -> Any:
    """The `keywords` of a schema, as meant. `is_closed`: an object takes no other properties."""
    if not isinstance(schema, dict):
        return schema if isinstance(schema, bool) else {}
    normalized = {key: schema[key] for key in schema if key in keywords and schema[key] is not None}
    normalized.pop("type", None)
    if str(normalized.get("format")) not in FORMATS:
        normalized.pop("format", None)
    if names := sorted({*_type_names(schema)}):
        normalized["type"] = names
    required = normalized.pop("required", None)
    if isinstance(required, list):
        normalized["required"] = sorted({name for name in required if isinstance(name, str)})
    for key in normalized.keys() & BY_NAME:
        inner = normalized[key] if isinstance(normalized[key], dict) else {}
        normalized[key] = {
            name: normalize(value, keywords, key == "properties") for name, value in inner.items()
        }
    for key in normalized.keys() & NESTED:
        inner, closed = normalized[key], key in ("items", "prefixItems", "additionalProperties")
        normalized[key] = (
            [normalize(subschema, keywords, closed) for subschema in inner]
            if isinstance(inner, list) and key in LISTS and (inner or key in COMBINING)
            else normalize(inner, keywords, closed)
        )
    # data sets write empty enumerations, and numbers in them as texts
    types, enum = types_of(normalized), normalized.get("enum")
    if isinstance(enum, list) and not any(not types or is_of_types(v, types) for v in enum):
        del normalized["enum"]
    # {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]} takes both: none is closed
    if is_closed and "properties" in normalized and not OPENING & schema.keys():
        normalized.setdefault("additionalProperties", False)
    is_nullable = schema.get("nullable") is True
    return {"anyOf": [normalized, {"type": "null"}]} if is_nullable else normalized
