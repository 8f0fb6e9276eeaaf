"""`agentlite init`: a folder with sample rows, commented settings and a README to start from."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Annotated

from agentlite.cli.options import Command, CommandOptions
from agentlite.config.fields import ARGUMENT, Folder
from agentlite.core.errors import UserError

STARTER = Path(__file__).parent.parent / "starter"


def fill(folder: Path) -> list[str]:
    """The names of the files it writes. Raises UserError 2 for a folder that is in use."""
    names = sorted(path.name for path in folder.glob("[!.]*"))
    if names:
        listing = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if names[4:] else "")
        fix = "Name a new folder: nothing is overwritten."
        raise UserError(f"is not empty: it holds {listing}.", fix, location=str(folder))
    shutil.copytree(
        STARTER, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
    )
    return sorted(path.name for path in STARTER.iterdir() if path.is_file())


class InitOptions(CommandOptions, frozen=True, kw_only=True):
    folder: Annotated[Folder, ARGUMENT]


def init(options: InitOptions) -> None:
    """Writes the folder, and says what to do in it."""
    folder = options.folder
    names = fill(Path(folder))
    change_folder = "" if Path(folder).resolve() == Path.cwd() else f"cd {shlex.quote(folder)} && "
    next_command = f"{change_folder}agentlite prep data.jsonl && agentlite sft && agentlite eval"
    report = {"command": "init", "folder": folder, "files": names, "next": next_command}
    text = f"init: {folder}: {', '.join(names)}\nnext: {next_command}"
    print(json.dumps(report) if options.as_json else text)


COMMAND = Command("init", InitOptions, init)
