"""JSON Schema: whether a value fits, and what the schema says about its parts."""

from typing import Any

Schema = dict[str, Any]
DEEPEST = 64
TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
SCALARS = {name: kind for name, kind in TYPES.items() if kind not in (list, dict)}


def fits(value: object, schema: Schema, levels: int = DEEPEST) -> bool:
    """Whether a value has the JSON types of its schema, all that is required and nothing unknown,
    at every depth.

    As JSON Schema has it, 3.0 is an integer; BFCL, and so `call_problem`, refuses it. Nothing fits
    that has more than `levels` levels of objects and lists: deeper ones cannot be read back.
    """
    declared = schema.get("type")
    if levels >= 0 and type(declared) is str and type(value) is SCALARS.get(declared):
        return True  # as most are
    types = types_of(schema)
    whole = int in types and type(value) is float and value.is_integer()
    if levels < 0 or (types and not whole and not is_one_of(value, types)):
        return False
    if isinstance(value, dict):
        return all(name in value for name in schema.get("required") or ()) and all(
            takes(schema, name) and fits(inner, schema_at(schema, "properties", name), levels - 1)
            for name, inner in value.items()
        )
    return not isinstance(value, list) or all(
        fits(element, schema_at(schema, "items"), levels - 1) for element in value
    )


def takes(schema: Schema, name: str) -> bool:
    """Whether an object may have a key. A schema that lists no properties takes any."""
    properties = schema.get("properties")
    return properties is None or name in properties or bool(schema.get("additionalProperties"))


def schema_at(schema: Schema, *keys: str) -> Schema:
    """The schema under some keys; an empty one, which takes any value, if there is none."""
    for key in keys:
        inner = schema.get(key)
        schema = inner if isinstance(inner, dict) else {}
    return schema


def types_of(schema: Schema) -> set[type]:
    """The Python types a schema declares: none if it is silent or its type is not one of JSON's."""
    declared = schema.get("type")
    return {
        TYPES[name]
        for name in (declared if isinstance(declared, list) else [declared])
        if name in TYPES
    }


def is_one_of(value: object, types: set[type]) -> bool:
    """Strictly: a bool is no int. But an int will do as a float."""
    return type(value) in types or (type(value) is int and float in types)
