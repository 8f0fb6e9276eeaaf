"""`--rewards file.py:function`: user functions as components, run in a child process."""

import reprlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from numbers import Real
from pathlib import Path

from agentlite.core.errors import UserError
from agentlite.core.user_code import MEMORY, Named, UserCode, await_result, one_line
from agentlite.scoring.rewards import JUDGE, WEIGHTS, Attempt, Component, ComponentError
from agentlite.workspace.input_files import file_digest


def function_files(texts: Iterable[str]) -> dict[str, str]:
    """The files of some functions, with their digests. Raises UserError 2 for text that names no
    file or function.
    """
    return {named.file: file_digest(Path(named.file)) for named in _parse_functions(texts)}


class UserFunctions:
    """The user's functions as components, by name, inside a `with`."""

    def __init__(self, texts: Sequence[str], seconds: float = 10.0, memory: float = MEMORY):
        self.code = UserCode(_parse_functions(texts), _value, seconds, memory)

    def __enter__(self) -> dict[str, Component]:
        """Raises UserError 2 where a file cannot be imported or has no such function."""
        if self.code.named:
            self.code.start()
        return {named.function: partial(self._ask, named.function) for named in self.code.named}

    def __exit__(self, *error: object) -> None:
        self.code.stop()

    def _ask(self, function: str, attempt: Attempt) -> float:
        value, problem = self.code.ask(function, attempt)
        if problem:
            raise ComponentError(f"{function} {problem}")
        return float(value)


def _parse_functions(texts: Iterable[str]) -> list[Named]:
    by_name: dict[str, Named] = {}
    for text in texts:
        file, _, function = text.rpartition(":")
        if not file or not function.isidentifier():
            raise UserError(
                f"'{text}' names no function.",
                "Write it as file.py:function.",
                location="rewards",
            )
        if function in (*WEIGHTS, JUDGE, *by_name):
            raise UserError(
                f"another component is called {function}.", "Rename the function.", location=text
            )
        if not Path(file).is_file():
            raise UserError(
                "no such file.",
                f"Write it as folder/file.py:{function}, seen from here.",
                location=file,
            )
        by_name[function] = Named(file, function)
    return list(by_name.values())


def _value(function: Callable[..., object], attempt: Attempt) -> tuple[float, str]:
    """The value that a function returned, and a problem unless it is a number from 0 to 1."""
    value = await_result(function(attempt))
    if isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1:
        return float(value), ""
    return 0.0, f"returned {one_line(reprlib.repr(value))}, not a number from 0 to 1"
