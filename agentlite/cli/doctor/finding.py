"""One finding of `agentlite doctor`."""

from typing import Literal

from msgspec import Struct

State = Literal["ok", "warning", "problem"]


class Finding(Struct, frozen=True):
    """`fix`: what to do; only where the state is not ok."""

    name: str
    state: State
    detail: str
    fix: str = ""
