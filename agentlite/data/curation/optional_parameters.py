"""Makes variants of train records that have an optional parameter which the question gives.

Data sets have few of them: nearly every optional parameter may be left out. A model that learns
from such rows leaves out the others too, although the question gives their values.
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.json_schema import Schema, fits, schema_at
from agentlite.core.records import GoldCall, Record, Tool, accepted, digest
from agentlite.data.curation.stats import script, script_of
from agentlite.data.curation.variants import first_call, variant

NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
QUOTED = re.compile(r"(?<!\w)(['\"`])([^'\"`]{1,40})\1(?!\w)")
# `Default is 'metric'.`, `defaults to 5`, `the default value is set to 1e-6`
DEFAULT = re.compile(
    r"default\w*(?: value)?(?: is| to|:|=)?(?: set to)? *['\"`]?([\w.+-]+)", re.IGNORECASE
)
FORM = re.compile(r"[YMDHhms]{2,}|[%/{}<>]|\.\.\.")  # of a value, to be filled in: YYYY-MM-DD
SWITCH = re.compile(r"include|is|has|with|show|allow|use|enable|should|return|get")
SIZES = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 50, 100)  # of a number without a default
TWO_WANTED = 0.25  # the share of the variants that want two parameters, where there are two

# how a question gives a value: within its last sentence, or in a sentence of its own
WITHIN: tuple[str, ...] = (
    "with a {name} of {value}",
    "with {name} {value}",
    "with {value} {name}",
    "using {value} as the {name}",
    "{name} {value}",
    "and {value} as {name}",
)
BEHIND: tuple[str, ...] = (
    "The {name} should be {value}.",
    "Use {value} as the {name}.",
    "Set the {name} to {value}.",
    "I would like the {name} to be {value}.",
    "{Name}: {value}.",
)
ON_WITHIN = ("including {thing}", "with {thing}", "and {thing}")
ON_BEHIND = ("Include {thing}.", "Also {thing}.", "I want {thing} as well.", "{Name}: yes.")
OFF_WITHIN = ("without {thing}", "but no {thing}")
OFF_BEHIND = ("I do not want {thing}.", "Leave out {thing}.", "{Name}: no.")
# what a description says of an optional parameter
OPTIONAL = (
    "",
    " Optional.",
    " This is optional.",
    " Default is {default}.",
    " Optional. Default is {default}.",
    " Defaults to {default} if not given.",
)
OPTIONAL_ZH = ("", "（可选）", "可选参数。")


class Wish(NamedTuple):
    """A parameter, and the value that the question is to give it."""

    name: str
    value: Any


def with_optional_wanted(record: Record, seed: int) -> Record | str:
    """The dialog up to its first call, in which the question gives one or two optional parameters
    more and the call has them; or why not.

    A value comes from the schema: its enum, what a description quotes, a switch turned, a number
    that is not the default. A parameter is taken only if no word of its name and no value that it
    could have is in the question, which therefore says nothing else about it.
    """
    turn = first_call(record)
    if isinstance(turn, str):
        return turn
    calls, gold = record.messages[turn].calls, record.expected(turn)
    if len(calls) != 1 or len(gold.calls) != 1 or gold.calls[0].arguments is None:
        return "not one call with its arguments"
    if record.messages[turn - 1].role != "user":
        return "no question comes before the call"
    if script(record) != "Latin":
        return "the question is not in Latin script"
    [call], [right], question = calls, gold.calls, record.messages[turn - 1]
    schema = next((tool.parameters for tool in record.tools if tool.name == call.name), {})
    chance = random.Random(digest(f"{seed} wanted {record.id}"))
    wishes = list(_wishes(schema, call.arguments, right, question.content, chance))
    if not wishes:
        return "no optional parameter can be wanted"
    wishes = chance.sample(wishes, min(len(wishes), 2 if chance.random() < TWO_WANTED else 1))
    text = question.content
    for wish in wishes:
        text = _wanting(text, wish, chance)
    wished = {**call.arguments, **dict(wishes)}
    in_order = dict.fromkeys([*schema_at(schema, "properties"), *wished])
    arguments = {name: wished[name] for name in in_order if name in wished}
    values = {wish.name: [accepted(wish.value)] for wish in wishes}
    return variant(
        record,
        "optional parameter wanted",
        messages=(
            *record.messages[: turn - 1],
            replace(question, content=text),
            replace(record.messages[turn], calls=(replace(call, arguments=arguments),)),
        ),
        gold={
            **{at: before for at, before in record.gold.items() if at < turn},
            turn: replace(
                gold, calls=(replace(right, arguments={**(right.arguments or {}), **values}),)
            ),
        },
    )


def with_required_relaxed(record: Record, seed: int) -> Record | str:
    """The dialog with some required parameters declared optional, of those that every call of their
    tool has; or why not. The calls stay as they are: the question gives what they need.
    """
    expected = [call for turn in record.prompted_turns for call in record.expected(turn).calls]
    if not expected:
        return "no call is expected"
    chance = random.Random(digest(f"{seed} relaxed {record.id}"))
    tools = [_relaxed(tool, expected, chance) for tool in record.tools]
    if tools == list(record.tools):
        return "no required parameter can be optional"
    return variant(record, "required parameter optional", tools=tuple(tools))


def _wishes(
    schema: Schema, given: dict[str, Any], right: GoldCall, question: str, chance: random.Random
) -> Iterator[Wish]:
    """What else the question could give: one value for each parameter."""
    mentioned = _words(question)
    for name, inner in schema_at(schema, "properties").items():
        choices = (right.arguments or {}).get(name, [""])  # "" among them: may be left out
        is_free = name not in given and name not in (schema.get("required") or ()) and "" in choices
        if not is_free or not isinstance(inner, dict):
            continue
        words = _words(name)
        usual = [choice for choice in choices if choice != ""] + _defaults(inner)
        possible = list(_values(inner, usual, chance))
        in_question = any(_in_words(value).lower() in question.lower() for value in possible)
        if not words or words & mentioned or in_question:
            continue
        unusual = [
            value
            for value in possible
            if str(value).lower() not in {str(one).lower() for one in usual} and fits(value, inner)
        ]
        if unusual:
            yield Wish(name, chance.choice(unusual))


def _words(text: str) -> set[str]:
    """Without the s of a plural."""
    return {word.lower().removesuffix("s") for word in NAME_WORD.findall(text)}


def _defaults(inner: Schema) -> list[Any]:
    """The value that a call without the parameter has, by the schema and by its description."""
    written = DEFAULT.search(str(inner.get("description", "")))
    by_schema = [inner["default"]] if "default" in inner else []
    return by_schema + ([written[1].rstrip(".")] if written else [])


def _values(inner: Schema, usual: Sequence[Any], chance: random.Random) -> Iterator[Any]:
    kind, choices = inner.get("type"), inner.get("enum")
    if kind == "boolean":
        yield not any(str(value).lower() == "true" for value in usual)
    elif choices:
        yield from (choice for choice in choices if choice not in ("", None))
    elif kind in ("integer", "number"):
        yield from _numbers(usual, chance, whole=kind == "integer")
    elif kind == "string":
        yield from _examples(inner)
    elif kind == "array":
        items = schema_at(inner, "items")
        texts = items.get("enum") or _examples(inner) or _examples(items)
        if items.get("type", "string") == "string" and texts:
            yield chance.sample(texts, min(len(texts), chance.choice((1, 1, 2))))


def _examples(inner: Schema) -> list[str]:
    """The values that a description quotes."""
    quoted = dict.fromkeys(text for _, text in QUOTED.findall(str(inner.get("description", ""))))
    return [text for text in quoted if re.search(r"\w", text) and not FORM.search(text)]


def _numbers(usual: Iterable[Any], chance: random.Random, *, whole: bool) -> Iterator[float]:
    """Some of the size of the default."""
    known = [float(text) for text in map(str, usual) if re.fullmatch(r"\d{1,12}(\.\d+)?", text)]
    size = known[0] if known else 0.0
    for _ in range(4):
        if not size:
            value = float(chance.choice(SIZES))
        elif 1900 <= size <= 2100:  # a year
            value = size - chance.randint(1, 12)
        elif whole:
            value = size * chance.choice((2, 3, 4, 5)) + chance.choice((0, 0, 0, 1, 5))
        else:
            value = round(size * chance.choice((0.5, 0.8, 1.5, 2, 3, 4)), 6)
        yield int(value) if whole or value.is_integer() else value


def _wanting(question: str, wish: Wish, chance: random.Random) -> str:
    """The question, which now gives the parameter its value."""
    words = [word.lower() for word in NAME_WORD.findall(wish.name)]
    name, value = " ".join(words), _in_words(wish.value)
    thing = " ".join(words[1:]) if len(words) > 1 and SWITCH.fullmatch(words[0]) else name
    if isinstance(wish.value, str) and chance.random() < 0.4:
        value = value.lower()  # as people type; the call has it as the schema does
    within, behind = WITHIN, BEHIND
    if isinstance(wish.value, bool):
        within, behind = (ON_WITHIN, ON_BEHIND) if wish.value else (OFF_WITHIN, OFF_BEHIND)
    filled = {"name": name, "Name": name.capitalize(), "thing": thing, "value": value}
    text = question.rstrip()
    end = text[-1:] if text.endswith((".", "?", "!")) else ""
    if chance.random() < 0.6:
        clause = chance.choice(within).format(**filled)
        return f"{text.removesuffix(end)} {clause}{end or '.'}"
    return f"{text}{'' if end else '.'} {chance.choice(behind).format(**filled)}"


def _in_words(value: object) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)


def _relaxed(tool: Tool, expected: Iterable[GoldCall], chance: random.Random) -> Tool:
    """The tool with half of the parameters optional that all calls of it must have; at least one,
    if there are any.
    """
    calls = [call.arguments for call in expected if call.name == tool.name]
    properties = schema_at(tool.parameters, "properties")
    given = [
        name
        for name in tool.parameters.get("required") or ()
        if isinstance(properties.get(name), dict)
        and all(arguments and "" not in arguments.get(name, [""]) for arguments in calls)
    ]
    if not calls or not given:
        return tool
    chosen = [name for name in given if chance.random() < 0.5] or [chance.choice(given)]
    described = {
        name: _described(properties[name], (calls[0] or {})[name], chance) for name in chosen
    }
    required = [name for name in tool.parameters["required"] if name not in chosen]
    parameters = {
        **tool.parameters,
        "properties": {**properties, **described},
        "required": required,
    }
    if not required:
        del parameters["required"]  # as data sets write a tool without one
    return replace(tool, parameters=parameters)


def _described(inner: Schema, values: Sequence[Any], chance: random.Random) -> Schema:
    """The parameter's schema with a description that calls it optional, or says its default, or
    neither.
    """
    text = str(inner.get("description") or "").rstrip()
    default = _other_than(values[0], inner, chance)
    if script_of(text) == "Han":
        added = chance.choice(OPTIONAL_ZH)
    else:
        forms = [form for form in OPTIONAL if default is not None or "{" not in form]
        added = chance.choice(forms).format(default=default)
    return {**inner, "description": f"{text}{added}".strip()} if added else inner


def _other_than(value: object, inner: Schema, chance: random.Random) -> str | None:
    """A default, as a description writes it, that is not the value of the call."""
    if choices := [choice for choice in inner.get("enum") or () if choice != value]:
        return repr(chance.choice(choices))
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int | float):
        return str(chance.choice([one for one in (0, 1, 5, 10, 100) if one != value]))
    if isinstance(value, str):
        return chance.choice(["None", *(repr(one) for one in ("", "all", "any") if one != value)])
    return "an empty list" if isinstance(value, list) and value else None
