"""The source of a chat template -> the template, compiled in the environment that transformers
documents.

A template is a program of somebody else's: sandboxed, it can do nothing, but it could go on for
ever or grow without end. So loops, calls and filters look at the clock, what makes texts longer
looks at their length before, and all the long texts that are made count.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property, wraps
from itertools import islice
from typing import Any, cast

from jinja2 import Template, TemplateError, Undefined, nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

SECONDS = 10.0  # of one rendering
LONGEST_SOURCE, LONGEST_TEXT = 1 << 20, 64 << 20  # characters
MOST = 1 << 30  # characters of all texts that one rendering makes
SHORT = 1000
TURNS, JOINED = "_agentlite_turns", "_agentlite_joined"


class Printed(dict[str, Any]):
    """A dict that does not change, and is printed by many renderings: its JSON is written once."""

    @cached_property
    def as_json(self) -> str:
        return json.dumps(self, ensure_ascii=False)


class Environment(ImmutableSandboxedEnvironment):
    """Sandboxed, blocks trimmed, tojson plain."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    until, made = 0.0, 0

    def call(self, context: Any, function: Any, /, *given: Any, **named: Any) -> Any:
        """Of a macro, a loop in itself, a method."""
        self.look_at_the_clock()
        if (name := getattr(function, "__name__", "")) in GROWING:
            called = getattr(
                function, "__wrapped__", function
            )  # the sandbox has wrapped str.format
            text = getattr(called, "__self__", None)
            if name == "join" and isinstance(text, str):
                given = ([*given[0]],)  # may be gone through only once
                self.refuse_long(_joined(given[0], text))
            elif isinstance(text, str):
                self.refuse_long(GROWING[name](text, *given, **named))
        return super().call(context, function, *given, **named)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A key of a dict at once: jinja looks for an attribute first, and makes and drops an error
        each time.
        """
        if type(obj) in (dict, Printed) and attribute not in OF_DICTS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and type(left) is str and type(right) is str:
            self.refuse_long(len(left) + len(right))
            return left + right
        if operator == "%":
            self.refuse_long(_formatted(left, right) if isinstance(left, str) else 0)
            return super().call_binop(context, operator, left, right)
        sizes = [len(side) if hasattr(side, "__len__") else 0 for side in (left, right)]
        if operator == "+":
            self.refuse_long(sum(sizes))
        elif any(sizes):  # "ab" * 3
            self.refuse_long(max(sizes) * int(right if sizes[0] else left))
        elif operator == "**":
            self.refuse_long(abs(int(right)) << 16)
        return super().call_binop(context, operator, left, right)

    def watched(self, values: Any) -> Any:
        """What a loop goes through. A short one looks at the clock when it begins: all that is long
        is nested.
        """
        self.look_at_the_clock()
        return (
            values
            if isinstance(values, list | tuple | Undefined) and len(values) < SHORT
            else WatchedTurns(self, values)
        )

    def look_at_the_clock(self) -> None:
        if time.monotonic() > self.until:
            raise TemplateError(f"it takes longer than {SECONDS:g} s")

    def refuse_long(self, length: int) -> None:
        self.made += length
        if length > LONGEST_TEXT:
            raise TemplateError(
                f"it writes a text of more than {LONGEST_TEXT >> 20} million characters"
            )
        if self.made > MOST:
            raise TemplateError(
                f"it makes texts of more than {MOST >> 20} million characters in all"
            )

    def joined(self, *parts: Any) -> str:
        """`a ~ b`."""
        texts = [str(part) for part in parts]
        self.refuse_long(sum(map(len, texts)))
        return "".join(texts)

    def filtered(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that looks at the clock, and at what comes of it."""
        own = hasattr(function, "jinja_pass_arg")  # an environment or a context is given first
        grows = GROWING.get(name)

        @wraps(function)
        def watched(*given: Any, **named: Any) -> Any:
            self.look_at_the_clock()
            if name == "join":  # may be gone through only once
                given = (*given[:own], [*given[own]], *given[own + 1 :])
            if grows:
                self.refuse_long(grows(*given[own:], **named))
            value = function(*given, **named)
            if isinstance(value, str) and len(value) > SHORT:
                self.refuse_long(len(value))
            return value

        return watched


