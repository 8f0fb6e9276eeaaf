r"""Calls in a chat template's own form, read by what the template writes around a call.

Nothing is known of any family: calls of probes are written, and what stands between their names,
keys and values is what a reader meets between those of other calls. So it learns, of

Qwen2.5  <tool_call>\n{"name": "NAME", "arguments": OBJECT}\n</tool_call>
GLM-4.5  <tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>PLAIN</arg_value>\n</tool_call>
LFM2.5   <|tool_call_start|>[NAME(KEY='TEXT', KEY=LITERAL)]<|tool_call_end|>
Gemma 4  <|tool_call>call:NAME{KEY:<|"|>TEXT<|"|>,KEY:LITERAL}<tool_call|>
gpt-oss  to=functions.NAME<|channel|>commentary json<|message|>OBJECT

the parts in capitals. A form that writes each name twice, as Muse's does, is not read.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.core.errors import UserError
from agentlite.core.json_schema import Schema, fits, schema_at, types_of
from agentlite.core.records import Call, Parsed, Tool
from agentlite.rendering.protocol import DECODER, THINK_END, to_call
from agentlite.rendering.protocols.react import plain_value
from agentlite.rendering.template import TOOLS, USER, Template, call_turn, shared_length

WORDS = "probe words"
NAMES = ("probe_call_1", "probe_call_2")
KEYS = ("key_1", "key_2")
TEXTS, NUMBERS = ("value_1", "value_2"), (731, 732)
WRITINGS = {"True": True, "False": False, "None": None}
SCALAR = re.compile(r"[^\s,:\[\]{}()]+")


class NativeCalls(NamedTuple):
    r"""`opening`: what stands before the first name. `behind`: of each part of a call, the texts
    that end it and the part that follows. Parts: `name`, `key`, `object` (all arguments as JSON),
    `text` (between `quotes`), `literal` (any other value), `plain` (a value that is written as it
    is, text or not), and `end`. GLM's `behind` has

    name:  "\n<arg_key>" -> key, "\n</tool_call>\n<tool_call>" -> name, "\n</tool_call>" -> end
    key:   "</arg_key>\n<arg_value>" -> plain
    plain: the three of `name`, each behind "</arg_value>"
    """

    opening: str
    behind: Mapping[str, Mapping[str, str]]
    quotes: tuple[str, str] = ('"', '"')

    def parse(self, text: str, tools: Sequence[Tool] = ()) -> Parsed:
        """The types of the tools' arguments tell what a plain value is."""
        if not (opening := re.search(_pattern(self.opening), text)):
            return Parsed(text.strip())
        content, rest = text[: opening.start()], text[opening.end() :]
        schemas = {tool.name: tool.parameters for tool in tools}
        calls: list[Call] = []
        # from part to part, as `behind` leads: name, key, plain, key, plain, name, ..., end
        part, at, name, key, problem = "name", 0, "", "", ""
        arguments: Any = {}
        while part != "end" and not problem:
            try:
                value, at, following = self._part(part, rest, at)
            except (ValueError, RecursionError):
                problem = "call cannot be read, or not closed"
                break
            if part == "name":
                name, arguments = value, {}
            elif part == "key":
                key, problem = value, "an argument twice" if value in arguments else ""
            elif part == "object":
                arguments = value
            else:
                schema = schema_at(schemas.get(name, {}), "properties", key)
                arguments[key] = _coerce(value, schema) if part == "plain" else value
            if following in ("name", "end"):
                call, problem = to_call(name, arguments)
                calls += [call] if call else []
            part = following
        trailing = "" if problem else rest[at:].strip()
        problem = problem or ("text after a call" if trailing else "")
        return Parsed(content.strip(), tuple(calls), problem, trailing)

    def _part(self, part: str, text: str, at: int) -> tuple[Any, int, str]:
        """A part, the end of what ends it, and the part that follows."""
        # the longest first: "\n</tool_call>" also begins the ending that leads to a next call
        endings = sorted(self.behind[part].items(), key=lambda item: -len(item[0]))
        pattern = re.compile("|".join(f"({_pattern(ending)})" for ending, _ in endings))
        if part in ("object", "literal"):
            value, at = literal(text, at, self.quotes)
            match = pattern.match(text, at)
        else:
            match = pattern.search(text, at)
            value = text[at : match.start()] if match else ""
        if not match or not match.lastindex:
            raise ValueError("no end")
        return value, match.end(), endings[match.lastindex - 1][1]  # a group for each ending


def _pattern(text: str) -> str:
    """Digits are those of an id or of a call's number, which differ."""
    return "".join(
        r"\w+" if piece.isdecimal() else re.escape(piece) for piece in re.split(r"(\d+)", text)
    )


def literal(text: str, at: int, quotes: tuple[str, str]) -> tuple[Any, int]:
    """A value that begins at a place, and where it ends: JSON, or the same with other quotes, keys
    without quotes, and Python's words, as {city:<|"|>Oslo<|"|>,wet:True}. Raises ValueError.
    """
    try:
        return DECODER.raw_decode(text, at)
    except ValueError:
        pass
    if text.startswith(quotes[0], at):
        start = at + len(quotes[0])
        end = text.index(quotes[1], start)
        return text[start:end], end + len(quotes[1])
    if not (closing := {"[": "]", "{": "}"}.get(text[at : at + 1])):
        if not (match := SCALAR.match(text, at)):
            raise ValueError("no value")
        return WRITINGS.get(match[0], match[0]), match.end()
    items: list[Any] = []
    at = _past(text, at + 1, "")
    while not text.startswith(closing, at):
        item, at = literal(text, at, quotes)
        if closing == "}":
            value, at = literal(text, _past(text, at, ":"), quotes)
            item = (str(item), value)
        items.append(item)
        if not text.startswith(closing, at := _past(text, at, "")):
            at = _past(text, at, ",")
    return dict(items) if closing == "}" else items, at + 1


