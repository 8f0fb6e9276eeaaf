"""Completions in BFCL's form, `[f(a=1, b='x'), g()]` -> calls, or a problem.

Python is read from its syntax tree and never run; of Java and JavaScript only calls are known,
f(a=literal, ...), as BFCL asks for no more there.
"""

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from agentlite.core.records import Call, Parsed

DEEPEST, WIDEST = 50, 10_000  # levels of arithmetic, bits or characters of what it may yield
UNNAMED = "*"  # stands for the name of an argument that has none; no parameter is called so


class Unreadable(Exception):
    """Text that is not a call, and why."""


def read_text(text: str, category: str) -> Parsed:
    """The calls of a prompt-mode answer: all of them or, with a problem, none. Blanks and backticks
    around them go.
    """
    inner = text.strip("`\n ")
    inner = inner if inner.startswith("[") else f"[{inner}"
    inner = inner if inner.endswith("]") else f"{inner}]"
    try:
        return Parsed("", tuple(READERS.get(category, read_python)(inner)))
    except Unreadable as error:
        return Parsed(text, (), str(error))


# --- Python ---


def read_python(text: str) -> list[Call]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in a model's strings
            body = ast.parse(text.strip().strip("'"), mode="eval").body
        elements = [body] if isinstance(body, ast.Call) else getattr(body, "elts", None)
        if elements is None or not all(isinstance(element, ast.Call) for element in elements):
            raise Unreadable("not a list of calls")
        return [_call(element) for element in elements]
    except (SyntaxError, ValueError) as error:
        raise Unreadable("no Python") from error
    except (RecursionError, MemoryError) as error:
        raise Unreadable("nested too deep") from error


def _call(node: ast.Call) -> Call:
    """Arguments without a name are not looked at."""
    names, at = [], node.func
    while isinstance(at, ast.Attribute):
        names.append(at.attr)
        at = at.value
    if isinstance(at, ast.Name):
        names.append(at.id)
    return Call(
        ".".join(reversed(names)),
        {keyword.arg or UNNAMED: _value(keyword.value) for keyword in node.keywords},
    )


def _value(node: ast.expr) -> Any:
    if reader := VALUES.get(type(node)):
        return reader(node)
    raise Unreadable(f"a {type(node).__name__} for a value")


def _constant(node: ast.Constant) -> object:
    if isinstance(node.value, bytes | complex):
        raise Unreadable(f"a value of type {type(node.value).__name__}")
    return "..." if node.value is ... else node.value


def _negative(node: ast.UnaryOp) -> object:
    """Of a constant: minus it, whatever the sign, as BFCL has it."""
    if isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, int | float):
        return -node.operand.value
    raise Unreadable("a sign before what is not a number")


def _object(node: ast.Dict) -> dict[object, object]:
    keys = [_value(key) if key else None for key in node.keys]
    if not all(isinstance(key, str | int | float) for key in keys):
        raise Unreadable("a key that is not a text or a number")
    return dict(zip(keys, map(_value, node.values), strict=True))


def _inner_call(node: ast.Call) -> object:
    if not node.keywords:
        return ast.unparse(node)
    call = _call(node)
    return {call.name: call.arguments}


def _sum(node: ast.BinOp) -> object:
    return _arithmetic(node, 0)


