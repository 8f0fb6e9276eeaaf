"""What stands around the arguments of a call, in every protocol."""

import pytest
from support.samples import TIME, WEATHER

from agentlite.rendering import PROTOCOLS, choose
from agentlite.rendering.call_syntax import call_syntax

TOOLS = (WEATHER, TIME)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_arguments_between_the_two_texts_are_read_back(name, templates):
    template = templates["tools" if name == "chat" else "smollm2"]
    protocol = choose(name, template).protocols[name]
    for tool in TOOLS:
        before, after = call_syntax(tool, protocol, template)
        read = protocol.read(before + '{"a": ["}", {}], "b": "{}"}' + after, TOOLS)
        assert read.problem == ""
        [call] = read.calls
        assert (call.name, call.arguments) == (tool.name, {"a": ["}", {}], "b": "{}"})


def test_a_protocol_whose_calls_hold_no_json_has_none(smollm2):
    protocol = PROTOCOLS["chat"]  # of a template that prints no calls
    assert call_syntax(WEATHER, protocol, smollm2) is None
