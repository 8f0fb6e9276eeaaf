"""The source of a chat template -> the template, compiled in the environment that transformers documents."""

import json
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentlite.templates import Printed


class Environment(ImmutableSandboxedEnvironment):
    """Sandboxed, blocks trimmed, tojson plain."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A key of a dict at once: jinja looks for an attribute first, and makes and drops an error each time."""
        if type(obj) in (dict, Printed) and attribute not in OF_DICTS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


OF_DICTS = frozenset(dir(Printed()))


def compiled(source: str) -> Template:
    """Raises jinja2.TemplateError."""
    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refused
    environment.globals["strftime_now"] = today
    return environment.from_string(source)


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None,
            sort_keys: bool = False) -> str:  # fmt: skip
    if isinstance(value, Printed) and not (ensure_ascii or indent is not None or separators or sort_keys):
        return value.as_json
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def refused(message: str) -> None:
    raise TemplateError(message)


def today(form: str) -> str:
    """A template that prints the date must not make every day's rows different."""
    return datetime(2025, 1, 1).strftime(form)
