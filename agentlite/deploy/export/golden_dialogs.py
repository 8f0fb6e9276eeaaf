"""Twenty dialogs of every shape for each protocol, which an export must render as training did."""

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
Done = tuple[str, dict[str, Any], str]


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
    brief, wet, yes = (
        Message("system", "Be brief."),
        _user("Is it wet in Oslo?"),
        _answer("Yes, about 4 mm."),
    )
    oslo: Done = ("get_weather", {"city": "Oslo"}, '{"rain_mm": 4}')
    lima: Done = ("get_weather", {"city": "Lima", "days": 2}, "dry")
    odd: Done = (
        "book_table",
        {"place": QUOTED, "guests": [{"name": "Zoë"}, {}], "smoking": None},
        '{"ok": "\\"no\\""}',
    )
    far: Done = ("get_weather", {"city": UNICODE}, UNICODE)
    called = _called(several, "", oslo)
    return {
        "a question": _record(wet, yes),
        "a question under a system turn": _record(brief, wet, yes),
        "three questions": _record(
            wet, yes, _user("Sure?"), _answer("Quite."), _user("Thanks."), _answer("Bye.")
        ),
        "two questions under a system turn": _record(
            brief, wet, yes, _user("Sure?"), _answer("Quite sure.")
        ),
        "Unicode": _record(_user(UNICODE), _answer(UNICODE)),
        "quotes and marks": _record(Message("system", QUOTED), _user(QUOTED), _answer(QUOTED)),
        "lines, and blanks around them": _record(_user(f" \t{LAID_OUT}\n\n"), _answer(LAID_OUT)),
        "tools, and an answer": _record(_user("Hello!"), _answer("Good day."), tools=(WEATHER,)),
        "a call": _record(wet, called[0], tools=(WEATHER,)),
        "a call under a system turn": _record(brief, wet, called[0], tools=(WEATHER, BOOK, TIME)),
        "a call after a thought": _record(
            wet, *_called(several, "I must look.", oslo), yes, tools=(WEATHER,)
        ),
        "a call, its result, an answer": _record(wet, *called, yes, tools=(WEATHER, TIME)),
        "the same under a system turn": _record(brief, wet, *called, yes, tools=(WEATHER,)),
        "two calls side by side": _record(
            wet, *_called(several, "", oslo, lima), yes, tools=(WEATHER,)
        ),
        "two calls, one after the other": _record(
            wet, *called, *_called(several, "And Lima?", lima), yes, tools=(WEATHER,)
        ),
        "two questions, each with a call": _record(
            wet,
            *called,
            yes,
            _user("And Lima?"),
            *_called(several, "", lima),
            _answer("No."),
            tools=(WEATHER, BOOK),
        ),
        "Unicode in a call and its result": _record(
            _user(UNICODE), *_called(several, "", far), yes, tools=(BOOK, WEATHER)
        ),
        "quotes in a call and its result": _record(
            _user(QUOTED), *_called(several, "", odd), yes, tools=(BOOK,)
        ),
        "a call without arguments": _record(
            wet, *_called(several, "", ("get_time", {}, "12:00")), yes, tools=(TIME,)
        ),
        "all of it": _record(
            Message("system", LAID_OUT),
            _user(QUOTED),
            *_called(several, UNICODE, oslo, odd, lima),
            _answer(LAID_OUT),
            _user(UNICODE),
            _answer("No call is needed."),
            _user("Go on."),
            *called,
            yes,
            tools=(WEATHER, BOOK, TIME),
        ),
    }


def _record(*messages: Message, tools: tuple[Tool, ...] = ()) -> Record:
    return Record(messages=messages, tools=tools)


def _user(text: str) -> Message:
    return Message("user", text)


def _answer(text: str) -> Message:
    return Message("assistant", text)


def _called(several: bool, thought: str, *done: Done) -> list[Message]:
    """A thought, calls and their results. An id has the nine letters that some templates ask
    for.
    """
    calls = [
        Call(name, arguments, digest(plain([name, arguments]))[:9]) for name, arguments, _ in done
    ]
    results = [
        Message("tool", result, call_id=call.id)
        for call, (_, _, result) in zip(calls, done, strict=True)
    ]
    if several:
        return [Message("assistant", thought, calls=tuple(calls)), *results]
    alone = [
        Message("assistant", "" if number else thought, calls=(call,))
        for number, call in enumerate(calls)
    ]
    return [message for pair in zip(alone, results, strict=True) for message in pair]
