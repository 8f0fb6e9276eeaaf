"""Optional packages: one error with the install command for all that are missing."""

import importlib.util
from collections.abc import Iterable
from pathlib import Path

from agentlite.core.errors import MODEL, UserError

SETUP = Path(__file__).parents[2] / "scripts" / "setup.sh"  # a checkout has it, a wheel has not


def need(
    what: str, modules: Iterable[str], command: str, place: str = "", in_set: bool = True
) -> None:
    """Imports none of them, so it may be asked before anything slow. `in_set`: whether
    scripts/setup.sh installs them. Raises UserError 5.
    """
    lacking = [
        module.replace("_", "-") for module in modules if importlib.util.find_spec(module) is None
    ]
    if lacking:
        raise UserError(
            f"{what} needs what is not installed: {', '.join(lacking)}.",
            how(command) if in_set else f"Run `{command}`.",
            location=place,
            exit_code=MODEL,
        )


def how(command: str) -> str:
    """The fix, as this installation has it."""
    return (
        f"Run `bash {SETUP.parent.name}/{SETUP.name}`, or `{command}`."
        if SETUP.exists()
        else f"Run `{command}`."
    )
