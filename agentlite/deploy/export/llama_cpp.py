"""Merged weights -> a GGUF file, by the user's llama.cpp; and reading such a file's metadata."""

import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core import console
from agentlite.core.errors import MODEL, UserError, need

SCRIPT, QUANTIZE = "convert_hf_to_gguf.py", "llama-quantize"
GET = "git clone --depth 1 https://github.com/ggml-org/llama.cpp"
BUILD = "cmake -B {0}/build {0} && cmake --build {0}/build --target llama-quantize"
# the kinds of tokenizers that begin with it, where a file does not say
BEGINS_WITH_BOS = ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral")


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
    folder = Path(named).expanduser().resolve()
    if not named or not (folder / SCRIPT).is_file():
        raise UserError(
            f"holds no {SCRIPT}."
            if named
            else "a GGUF file is made by llama.cpp, and none is named.",
            f"Get it, and name its folder; agentlite installs nothing:\n  {GET}\n"
            "  agentlite export ... --llama-cpp llama.cpp        # or LLAMA_CPP=llama.cpp",
            location=named or "--llama-cpp",
        )
    if not quantize:
        return LlamaCpp(folder / SCRIPT, None)
    places = (folder / "build" / "bin", folder / "build" / "bin" / "Release", folder)
    for path in (place / f"{QUANTIZE}{end}" for place in places for end in ("", ".exe")):
        if path.is_file():
            return LlamaCpp(folder / SCRIPT, path)
    raise UserError(
        f"holds no {QUANTIZE}: it is not built.",
        f"Build it, or leave --quantize out:\n  {BUILD.format(folder)}",
        location=named,
    )


def convert(llama: LlamaCpp, model: Path, target: Path, outtype: str, quantize: str) -> None:
    """Writes `target`. Raises UserError 5 with the last words of the program that failed."""
    plain = target.with_name(f"{outtype}.gguf") if llama.quantize else target
    options = ["--outfile", str(plain), "--outtype", outtype]
    _run(llama.script, [sys.executable, str(llama.script), str(model), *options], plain)
    if llama.quantize:
        _run(llama.quantize, [str(llama.quantize), str(plain), str(target), quantize], target)
        plain.unlink()


def _run(program: Path, command: list[str], written: Path) -> None:
    console.notice(f"export: {program.name} writes {written.name}")
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        last = deque(filter(None, map(str.rstrip, process.stdout or ())), maxlen=20)
    if process.returncode or not written.exists():
        console.notice("\n".join(last))
        raise UserError(
            f"ended with code {process.returncode}: {last[-1].strip() if last else 'no words'}",
            "Its last words stand above. A model that it does not know may need a newer llama.cpp.",
            location=program.name,
            exit_code=MODEL,
        )


def read_facts(path: Path) -> GgufFacts:
    """Raises UserError 5 for a file that is not GGUF."""
    need("looking into a GGUF file", ["gguf"], "pip install gguf")
    from gguf import GGUFReader

    try:
        fields = GGUFReader(str(path)).fields
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
