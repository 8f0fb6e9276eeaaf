"""The checks of `agentlite doctor`, and their findings in order."""

from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from agentlite.cli.doctor.finding import Facts, Finding, facts_of
from agentlite.cli.doctor.hardware import compiler, disk, gpu, memory, trains
from agentlite.cli.doctor.model_access import embedded, hub
from agentlite.cli.doctor.packages import installed, known_bad, python, tested, torch
from agentlite.core.console import hidden

Check = Callable[[Facts], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    python,
    installed,
    tested,
    known_bad,
    torch,
    gpu,
    memory,
    disk,
    compiler,
    trains,
    embedded,
    hub,
)


def findings(run: Path) -> list[Finding]:
    """`run`: the workspace, whose disk counts. A check that fails is a finding itself."""
    facts, found = facts_of(run), list[Finding]()
    for check in CHECKS:
        try:
            found += check(facts)
        except Exception as error:
            name = check.__name__.replace("_", " ")
            found.append(
                Finding(name, "warning", f"this check failed: {error}", "Please report it.")
            )
    return [replace(one, detail=hidden(one.detail), fix=hidden(one.fix)) for one in found]