def _arithmetic(node: ast.expr, depth: int) -> object:
    """What Python would compute, of constants only and within bounds."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return node.value
    if depth < DEEPEST and isinstance(node, ast.UnaryOp) and type(node.op) in SIGNS:
        return _computed(SIGNS[type(node.op)], _arithmetic(node.operand, depth + 1))
    if depth < DEEPEST and isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _arithmetic(node.left, depth + 1), _arithmetic(node.right, depth + 1)
        if _is_too_much(node.op, left, right):
            raise Unreadable("arithmetic that yields too much")
        return _computed(OPERATORS[type(node.op)], left, right)
    raise Unreadable("arithmetic of more than constants")


def _is_too_much(operation: ast.operator, left: Any, right: Any) -> bool:
    """Sums and products of numbers grow no faster than the text; powers, repeated texts and formats
    do.
    """
    if isinstance(operation, ast.Pow) and isinstance(left, int) and isinstance(right, int):
        return left.bit_length() * right > WIDEST
    if isinstance(operation, ast.Mult) and (isinstance(left, str) != isinstance(right, str)):
        text, times = (left, right) if isinstance(left, str) else (right, left)
        return bool(len(text) * times > WIDEST)
    return isinstance(operation, ast.Mod) and isinstance(left, str)


def _computed(operation: Callable[..., object], *operands: object) -> object:
    try:
        result = operation(*operands)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise Unreadable("arithmetic that cannot be done") from error
    if isinstance(result, complex):
        raise Unreadable("a value of type complex")
    return result


SIGNS: dict[type[ast.unaryop], Callable[..., Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
OPERATORS: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
VALUES: dict[type[ast.expr], Callable[[Any], Any]] = {
    ast.Constant: _constant,
    ast.UnaryOp: _negative,
    ast.List: lambda node: [_value(element) for element in node.elts],
    ast.Tuple: lambda node: tuple(_value(element) for element in node.elts),
    ast.Dict: _object,
    ast.BinOp: _sum,
    ast.Name: lambda node: node.id,
    ast.Call: _inner_call,
    ast.Subscript: lambda node: f"{ast.unparse(node.value)}[{ast.unparse(node.slice)}]",
}

# --- Java and JavaScript ---

TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)
    |(?P<new>\bnew\s+[\w$.]+\s*(?:<[\w$\s,.<>?\[\]]*>)?)
    |(?P<word>\d[\w$.]*|[\w$]+)
    |(?P<mark>[^\s\w$"'`])
    |\s+""",
    re.VERBOSE,
)
HEAD = re.compile(r"\s*([^\W\d][\w$]*(?:\s*\.\s*[^\W\d][\w$]*)*)\s*(?=\()")
NAMED = re.compile(r"([^\W\d][\w$.]*)\s*=(?![=>])\s*")
OPENING, CLOSING = "([{", ")]}"
WORD_OPERATORS = {
    "instanceof",
    "in",
    "of",
    "typeof",
    "async",
    "await",
    "function",
    "new",
    "delete",
    "void",
    "yield",
}


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


Tokens = Sequence[Token]
Write = Callable[[str, Tokens], str]


def read_java(text: str) -> list[Call]:
    return [_foreign_call(text[1:-1], _java_text)]


def read_javascript(text: str) -> list[Call]:
    return [_foreign_call(text[1:-1], _script_text)]


READERS: dict[str, Callable[[str], list[Call]]] = {
    "simple_java": read_java,
    "simple_javascript": read_javascript,
}


def _foreign_call(text: str, write: Write) -> Call:
    """f(a=1, b="x"), every value as text. Of several calls with a semicolon between them the first
    one counts.
    """
    if not (head := HEAD.match(text)):
        raise Unreadable("no call")
    tokens = _tokens(text, head.end())
    end = _closed(tokens, 0)
    arguments: dict[str, Any] = {}
    for part in _parts(tokens[1:end], gaps=write is _script_text):
        for name, value in _argument(text, part, write):
            if name in arguments:
                raise Unreadable("an argument that appears twice")
            arguments[name] = value
    rest = text[tokens[end].end :].strip()
    if rest.strip("; \n"):
        if not rest.startswith(";"):
            raise Unreadable("more than a call")
        _foreign_call(rest[1:], write)
    return Call("".join(head[1].split()), arguments)


def _tokens(text: str, start: int) -> list[Token]:
    found, at = [], start
    while at < len(text):
        if not (token := TOKEN.match(text, at)):
            raise Unreadable("a text that is not closed")
        if token.lastgroup:
            found.append(Token(token.lastgroup, token[0], at, token.end()))
        at = token.end()
    return found


def _closed(tokens: Tokens, start: int) -> int:
    """The index of the bracket that closes the one at `start`."""
    open_brackets: list[str] = []
    for index in range(start, len(tokens)):
        mark = tokens[index].text
        if mark in OPENING:
            open_brackets.append(CLOSING[OPENING.index(mark)])
        elif mark in CLOSING and (not open_brackets or open_brackets.pop() != mark):
            break
        if not open_brackets:
            return index
    raise Unreadable("a bracket that is not closed")


def _outside(tokens: Tokens) -> Iterator[int]:
    """The indices of the tokens that stand in no brackets; of brackets the first."""
    index = 0
    while index < len(tokens):
        yield index
        index = (
            _closed(tokens, index) if tokens[index].text in (*OPENING, *CLOSING) else index
        ) + 1


