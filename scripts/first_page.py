"""docs/first.md: the README's first half hour with what each command prints. Renews the output.

usage: .venv/bin/python scripts/first_page.py [--count N] [--folder NEW]
  It takes about ten minutes on two cores. --count: only the first N commands; the output of the
  others stays as it is. --folder: where the commands run.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
README, PAGE = ROOT / "README.md", ROOT / "docs" / "first.md"
TITLE = "## The first half hour"
BLOCK = re.compile(r"```text\n\$ (.*)\n(?:.*\n)*?```\n")
MARK = "@@ the end of a command @@"


def commands() -> list[str]:
    """The README's first block without its comments, after the line that sets everything up."""
    block = re.search(r"\n((?:    .*\n)+)", README.read_text(encoding="utf-8").split(TITLE, 1)[1])
    assert block
    first, *lines = [re.sub(r"\s+#.*", "", line[4:]) for line in block[1].splitlines()]
    assert first.startswith("bash scripts/setup.sh")
    return lines


def outputs(lines: list[str], folder: Path, source: Path = ROOT) -> list[str]:
    """What the commands print, both streams together, one after the other in `folder`. `source`:
    the checkout whose agentlite runs. Raises CalledProcessError where one fails.
    """
    shim = folder / "bin" / "agentlite"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentlite "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(source),
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }
    environment.pop("AGENTLITE_RUN", None)
    script = "\n".join(
        ["set -euo pipefail", "exec 2>&1", *(f"{line}\necho '{MARK}'" for line in lines)]
    )
    process = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    texts = process.stdout.split(f"{MARK}\n")
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, lines[len(texts) - 1], texts[-1])
    return texts[:-1]


def shorten(output: str) -> str:
    """Without what Unsloth says of itself, and with a few of the lines of progress."""
    lines = [line for line in output.splitlines() if not line.startswith("Unsloth")]
    progress = [n for n, line in enumerate(lines) if re.match(r"\w+( \S+)? \d+/\d+", line)]
    left_out = progress[2:-2]
    return "".join(f"{line.rstrip()}\n" for n, line in enumerate(lines) if n not in left_out)


def renew(page: str, outputs: dict[str, str]) -> str:
    """The page with the output of each command that has a block there."""

    def block(match: re.Match[str]) -> str:
        line = match[1]
        return f"```text\n$ {line}\n{outputs[line]}```\n" if line in outputs else match[0]

    return BLOCK.sub(block, page)


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--count", type=int)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    lines = commands()[: options.count]
    with contextlib.ExitStack() as stack:
        if options.folder:
            options.folder.mkdir()
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        texts = [shorten(output) for output in outputs(lines, folder.resolve())]
    PAGE.write_text(
        renew(PAGE.read_text(encoding="utf-8"), dict(zip(lines, texts, strict=True))),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
