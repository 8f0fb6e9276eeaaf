"""`agentlite export`: a model as other programs read it, with a model card and a proof."""

import json
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
from click.core import ParameterSource

from agentlite.cli.help_page import Command
from agentlite.cli.options import AS_JSON, DEBUG, RUN, WORKSPACE, Option, OptionType
from agentlite.config.metavars import File, Folder, Metavar, Model

if TYPE_CHECKING:
    from agentlite.deploy.export.targets import ExportRequest

CARD = "README.md"
FORMS, GGUF_OPTIONS = "What to write", "GGUF and Ollama"
# an option -> the only targets that it changes
ONLY_FOR = {
    "llama_cpp": ("gguf", "ollama"),
    "outtype": ("gguf", "ollama"),
    "quantize": ("gguf", "ollama"),
    "tools": ("ollama",),
}


def export(request: "ExportRequest") -> dict[str, object]:
    """The one JSON object of `--json`. Raises UserError 2, 3, 5, 7, 8 or 74: then nothing is left
    at the target.
    """
    from agentlite.core import console
    from agentlite.deploy.export.atomic_folder import (
        next_to,
        put_files,
        put_folder,
        refuse_taken,
        writing,
    )
    from agentlite.deploy.export.exported_model import find_subject
    from agentlite.deploy.export.model_card import card, digests
    from agentlite.deploy.export.targets import GGUF, KINDS
    from agentlite.workspace.hub import push, refuse_push
    from agentlite.workspace.lineage import system_of
    from agentlite.workspace.run_folder import versions

    started, target = time.monotonic(), request.target
    refuse_taken(target, request.force)
    if request.push_to_hub:
        refuse_push(request.push_to_hub)
    subject = find_subject(request.model, request.run)
    write = KINDS[request.kind](request, subject)
    with console.stdout_to_stderr(), writing(target) as aside:
        made = write(aside)
        text = card(target.name, request.kind, made.weights, subject, made.proof)
        (aside / CARD).write_text(text, encoding="utf-8")
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
            **made.facts,
            "data": digests(subject.stages),
            "versions": versions(),
        }
        if request.kind == "gguf":
            files = {aside / GGUF: target, aside / CARD: next_to(target, "md")}
            put_files(files, next_to(target, "json"), facts)
            written = [*files.values(), next_to(target, "json")]
        else:
            put_folder(aside, target, facts)
            written = sorted(target.iterdir())
    pushed = {}
    if request.push_to_hub:
        # a GGUF file's card is FILE.md here, and the README.md of its repository
        card_file = next_to(target, "md") if request.kind == "gguf" else None
        names = {CARD if path == card_file else path.name: path for path in written}
        pushed = {"pushed": push(names, request.push_to_hub)}
    sizes = {path.name: path.stat().st_size for path in written}
    seconds = round(time.monotonic() - started, 1)
    return {
        "command": "export",
        "target": str(target),
        **facts,
        **pushed,
        "bytes": sizes,
        "seconds": seconds,
        "next": _next(request.kind, target),
    }


def _next(kind: str, target: Path) -> str:
    path = shlex.quote(str(target))
    return {
        "merged": f"agentlite serve {path}",
        "adapter": f"less {path}/{CARD}",
        "gguf": f"llama-server -m {path} --jinja",
        "ollama": f"cd {path} && ollama create {shlex.quote(target.name)}",
    }[kind]


def _present(summary: Mapping[str, Any]) -> None:
    from agentlite.core.console import print_table

    proof, sizes = summary["proof"], summary["bytes"]
    rows = [
        ["model", " -> ".join(summary["lineage"])],
        ["weights", summary["weights"].removesuffix(".")],
        ["protocol", summary["settings"]["protocol"]],
        ["answers end with", " or ".join(summary["stops"])],
        [
            "template",
            f"{proof['dialogs']} dialogs as in training, by {', '.join(proof['renderers'])}",
        ],
        *([name, f"{size / 1e6:.1f} MB"] for name, size in sizes.items() if size >= 100_000),
    ]
    print(f"export: done in {summary['seconds']:.0f} s, {summary['target']}")
    print_table([["", ""], *rows])
    if pushed := summary.get("pushed"):
        print(f"uploaded: {pushed}")
    print(f"next: {summary['next']}")


