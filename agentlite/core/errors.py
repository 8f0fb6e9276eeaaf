"""UserError: a problem, its location, a fix and an exit code. RowError: a row that is rejected."""

from collections.abc import Iterable

USAGE, OTHER_PLAN, REJECTS, MODEL, DIVERGED, OUT_OF_MEMORY, NETWORK, GATE = 2, 3, 4, 5, 6, 7, 8, 9
DISK, LOCKED = 74, 75


class UserError(Exception):
    """An error that a user can fix. The command line prints it in one to three lines, without a
    traceback.
    """

    def __init__(self, problem: str, fix: str = "", *, location: str = "", exit_code: int = USAGE):
        super().__init__(problem, fix)
        self.problem, self.fix, self.location, self.exit_code = problem, fix, location, exit_code

    def __str__(self) -> str:
        return "\n".join(
            filter(
                None,
                [f"{self.location}: {self.problem}" if self.location else self.problem, self.fix],
            )
        )


def nearest(name: str, known: Iterable[str], *, prefix: str = "", other: str | None = None) -> str:
    """The fix for an unknown name: the closest one, behind `prefix`; or `other`; or all of them."""
    names = list(known)
    if near := closest(name, names):
        return f"Did you mean '{prefix}{near}'?"
    return f"Known: {', '.join(names)}." if other is None else other


def closest(name: str, known: Iterable[str]) -> str:
    """The name that is spelt most like it; "" if none is."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(known), 1)), "")


class RowError(Exception):
    """A row that does not fit its format. `prep` puts it in rejects.jsonl under `code` and goes
    on.

    `hint`: how to fix this row, where that is more than the hint of the code. `at`: where the row
    is wrong: a piece of its text, or the position of a character in it.
    """

    def __init__(self, code: str, reason: str, hint: str = "", at: str | int = ""):
        super().__init__(code, reason, hint, at)
        self.code, self.reason, self.hint, self.at = code, reason, hint, at
