"""Writes the full help of each command into docs/commands/NAME.md, for the site; git ignores them.
The defaults are those of a machine without a GPU.

usage: python scripts/help_pages.py [DOCS]
"""

import contextlib
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from agentlite.cli.main import COMMANDS, group  # noqa: E402  (of this checkout, whatever is installed)
from agentlite.config import this_machine  # noqa: E402  (the same)
from agentlite.config.pipeline import full_command  # noqa: E402  (the same)


def page(name: str) -> str:
    """A heading, and what `agentlite NAME --help-all` prints."""
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):  # no agentlite.yaml
        this_machine.find_gpu.cache_clear()
        result = CliRunner(env={"CUDA_VISIBLE_DEVICES": "-1", "AGENTLITE_RUN": None}).invoke(
            group,
            [*full_command(name).split(), "--help-all"],
            prog_name="agentlite",
            terminal_width=100,
            catch_exceptions=False,
        )
    this_machine.find_gpu.cache_clear()
    command = f"agentlite {full_command(name)}"
    return f"# {command}\n\n```text\n$ {command} --help-all\n{result.output}```\n"


def main() -> None:
    docs = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    (docs / "commands").mkdir(exist_ok=True)
    for name in COMMANDS:
        (docs / "commands" / f"{name}.md").write_text(page(name), encoding="utf-8")


if __name__ == "__main__":
    main()
