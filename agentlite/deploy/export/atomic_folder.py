"""A folder that appears whole: written beside its target, then renamed over it."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentlite.core.errors import DISK, OTHER_PLAN, UserError
from agentlite.core.row_files import fix_for, sync_all, sync_folder, write_json
from agentlite.workspace.digests import file_digest
from agentlite.workspace.lineage import EXPORTED


def next_to(target: Path, name: str) -> Path:
    """A file that belongs to a target that is a file: weather.gguf, weather.gguf.json."""
    return target.with_name(f"{target.name}.{name}")


def refuse_taken(target: Path, force: bool) -> None:
    """Only what export made itself is replaced, and only with --force. Raises UserError 3."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    mark = target / EXPORTED if target.is_dir() else next_to(target, "json")
    try:
        known = {mark.name, *json.loads(mark.read_bytes())["outputs"]}
    except (OSError, ValueError, KeyError, TypeError):
        known = set()
    names = sorted(path.name for path in target.iterdir()) if target.is_dir() else [target.name]
    strangers = [name for name in names if name not in known]
    if strangers or not force:
        raise UserError(
            f"exists already, and {strangers[0]} in it was not written by export."
            if strangers
            else "exists already, from an earlier export.",
            "Name another place." if strangers else "Name another place, or add --force.",
            location=str(target),
            exit_code=OTHER_PLAN,
        )


@contextmanager
def writing(target: Path) -> Iterator[Path]:
    """A folder beside the target, gone when it is left. Raises UserError 74 if it cannot be
    made.
    """
    aside = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(aside, ignore_errors=True)  # of a run that was killed
        aside.mkdir(parents=True)
        yield aside
    except OSError as error:
        raise UserError(
            f"cannot write: {error.strerror or error}.",
            fix_for(error, by=""),
            location=str(target),
            exit_code=DISK,
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def put_folder(aside: Path, target: Path, facts: dict[str, object]) -> None:
    """The folder, with its mark, in the place of whatever export was there."""
    files = sorted(aside.iterdir())
    sync_all(files)  # what is renamed must not be empty after a power cut
    mark = aside / EXPORTED
    write_json(mark, {**facts, "outputs": {path.name: file_digest(path) for path in files}})
    for path in files:  # safetensors lets nobody else read its files
        path.chmod(mark.stat().st_mode)
    earlier = aside.with_name(f"{aside.name}.earlier")
    shutil.rmtree(earlier, ignore_errors=True)  # of a run that was killed
    if target.exists():
        target.replace(earlier)
    aside.replace(target)
    sync_folder(target.parent)
    shutil.rmtree(earlier, ignore_errors=True)


def put_files(files: dict[Path, Path], mark: Path, facts: dict[str, object]) -> None:
    """`files`: where each is, and where it belongs; the mark last."""
    sync_all(files)
    digests = {target.name: file_digest(aside) for aside, target in files.items()}
    for aside, target in files.items():
        aside.replace(target)
    write_json(mark, {**facts, "outputs": digests})
