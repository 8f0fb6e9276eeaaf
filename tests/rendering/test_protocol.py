"""agentlite.rendering.protocol: values that cannot be arguments, and the text before an answer."""

from dataclasses import replace
from typing import Any

import pytest
from support.samples import WEATHER

from agentlite.rendering import PROTOCOLS
from agentlite.rendering.protocol import DEEPEST, arguments_problem


@pytest.mark.parametrize("kind", [list, dict])
def test_arguments_are_objects_of_json_down_to_a_depth(kind: type) -> None:
    def nested(depth: int, inner: Any) -> dict[str, Any]:
        for _ in range(depth - 1):
            inner = {"a": inner} if kind is dict else [inner]
        return {"a": inner}

    for inner in ("天", 1, 0.5, True, None):
        assert not arguments_problem(nested(DEEPEST, inner))
        assert arguments_problem(nested(DEEPEST + 1, inner))
    for inner in ({1}, b"a", {1: 2}, 1j, (b"a",)):
        assert arguments_problem(nested(3, inner))
    for other in ([], "a", None, 3):
        assert arguments_problem(other) == "arguments are not an object"


@pytest.mark.parametrize("written", ["<|channel|>final<|message|>", ""])
def test_the_head_that_a_template_has_the_model_write_is_no_part_of_its_words(written: str) -> None:
    protocol = replace(PROTOCOLS["hermes"], answer_head="<|channel|>final<|message|>")
    assert protocol.read(f"{written}It is wet.", (WEATHER,)).content == "It is wet."
    assert protocol.read(f"{written}It is wet.", ()).content == "It is wet."


def test_a_thought_that_the_prompt_has_opened_is_opened_in_the_words() -> None:
    for opened in ("<think>\n", ""):
        read = PROTOCOLS["hermes"].read(f"{opened}Look.</think>Yes.", (WEATHER,))
        assert read.content == "<think>\nLook.</think>\n\nYes."
