"""Tools, schemas, calls and arguments in the many ways data sets write them -> Tool, Call, dict."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.json_schema import COMBINING, KEYWORDS, fits
from agentlite.core.plain_words import kind_of
from agentlite.core.records import Call, Tool
from agentlite.data.formats.format import as_list, omit
from agentlite.data.formats.json_decode import json_value, parse_json, quote

TYPES = {
    **dict.fromkeys(("string", "str", "char", "text"), "string"),
    **dict.fromkeys(("integer", "int", "long", "short", "byte", "bigint"), "integer"),
    **dict.fromkeys(("number", "float", "double", "decimal"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list", "tuple", "arraylist", "set", "queue", "stack"), "array"),
    **dict.fromkeys(("object", "dict", "hashmap", "hashtable", "map"), "object"),
    "null": "null",
}
NAMED_SCHEMA_KEYS = ("properties", "$defs", "definitions")
SUBSCHEMA_KEYS = ("items", "additionalProperties", "anyOf", "oneOf", "allOf")
# where a tool's schema stands: with OpenAI, MCP, Anthropic, LangChain twice, Gemini
PARAMETER_KEYS = (
    *("parameters", "inputSchema", "input_schema", "args_schema", "args"),
    "parametersJsonSchema",
)
WRAPPER_KEY = re.compile("json|schema", re.IGNORECASE)  # of a schema in an object of its own
# where the arguments of a call stand: with OpenAI, LangChain, Anthropic, Llama
ARGUMENT_KEYS = ("arguments", "args", "input", "parameters")
# the keys of most calls, whose arguments stand under "arguments"
CALL_KEYS = frozenset({"id", "type", "index", "name", "function", "arguments"})
ARGUMENT_KEY = re.compile("arg|param|input|json", re.IGNORECASE)
RESULT_KEY = re.compile("return|response|result|output", re.IGNORECASE)
Reader = Callable[[str], Any]


def read_arguments(value: object, reader: Reader = json_value) -> dict[str, object]:
    """The arguments of a call: an object, its text, or the text of its text; nothing is {}."""
    for _ in range(2):
        value = text_value(value, reader, "E206", "arguments are")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RowError("E208", f"arguments are {kind_of(value)}, not an object: {quote(value)}")
    return value


def text_value(text: Any, reader: Reader, code: str, subject: str) -> Any:
    """The value of a text, None if it is blank; any other value as it is. `code`: of its error."""
    if not isinstance(text, str):
        return text
    try:
        return reader(text) if text.strip() else None
    except RowError as error:
        if error.code not in ("E121", "E206"):
            raise
        hint = 'Write an object: {"city": "Oslo"}.' if subject.startswith("arguments") else ""
        raise RowError(code, f"{subject} not JSON: {quote(text)}", hint, text) from error


def read_call(value: Any, reader: Reader = json_value) -> Call:
    """A call: {"id", "function": {"name", "arguments"}}, {"name", "arguments"}, or its text."""
    value = text_value(value, reader, "E206", "a call is")
    function = value.get("function") or value if isinstance(value, dict) else None
    if not isinstance(function, dict):
        function = {}
    name = function.get("name")
    if not isinstance(name, str) or not name:
        hint = 'Write a call as {"name": "weather", "arguments": {"city": "Oslo"}}.'
        raise RowError("E206", f"a call without a name: {quote(value)}", hint)
    raw_id = value.get("id")
    call_id = str(raw_id) if isinstance(raw_id, str | int) else ""
    return Call(name, arguments_of({**value, **function}, reader), call_id)


def call_of(value: Any, tools_by_name: Mapping[str, Tool]) -> Call:
    """A call of one of these tools, without Arrow's nulls."""
    call = read_call(value)
    tool = tools_by_name.get(call.name, Tool(call.name))
    return replace(call, arguments=drop_nulls(value, call.arguments, tool))


