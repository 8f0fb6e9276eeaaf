"""A chat template's source and values -> text, as in transformers.

A template is a program from the internet: the sandbox keeps it from Python. It does not keep it
from running for ever; Ctrl-C does.
"""

import json
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Printed(dict[str, Any]):
    """A dict that does not change and is printed by many renderings: its JSON is written once."""

    @cached_property
    def as_json(self) -> str:
        return json.dumps(self, ensure_ascii=False)


class Generation(Extension):
    """`{% generation %}` marks what a model writes, for trainers that mask by it; printed as is."""

    tags = {"generation"}  # noqa: RUF012  (jinja declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


@lru_cache(maxsize=64)
def _compiled(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals |= {"raise_exception": refused, "strftime_now": today}
    try:
        return environment.from_string(source)
    # SyntaxError: Python, into which jinja compiles, has a limit of nested blocks
    except (SyntaxError, RecursionError) as error:
        raise TemplateError("it is nested too deep") from error


def render(source: str, **values: Any) -> str:
    """Raises jinja2.TemplateError, whatever is wrong in the template."""
    try:
        text = _compiled(source).render(**values)
        text.encode()
    except UnicodeEncodeError as error:
        raise TemplateError("it writes half a character (a lone surrogate)") from error
    except TemplateError:
        raise
    except (TypeError, ValueError) as error:
        raise TemplateError(str(error).replace(Printed.__name__, "dict")) from error
    except Exception as error:  # {{ 1/0 }}: the template's, as all that it runs
        raise TemplateError(f"{type(error).__name__}: {error}") from error
    return text


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(value, Printed) and not (
        ensure_ascii or indent is not None or separators or sort_keys
    ):
        return value.as_json
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def refused(message: str) -> None:
    raise TemplateError(message)


def today(form: str) -> str:
    """A template that prints the date must not make every day's rows different."""
    return datetime(2025, 1, 1).strftime(form)
