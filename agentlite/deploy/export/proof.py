"""Proof that an exported template and tokenizer render dialogs byte for byte as in training: twenty
dialogs of every shape for each protocol, written by transformers and by minijinja.
"""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from agentlite.core.errors import MODEL, RowError, UserError
from agentlite.core.records import Call, Message, Record, Tool, digest, to_json
from agentlite.rendering import Mixture, Protocol, Rendered, render
from agentlite.rendering.protocols.hermes import CHAT
from agentlite.rendering.template import Messages, Template, raise_exception, today, tojson

Write = Callable[[Messages, Sequence[Mapping[str, Any]], bool], str]


class Golden(NamedTuple):
    name: str
    record: Record
    protocol: Protocol


class Proof(NamedTuple):
    """How many dialogs, by whom; those that training itself cannot write are left out. `answers`:
    how those of what was written differ, in sentences."""

    dialogs: int
    renderers: list[str]
    left_out: list[str]
    answers: Sequence[str] = ()


class Rewritten(Template):
    """The same tokenizer, with another program that writes the dialog."""

    def __init__(self, template: Template, write: Write):
        super().__init__(
            template.name, template.tokenizer, template.chat_template, template.special
        )
        self.write = write
        # asked of the model's own template
        self.control_tokens, self.thought_keys = template.control_tokens, template.thought_keys

    def render(
        self, messages: Messages, tools: Sequence[Mapping[str, Any]] = (), prompt: bool = False
    ) -> str:
        return self.write(self.adapt_messages(messages), list(tools), prompt)


def prove(
    template: Template,
    goldens: Sequence[Golden],
    writers: Mapping[str, Write],
    served: Template | None = None,
) -> Proof:
    """Raises UserError 5, naming the first dialog that differs: in a text, or in where a prompt
    ends. `served`: the exported template, where that is given tools, calls and results as such.
    """
    expected = trained_rows(template, goldens)
    if not expected:
        raise UserError(
            "can write none of the dialogs that prove an export.",
            "Choose an instruction-tuned model.",
            location=template.name,
            exit_code=MODEL,
        )
    for renderer, write in writers.items():
        difference = first_difference(expected, Rewritten(template, write))
        if served and not difference:
            difference = first_difference(expected, Rewritten(served, write), as_tools=True)
            difference = difference and f"tools of the {difference}"
        if difference:
            raise _proof_error(template, f"{renderer} writes the {difference}")
    names = [golden.name for golden, _ in expected]
    left_out = [golden.name for golden in goldens if golden.name not in names]
    return Proof(len(expected), list(writers), left_out)


def trained_rows(
    template: Template, goldens: Sequence[Golden]
) -> list[tuple[Golden, list[Rendered]]]:
    """The dialogs that training can write, and how it writes them."""
    rows = []
    for golden in goldens:
        with contextlib.suppress(RowError, UserError):  # a row like it was never trained
            rows.append((golden, render(golden.record, golden.protocol, template)))
    return rows


def first_difference(
    expected: Sequence[tuple[Golden, list[Rendered]]], template: Template, as_tools: bool = False
) -> str:
    """The first dialog that another template writes otherwise than training; "" if there is none.
    `as_tools`: it is given tools, calls and results as such.
    """
    for golden, rows in expected:
        try:
            protocol = CHAT if as_tools else golden.protocol
            fault = "" if render(golden.record, protocol, template) == rows else "."
        except Exception as error:  # whatever another renderer raises, it wrote no dialog
            fault = f": it fails ({' '.join(str(error).split())[:200]})."
        if fault:
            return f"dialog '{golden.name}' differently{fault}"
    return ""


def prove_tokens(
    template: Template, goldens: Sequence[Golden], ids: Callable[[str], list[int]]
) -> None:
    """Raises UserError 5 for a text that the exported tokenizer cuts otherwise."""
    for golden in goldens:
        for message in golden.record.messages:
            if ids(message.content) != template.encode(message.content):
                raise _proof_error(
                    template, f"its tokenizer cuts a text of '{golden.name}' differently."
                )


def _proof_error(template: Template, problem: str) -> UserError:
    return UserError(
        problem,
        "Nothing was exported: a server would prompt the model differently from its training. "
        "Please report it.",
        location=template.name,
        exit_code=MODEL,
    )


def minijinja_writer(template: Template) -> Write | None:
    """A renderer that is not Python's; None where it is not installed. It is given what servers
    give their own: transformers' `tojson`, `raise_exception` and `strftime_now`."""
    try:
        from minijinja import Environment
    except ImportError:
        return None
    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        pycompat=True,
        filters={"tojson": tojson},
        globals={"raise_exception": raise_exception, "strftime_now": today},
    )

    def write(messages: Messages, tools: Sequence[Mapping[str, Any]], prompt: bool) -> str:
        return environment.render_str(
            template.chat_template,
            messages=json.loads(json.dumps(list(messages))),
            tools=json.loads(json.dumps(list(tools))) or None,
            add_generation_prompt=prompt,
            **template.special,
        )

    return write


