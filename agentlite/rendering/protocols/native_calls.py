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
from agentlite.rendering.protocols.react import value_of_text
from agentlite.rendering.template import TOOLS, USER, Template, call_turn, shared_length

WORDS = "probe words"
NAMES = ("probe_call_1", "probe_call_2")
KEYS = ("key_1", "key_2")
TEXTS, NUMBERS = ("value_1", "value_2"), (731, 732)
PYTHON_WORDS = {"True": True, "False": False, "None": None}
SCALAR = re.compile(r"[^\s,:\[\]{}()]+")


class NativeCalls(NamedTuple):
    r"""`opening`: what stands before the first name. `endings`: of each part of a call, the texts
    that end it and the part that follows. Parts: `name`, `key`, `object` (all arguments as JSON),
    `text` (between `quotes`), `literal` (any other value), `plain` (a value that is written as it
    is, text or not), and `end`. GLM's `endings` are

    name:  "\n<arg_key>" -> key, "\n</tool_call>\n<tool_call>" -> name, "\n</tool_call>" -> end
    key:   "</arg_key>\n<arg_value>" -> plain
    plain: the three of `name`, each behind "</arg_value>"
    """

    opening: str
    endings: Mapping[str, Mapping[str, str]]
    quotes: tuple[str, str] = ('"', '"')

    def parse(self, text: str, tools: Sequence[Tool] = ()) -> Parsed:
        """The types of the tools' arguments tell what a plain value is."""
        if not (opening := re.search(_with_any_digits(self.opening), text)):
            return Parsed(text.strip())
        content, rest = text[: opening.start()], text[opening.end() :]
        schemas = {tool.name: tool.parameters for tool in tools}
        calls: list[Call] = []
        # from part to part, as `endings` lead: name, key, plain, key, plain, name, ..., end
        part, position, name, key, problem = "name", 0, "", "", ""
        arguments: Any = {}
        while part != "end" and not problem:
            try:
                value, position, next_part = self._part(part, rest, position)
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
            if next_part in ("name", "end"):
                call, problem = to_call(name, arguments)
                calls += [call] if call else []
            part = next_part
        trailing = "" if problem else rest[position:].strip()
        problem = problem or ("text after a call" if trailing else "")
        return Parsed(content.strip(), tuple(calls), problem, trailing)

    def _part(self, part: str, text: str, position: int) -> tuple[Any, int, str]:
        """A part, the end of what ends it, and the part that follows."""
        # the longest first: "\n</tool_call>" also begins the ending that leads to a next call
        endings = sorted(self.endings[part].items(), key=lambda item: -len(item[0]))
        pattern = re.compile("|".join(f"({_with_any_digits(ending)})" for ending, _ in endings))
        if part in ("object", "literal"):
            value, position = read_literal(text, position, self.quotes)
            match = pattern.match(text, position)
        else:
            match = pattern.search(text, position)
            value = text[position : match.start()] if match else ""
        if not match or not match.lastindex:
            raise ValueError("no end")
        return value, match.end(), endings[match.lastindex - 1][1]  # a group for each ending


def _with_any_digits(text: str) -> str:
    """A pattern of the text. Its digits are those of an id or of a call's number, which differ."""
    return re.sub(r"\d+", r"\\w+", re.escape(text))


def read_literal(text: str, position: int, quotes: tuple[str, str]) -> tuple[Any, int]:
    """The value that begins at `position`, and where it ends: JSON, or the same with other quotes,
    keys without quotes, and Python's words, as {city:<|"|>Oslo<|"|>,wet:True}. Raises ValueError.
    """
    try:
        return DECODER.raw_decode(text, position)
    except ValueError:
        pass
    if text.startswith(quotes[0], position):
        start = position + len(quotes[0])
        end = text.index(quotes[1], start)
        return text[start:end], end + len(quotes[1])
    if not (closing := {"[": "]", "{": "}"}.get(text[position : position + 1])):
        if not (match := SCALAR.match(text, position)):
            raise ValueError("no value")
        return PYTHON_WORDS.get(match[0], match[0]), match.end()
    items: list[Any] = []
    position = _skip_mark(text, position + 1, "")
    while not text.startswith(closing, position):
        item, position = read_literal(text, position, quotes)
        if closing == "}":
            value, position = read_literal(text, _skip_mark(text, position, ":"), quotes)
            item = (str(item), value)
        items.append(item)
        if not text.startswith(closing, position := _skip_mark(text, position, "")):
            position = _skip_mark(text, position, ",")
    return dict(items) if closing == "}" else items, position + 1


