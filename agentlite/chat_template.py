"""The source of a chat template -> the template, compiled in the environment that transformers documents.

A template is a program of somebody else's: sandboxed, it can do nothing, but it could go on for ever or grow without
end. So loops look at the clock, and what makes texts longer looks at their length.
"""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any, cast

from jinja2 import Template, TemplateError, Undefined, nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from agentlite.templates import Printed

SECONDS = 10.0  # of one rendering
LONGEST_SOURCE, LONGEST_TEXT = 1 << 20, 64 << 20  # characters
SHORT = 1000
TURNS, JOINED = "_agentlite_turns", "_agentlite_joined"


class Environment(ImmutableSandboxedEnvironment):
    """Sandboxed, blocks trimmed, tojson plain."""

    intercepted_binops = frozenset({"+", "*", "**"})
    until = 0.0

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A key of a dict at once: jinja looks for an attribute first, and makes and drops an error each time."""
        if type(obj) in (dict, Printed) and attribute not in OF_DICTS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and type(left) is str and type(right) is str:
            _refuse_long(len(left) + len(right))
            return left + right
        sizes = [len(side) if hasattr(side, "__len__") else 0 for side in (left, right)]
        if operator == "+":
            _refuse_long(sum(sizes))
        elif any(sizes):  # "ab" * 3
            _refuse_long(max(sizes) * int(right if sizes[0] else left))
        elif operator == "**":
            _refuse_long(abs(int(right)) << 16)
        return super().call_binop(context, operator, left, right)

    def watched(self, values: Any) -> Any:
        """What a loop goes through. A short one looks at the clock when it begins: all that is long is nested."""
        self.look_at_the_clock()
        return values if isinstance(values, list | tuple | Undefined) and len(values) < SHORT else Turns(self, values)

    def look_at_the_clock(self) -> None:
        if time.monotonic() > self.until:
            raise TemplateError(f"it takes longer than {SECONDS:g} s")

    def joined(self, *parts: Any) -> str:
        """`a ~ b`."""
        texts = [str(part) for part in parts]
        _refuse_long(sum(map(len, texts)))
        return "".join(texts)


OF_DICTS = frozenset(dir(Printed()))


class Turns:
    """Values that look at the clock while they are gone through. A loop may ask how many there are."""

    def __init__(self, environment: Environment, values: Any):
        self.environment, self.values = environment, values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        for value in self.values:
            self.environment.look_at_the_clock()
            yield value


class Watched(NodeTransformer):
    """Loops through Turns; `~` by a function that looks at lengths."""

    def visit_For(self, loop: nodes.For) -> nodes.Node:
        self.generic_visit(loop)
        if not loop.recursive:  # those call themselves, which ends by itself
            loop.iter = nodes.Filter(cast(nodes.Expr, loop.iter), TURNS, [], [], None, None)  # cheaper than a call
        return loop

    def visit_Concat(self, join: nodes.Concat) -> nodes.Node:
        self.generic_visit(join)
        return _call(JOINED, join.nodes)


class Compiled:
    """A template that is given up when it takes too long or writes too much."""

    def __init__(self, source: str):
        """Raises jinja2.TemplateError."""
        if len(source) > LONGEST_SOURCE:
            raise TemplateError(f"its source is longer than {LONGEST_SOURCE >> 20} MiB")
        self.environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        self.environment.filters |= {"tojson": to_json, TURNS: self.environment.watched}
        self.environment.globals |= {"raise_exception": refused, "strftime_now": today, JOINED: self.environment.joined}
        tree = Watched().visit(self.environment.parse(source))
        tree.set_environment(self.environment)
        code = self.environment.compile(tree)
        self.template = Template.from_code(self.environment, code, self.environment.globals)

    def render(self, **values: Any) -> str:
        """Raises jinja2.TemplateError, also for what goes on too long."""
        self.environment.until = time.monotonic() + SECONDS
        text, parts = "", self.template.root_render_func(self.template.new_context(values))
        try:
            while some := list(islice(parts, SHORT)):
                _refuse_long(len(text) + sum(map(len, some)))
                text += "".join(some)
        except RecursionError as error:
            raise TemplateError("it calls itself without end") from error
        return text


def _call(name: str, given: list[nodes.Expr]) -> nodes.Call:
    return nodes.Call(nodes.Name(name, "load"), given, [], None, None)


def _refuse_long(length: int) -> None:
    if length > LONGEST_TEXT:
        raise TemplateError(f"it writes a text of more than {LONGEST_TEXT >> 20} million characters")


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
