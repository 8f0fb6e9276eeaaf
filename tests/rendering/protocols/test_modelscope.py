"""agentlite.rendering.protocols.modelscope: where a call ends, and what is wrong with one."""

import pytest
from support.samples import WEATHER

from agentlite.rendering import PROTOCOLS

CALL = '{"api_name": "get_weather", "parameters": {"city": "Oslo"}}'


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (f"```JSON\n{CALL}\n```<|endofthink|>", ""),
        (f"{CALL}<|endofthink|>", ""),
        (f"```JSON\n{CALL}\n```<|endofthink|>\nDone.", "text after a call"),
        (f"```JSON\n{CALL}\n``` So. <|endofthink|>", "text after a call"),
        (f"```JSON\n{CALL}\n```", "call not closed"),
        ("```JSON\nget_weather\n```<|endofthink|>", "call is not JSON"),
        ("```JSON\nget_weather", "call not closed"),
        (f"```JSON\n{CALL[:-9]}", "call not closed"),
    ],
)
def test_a_call_ends_with_its_mark_and_nothing_else(written: str, problem: str) -> None:
    read = PROTOCOLS["modelscope"].read(f"I look.\n<|startofthink|>{written}", (WEATHER,))
    assert (read.content, read.problem) == ("I look.", problem)
    assert problem or [call.arguments for call in read.calls] == [{"city": "Oslo"}]
