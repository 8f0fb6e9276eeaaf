"""Chat templates of many models render as transformers renders them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from jinja2 import TemplateError
from support.examples import sample
from support.samples import ROOT, WEATHER_TOOL
from support.shipped_templates import SPECIAL, installed, shipped

from agentlite.rendering.template import render_source
from agentlite.workspace.model_source import load_template

# it takes a second of each process to load transformers
pytestmark = pytest.mark.long

CALL = {
    "id": "call00000",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Osló", "days": 2.5, "at": None}},
}
USER, YES = {"role": "user", "content": " Rain? "}, {"role": "assistant", "content": "Yes."}
DIALOGS = {
    "one turn": [USER, YES],
    "system": [{"role": "system", "content": "Be\nbrief."}, USER, YES, USER],
    "calls": [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "4 mm", "name": "get_weather", "tool_call_id": "call00000"},
        YES,
    ],
    "thoughts": [USER, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes."}, USER],
}


def sources() -> Iterator[tuple[str, str]]:
    """Templates of these tests, and those that packages ship."""
    yield "smollm2", load_template("smollm2-135m").chat_template
    for path in sorted((ROOT / "tests/rendering").glob("*.jinja")):
        yield path.stem, path.read_text(encoding="utf-8")
    yield from shipped()


class January(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> "January":
        return cls(2025, 1, 1)


def rendered(render: Any) -> str | None:
    """None where the template refuses the dialog."""
    try:
        return str(render())
    except (TemplateError, TypeError, ValueError):
        return None


SOURCES = dict(sources())


@pytest.fixture
def reference() -> Any:
    return pytest.importorskip("transformers.utils.chat_template_utils")


@pytest.mark.parametrize("name", sample(50, [*SOURCES]))
def test_a_template_renders_as_transformers_renders_it(name, monkeypatch, reference):
    source = SOURCES[name]
    monkeypatch.setattr(reference, "datetime", January)  # ours prints one day, always
    texts = set()
    for messages in DIALOGS.values():
        for tools in (None, [WEATHER_TOOL]):
            for prompt in (False, True):
                values = {"tools": tools, "add_generation_prompt": prompt, **SPECIAL}
                theirs = rendered(
                    lambda values=values, messages=messages: reference.render_jinja_template(
                        [messages], chat_template=source, **values
                    )[0][0]
                )
                ours = rendered(
                    lambda values=values, messages=messages: render_source(
                        source, messages=messages, **values
                    )
                )
                assert ours == theirs
                texts.add(ours)
    assert len(texts - {None}) > 2 or "llava" in name  # those take only lists of parts


def test_many_templates_were_compared():
    if installed("unsloth") and installed("trl"):
        assert len(SOURCES) > 90
