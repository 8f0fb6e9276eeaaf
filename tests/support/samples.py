"""Folders, tools, messages and templates that several tests use."""

from pathlib import Path

from agentlite.core.records import Tool
from agentlite.rendering.template import Template

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/support/rows"
PROMPT_TEMPLATES = sorted((ROOT / "tests/support/prompt_templates").glob("*.txt"))
WEATHER = Tool(
    "get_weather",
    "Weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}},
)
TIME = Tool(
    "get_time", "Time in a city.", {"type": "object", "properties": {"city": {"type": "string"}}}
)
OSLO = {"role": "user", "content": "Is it wet in Oslo?"}
WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def with_template(template: Template, name: str) -> Template:
    """The real tokenizer under the chat template tests/rendering/NAME.jinja."""
    text = (ROOT / f"tests/rendering/{name}.jinja").read_text(encoding="utf-8")
    return Template(name, template.tokenizer, text, template.special)
