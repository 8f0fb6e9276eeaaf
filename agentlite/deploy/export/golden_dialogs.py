"""Twenty dialogs of every shape for each protocol, which an export must render as training did."""

from itertools import chain
from typing import Any, NamedTuple

from agentlite.core.records import Call, Message, Record, Tool, digest, plain
from agentlite.rendering import Mixture, Protocol

WEATHER = Tool(
    "get_weather",
    "Weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
BOOK = Tool(
    "book_table",
    'Books a table, as "guests" ask; <b>never</b> for 0 & less. 订位',
    {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "The restaurant's name, as it's written."},
            "guests": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            },
            "smoking": {"type": ["boolean", "null"]},
        },
    },
)
TIME = Tool("get_time")
UNICODE = "Grüße aus Kraków: 你好,世界!مرحبا 👩‍🔬 e\u0301 ½"
QUOTED = """She said: "it's <b>5</b> & \\n {{ not }} {% code %}" — `C:\\temp`, ''' and <tag/>."""
LAID_OUT = "def f(x):\n\tif x:\n        return {\n\n  'a': 1}\n\n- one\n- two"
Called = tuple[str, dict[str, Any], str]  # a tool, its arguments and its result


class Golden(NamedTuple):
    name: str
    record: Record
    protocol: Protocol


def goldens(mixture: Mixture) -> list[Golden]:
    named = len(mixture.protocols) > 1
    return [
        Golden(f"{name} ({protocol.name})" if named else name, record, protocol)
        for protocol in mixture.protocols.values()
        for name, record in dialogs(protocol.several).items()
    ]


def dialogs(several: bool) -> dict[str, Record]:
    """`several`: whether calls may be made side by side; else they follow one another."""

    def record(*parts: Message | list[Message], tools: tuple[Tool, ...] = ()) -> Record:
        messages = [part if isinstance(part, list) else [part] for part in parts]
        return Record(messages=tuple(chain.from_iterable(messages)), tools=tools)

    def called(thought: str, *calls: Called) -> list[Message]:
        return _called(several, thought, *calls)

    brief = Message("system", "Be brief.")
    wet, yes = _talk("Is it wet in Oslo?", "Yes, about 4 mm.")
    wet_in_lima, no = _talk("And Lima?", "No.")
    oslo: Called = ("get_weather", {"city": "Oslo"}, '{"rain_mm": 4}')
    lima: Called = ("get_weather", {"city": "Lima", "days": 2}, "dry")
    guests = [{"name": "Zoë"}, {}]
    odd: Called = (
        "book_table",
        {"place": QUOTED, "guests": guests, "smoking": None},
        '{"ok": "\\"no\\""}',
    )
    far: Called = ("get_weather", {"city": UNICODE}, UNICODE)
    noon: Called = ("get_time", {}, "12:00")
    both, three = (WEATHER, BOOK), (WEATHER, BOOK, TIME)
    first = called("", oslo)
    return {
        "a question": record(wet, yes),
        "a question under a system turn": record(brief, wet, yes),
        "three questions": record(wet, yes, _talk("Sure?", "Quite.", "Thanks.", "Bye.")),
        "two questions under a system turn": record(brief, wet, yes, _talk("Sure?", "Quite sure.")),
        "Unicode": record(_talk(UNICODE, UNICODE)),
        "quotes and marks": record(Message("system", QUOTED), _talk(QUOTED, QUOTED)),
        "lines, and blanks around them": record(_talk(f" \t{LAID_OUT}\n\n", LAID_OUT)),
        "tools, and an answer": record(_talk("Hello!", "Good day."), tools=(WEATHER,)),
        "a call": record(wet, first[0], tools=(WEATHER,)),
        "a call under a system turn": record(brief, wet, first[0], tools=three),
        "a call after a thought": record(wet, called("I must look.", oslo), yes, tools=(WEATHER,)),
        "a call, its result, an answer": record(wet, first, yes, tools=(WEATHER, TIME)),
        "the same under a system turn": record(brief, wet, first, yes, tools=(WEATHER,)),
        "two calls side by side": record(wet, called("", oslo, lima), yes, tools=(WEATHER,)),
        "two calls, one after the other": record(
            wet, first, called("And Lima?", lima), yes, tools=(WEATHER,)
        ),
        "two questions, each with a call": record(
            wet, first, yes, wet_in_lima, called("", lima), no, tools=both
        ),
        "Unicode in a call and its result": record(
            Message("user", UNICODE), called("", far), yes, tools=(BOOK, WEATHER)
        ),
        "quotes in a call and its result": record(
            Message("user", QUOTED), called("", odd), yes, tools=(BOOK,)
        ),
        "a call without arguments": record(wet, called("", noon), yes, tools=(TIME,)),
        "all of it": record(
            Message("system", LAID_OUT),
            Message("user", QUOTED),
            called(UNICODE, oslo, odd, lima),
            Message("assistant", LAID_OUT),
            _talk(UNICODE, "No call is needed.", "Go on."),
            first,
            yes,
            tools=three,
        ),
    }


def _talk(*texts: str) -> list[Message]:
    """The user's and the assistant's, in turn."""
    return [
        Message("assistant" if number % 2 else "user", text) for number, text in enumerate(texts)
    ]


def _called(several: bool, thought: str, *called: Called) -> list[Message]:
    """A thought, calls and their results. An id has the nine letters that some templates ask
    for.
    """
    calls = [Call(name, given, digest(plain([name, given]))[:9]) for name, given, _ in called]
    results = [
        Message("tool", result, call_id=call.id)
        for call, (_, _, result) in zip(calls, called, strict=True)
    ]
    if several:
        return [Message("assistant", thought, calls=tuple(calls)), *results]
    thoughts = [thought, *[""] * len(calls)]
    alone = [
        Message("assistant", text, calls=(call,))
        for text, call in zip(thoughts, calls, strict=False)
    ]
    return list(chain.from_iterable(zip(alone, results, strict=True)))
