"""The setting `format`, of NAME and SOURCE=NAME -> the format that each source is read as."""

import functools
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from agentlite.core.errors import UserError, nearest

AUTO = "auto"


def is_of(source: str, named: str) -> bool:
    """Whether a source is the one that is named, or lies in the folder that is."""
    return Path(named) in (Path(source), *Path(source).parents)


def name_it(given: str, sources: Sequence[str]) -> str:
    """The fix for a name that none of the sources has: what is there is only not named."""
    if given.startswith("bfcl:") or Path(given).exists():
        return f"Name {given} as a source too: agentlite prep ... {shlex.quote(given)}"
    return nearest(given, sources)


@functools.cache
def format_of(formats: tuple[str, ...], source: str) -> str | None:
    """The format of a source's rows; None where each row shows it itself. A format given for the
    source goes before one given for all.
    """
    named = [text.rpartition("=") for text in formats]
    own = [name for of, equals, name in named if equals and is_of(source, of)]
    name = [*own, *(name for _, equals, name in named if not equals), AUTO][0]
    return None if name == AUTO else name


def check_formats(formats: Sequence[str], sources: Sequence[str], known: Collection[str]) -> None:
    """Raises UserError 2 for a name that no format has, and a source that is not read."""
    for text in formats:
        of, _, name = text.rpartition("=")
        if name not in (*known, AUTO):
            fix = nearest(name, [*known, AUTO])
            raise UserError(f"unknown format {name!r}.", fix, location="--format")
        if of and not any(is_of(source, of) for source in sources):
            problem = f"{text!r} names {of}, which is not read."
            raise UserError(problem, name_it(of, sources), location="--format")
