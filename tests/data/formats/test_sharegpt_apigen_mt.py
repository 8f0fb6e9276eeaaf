"""APIGen-MT rows are ShareGPT rows with turns of their own for calls and results:
agentlite.data.formats.sharegpt.
"""

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, sharegpt

ROWS = rows("apigen_mt")
LINES = {"type": "object", "properties": {"lines": {"type": "array", "items": {"type": "integer"}}}}
ORDER = Tool(
    "get_order",
    "Looks up an order.",
    {
        "type": "object",
        "properties": {"order_id": {"type": "string"}, "with": LINES},
        "required": ["order_id"],
    },
)
THINK = Tool(
    "think",
    "",
    {"type": "object", "properties": {"thought": {"type": "string"}}, "required": ["thought"]},
)
EXPECTED = [
    Record(
        messages=(
            Message("system", "# Policy\nAsk first."),
            Message("user", "Where is #W12?"),
            Message(
                "assistant",
                "",
                (Call("get_order", {"order_id": "#W12", "with": {"lines": [1, 2]}}, "call_0"),),
            ),
            Message("tool", '{"status": "it\'s sent"}', call_id="call_0"),
            Message("assistant", "It's sent."),
            Message("user", "谢谢"),
            Message("assistant", "不客气。"),
        ),
        tools=(ORDER, THINK),
    ),
    Record(
        messages=(
            Message("system", "Ask first."),
            Message("user", "订单 #W13？"),
            Message("assistant", "", (Call("think", {"thought": "I'd look it up."}, "call_0"),)),
            Message("tool", "", call_id="call_0"),
            Message("assistant", "", (Call("get_order", {"order_id": "#W13"}, "call_1"),)),
            Message("tool", "Error: order not found", call_id="call_1"),
            Message("assistant", "没有。"),
        ),
        tools=(ORDER, THINK),
    ),
    Record(messages=(Message("user", "Hi"), Message("assistant", "Hello."))),
    Record(
        messages=(
            Message("system", "Ask first."),
            Message("user", "And #W14?"),
            Message(
                "assistant", "I look it up.", (Call("get_order", {"order_id": "#W14"}, "call_0"),)
            ),
        ),
        tools=(ORDER,),
    ),
    Record(
        messages=(
            Message("system", "s"),
            Message("user", "All?"),
            Message("assistant", "", (Call("list_all", {}, "call_0"),)),
            Message("tool", "[]", call_id="call_0"),
            Message("assistant", "None."),
        ),
        tools=(Tool("list_all"),),
    ),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_calls_and_results_with_turns_of_their_own_keep_every_argument(
    row: Row, expected: Record
) -> None:
    assert next(name for name, known in FORMATS.items() if known.fits(row)) == "sharegpt"
    assert sharegpt.read(row) == expected
    validate(expected)


def after(*turns: tuple[str, str], tools: str = '[{"name": "f"}]') -> Row:
    said = [("human", "q"), *turns]
    return {
        "system": "s",
        "tools": tools,
        "conversations": [{"from": by, "value": value} for by, value in said],
    }


BAD = [
    ("E206", after(("function_call", '{"name": '))),
    ("E206", after(("function_call", '{"arguments": {}}'))),
    ("E208", after(("function_call", '{"name": "f", "arguments": [1]}'))),
    ("E209", after(("function_call", '{"name": "g", "arguments": {}}'))),
    ("E202", after(("critic", "no"))),
    ("E203", after(("function_call", '{"name": "f", "arguments": {}}'), ("observation", "1"))),
    ("E204", after(("gpt", "a"), ("observation", "1"), ("gpt", "b"))),
    ("E124", after(("gpt", "a"), tools='[{"name"')),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: validate(sharegpt.read(row))) == code