def arguments_of(call: dict[str, Any], reader: Reader = json_value) -> dict[str, object]:
    """The arguments of a call, under whichever key they stand; none are {}. Refused are two keys
    that differ, and a key that is not read: the call would be learned without them.
    """
    if call.keys() <= CALL_KEYS:
        return read_arguments(call.get("arguments"), reader)
    arguments_by_key = {key: read_arguments(call.get(key), reader) for key in ARGUMENT_KEYS}
    sets = {key: arguments for key, arguments in arguments_by_key.items() if arguments}
    if len(sets) > 1:  # Arrow fills in the arguments of other rows as null
        keys = [key for key in sets if isinstance(call[key], str) or omit(sets[key])]
        sets = {key: sets[key] for key in keys or [*sets][:1]}
    first_key = next(iter(sets), "")
    if key := next((k for k in sets if sets[k] != sets[first_key]), ""):
        reason = f"a call of {call.get('name')} has two different sets of arguments"
        raise RowError("E206", reason, f"Keep one: the other stands under {key!r}.", key)
    # a call that says {} has no arguments; one without the key may keep them under another
    is_silent = all(call.get(key) is None for key in ARGUMENT_KEYS)
    for key, value in () if sets else omit(call, *CALL_KEYS, *ARGUMENT_KEYS).items():
        # an object under another key may hold them
        text = value.lstrip(' "') if isinstance(value, str) else ""
        # {"name": "weather", "kwargs": {"city": "Oslo"}}, or the text of that object
        is_object = bool(omit(value)) if isinstance(value, dict) else text.startswith("{")
        if is_object and (is_silent or ARGUMENT_KEY.search(key)):
            reason = f"a call of {call.get('name')} has no arguments, and an object under {key!r}"
            raise RowError("E206", reason, 'Write its arguments under "arguments".', key)
    return sets.get(first_key, {})


def drop_nulls(call: dict[str, Any], arguments: dict[str, Any], tool: Tool) -> dict[str, Any]:
    """The arguments of a call without the nulls that Arrow fills in for other calls: of a parameter
    that the tool lacks, or that is optional and takes no null. In a text there are none.
    """
    # {"function": {"arguments": "{...}"}}: into JSON of its own Arrow fills nothing
    if any(isinstance((call.get("function") or call).get(key), str) for key in ARGUMENT_KEYS):
        return arguments
    return _drop_nulls(arguments, tool.parameters)


