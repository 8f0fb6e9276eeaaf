"""The name that the folder of a stage may have: one new folder, and none of another command."""

from agentlite.core.errors import UserError

# what commands write into a workspace by a name of their own, and which of them does
TAKEN = {
    "eval": "eval",
    "report.html": "report",
    "report.md": "report",
    "bfcl.json": "report",
}


def refuse_odd_name(name: str, command: str, option: str = "--out") -> None:
    """Raises UserError 2 for a name of a stage's folder that is a path, cannot be typed or read, or
    belongs to another command than `command`.
    """
    shown = repr(name)  # with what is not printed as escapes
    if not name:
        problem = "the name of a stage's folder is empty"
    elif "/" in name:
        problem = f"{shown} is a path, and a stage's folder lies in the workspace itself"
    elif name.startswith("-"):
        problem = f"{shown} begins with a dash, so commands would take it for an option"
    elif name.startswith("."):
        problem = f"{shown} begins with a dot, as agentlite's own files in a workspace do"
    elif not name.isprintable():
        problem = f"{shown} holds a line break or another character that is not printed"
    elif TAKEN.get(name, command) != command:
        problem = f"`agentlite {TAKEN[name]}` writes {name} in every workspace"
    else:
        return
    fix = f"Give a plain name, such as {option} {command}-2; --run FOLDER names the workspace."
    raise UserError(f"{problem}.", fix, location=option)
