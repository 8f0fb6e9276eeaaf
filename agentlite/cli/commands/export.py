"""`agentlite export`: a model as other programs read it, with a model card and a proof."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from agentlite.cli.options import Command, RunOptions
from agentlite.config.fields import (
    ARGUMENT,
    COMMON,
    File,
    Flag,
    Folder,
    Metavar,
    Model,
    Whole,
    fields_of,
)
from agentlite.core.console import notice
from agentlite.core.errors import GATE, UserError

# an option -> the only targets that it changes; LLAMA_CPP may stay set
ONLY_FOR = {
    "merge_base": ("merged", "gguf", "ollama"),
    "outtype": ("gguf", "ollama"),
    "quantize": ("gguf", "ollama"),
}


class ExportOptions(RunOptions, frozen=True, kw_only=True):
    """What an export can be told.

    What to write:
        merged: write the base model with the adapter merged into its weights, the default
        adapter: write only the adapter, for PEFT
        gguf: write a GGUF file, by llama.cpp's own converter
        ollama: write a GGUF file and a Modelfile
        merge_base: an adapter trained on 4-bit weights is merged into those, or into the base's
            plain ones
        check: test records that are asked of the model and of what was written; the exit code is 9
            if that is worse beyond noise; 0 asks none
    GGUF and Ollama:
        llama_cpp: source folder of llama.cpp
        outtype: number format of the weights in GGUF
        quantize: quantization by llama.cpp's llama-quantize, such as Q4_K_M
    Workspace:
        force: replace an earlier export
    """

    model: Annotated[Model, ARGUMENT]
    merged: Annotated[Folder, COMMON] = ""
    adapter: Annotated[Folder, COMMON] = ""
    gguf: Annotated[File, COMMON] = ""
    ollama: Annotated[Folder, COMMON] = ""
    llama_cpp: Annotated[Folder, Flag(variable="LLAMA_CPP"), COMMON] = ""
    outtype: Literal["f32", "f16", "bf16", "q8_0", "auto"] = "f16"
    quantize: Annotated[str, Metavar("TYPE"), COMMON] = ""
    merge_base: Literal["trained", "plain"] = "trained"
    check: Annotated[Whole, COMMON] = 40
    force: Annotated[bool, COMMON] = False


def _run(options: ExportOptions) -> None:
    from agentlite.deploy.export import export
    from agentlite.deploy.export.targets import KINDS, ExportRequest
    from agentlite.stages.eval.exported import measure

    targets = {kind: target for kind in KINDS if (target := getattr(options, kind))}
    if not targets:
        targets["merged"] = f"{Path(options.model).name}-merged"
        notice(f"export: --merged {targets['merged']}, since no target is named")
    if len(targets) > 1:
        flags = " and ".join(f"--{kind}" for kind in targets)
        raise UserError(
            f"{flags} at once.",
            "Give one of --merged FOLDER, --adapter FOLDER, --gguf FILE, --ollama FOLDER.",
            location="export",
        )
    [(kind, target)] = targets.items()
    _refuse_unused(options, kind)
    request = ExportRequest(
        kind=kind,
        target=Path(target),
        run=Path(options.run),
        check=options.check,
        **{key: getattr(options, key) for key in ("model", "llama_cpp", "force", *ONLY_FOR)},
    )
    summary = export(request, measure)
    if options.as_json:
        sys.stdout.write(json.dumps(summary, ensure_ascii=False) + "\n")
    else:
        _present(summary)
    for form, cause in summary["measured"].get("causes", {}).items():
        raise UserError(
            f"{form} answers worse than the model that was evaluated: {cause}.",
            "It is written all the same. --check 0 leaves the comparison out.",
            location=summary["target"],
            exit_code=GATE,
        )


def _refuse_unused(options: ExportOptions, kind: str) -> None:
    """Raises UserError 2 for an option that this target does not use."""
    for key, kinds in ONLY_FOR.items():
        if kind not in kinds and getattr(options, key) != fields_of(ExportOptions)[key].default:
            flag = f"--{key.replace('_', '-')}"
            targets = " or ".join(f"--{kind}" for kind in kinds)
            raise UserError(
                f"changes nothing in what --{kind} writes: it needs {targets}.",
                f"Leave {flag} out, or choose another target.",
                location=flag,
            )


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
    print(*proof["answers"], sep="\n")
    print(f"next: {summary['next']}")


COMMAND = Command("export", ExportOptions, _run)