def _drop_nulls(value: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    return {
        key: _drop_inner_nulls(inner, properties.get(key))
        for key, inner in value.items()
        if inner is not None
        or (key in properties and (key in required or fits(None, properties[key])))
    }


def _drop_inner_nulls(value: Any, schema: object) -> Any:
    if isinstance(value, dict) and isinstance(schema, dict) and schema.get("properties"):
        return _drop_nulls(value, schema)
    if isinstance(value, list) and isinstance(schema, dict):
        return [_drop_inner_nulls(inner, schema.get("items")) for inner in value]
    return value


def read_tools(value: object, reader: Reader = json_value) -> tuple[Tool, ...]:
    """A list of tools, or its text."""
    value = text_value(value, reader, "E124", "tools are")
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RowError("E211", f"tools are {kind_of(value)}, not a list", at="tools")
    return tuple(read_tool(tool, reader) for tool in value)


def find_tool_lists(fields: dict[str, Any], depth: int = 3) -> Iterator[tuple[str, list[Any]]]:
    """The lists of tools in fields that are not read, and in their JSON, each with its key."""
    for key, field in fields.items():
        value = parse_json(field)
        values = [parse_json(item) for item in value] if isinstance(value, list) else [value]
        if isinstance(value, list) and value and all(map(_is_tool, values)):
            yield key, values
        elif depth > 1:
            for inner in values:
                if isinstance(inner, dict):
                    yield from find_tool_lists(inner, depth - 1)


def _is_tool(value: Any) -> bool:
    """Whether it describes a tool: a call has a name too, and values where a tool has schemas."""
    function = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return False
    schema = parse_json(next((function[key] for key in PARAMETER_KEYS if key in function), None))
    if isinstance(schema, dict) and schema:
        return _is_object(schema) or all(
            isinstance(inner, dict) and not {"description", *KEYWORDS}.isdisjoint(inner)
            for inner in schema.values()
        )
    return "description" in function and (schema is not None or "function" in value)


def read_tool(value: object, reader: Reader = json_value) -> Tool:
    """{"type": "function", "function": {...}}, or the function itself, or the text of either.

    Rows offer the same tools again and again: one that was read before is that very tool.
    """
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _tool(value, reader)
    return _cached_tool(encoded, reader)


@lru_cache(maxsize=10_000)
def _cached_tool(encoded: bytes, reader: Reader) -> Tool:
    return _tool(json.loads(encoded), reader)


def _tool(value: object, reader: Reader) -> Tool:
    value = text_value(value, reader, "E124", "a tool is")
    fields = value if isinstance(value, dict) else {}
    function = fields.get("function") or fields
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name.strip():
        raise RowError("E212", f"a tool without a name: {quote(value)}")
    keys = (*PARAMETER_KEYS, "arguments")  # the last is ToolMind's
    parameters: Any = next((function[key] for key in keys if function.get(key)), None)
    for key, value in {**fields, **function}.items():
        # the tool would be learned without arguments
        is_schema = isinstance(value, dict) and "properties" in value
        if not parameters and is_schema and not RESULT_KEY.search(key):
            reason = f"the tool {name} has no parameters, and a schema under {key!r}"
            raise RowError(
                "E211", reason, 'Write its schema beside its name, under "parameters".', key
            )
    parameters = text_value(parameters, reader, "E211", f"parameters of {name} are")
    if isinstance(parameters, list):
        parameters = schema_from_list(parameters, name)
    if isinstance(parameters, dict):
        parameters = _object_schema(parameters, name)
        if isinstance(required := function.get("required"), list):
            parameters = {"required": required, **parameters}  # KuaiAgent has them side by side
    description, returns = function.get("description"), function.get("returns")
    tool = Tool(name, str(description or ""), returns=returns if isinstance(returns, dict) else {})
    return replace(tool, parameters=json_schema(parameters, name)) if parameters else tool


def _object_schema(schema: dict[str, Any], tool: str) -> dict[str, Any]:
    """The schema of an object. One in an object of its own, such as Bedrock's {"json": ...}, is
    taken out of it; schemas by name alone are those of the properties.
    """
    if not schema or not {"properties", "$ref", *COMBINING}.isdisjoint(schema):
        return schema
    schemas = {key: value for key, value in schema.items() if isinstance(parse_json(value), dict)}
    objects = [k for k in schemas if k not in KEYWORDS and _is_object(parse_json(schemas[k]))]
    # {"json": {"type": "object", ...}} -> its inside; {"city": {"type": "string"}} -> a property;
    # a lone {"filter": {"type": "object", ...}} could be either, and is refused below
    if len(schemas) == 1 and objects and WRAPPER_KEY.search(objects[0]):
        return _object_schema(parse_json(schemas[objects[0]]), tool)
    if not KEYWORDS.isdisjoint(schema) or len(schemas) < len(schema):
        return schema
    if len(schemas) == 1 and objects:
        reason = f"parameters of {tool}: a schema under {objects[0]!r}, a wrapper or a parameter"
        raise RowError(
            "E211", reason, 'Write it as {"type": "object", "properties": {...}}.', objects[0]
        )
    return {"type": "object", "properties": schema}


def _is_object(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object" or "properties" in schema


def schema_from_list(parameters: list[Any], tool: str) -> dict[str, Any]:
    """[{"name", "description", "required"}] as an object's schema."""
    properties = {}
    for parameter in parameters:
        if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
            raise RowError("E211", f"parameters of {tool}: each needs a name", at=tool)
        properties[parameter["name"]] = {
            key: value for key, value in parameter.items() if key != "name"
        }
    return {"type": "object", "properties": properties}


def json_schema(schema: object, tool: str) -> dict[str, Any]:
    """A parameter schema as JSON Schema: types renamed, nulls that Arrow filled in left out,
    "required" a list.

    A type that is not known, or that says "any", is left out: any value will do.
    """
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}  # the same as objects, which templates can write
    if not isinstance(schema, dict):
        raise RowError("E211", f"parameters of {tool}: {quote(schema)} is no schema", at=tool)
    # Arrow gives all structs of a column the same keys. {"type", "default": null} says that null is
    # the default; beside another null, this one was filled in as well.
    is_padded = any(value is None for key, value in schema.items() if key != "default")
    fields: dict[str, Any] = {
        key: value
        for key, value in schema.items()
        if value is not None or (key == "default" and not is_padded)
    }
    types = fields.pop("type", None)
    type_names = [str(name).lower() for name in as_list(types)]
    if names := [TYPES[name] for name in type_names if name in TYPES]:
        fields = {"type": names if isinstance(types, list) else names[0], **fields}
    required = fields.pop("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise RowError("E211", f"parameters of {tool}: required is not a list of names", at=tool)
    for key in NAMED_SCHEMA_KEYS:
        if (inner := fields.get(key)) is None:
            continue
        if not isinstance(inner, dict):
            raise RowError("E211", f"parameters of {tool}: {key} are not an object", at=tool)
        schemas = omit(inner)
        # properties that say themselves that they are required, as older data sets write it
        for name, value in schemas.items() if key == "properties" else ():
            if isinstance(value, dict) and not isinstance(value.get("required", []), list):
                is_required = str(value["required"]).lower() == "true"
                required = [*required, name] if is_required else required
                schemas[name] = {k: value[k] for k in value if k != "required"}
        fields[key] = {name: json_schema(value, tool) for name, value in schemas.items()}
    for key in SUBSCHEMA_KEYS:
        if isinstance(inner := fields.get(key), dict):
            fields[key] = json_schema(inner, tool)
        elif isinstance(inner, list):
            fields[key] = [json_schema(s, tool) if isinstance(s, dict) else s for s in inner]
    return {**fields, "required": list(dict.fromkeys(required))} if required else fields
