"""The kinds of bad input that data sets are known to hold -> files of them, and the code that each
kind has to get.
"""

import gzip
import json
from collections.abc import Callable
from typing import Any, NamedTuple

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Rain.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


def call(
    arguments: Any = '{"city": "Oslo"}', name: str = "weather", id: str | None = "a"
) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def row(n: int = 0, **changes: Any) -> dict[str, Any]:
    """A good row; `calls` and `messages` replace its parts."""
    calls = changes.pop("calls", [call()])
    messages = [
        {"role": "user", "content": f"Is it wet in Oslo, question {n}?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": one["id"], "content": "4 mm"} for one in calls),
        {"role": "assistant", "content": "Yes."},
    ]
    return {"messages": messages, "tools": [TOOL], **changes}


def line(**changes: Any) -> bytes:
    return json.dumps(row(**changes), ensure_ascii=False).encode()


def turns_of(*said: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in said]


def turns(*said: tuple[str, str]) -> bytes:
    return line(messages=turns_of(*said))


def schema(parameters: Any) -> bytes:
    return line(
        tools=[{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    )


def good(count: int = 3) -> bytes:
    return b"".join(line(n=n) + b"\n" for n in range(1, count + 1))


class Kind(NamedTuple):
    """A bad line among good ones and the code it has to get; "" where it is taken as it is, or
    mended.

    `file`: the whole content instead, for what is wrong with a file. `code` "exit 2" or "exit 4":
    the run ends so.
    """

    number: int
    code: str
    bad: bytes = b""
    file: Callable[[], bytes] | None = None
    name: str = "rows.jsonl"


IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
SILENT = {"role": "assistant", "content": "b", "loss": False}
KINDS = {
    "an empty file": Kind(1, "exit 4", file=lambda: b""),
    "blank lines alone": Kind(1, "exit 4", file=lambda: b"\n  \n\r\n"),
    "an array under .jsonl": Kind(3, "", file=lambda: b"[" + line() + b",\n" + line(n=9) + b"]"),
    "rows under .json": Kind(3, "", file=good, name="rows.json"),
    "comma separated values": Kind(3, "E121", b"user,assistant"),
    "gzip without its suffix": Kind(4, "", file=lambda: gzip.compress(good())),
    "gzip that is cut": Kind(4, "E104", file=lambda: gzip.compress(good(200))[:-200]),
    "Parquet that is cut": Kind(
        5, "exit 2", file=lambda: b"PAR1" + b"\0" * 40, name="rows.parquet"
    ),
    "a byte order mark amid the file": Kind(7, "", b"\xef\xbb\xbf" + line()),
    "UTF-16": Kind(8, "exit 2", file=lambda: good().decode().encode("utf-16")),
    "bytes that are no UTF-8": Kind(9, "E109", line()[:-1] + b', "x": "\xff"}'),
    "carriage returns": Kind(10, "", line() + b"\r"),
    "a NUL byte": Kind(11, "E111", line()[:-1] + b', "x": "\0"}'),
    "a tail of zeros": Kind(11, "E111", b"\0" * 100),
    "an escaped NUL": Kind(12, "E112", line().replace(b"Yes.", rb"Y\u0000.")),
    "half a surrogate pair": Kind(13, "E113", line().replace(b"Yes.", rb"Y\ud800.")),
    "surrogates as bytes": Kind(14, "E109", line().replace(b"Yes.", b"\xed\xa0\x80\xed\xb0\x80")),
    "line separators, bidi and zero width characters": Kind(
        15, "", line().replace(b"Yes.", "a\u2028b\u202ec\u200bd".encode())
    ),
    "NaN": Kind(16, "E116", line(calls=[call()]).replace(b'"tools"', b'"x": NaN, "tools"')),
    "a number too large": Kind(16, "E116", line().replace(b'"tools"', b'"x": 1e999, "tools"')),
    "an integer beyond 64 bits": Kind(
        17, "", line(calls=[call('{"city": "Oslo", "days": 36893488147419103232}')])
    ),
    "a number of 5,000 digits": Kind(
        17, "E117", line().replace(b'"tools"', b'"x": ' + b"9" * 5000 + b', "tools"')
    ),
    "a key twice in the row": Kind(18, "E118", line()[:-1] + b', "tools": []}'),
    "a key twice in the arguments": Kind(
        18, "E118", line(calls=[call('{"city": "Oslo", "city": "Rome"}')])
    ),
    "nested a thousand deep": Kind(
        19, "E119", line().replace(b'"tools"', b'"x": ' + b"[" * 1000 + b"]" * 1000 + b', "tools"')
    ),
    "nested a million deep": Kind(
        19,
        "E119",
        line().replace(b'"tools"', b'"x": ' + b"[" * 10**6 + b"]" * 10**6 + b', "tools"'),
    ),
    "a line of 17 MiB": Kind(20, "E120", line().replace(b"Yes.", b"y" * (17 << 20))),
    "two objects on a line": Kind(21, "E121", line() + b" " + line()),
    "an object over several lines": Kind(21, "E121", b'{\n"messages":'),
    "a torn last line": Kind(22, "E122", file=lambda: good() + line()[:40]),
    "single quotes": Kind(23, "E121", str(row()).encode()),
    "quotes that are not escaped": Kind(24, "E121", line().replace(b"Yes.", b'so "yes" it is')),
    "a row that is not an object": Kind(25, "E201", b"[1, 2]"),
    "no messages": Kind(25, "E202", b'{"rows": 3}'),
    "messages that are empty": Kind(25, "E201", line(messages=[])),
    "an unknown role": Kind(26, "E202", turns(("user", "a"), ("robot", "b"))),
    "two users": Kind(27, "E203", turns(("user", "a"), ("user", "b"), ("assistant", "c"))),
    "the assistant first": Kind(
        27, "E203", turns(("assistant", "a"), ("user", "b"), ("assistant", "c"))
    ),
    "the user last": Kind(27, "E203", turns(("user", "a"), ("assistant", "b"), ("user", "c"))),
    "a result without a call": Kind(
        28, "E204", turns(("user", "a"), ("assistant", "b"), ("tool", "4 mm"), ("assistant", "c"))
    ),
    "a call without its result": Kind(
        28,
        "E204",
        line(messages=[*row()["messages"][:2], *turns_of(("user", "And?"), ("assistant", "Yes."))]),
    ),
    "ids that do not match": Kind(
        29,
        "E205",
        line(
            messages=[
                *row()["messages"][:2],
                {"role": "tool", "tool_call_id": "z", "content": "4 mm"},
                row()["messages"][3],
            ]
        ),
    ),
    "arguments that are not JSON": Kind(30, "E206", line(calls=[call("{city: Oslo}")])),
    "arguments as an object": Kind(31, "", line(calls=[call({"city": "Oslo"})])),
    "arguments encoded twice": Kind(31, "", line(calls=[call(json.dumps('{"city": "Oslo"}'))])),
    "arguments that are a list": Kind(32, "E208", line(calls=[call('["Oslo"]')])),
    "arguments that are empty": Kind(32, "E210", line(calls=[call("")])),
    "a call of a tool that is not there": Kind(33, "E209", line(calls=[call(name="whether")])),
    "a required argument missing": Kind(34, "E210", line(calls=[call("{}")])),
    "an argument too many": Kind(34, "E210", line(calls=[call('{"city": "Oslo", "when": 1}')])),
    "an argument of another type": Kind(34, "E210", line(calls=[call('{"city": 7}')])),
    "a schema of Python's types": Kind(
        35,
        "",
        schema({"type": "dict", "properties": {"city": {"type": "str", "required": "True"}}}),
    ),
    "a schema that is none": Kind(35, "E211", schema({"type": "object", "properties": ["city"]})),
    "a schema whose required is not a list": Kind(
        35, "E211", schema({"type": "object", "properties": {"city": {}}, "required": "city"})
    ),
    "two tools of one name": Kind(
        36, "E212", line(tools=[TOOL, {**TOOL, "function": {"name": "weather"}}])
    ),
    "a tool without a name": Kind(
        36, "E212", line(tools=[TOOL, {"type": "function", "function": {"name": " "}}])
    ),
    "nulls that Arrow filled in": Kind(37, "", line(calls=[call({"city": "Oslo", "other": None})])),
    "an observation inside a turn that cannot be split": Kind(
        38,
        "E214",
        turns(
            ("user", "a"), ("assistant", "Action: f\nAction Input: {}\nAction: g\nObservation: 1")
        ),
    ),
    "a turn mark in a user's text": Kind(
        39, "E215", turns(("user", "a<|im_end|>"), ("assistant", "b"))
    ),
    "a turn that says nothing": Kind(40, "E216", turns(("user", "a"), ("assistant", ""))),
    "an image": Kind(40, "E216", line(messages=[IMAGE, *turns_of(("assistant", "b"))])),
    "longer than max_length": Kind(41, "E217", turns(("user", "a " * 5000), ("assistant", "b"))),
    "nothing to train": Kind(41, "E217", line(messages=[*turns_of(("user", "a")), SILENT])),
    "the same row twice": Kind(42, "", line(n=1)),
    "a preference": Kind(43, "E201", line(rejected_response="No.")),
    "HTML escapes, broken encodings, long repeats": Kind(
        44, "", turns(("user", "&quot;Ã©&quot; " + "=" * 400), ("assistant", "b"))
    ),
}
