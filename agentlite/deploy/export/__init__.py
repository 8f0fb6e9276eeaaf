"""A trained model -> folders and files for other programs, each proved to render as in training."""

import json
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentlite.core import console
from agentlite.core.errors import OTHER_PLAN, UserError
from agentlite.core.row_files import disk_errors, sync_files, sync_folder, write_json
from agentlite.deploy.export.exported_model import find_subject
from agentlite.deploy.export.model_card import card, digests
from agentlite.deploy.export.targets import SERVER, ExportRequest, program, refuse, scratch, write
from agentlite.workspace.input_files import file_digest
from agentlite.workspace.lookup import EXPORT, system_prompt_of
from agentlite.workspace.stage_folder import package_versions

CARD = "README.md"


def export(request: ExportRequest, measure: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The one JSON object of `--json`. `measure`: see stages.eval.exported. Raises UserError 2, 3,
    5, 7, 8 or 74: then nothing is left at the target.
    """
    started, target, is_file = time.monotonic(), request.target, request.kind == "gguf"
    mark, readme = (f"{target.name}.json", f"{target.name}.md") if is_file else (EXPORT, CARD)
    _refuse_existing(target, is_file, request.force)
    subject = find_subject(request.model, request.run)
    refuse(request, subject)
    with console.stdout_to_stderr(), partial_folder(target) as folder:
        result, comparison = write(request, subject, folder), dict[str, Any]()
        if request.check and result.forms:
            server = program(request.llama_cpp, SERVER)
            history = subject.stages, subject.evaluations
            comparison = measure(subject.source, *history, result.forms, server, request.check)
            answers = comparison.pop("sentences", ())
            result = result._replace(proof=result.proof._replace(answers=answers))
        shutil.rmtree(scratch(folder, target), ignore_errors=True)
        (folder / readme).write_text(
            card(target.name, request.kind, result.weights, subject, result.proof), encoding="utf-8"
        )
        facts = {
            "model": subject.name,
            "kind": request.kind,
            "lineage": subject.lineage,
            "weights": result.weights,
            "settings": {
                "protocol": subject.mixture.setting,
                "max_length": subject.max_length,
                "system": system_prompt_of(request.model, request.run),
            },
            "stops": subject.stops,
            "proof": result.proof._asdict(),
            "measured": comparison,
            **result.facts,
            "data": digests(subject.stages),
            "versions": package_versions(),
        }
        files = move_into_place(folder, target, folder / mark, facts)
    path = shlex.quote(str(target))
    next_commands = {
        "merged": f"agentlite serve {path}",
        "adapter": f"less {path}/{CARD}",
        "gguf": f"llama-server -m {path} --jinja",
        "ollama": f"cd {path} && ollama create {shlex.quote(target.name)}",
    }
    return {
        "command": "export",
        "target": str(target),
        **facts,
        "bytes": {path.name: path.stat().st_size for path in files},
        "seconds": round(time.monotonic() - started, 1),
        "next": next_commands[request.kind],
    }


def _refuse_existing(target: Path, is_file: bool, force: bool) -> None:
    """Only what export made itself is replaced, and only with --force. Raises UserError 3, and 2
    for `.`, for a file in the place of a folder, and a folder in that of a file.
    """
    if target.name in ("", ".."):  # the current folder cannot be replaced
        raise UserError("is no name of a new folder.", "Name another place.", location=str(target))
    if not target.exists():
        return
    if target.is_dir() == is_file:
        problem = "is a folder, and GGUF is one file." if is_file else "is a file, not a folder."
        raise UserError(problem, "Name another place.", location=str(target))
    mark = target.with_name(f"{target.name}.json") if is_file else target / EXPORT
    names = [target.name] if is_file else sorted(path.name for path in target.iterdir())
    try:
        own_names = {mark.name, *json.loads(mark.read_bytes())["outputs"]}
    except (OSError, ValueError, KeyError, TypeError):
        own_names = set()
    problem, fix = "exists already, from an earlier export.", "Name another place, or add --force."
    if foreign_names := [name for name in names if name not in own_names]:
        problem = f"exists already, and {foreign_names[0]} in it was not written by export."
        fix = "Name another place."
    if foreign_names or (names and not force):
        raise UserError(problem, fix, location=str(target), exit_code=OTHER_PLAN)


@contextmanager
def partial_folder(target: Path) -> Iterator[Path]:
    """A folder beside the target, gone when it is left. Raises UserError 74 if it cannot be
    made.
    """
    folder = target.with_name(f".{target.name}.partial")
    try:
        with disk_errors(target):
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
            folder.mkdir(parents=True)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def move_into_place(folder: Path, target: Path, mark: Path, facts: dict[str, Any]) -> list[Path]:
    """What is in a folder, with its mark, in the place of whatever export was there: a folder, or a
    file and those beside it. Returns all files.
    """
    files = sorted(folder.iterdir())
    sync_files(files)  # what is renamed must not be empty after a power cut
    write_json(mark, {**facts, "outputs": {path.name: file_digest(path) for path in files}})
    for path in files:  # safetensors lets nobody else read its files
        path.chmod(mark.stat().st_mode)
    if facts["kind"] == "gguf":
        return [path.replace(target.with_name(path.name)) for path in (*files, mark)]
    old_folder = folder.with_name(f"{folder.name}.earlier")
    shutil.rmtree(old_folder, ignore_errors=True)  # of a run that was killed
    # a folder that holds files cannot be replaced by a rename, so the earlier one steps aside
    if target.exists():
        target.replace(old_folder)
    folder.replace(target)
    sync_folder(target.parent)  # both renames last before the earlier one goes
    shutil.rmtree(old_folder, ignore_errors=True)
    return sorted(target.iterdir())
