"""Merged weights -> a GGUF file, by the user's llama.cpp; and reading such a file's metadata."""

import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core import console
from agentlite.core.errors import MODEL, UserError

SCRIPT, QUANTIZE = "convert_hf_to_gguf.py", "llama-quantize"
GET = "git clone --depth 1 https://github.com/ggml-org/llama.cpp"
BUILD = "cmake -B {0}/build {0} && cmake --build {0}/build --target llama-quantize"
BEGINS_WITH_BOS = (
    "llama-bpe",
    "llama3",
    "llama-v3",
    "falcon3",
    "pixtral",
)  # where a file does not say, by its `pre`


class LlamaCpp(NamedTuple):
    """Its script, and its program that quantizes, if that is asked for."""

    script: Path
    quantize: Path | None


class GgufFacts(NamedTuple):
    """The metadata of a GGUF file about its prompts."""

    chat_template: str
    eos: int
    adds_bos: bool


def find_llama_cpp(named: str, quantize: str) -> LlamaCpp:
    """In the folder of --llama-cpp, or of the variable LLAMA_CPP. Raises UserError 2."""
    if not named:
        raise UserError(
            "a GGUF file is made by llama.cpp, and none is named.",
            f"Get it, and name its folder; agentlite installs nothing:\n  {GET}\n  agentlite "
            "export ..."
            " --llama-cpp llama.cpp        # or LLAMA_CPP=llama.cpp",
            location="--llama-cpp",
        )
    folder = Path(named).expanduser().resolve()
    if not (folder / SCRIPT).is_file():
        raise UserError(
            f"holds no {SCRIPT}.",
            f"Name the folder of llama.cpp's source:\n  {GET}",
            location=str(folder),
        )
    return LlamaCpp(folder / SCRIPT, _quantizer(folder) if quantize else None)


def _quantizer(folder: Path) -> Path:
    places = (folder / "build" / "bin", folder / "build" / "bin" / "Release", folder)
    found = [
        path
        for place in places
        for path in (place / QUANTIZE, place / f"{QUANTIZE}.exe")
        if path.is_file()
    ]
    if not found:
        raise UserError(
            f"holds no {QUANTIZE}: it is not built.",
            f"Build it, or leave --quantize out:\n  {BUILD.format(folder)}",
            location=str(folder),
        )
    return found[0]


def convert(llama: LlamaCpp, model: Path, target: Path, outtype: str, quantize: str) -> None:
    """Writes `target`. Raises UserError 5 with the last words of the program that failed."""
    plain = target.with_name(f"{outtype}.gguf") if quantize else target
    _run(
        [
            sys.executable,
            str(llama.script),
            str(model),
            "--outfile",
            str(plain),
            "--outtype",
            outtype,
        ],
        plain,
    )
    if llama.quantize:
        _run([str(llama.quantize), str(plain), str(target), quantize], target)
        plain.unlink()


def _run(command: list[str], written: Path) -> None:
    name = Path(command[1] if command[0] == sys.executable else command[0]).name
    console.notice(f"export: {name} writes {written.name}")
    last = deque[str](maxlen=20)
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        for line in filter(None, map(str.rstrip, process.stdout or ())):
            last.append(line)
    if process.returncode or not written.exists():
        console.notice("\n".join(last))
        why = (
            f"ended with code {process.returncode}"
            if process.returncode
            else f"wrote no {written.name}"
        )
        raise UserError(
            f"{why}: {last[-1].strip() if last else 'it said nothing'}",
            "Its last words stand above. A model that it does not know may need a newer llama.cpp.",
            location=name,
            exit_code=MODEL,
        )


def read_facts(path: Path) -> GgufFacts:
    """Raises UserError 5 for a file that is not GGUF."""
    try:
        from gguf import GGUFReader

        fields = GGUFReader(str(path)).fields
    except ImportError as error:
        raise UserError(
            "looking into a GGUF file needs the package gguf.", "pip install gguf", exit_code=MODEL
        ) from error
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise UserError(
            f"is not a GGUF file ({error}).",
            "Another llama.cpp may do better.",
            location=path.name,
            exit_code=MODEL,
        ) from error

    def fact(name: str, default: object) -> Any:
        return fields[f"tokenizer.{name}"].contents() if f"tokenizer.{name}" in fields else default

    begins = fact("ggml.model", "") == "llama" or fact("ggml.pre", "") in BEGINS_WITH_BOS
    return GgufFacts(
        str(fact("chat_template", "")),
        int(fact("ggml.eos_token_id", -1)),
        bool(fact("ggml.add_bos_token", begins)),
    )