# --- the dialogs

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
CallAndResult = tuple[str, dict[str, Any], str]  # a tool, its arguments and its result


def goldens(mixture: Mixture) -> list[Golden]:
    are_several = len(mixture.protocols) > 1
    return [
        Golden(f"{name} ({protocol.name})" if are_several else name, record, protocol)
        for protocol in mixture.protocols.values()
        for name, record in dialogs().items()
    ]


def dialogs() -> dict[str, Record]:
    def record(*parts: Message | list[Message], tools: tuple[Tool, ...] = ()) -> Record:
        turns = chain.from_iterable(part if isinstance(part, list) else [part] for part in parts)
        return Record(messages=tuple(turns), tools=tools)

    brief = Message("system", "Be brief.")
    wet, yes = _talk("Is it wet in Oslo?", "Yes, about 4 mm.")
    wet_in_lima, no = _talk("And Lima?", "No.")
    oslo: CallAndResult = ("get_weather", {"city": "Oslo"}, '{"rain_mm": 4}')
    lima: CallAndResult = ("get_weather", {"city": "Lima", "days": 2}, "dry")
    odd: CallAndResult = (
        "book_table",
        {"place": QUOTED, "guests": [{"name": "Zoë"}, {}], "smoking": None},
        '{"ok": "\\"no\\""}',
    )
    far: CallAndResult = ("get_weather", {"city": UNICODE}, UNICODE)
    noon: CallAndResult = ("get_time", {}, "12:00")
    both, three = (WEATHER, BOOK), (WEATHER, BOOK, TIME)
    oslo_call = _calls("", oslo)
    return {
        "a question": record(wet, yes),
        "a question under a system turn": record(brief, wet, yes),
        "three questions": record(wet, yes, _talk("Sure?", "Quite.", "Thanks.", "Bye.")),
        "two questions under a system turn": record(brief, wet, yes, _talk("Sure?", "Quite sure.")),
        "Unicode": record(_talk(UNICODE, UNICODE)),
        "quotes and marks": record(Message("system", QUOTED), _talk(QUOTED, QUOTED)),
        "lines, and blanks around them": record(_talk(f" \t{LAID_OUT}\n\n", LAID_OUT)),
        "tools, and an answer": record(_talk("Hello!", "Good day."), tools=(WEATHER,)),
        "a call": record(wet, oslo_call[0], tools=(WEATHER,)),
        "a call under a system turn": record(brief, wet, oslo_call[0], tools=three),
        "a call after a thought": record(wet, _calls("I must look.", oslo), yes, tools=(WEATHER,)),
        "a call, its result, an answer": record(wet, oslo_call, yes, tools=(WEATHER, TIME)),
        "the same under a system turn": record(brief, wet, oslo_call, yes, tools=(WEATHER,)),
        "two calls side by side": record(wet, _calls("", oslo, lima), yes, tools=(WEATHER,)),
        "two calls, one after the other": record(
            wet, oslo_call, _calls("And Lima?", lima), yes, tools=(WEATHER,)
        ),
        "two questions, each with a call": record(
            wet, oslo_call, yes, wet_in_lima, _calls("", lima), no, tools=both
        ),
        "Unicode in a call and its result": record(
            Message("user", UNICODE), _calls("", far), yes, tools=(BOOK, WEATHER)
        ),
        "quotes in a call and its result": record(
            Message("user", QUOTED), _calls("", odd), yes, tools=(BOOK,)
        ),
        "a call without arguments": record(wet, _calls("", noon), yes, tools=(TIME,)),
        "all of it": record(
            Message("system", LAID_OUT),
            Message("user", QUOTED),
            _calls(UNICODE, oslo),
            _calls("", odd),
            _calls("", lima),
            Message("assistant", LAID_OUT),
            _talk(UNICODE, "No call is needed.", "Go on."),
            oslo_call,
            yes,
            tools=three,
        ),
    }


def _talk(*texts: str) -> list[Message]:
    """The user's and the assistant's, in turn."""
    return [
        Message("assistant" if number % 2 else "user", text) for number, text in enumerate(texts)
    ]


def _calls(thought: str, *uses: CallAndResult) -> list[Message]:
    """A thought, calls side by side and their results. An id has the nine letters that some
    templates ask for.
    """
    calls = [Call(name, values, digest(to_json([name, values]))[:9]) for name, values, _ in uses]
    results = [
        Message("tool", result, call_id=call.id)
        for call, (_, _, result) in zip(calls, uses, strict=True)
    ]
    return [Message("assistant", thought, calls=tuple(calls)), *results]
