"""The row of the last turn, rendered alone, is the one of the whole dialog."""

import pytest
from msgspec.structs import replace

from agentlite.core.records import Message
from agentlite.rendering import PROTOCOLS, choose, first_messages, render, render_last
from agentlite.rendering.encoding import encode_prompt

PAIRS = [
    *((name, "smollm2") for name in PROTOCOLS if name != "chat"),
    ("chat", "tools"),
    ("hermes", "forgets"),
]


@pytest.mark.parametrize(("name", "template"), PAIRS)
@pytest.mark.parametrize("count", [3, 5, 7])
def test_the_row_of_the_last_turn_is_that_of_the_whole_dialog(
    name, template, count, templates, dialog
):
    protocol = choose(name, templates[template]).protocols[name]
    record = replace(dialog, messages=dialog.messages[:count])
    last, turn = render_last(record, protocol, templates[template]), count - 1
    row = next(
        row
        for row in render(record, protocol, templates[template])
        if any(span.turn == turn and span.prompted for span in row.spans)
    )
    assert last.text == row.text
    assert [span for span in last.spans if span.turn == turn] == [
        span for span in row.spans if span.turn == turn
    ]
    if template != "forgets":
        assert last.spans == row.spans
    prompts = [encode_prompt(one, turn, templates[template]) for one in (last, row)]
    assert prompts[0] == prompts[1]


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "chat"])
def test_the_first_messages_are_what_stands_before_the_first_turn(name, smollm2, dialog):
    """A server with a template of its own writes them as the rows have them."""
    protocol = choose(name, smollm2).protocols[name]
    messages = first_messages(dialog, 2, protocol)
    row = render(dialog, protocol, smollm2)[0]
    assert row.text.startswith(smollm2.render(messages, prompt=True))
    assert messages[-1]["role"] == "user" and "Is it wet in Oslo?" in messages[-1]["content"]
    assert "Be brief." in "".join(one["content"] for one in messages)
    assert "4 mm" not in "".join(one["content"] for one in messages)


def test_a_system_text_stands_before_the_tools_and_inline_protocols_need_none(smollm2, dialog):
    for name in ("hermes", "react", "modelscope", "toolllama"):
        with_text = first_messages(dialog, 2, PROTOCOLS[name])[0]["content"]
        without = replace(dialog, messages=(Message("user", "Wet?"), *dialog.messages[2:]))
        own = first_messages(without, 1, PROTOCOLS[name])[0]["content"]
        assert with_text.startswith("Be brief.\n\n")
        assert own.startswith("You are a helpful assistant.\n\n") == (not PROTOCOLS[name].inline)
