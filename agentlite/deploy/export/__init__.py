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
from agentlite.deploy.export.targets import SERVER, ExportRequest, converted, program, refuse, write
from agentlite.workspace.input_files import file_digest
from agentlite.workspace.lookup import EXPORTED, system_of
from agentlite.workspace.stage_folder import versions

CARD = "README.md"


def export(request: ExportRequest, measure: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The one JSON object of `--json`. `measure`: see stages.eval.exported. Raises UserError 2, 3,
    5, 7, 8 or 74: then nothing is left at the target.
    """
    started, target, is_file = time.monotonic(), request.target, request.kind == "gguf"
    mark, card_name = (f"{target.name}.json", f"{target.name}.md") if is_file else (EXPORTED, CARD)
    _refuse_taken(target, request.force)
    subject = find_subject(request.model, request.run)
    refuse(request, subject)
    with console.stdout_to_stderr(), partial_folder(target) as aside:
        made, measured = write(request, subject, aside), dict[str, Any]()
        if request.check and made.forms:
            server, of = program(request.llama_cpp, SERVER), (subject.stages, subject.evaluations)
            measured = measure(subject.source, *of, made.forms, server, request.check)
            made = made._replace(proof=made.proof._replace(answers=measured.pop("sentences", ())))
        shutil.rmtree(converted(aside, target), ignore_errors=True)
        (aside / card_name).write_text(
            card(target.name, request.kind, made.weights, subject, made.proof), encoding="utf-8"
        )
        facts = {
            "model": subject.name,
            "kind": request.kind,
            "lineage": subject.lineage,
            "weights": made.weights,
            "settings": {
                "protocol": subject.mixture.name,
                "max_length": subject.max_length,
                "system": system_of(request.model, request.run),
            },
            "stops": subject.stops,
            "proof": made.proof._asdict(),
            "measured": measured,
            **made.facts,
            "data": digests(subject.stages),
            "versions": versions(),
        }
        written = put(aside, target, aside / mark, facts)
    path = shlex.quote(str(target))
    following = {
        "merged": f"agentlite serve {path}",
        "adapter": f"less {path}/{CARD}",
        "gguf": f"llama-server -m {path} --jinja",
        "ollama": f"cd {path} && ollama create {shlex.quote(target.name)}",
    }
    return {
        "command": "export",
        "target": str(target),
        **facts,
        "bytes": {path.name: path.stat().st_size for path in written},
        "seconds": round(time.monotonic() - started, 1),
        "next": following[request.kind],
    }


def _refuse_taken(target: Path, force: bool) -> None:
    """Only what export made itself is replaced, and only with --force. Raises UserError 3."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    mark = target / EXPORTED if target.is_dir() else target.with_name(f"{target.name}.json")
    names = sorted(path.name for path in target.iterdir()) if target.is_dir() else [target.name]
    try:
        known = {mark.name, *json.loads(mark.read_bytes())["outputs"]}
    except (OSError, ValueError, KeyError, TypeError):
        known = set()
    problem, fix = "exists already, from an earlier export.", "Name another place, or add --force."
    if strangers := [name for name in names if name not in known]:
        problem = f"exists already, and {strangers[0]} in it was not written by export."
        fix = "Name another place."
    if strangers or not force:
        raise UserError(problem, fix, location=str(target), exit_code=OTHER_PLAN)


@contextmanager
def partial_folder(target: Path) -> Iterator[Path]:
    """A folder beside the target, gone when it is left. Raises UserError 74 if it cannot be
    made.
    """
    aside = target.with_name(f".{target.name}.partial")
    try:
        with disk_errors(target):
            shutil.rmtree(aside, ignore_errors=True)  # of a run that was killed
            aside.mkdir(parents=True)
            yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def put(aside: Path, target: Path, mark: Path, facts: dict[str, Any]) -> list[Path]:
    """What is in the folder `aside`, with its mark, in the place of whatever export was there: a
    folder, or a file and those beside it. Returns all files.
    """
    files = sorted(aside.iterdir())
    sync_files(files)  # what is renamed must not be empty after a power cut
    write_json(mark, {**facts, "outputs": {path.name: file_digest(path) for path in files}})
    for path in files:  # safetensors lets nobody else read its files
        path.chmod(mark.stat().st_mode)
    if facts["kind"] == "gguf":
        return [path.replace(target.with_name(path.name)) for path in (*files, mark)]
    earlier = aside.with_name(f"{aside.name}.earlier")
    shutil.rmtree(earlier, ignore_errors=True)  # of a run that was killed
    # a folder that holds files cannot be replaced by a rename, so the earlier one steps aside
    if target.exists():
        target.replace(earlier)
    aside.replace(target)
    sync_folder(target.parent)  # both renames last before the earlier one goes
    shutil.rmtree(earlier, ignore_errors=True)
    return sorted(target.iterdir())