def _target(targets: Mapping[str, str | None]) -> tuple[str, Path]:
    """Exactly one is to be made. Raises UserError 2."""
    from agentlite.core.errors import UserError

    targets_given = {kind: target for kind, target in targets.items() if target}
    if len(targets_given) != 1:
        problem = (
            f"{' and '.join(f'--{kind}' for kind in targets_given)} at once."
            if targets_given
            else "no target is named."
        )
        raise UserError(
            problem,
            "Give one of --merged FOLDER, --adapter FOLDER, --gguf FILE, --ollama FOLDER.",
            location="export",
        )
    ((kind, target),) = targets_given.items()
    return kind, Path(target)


def _refuse_unused(kind: str) -> None:
    """Raises UserError 2 for an option on the command line that this target does not use. LLAMA_CPP
    may stay set.
    """
    context = click.get_current_context()
    for key, kinds in ONLY_FOR.items():
        if kind not in kinds and context.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            from agentlite.core.errors import UserError

            flag = f"--{key.replace('_', '-')}"
            raise UserError(
                f"changes nothing in what --{kind} writes: it needs "
                f"{' or '.join(f'--{one}' for one in kinds)}.",
                f"Leave {flag} out, or choose another target.",
                location=flag,
            )


def _run(
    model: str,
    run: str,
    merged: str,
    adapter: str,
    gguf: str,
    ollama: str,
    as_json: bool,
    debug: bool,
    **more: Any,
) -> None:
    kind, target = _target({"merged": merged, "adapter": adapter, "gguf": gguf, "ollama": ollama})
    _refuse_unused(kind)
    from agentlite.deploy.export.targets import ExportRequest

    summary = export(ExportRequest(model, kind, target, Path(run), **more))
    if as_json:
        sys.stdout.write(json.dumps(summary, ensure_ascii=False) + "\n")
    else:
        _present(summary)


COMMAND = Command(
    "export",
    callback=_run,
    params=[
        click.Argument(["model"], type=OptionType(Model)),
        Option(
            ["--merged"],
            Folder,
            section=FORMS,
            help="write the base model with the adapter merged into its weights",
        ),
        Option(["--adapter"], Folder, section=FORMS, help="write only the adapter, for PEFT"),
        Option(
            ["--gguf"], File, section=FORMS, help="write a GGUF file, by llama.cpp's own converter"
        ),
        Option(["--ollama"], Folder, section=FORMS, help="write a GGUF file and a Modelfile"),
        Option(
            ["--llama-cpp"],
            Folder,
            section=GGUF_OPTIONS,
            default="",
            envvar="LLAMA_CPP",
            help="source folder of llama.cpp",
        ),
        Option(
            ["--outtype"],
            Literal["f32", "f16", "bf16", "q8_0", "auto"],
            section=GGUF_OPTIONS,
            default="f16",
            help="number format of the weights in GGUF",
        ),
        Option(
            ["--quantize"],
            Annotated[str, Metavar("TYPE")],
            section=GGUF_OPTIONS,
            default="",
            help="quantization by llama.cpp's llama-quantize, such as Q4_K_M",
        ),
        Option(
            ["--tools"],
            File,
            section=GGUF_OPTIONS,
            default="",
            help="JSON list of tools, for the SYSTEM of the Modelfile",
        ),
        Option(
            ["--push-to-hub"],
            Annotated[str, Metavar("USER/NAME")],
            section=FORMS,
            default="",
            help="also upload it to this repository of the Hugging Face hub, private if it is new",
        ),
        Option(["--force"], section=WORKSPACE, is_flag=True, help="replace an earlier export"),
        RUN,
        AS_JSON,
        DEBUG,
    ],
)
