"""A chat template's source -> the template, compiled as in transformers, within limits.

A template is a program from the internet. The sandbox keeps it from doing anything, but it could
run for ever or grow without end. So every loop, call and filter checks the clock; whatever makes
texts longer computes their length before; and all long texts of one rendering are added up.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cached_property, lru_cache, wraps
from itertools import islice
from types import CodeType
from typing import Any, cast

from jinja2 import Template, TemplateError, Undefined, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

SECONDS = 10.0  # of processor time for one rendering
SLOW, SLOW_TOTAL = 1.0, 30.0  # renderings longer than the first may take the second together
LONGEST_INTEGER = 1 << 16  # bits of a product
LONGEST_SOURCE, LONGEST_TEXT = 1 << 20, 64 << 20  # characters
LONGEST_TOTAL = 1 << 30  # characters of all texts that one rendering makes
SHORT = 1000  # elements of a loop, characters of a text: not worth a check
ELEMENT = 64  # characters that an element of a list counts as; a walk of _size() takes a second
LOOP, CONCATENATION = "_agentlite_loop", "_agentlite_concatenation"


class Printed(dict[str, Any]):
    """A dict that does not change and is printed by many renderings: its JSON is written once."""

    @cached_property
    def as_json(self) -> str:
        return json.dumps(self, ensure_ascii=False)


OF_DICTS = frozenset(dir(Printed()))
OF_JINJA = ("_loop_vars", "_block_vars")  # jinja adds them to every call in a loop or a block


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Sandboxed, blocks trimmed, tojson plain; with a clock and a sum of lengths."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    deadline, total = 0.0, 0  # of the rendering under way

    def check_clock(self) -> None:
        if time.thread_time() > self.deadline:
            raise TemplateError(f"it takes longer than {SECONDS:g} s")

    def count(self, length: int) -> None:
        """Called before a text of at most `length` characters is made."""
        self.total += length
        if length > LONGEST_TEXT:
            raise TemplateError(
                f"it writes a text of more than {LONGEST_TEXT >> 20} million characters"
            )
        if self.total > LONGEST_TOTAL:
            raise TemplateError(
                f"it makes texts of more than {LONGEST_TOTAL >> 20} million characters in all"
            )

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A macro, a recursive loop, a method."""
        self.check_clock()
        if (name := getattr(function, "__name__", "")) in GROWTH:
            # the sandbox has wrapped str.format
            method = getattr(function, "__wrapped__", function)
            text = getattr(method, "__self__", None)
            if isinstance(text, str):
                if name == "join":  # an iterator can be read only once
                    args = ([*args[0]],)
                    self.count(_joined(args[0], text))
                else:
                    named = {key: kwargs[key] for key in kwargs if key not in OF_JINJA}
                    self.count(GROWTH[name](text, *args, **named))
        return super().call(context, function, *args, **kwargs)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Reads a key of a dict at once: jinja would raise and drop an AttributeError first."""
        if type(obj) in (dict, Printed) and attribute not in OF_DICTS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> object:
        if operator == "+" and type(left) is str and type(right) is str:
            self.count(len(left) + len(right))
            return left + right
        if operator == "%":
            self.count(_formatted(left, right) if isinstance(left, str) else 0)
            return super().call_binop(context, operator, left, right)
        sizes = [len(operand) if hasattr(operand, "__len__") else 0 for operand in (left, right)]
        if operator == "+":
            self.count(sum(sizes))
        elif isinstance(left, int) and isinstance(right, int):  # squared in a loop, say
            factor = 1
            if operator == "**":
                self.count(abs(right) << 16)
                factor = abs(right)
            if left.bit_length() * factor + right.bit_length() > LONGEST_INTEGER:
                raise TemplateError("it computes with integers of thousands of digits")
        elif any(sizes):  # "ab" * 3, [1] * 3
            self.count(max(sizes) * int(right if sizes[0] else left))
        elif operator == "**":
            self.count(abs(int(right)) << 16)
        return super().call_binop(context, operator, left, right)

    def limited_loop(self, values: Any) -> object:
        """The values of a loop. A short loop checks the clock only once: what takes long is nested
        loops, and the inner ones begin often."""
        self.check_clock()
        if isinstance(values, list | tuple | Undefined) and len(values) < SHORT:
            return values
        return LimitedLoop(self, values)

    def limited_filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        own = hasattr(function, "jinja_pass_arg")  # the first argument is then jinja's own
        growth = GROWTH.get(name)

        @wraps(function)
        def limited(*args: Any, **kwargs: Any) -> object:
            self.check_clock()
            if name == "join":  # an iterator can be read only once
                args = (*args[:own], [*args[own]], *args[own + 1 :])
            if growth:
                self.count(growth(*args[own:], **kwargs))
            value = function(*args, **kwargs)
            if isinstance(value, str) and len(value) > SHORT:
                self.count(len(value))
            return value

        return limited

    def concatenation(self, *operands: Any) -> str:
        """`a ~ b`."""
        self.count(sum(map(_size, operands)))
        return "".join(map(str, operands))

    def printed(self, value: Any) -> object:
        """What stands in `{{ }}`, before it becomes a text."""
        if type(value) is not str:
            self.count(_size(value))
        return value


def _size(value: Any) -> int:
    """About the length of str(value), without making it: a list may hold one text a million times,
    or hold itself twice, sixty levels deep. Ends soon after LONGEST_TEXT."""
    size, waiting = 0, [value]
    while waiting and size <= LONGEST_TEXT:
        value = waiting.pop()
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict | list | tuple):
            size += ELEMENT * len(value)
            waiting += value
            if isinstance(value, dict):
                waiting += value.values()
        else:
            size += ELEMENT
    return size


def _formatted(text: Any, *args: Any, **kwargs: Any) -> int:
    """The values, and the widths that the format holds or takes from a value: %9d, %*d, {:{}}."""
    values = [value for arg in args for value in (arg if isinstance(arg, tuple) else [arg])]
    values += kwargs.values()
    widths = [int(digits[:20]) for digits in re.findall("[0-9]+", str(text))]
    if re.search(r"%[^a-z%]*\*|\{[^}]*\{", str(text)):
        widths += map(_number, values)
    return len(str(text)) + sum(widths) + sum(map(_size, values))


def _replaced(text: Any, old: Any, new: Any, count: Any = -1) -> int:
    matches = str(text).count(str(old))
    if count is not None and count >= 0:
        matches = min(count, matches)
    return len(str(text)) + len(str(new)) * matches


def _translated(text: str, table: Any) -> int:
    return len(text) * max(map(_size, table.values()), default=1)


def _wrapped(text: Any, *args: Any, **kwargs: Any) -> int:
    return len(str(text)) * max(map(_size, (*args, *kwargs.values())), default=1)


def _joined(values: Sequence[Any], separator: Any = "", attribute: Any = None) -> int:
    return sum(map(_size, values)) + len(values) * _size(separator)


def _indented(text: Any, width: Any = 4, *_: Any, **__: Any) -> int:
    return len(str(text)) + (str(text).count("\n") + 1) * (_number(width) or len(str(width)))


def _as_json(value: Any, *args: Any, **kwargs: Any) -> int:
    if type(value) is Printed and not (args or kwargs):
        return 0  # ours, written once, and counted where it is printed
    return _size(value) * (_padded(value, *args, **kwargs) or 1)


def _padded(value: Any, *args: Any, **kwargs: Any) -> int:
    return max(map(_number, (*args, *kwargs.values())), default=0)


def _number(value: Any) -> int:
    return abs(value) if isinstance(value, int) else 0


# the name of a filter, or of a text's method, and the most that it makes of its arguments
GROWTH: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("ljust", "rjust", "center", "zfill", "batch", "slice"), _padded),
    **dict.fromkeys(("format", "format_map"), _formatted),
    **dict.fromkeys(("string", "pprint"), _size),
    "replace": _replaced,
    "translate": _translated,
    "wordwrap": _wrapped,
    "join": _joined,
    "indent": _indented,
    "expandtabs": lambda text, tabsize=8: text.count("\t") * _number(tabsize),
    "tojson": _as_json,
}


class LimitedLoop:
    """Values that check the clock at each one. `loop.length` asks for their number."""

    def __init__(self, environment: TemplateEnvironment, values: Any):
        self.environment, self.values = environment, values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        for value in self.values:
            self.environment.check_clock()
            yield value


class Limiter(NodeTransformer):
    """Sends what a loop goes through, and `~`, through the environment: jinja has no hook there."""

    def visit_For(self, loop: nodes.For) -> nodes.Node:
        self.generic_visit(loop)
        values = cast(nodes.Expr, loop.iter)
        loop.iter = nodes.Filter(values, LOOP, [], [], None, None)  # cheaper than a call
        return loop

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Call(nodes.Name(CONCATENATION, "load"), node.nodes, [], None, None)


class Generation(Extension):
    """`{% generation %}` marks what a model writes, for trainers that mask by it; printed as is."""

    tags = {"generation"}  # noqa: RUF012  (jinja declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _environment() -> TemplateEnvironment:
    environment = TemplateEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    filters: dict[str, Any] = {**environment.filters, "tojson": to_json}
    environment.filters = {
        name: environment.limited_filter(name, function) for name, function in filters.items()
    }
    environment.filters[LOOP] = environment.limited_loop
    environment.finalize = environment.printed
    del environment.globals["lipsum"]
    environment.globals |= {
        "raise_exception": refused,
        "strftime_now": today,
        CONCATENATION: environment.concatenation,
    }
    return environment


@lru_cache(maxsize=64)
def _code(source: str) -> CodeType:
    """A template runs it in an environment of its own. Raises jinja2.TemplateError."""
    environment = _environment()
    try:
        tree = Limiter().visit(environment.parse(source))
        tree.set_environment(environment)
        return environment.compile(tree)
    # SyntaxError: Python, into which jinja compiles, has a limit of nested blocks
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise TemplateError("it is nested too deep") from error


class Compiled:
    """A template whose rendering is given up when it takes too long or writes too much."""

    def __init__(self, source: str):
        """Raises jinja2.TemplateError."""
        if len(source) > LONGEST_SOURCE:
            raise TemplateError(f"its source is longer than {LONGEST_SOURCE >> 20} MiB")
        self.source, self.environment = source, _environment()
        self.template = Template.from_code(
            self.environment, _code(source), self.environment.globals
        )

    def render(self, **values: Any) -> str:
        """Raises jinja2.TemplateError, for whatever goes wrong or goes on too long."""
        if _slow[self.source] > SLOW_TOTAL:
            raise TemplateError(f"its slow renderings have taken {SLOW_TOTAL:g} s together")
        begun = time.thread_time()
        self.environment.deadline, self.environment.total = begun + SECONDS, 0
        text, pieces = "", self.template.root_render_func(self.template.new_context(values))
        try:
            while batch := list(islice(pieces, SHORT)):
                length = len(text) + sum(map(len, batch))
                if length > LONGEST_TEXT:
                    self.environment.count(length)
                text += "".join(batch)
            text.encode()
        except UnicodeEncodeError as error:
            raise TemplateError("it writes half a character (a lone surrogate)") from error
        except (TemplateError, TypeError, ValueError):
            raise
        except RecursionError as error:
            raise TemplateError("it calls itself without end") from error
        except (MemoryError, OverflowError) as error:
            raise TemplateError(f"it asks for too much ({error or 'memory'})") from error
        except Exception as error:  # {{ 1/0 }}: the template's, as all that it runs
            raise TemplateError(f"{type(error).__name__}: {error}") from error
        finally:
            if (taken := time.thread_time() - begun) > SLOW:
                _slow[self.source] += taken
        return text


_slow: dict[str, float] = defaultdict(
    float
)  # source -> seconds that its slow renderings have taken


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
