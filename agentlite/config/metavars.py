"""A type -> how help and errors write its values: `INT`, `FILE`, `[sigmoid|hinge|ipo]`."""

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

NAMES = {int: "INT", float: "FLOAT", str: "TEXT"}
BOOLEANS = ("true", "false")


class Metavar(NamedTuple):
    """What stands for a value, where the Python type does not say what it means."""

    name: str


File = Annotated[str, Metavar("FILE")]
Folder = Annotated[str, Metavar("FOLDER")]
Url = Annotated[str, Metavar("URL")]
Variable = Annotated[str, Metavar("VARIABLE")]  # of the environment
Model = Annotated[str, Metavar("MODEL")]
Name = Annotated[str, Metavar("NAME")]
StageName = Annotated[str, Metavar("STAGE")]


def metavar(kind: Any, *, repeat: bool = False) -> str:
    """`INT,...` for several in one word, `INT` where the option is repeated for each."""
    marks = getattr(kind, "__metadata__", ())
    if own := [mark.name for mark in marks if isinstance(mark, Metavar)]:
        return own[0]
    plain = without_marks(kind)
    if get_origin(plain) is tuple:
        inner = metavar(get_args(plain)[0])
        return inner if repeat else f"{inner},..."
    if is_struct(plain):
        return "NAME=VALUE,..."
    if get_origin(plain) is dict:
        value = get_args(plain)[1]
        return "MAPPING" if value is Any else f"NAME={metavar(value)},..."
    if known := choices(plain):
        return f"[{'|'.join(known)}]"
    return NAMES[plain]


def is_struct(kind: Any) -> bool:
    """Whether it is a struct of msgspec or the type of one, which `--help` does not import."""
    return hasattr(kind, "__struct_fields__")


def choices(kind: Any) -> tuple[str, ...]:
    """The words that a value, or each of several, can be; () where it is anything else."""
    kind = without_marks(kind)
    if get_origin(kind) is tuple:
        return choices(get_args(kind)[0])
    if kind is bool:
        return BOOLEANS
    return tuple(filter(None, get_args(kind))) if get_origin(kind) is Literal else ()


def without_marks(kind: Any) -> Any:
    """`int` for `Annotated[int, ...] | None`."""
    if get_origin(kind) in (UnionType, Union):
        kind = next(one for one in get_args(kind) if one is not type(None))
    return without_marks(kind.__origin__) if hasattr(kind, "__metadata__") else kind


def as_typed(value: Any) -> str:
    """A value as it is written on the command line; "" for none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return short if float(short := f"{value:g}") == value else repr(value)
    if is_struct(value):
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return ",".join(f"{name}={as_typed(one)}" for name, one in value.items())
    return ",".join(map(as_typed, value)) if isinstance(value, tuple | list) else str(value)