OF_DICTS = frozenset(dir(Printed()))


def _formatted(text: Any, *given: Any, **named: Any) -> int:
    """What is put in, and the widths that the form asks for, or leaves to a value."""
    parts = [part for one in given for part in (one if isinstance(one, tuple) else [one])]
    values = [*parts, *named.values()]
    widths = [int(digits[:20]) for digits in re.findall("[0-9]+", str(text))]
    if re.search(r"%[^a-z%]*\*|\{[^}]*\{", str(text)):
        widths += map(_number, values)
    return len(str(text)) + sum(widths) + sum(len(str(value)) for value in values)


def _replaced(text: Any, old: Any, new: Any, count: Any = -1) -> int:
    places = str(text).count(str(old))
    return len(str(text)) + len(str(new)) * (
        places if count is None or count < 0 else min(count, places)
    )


def _joined(values: list[Any], between: Any = "", attribute: Any = None) -> int:
    return sum(len(str(value)) + len(str(between)) for value in values)


def _indented(text: Any, width: Any = 4, *_: Any, **__: Any) -> int:
    return len(str(text)) + (str(text).count("\n") + 1) * (_number(width) or len(str(width)))


def _padded(value: Any, *given: Any, **named: Any) -> int:
    return max(map(_number, (*given, *named.values())), default=0)


def _number(value: Any) -> int:
    return abs(value) if isinstance(value, int) else 0


# the most that a method of a text, or a filter, makes of what it is given
GROWING: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("ljust", "rjust", "center", "zfill", "batch", "slice", "wordwrap"), _padded),
    "replace": _replaced,
    "join": _joined,
    "indent": _indented,
    "expandtabs": lambda text, tabsize=8: text.count("\t") * _number(tabsize),
    "tojson": lambda value, *given, **named: (
        (most := _padded(value, *given, **named)) and len(str(value)) * most
    ),
    **dict.fromkeys(("format", "format_map"), _formatted),
}


class WatchedTurns:
    """Values that look at the clock while they are gone through. A loop may ask how many there
    are.
    """

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
        loop.iter = nodes.Filter(
            cast(nodes.Expr, loop.iter), TURNS, [], [], None, None
        )  # cheaper than a call
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
        self.environment = Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        given: dict[str, Any] = {**self.environment.filters, "tojson": to_json}
        self.environment.filters = {
            name: self.environment.filtered(name, one) for name, one in given.items()
        }
        self.environment.filters[TURNS] = self.environment.watched
        del self.environment.globals["lipsum"]
        self.environment.globals |= {
            "raise_exception": refused,
            "strftime_now": today,
            JOINED: self.environment.joined,
        }
        tree = Watched().visit(self.environment.parse(source))
        tree.set_environment(self.environment)
        code = self.environment.compile(tree)
        self.template = Template.from_code(self.environment, code, self.environment.globals)

    def render(self, **values: Any) -> str:
        """Raises jinja2.TemplateError, also for what goes on too long."""
        self.environment.until, self.environment.made = time.monotonic() + SECONDS, 0
        text, parts = "", self.template.root_render_func(self.template.new_context(values))
        try:
            while some := list(islice(parts, SHORT)):
                more = sum(map(len, some))
                if len(text) + more > LONGEST_TEXT:
                    self.environment.refuse_long(len(text) + more)
                text += "".join(some)
        except RecursionError as error:
            raise TemplateError("it calls itself without end") from error
        except (MemoryError, OverflowError) as error:
            raise TemplateError(f"it asks for too much ({error or 'memory'})") from error
        return text


def _call(name: str, given: list[nodes.Expr]) -> nodes.Call:
    return nodes.Call(nodes.Name(name, "load"), given, [], None, None)


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