def _skip_mark(text: str, position: int, mark: str) -> int:
    """The position behind blanks, a mark and blanks. Raises ValueError for another mark."""
    if not (match := re.compile(rf"\s*{re.escape(mark)}\s*").match(text, position)):
        raise ValueError(f"no {mark}")
    return match.end()


def _coerce(text: str, schema: Schema) -> Any:
    """A plain value by its argument's schema: text where that says so, or nothing else fits."""
    value, types = value_of_text(text), types_of(schema)
    is_text = str in types and not (value is None and type(None) in types)
    return text if is_text or not fits(value, schema) else value


def native_calls(template: Template) -> NativeCalls | None:
    """How a template writes calls; None for none, or a form that nothing tells from words."""
    try:
        opening = _opening(template)
        endings = _endings_of_objects(template) or _endings_of_arguments(template)
    except (LookupError, UserError):  # the template fails: check_protocol() says why
        return None
    quotes = ('"', '"')
    # ':<|"|>' leads to a text and ':' to any other value: what the first has more is the quote
    if "text" in endings:
        (text_key, _), (literal_key, _) = endings["key"].items()
        text_end, literal_end = next(iter(endings["text"])), next(iter(endings["literal"]))
        if text_key.startswith(literal_key) and text_end.endswith(literal_end):
            quotes = (text_key[len(literal_key) :], text_end.removesuffix(literal_end))
    is_clear = opening.strip() and all(
        ending.strip() or part == "object" for part, texts in endings.items() for ending in texts
    )
    return NativeCalls(opening, endings, quotes) if is_clear else None


def _opening(template: Template) -> str:
    """What stands before a name, behind the words or the thoughts of a turn."""
    dialog = _probe_calls(template, {KEYS[0]: TEXTS[0]})
    before = _split(dialog, NAMES[0])[0]  # of a dialog, so with the question and the tools
    prompt = template.probe([USER], TOOLS, prompt=True)
    # Gemma 4's prompt may go on with an empty thought, `<|channel>...`: the call's `<|` is its own
    shared = min(shared_length(before, prompt), len(prompt.removesuffix(template.prompt_extra)))
    opening = before[shared:].rpartition(THINK_END)[2]
    # where the template writes words before a call, what stands between them is surer: `opening`
    # may begin with marks of the turn
    with_words = _probe_calls(template, {KEYS[0]: TEXTS[0]}, words=WORDS)
    behind_words = with_words.rpartition(WORDS)[2].partition(NAMES[0])[0]
    # gpt-oss writes words and a call as two messages, each with a head
    behind_words = behind_words.rpartition(template.prompt_head or WORDS)[2].lstrip()
    is_surer = WORDS in with_words and before.endswith(behind_words)
    return behind_words if is_surer else opening.lstrip()


def _endings_of_objects(template: Template) -> dict[str, dict[str, str]]:
    """The endings of a form that writes all arguments as one object of JSON; {} for others."""
    arguments = {KEYS[0]: TEXTS[0]}
    endings: dict[str, dict[str, str]] = {"name": {}, "object": {}}
    for text, next_part in _texts_behind_names(template, arguments):
        # the first { from which on the arguments are read: an earlier one opens something else
        for start in (match.start() for match in re.finditer(r"\{", text)):
            try:
                value, end = DECODER.raw_decode(text, start)
            except ValueError:
                continue
            if value == arguments:
                endings["name"][text[:start]] = "object"
                endings["object"][text[end:]] = next_part
                break
    return endings if endings["object"] else {}


def _endings_of_arguments(template: Template) -> dict[str, dict[str, str]]:
    """The endings of a form that writes each argument for itself."""
    endings: dict[str, dict[str, str]] = {"name": {}, "key": {}, "text": {}, "literal": {}}
    for kind, values in (("text", TEXTS), ("literal", NUMBERS)):
        first, second = map(str, values)
        for text, next_part in _texts_behind_names(template, dict(zip(KEYS, values, strict=True))):
            # a call reads: NAME name_end KEY key_end VALUE between KEY key_end VALUE end
            name_end, key_end, between, _, end = _split(text, KEYS[0], first, KEYS[1], second)
            endings["name"][name_end] = "key"
            endings["key"].setdefault(key_end, kind)
            endings[kind] |= {between: "key", end: next_part}
    if len(endings["key"]) == 1:  # texts and others are written alike
        endings["plain"] = endings.pop("text")
        del endings["literal"]
        endings["key"] = dict.fromkeys(endings["key"], "plain")
    endings["name"] |= dict(_texts_behind_names(template, {}))  # without arguments no key follows
    return endings


def _texts_behind_names(template: Template, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The text behind the name of each call, to the next one (`name`) or to the turn's `end`."""
    count = 2 if template.parallel_calls else 1
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