def _parts(tokens: Tokens, gaps: bool = False) -> list[Tokens]:
    """What stands between commas; nothing may only where there are to be `gaps`."""
    if not tokens:
        return []
    cuts = [index for index in _outside(tokens) if tokens[index].text == ","]
    parts = [
        tokens[start + 1 : end]
        for start, end in zip([-1, *cuts], [*cuts, len(tokens)], strict=True)
    ]
    if not gaps and not all(parts):
        raise Unreadable("a comma too many")
    return [part for part in parts if part]


def _argument(text: str, part: Tokens, write: Write) -> Iterator[tuple[str, str]]:
    """Name and value; of arguments without a name BFCL counts only those that are a mere word."""
    named = NAMED.match(text, part[0].start)
    value = [token for token in part if token.start >= named.end()] if named else part
    _check_expression(value)
    if named:
        yield named[1], write(text, value)
    elif (
        len(part) == 1
        and part[0].kind == "word"
        and not part[0].text[0].isdigit()
        and part[0].text != "false"
    ):
        yield UNNAMED, part[0].text


def _check_expression(tokens: Tokens) -> None:
    """Raises Unreadable where two values stand side by side, or an operator lacks one: most texts
    that are not values.
    """
    before: Token | None = None
    has_question_mark = False
    for index in _outside(tokens):
        token = tokens[index]
        has_question_mark = has_question_mark or token.text == "?"
        value = token.kind != "mark" and token.text not in WORD_OPERATORS
        after_value = (
            before is not None and before.kind != "mark" and before.text not in WORD_OPERATORS
        )
        dots = (
            token.text.count(".") + (before is not None and before.text == ".")
            if token.text[0].isdigit()
            else 0
        )
        if (value and after_value) or (token.text == ":" and not has_question_mark) or dots > 1:
            raise Unreadable("an argument that is not an expression")
        before = token
    if (
        before is None
        or (before.kind == "mark" and before.text not in OPENING)
        or before.text in WORD_OPERATORS
    ):
        raise Unreadable("an argument without its value")


def _script_text(text: str, tokens: Tokens) -> str:
    source = text[tokens[0].start : tokens[-1].end]
    return (
        source[1:-1]
        if source[0] == source[-1] and source[0] in "\"'" and len(source) > 1
        else source
    )


def _java_text(text: str, tokens: Tokens, inner: bool = False) -> str:
    """A value as BFCL writes it again: without blanks but in calls, and without what a new object
    has in braces.
    """
    first, source = tokens[0], text[tokens[0].start : tokens[-1].end]
    if inner:
        _check_expression(tokens)
    if first.kind == "mark" and first.text not in "+-!~(":
        raise Unreadable("an argument that is not an expression")
    if any(token.text[0] == "`" or token.text == "''" for token in tokens):
        raise Unreadable("quotes that Java does not know")
    if len(tokens) == 1 and first.kind == "string":
        return source if inner else source[1:-1]
    if first.kind == "new":
        if len(tokens) == 1 or tokens[1].text not in "([":
            raise Unreadable("a new object without brackets")
        end = _closed(tokens, 1)
        if tokens[1].text == "[":
            return f"{_written(first)}[]{_elements(text, tokens[end + 1 :])}"
        if end + 1 == len(tokens) or (
            tokens[end + 1].text == "{" and _closed(tokens, end + 1) + 1 == len(tokens)
        ):
            given = ", ".join(_java_text(text, part, inner=True) for part in _parts(tokens[2:end]))
            return f"{_written(first)}({given})"
    marks = {tokens[index].text for index in _outside(tokens) if tokens[index].kind == "mark"}
    if source.endswith(")") and first.kind != "mark" and marks <= {".", "(", "["}:
        return source
    return "".join(map(_written, tokens))


def _elements(text: str, tokens: Tokens) -> str:
    """{1,2} behind new int[]; of several pairs of brackets only one stays. Without elements it
    cannot be read.
    """
    start = next((index for index in _outside(tokens) if tokens[index].text != "["), len(tokens))
    if (
        start == len(tokens)
        or tokens[start].text != "{"
        or _closed(tokens, start) + 1 != len(tokens)
    ):
        raise Unreadable("an array without elements")
    parts = _parts(tokens[start + 1 : -1], gaps=True)
    inner = (
        _elements(text, part) if part[0].text == "{" else _java_text(text, part, inner=True)
        for part in parts
    )
    return f"{{{','.join(inner)}}}"


def _written(token: Token) -> str:
    return f"new {''.join(token.text[3:].split())}" if token.kind == "new" else token.text
