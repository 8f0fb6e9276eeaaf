"""What a setting or an option is: its type with its marks, its default, and its help.

The docstring of a struct is the full page of help: sections, and in them `field: help`. Brackets at
the end of a help are the default in words, where the value itself says nothing. A field without
help means the same as in the class above, in the same file, that has one.
"""

import functools
import inspect
import re
import sys
from collections.abc import Mapping
from enum import Enum, auto
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

# Every number has two bounds. The upper ones stand far above what anyone needs, and below what the
# libraries can compute with: infinity and 10^20 are refused before anything starts.
MAX_INT, MAX_FLOAT, MAX_SEED = 2**31 - 1, 1e9, 2**32 - 1
Positive = Annotated[float, Meta(gt=0, le=MAX_FLOAT)]
NonNegative = Annotated[float, Meta(ge=0, le=MAX_FLOAT)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=MAX_INT)]
Whole = Annotated[int, Meta(ge=0, le=MAX_INT)]
Seed = Annotated[int, Meta(ge=0, le=MAX_SEED)]


class Flag(NamedTuple):
    """How a field is written on the command line, where that is not `--its-name VALUE`, once."""

    more_names: str = ""  # apart by a blank: "-n -k", "--max-tokens"
    name: str = ""  # in place of --its-name
    repeat: bool = False
    variable: str = ""  # of the environment, that sets it as well


class Mark(Enum):
    """What is peculiar to a field."""

    COMMON = auto()  # most people set it: `--help` shows it, `--help-all` the others too
    ARGUMENT = auto()  # it is typed without a flag
    NO_FLAG = auto()  # few people change it: a settings file and `--set` write it, no option does
    NOT_IN_PLAN = auto()  # how a stage works, not what comes out: it may change from run to run


REPEAT = Flag(repeat=True)
COMMON, ARGUMENT, NO_FLAG, NOT_IN_PLAN = Mark


class Field(NamedTuple):
    """All that is known of a setting or an option."""

    kind: Any  # its type, with its marks
    default: Any  # msgspec.NODEFAULT for none
    section: str  # the heading on the full help page under which it stands
    help: str
    words: str  # the default in words: `as --num-epochs says`
    flag: Flag
    marks: tuple[object, ...]

    def names(self, key: str) -> list[str]:
        """As it is written on the command line."""
        return [self.flag.name or f"--{key.replace('_', '-')}", *self.flag.more_names.split()]


@functools.cache
def fields_of(struct: type[Struct]) -> dict[str, Field]:
    """The fields of settings or options, in their order: those that are inherited come first."""
    kinds = get_type_hints(struct, include_extras=True)
    infos = {info.name: info for info in msgspec.structs.fields(struct)}
    return {key: _field(struct, key, kind, infos[key]) for key, kind in kinds.items()}


def _field(struct: type[Struct], key: str, kind: Any, info: msgspec.structs.FieldInfo) -> Field:
    factory = info.default_factory  # of `= {}`, which msgspec copies for each struct
    section, text = _section_and_help(struct, key)
    text, _, words = text.partition(" [")
    marks = getattr(kind, "__metadata__", ())
    return Field(
        kind,
        info.default if factory is msgspec.NODEFAULT else factory(),
        section,
        text,
        words.removesuffix("]"),
        next((mark for mark in marks if isinstance(mark, Flag)), Flag()),
        marks,
    )


def _section_and_help(struct: type[Struct], key: str) -> tuple[str, str]:
    """By the struct, by one that it inherits from, or else by the nearest above it in its file."""
    # a module keeps its names in the order of their lines, so that [index::-1] goes up from the
    # struct: GrpoSettings.tasks has the help that WorldSettings gives to its own `tasks`
    module = [*vars(sys.modules[struct.__module__]).values()]
    structs = filter(is_struct, [*struct.__mro__, *module[module.index(struct) :: -1]])
    return next((text for owner in structs if (text := _help_texts(owner).get(key))), ("", ""))


@functools.cache
def _help_texts(struct: type[Struct]) -> dict[str, tuple[str, str]]:
    """What a docstring says of fields: `Section:`, and under it `field: help`, each indented."""
    # "Summary.\n\nInput:\n    fix: read rows ...\n        which goes on\nRows:\n    join: ..."
    # -> what stands before the first section, then by turns a section and its entries
    _, *blocks = re.split(r"^(\w.*):\n", inspect.getdoc(struct) or "", flags=re.MULTILINE)
    return {
        key: (section, " ".join(text.split()))
        for section, entries in zip(blocks[::2], blocks[1::2], strict=True)
        for key, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", entries, re.MULTILINE)
    }


TYPE_NAMES = {int: "INT", float: "FLOAT", str: "TEXT"}


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
    if names := [mark.name for mark in marks if isinstance(mark, Metavar)]:
        return names[0]
    plain = without_marks(kind)
    if get_origin(plain) is tuple:
        inner = metavar(get_args(plain)[0])
        return inner if repeat else f"{inner},..."
    if is_struct(plain):
        return "NAME=VALUE,..."
    if get_origin(plain) is dict:
        value = get_args(plain)[1]
        return "MAPPING" if value is Any else f"NAME={metavar(value)},..."
    if words := choices(plain):
        return f"[{'|'.join(words)}]"
    return TYPE_NAMES[plain]


def is_struct(kind: Any) -> bool:
    """Whether it is a struct of msgspec or the type of one, which `--help` does not import."""
    return hasattr(kind, "__struct_fields__")


def holds_numbers(kind: Any) -> bool:
    """Whether it is a mapping of names to numbers, such as weights."""
    plain = without_marks(kind)
    return get_origin(plain) is dict and without_marks(get_args(plain)[1]) is float


def choices(kind: Any) -> tuple[str, ...]:
    """The words that a value, or each of several, can be; () where it is anything else."""
    kind = without_marks(kind)
    if get_origin(kind) is tuple:
        return choices(get_args(kind)[0])
    if kind is bool:
        return ("true", "false")
    return tuple(filter(None, get_args(kind))) if get_origin(kind) is Literal else ()


def without_marks(kind: Any) -> Any:
    """`int` for `Annotated[Count | None, ...]`, whose union holds marks of its own."""
    if get_origin(kind) in (UnionType, Union):
        kind = next(member for member in get_args(kind) if member is not type(None))
    return without_marks(kind.__origin__) if hasattr(kind, "__metadata__") else kind


def option_text(value: Any) -> str:
    """A value as it is written on the command line; "" for none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):  # 2e-05, 3; and 0.3333333333333333, of which :g loses digits
        return text if float(text := f"{value:g}") == value else repr(value)
    if is_struct(value):
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return ",".join(f"{name}={option_text(item)}" for name, item in value.items())
    return ",".join(map(option_text, value)) if isinstance(value, tuple | list) else str(value)