def _past(text: str, at: int, mark: str) -> int:
    """Behind blanks, a mark and blanks."""
    if not (match := re.compile(rf"\s*{re.escape(mark)}\s*").match(text, at)):
        raise ValueError(f"no {mark}")
    return match.end()


def _coerce(text: str, schema: Schema) -> Any:
    """A plain value by its argument's schema: text where that says so, or nothing else fits."""
    value, types = plain_value(text), types_of(schema)
    is_text = str in types and not (value is None and type(None) in types)
    return text if is_text or not fits(value, schema) else value


def native_calls(template: Template) -> NativeCalls | None:
    """None where a template writes no calls, or in a form that nothing tells from words."""
    try:
        opening = _opening(template)
        behind = _of_objects(template) or _of_arguments(template)
    except (LookupError, UserError):  # the template fails: check() says why
        return None
    quotes = ('"', '"')
    # ':<|"|>' leads to a text and ':' to any other value: what the first has more is the quote
    if "text" in behind:
        (text_key, _), (literal_key, _) = behind["key"].items()
        text_end, literal_end = next(iter(behind["text"])), next(iter(behind["literal"]))
        if text_key.startswith(literal_key) and text_end.endswith(literal_end):
            quotes = (text_key[len(literal_key) :], text_end.removesuffix(literal_end))
    is_clear = opening.strip() and all(
        ending.strip() or part == "object" for part, ends in behind.items() for ending in ends
    )
    return NativeCalls(opening, behind, quotes) if is_clear else None


def _opening(template: Template) -> str:
    """What stands before a name, behind the words or the thoughts of a turn."""
    whole = _probe_calls(template, {KEYS[0]: TEXTS[0]})
    before = _split(whole, NAMES[0])[0]  # of a dialog, so with the question and the tools
    prompt = template.probe([USER], TOOLS, prompt=True)
    # Gemma 4's prompt may go on with an empty thought, `<|channel>...`: the call's `<|` is its own
    shared = min(shared_length(before, prompt), len(prompt.removesuffix(template.prompt_extra)))
    alone = before[shared:].rpartition(THINK_END)[2]
    # where the template writes words before a call, what stands between them is surer: `alone` may
    # begin with marks of the turn
    spoken = _probe_calls(template, {KEYS[0]: TEXTS[0]}, words=WORDS)
    behind_words = spoken.rpartition(WORDS)[2].partition(NAMES[0])[0]
    # gpt-oss writes words and a call as two messages, each with a head
    behind_words = behind_words.rpartition(template.prompt_head or WORDS)[2].lstrip()
    return behind_words if WORDS in spoken and before.endswith(behind_words) else alone.lstrip()


def _of_objects(template: Template) -> dict[str, dict[str, str]]:
    """Of a form that writes all arguments as one object of JSON; else nothing."""
    arguments = {KEYS[0]: TEXTS[0]}
    behind: dict[str, dict[str, str]] = {"name": {}, "object": {}}
    for text, following in _behind_names(template, arguments):
        # the first { from which on the arguments are read: an earlier one opens something else
        for place in (match.start() for match in re.finditer(r"\{", text)):
            try:
                value, end = DECODER.raw_decode(text, place)
            except ValueError:
                continue
            if value == arguments:
                behind["name"][text[:place]] = "object"
                behind["object"][text[end:]] = following
                break
    return behind if behind["object"] else {}


def _of_arguments(template: Template) -> dict[str, dict[str, str]]:
    """Of a form that writes each argument for itself."""
    behind: dict[str, dict[str, str]] = {"name": {}, "key": {}, "text": {}, "literal": {}}
    for kind, values in (("text", TEXTS), ("literal", NUMBERS)):
        first, second = map(str, values)
        for text, following in _behind_names(template, dict(zip(KEYS, values, strict=True))):
            # a call reads: NAME name_end KEY key_end VALUE between KEY key_end VALUE end
            name_end, key_end, between, _, end = _split(text, KEYS[0], first, KEYS[1], second)
            behind["name"][name_end] = "key"
            behind["key"].setdefault(key_end, kind)
            behind[kind] |= {between: "key", end: following}
    if len(behind["key"]) == 1:  # texts and others are written alike
        behind["plain"] = behind.pop("text")
        del behind["literal"]
        behind["key"] = dict.fromkeys(behind["key"], "plain")
    behind["name"] |= dict(_behind_names(template, {}))  # without arguments no key follows
    return behind


def _behind_names(template: Template, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The text behind the name of each call, to the next one (`name`) or to the turn's `end`."""
    count = 2 if template.takes_several_calls else 1
    _, *between, last = _split(_probe_calls(template, *[arguments] * count), *NAMES[:count])
    end = template.call_end or template.turn_end
    return [*((text, "name") for text in between), (last.partition(end)[0].rstrip(), "end")]


def _probe_calls(template: Template, *arguments: Mapping[str, Any], words: str = "") -> str:
    """The text with a turn that calls NAMES with these arguments."""
    turn = call_turn(*NAMES[: len(arguments)], words=words, arguments=arguments[0])
    return template.probe([USER, turn], TOOLS)


def _split(text: str, *marks: str) -> list[str]:
    """What stands before, between and behind marks. Raises LookupError where one is missing."""
    pieces = []
    for mark in marks:
        piece, is_written, text = text.partition(mark)
        if not is_written:
            raise LookupError(mark)
        pieces.append(piece)
    return [*pieces, text]
