"""`agentlite export`: a model as other programs read it, with a model card and a proof."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from click.core import ParameterSource

from agentlite.cli.help_page import Command
from agentlite.cli.options import AS_JSON, DEBUG, RUN, WORKSPACE, Option, OptionType
from agentlite.config.metavars import File, Folder, Metavar, Model
from agentlite.core.errors import UserError

FORMS, GGUF_OPTIONS = "What to write", "GGUF and Ollama"
# an option -> the only targets that it changes
ONLY_FOR = {
    "llama_cpp": ("gguf", "ollama"),
    "outtype": ("gguf", "ollama"),
    "quantize": ("gguf", "ollama"),
    "tools": ("ollama",),
}


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
    targets = {"merged": merged, "adapter": adapter, "gguf": gguf, "ollama": ollama}
    named = [kind for kind, target in targets.items() if target]
    if len(named) != 1:
        both = " and ".join(f"--{kind}" for kind in named)
        raise UserError(
            f"{both} at once." if named else "no target is named.",
            "Give one of --merged FOLDER, --adapter FOLDER, --gguf FILE, --ollama FOLDER.",
            location="export",
        )
    _refuse_unused(named[0])
    from agentlite.deploy.export import export
    from agentlite.deploy.export.targets import ExportRequest

    summary = export(ExportRequest(model, named[0], Path(targets[named[0]]), Path(run), **more))
    if as_json:
        sys.stdout.write(json.dumps(summary, ensure_ascii=False) + "\n")
    else:
        _present(summary)


def _refuse_unused(kind: str) -> None:
    """Raises UserError 2 for an option on the command line that this target does not use. LLAMA_CPP
    may stay set.
    """
    context = click.get_current_context()
    for key, kinds in ONLY_FOR.items():
        if kind not in kinds and context.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            flag = f"--{key.replace('_', '-')}"
            needed = " or ".join(f"--{one}" for one in kinds)
            raise UserError(
                f"changes nothing in what --{kind} writes: it needs {needed}.",
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
    if pushed := summary.get("pushed"):
        print(f"uploaded: {pushed}")
    print(f"next: {summary['next']}")


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
