"""Writes the full help of each command, as it is now, into docs/commands/NAME.md, and names the
pages that changed. The defaults are those of a machine without a GPU.

usage: python scripts/help_pages.py
"""

import contextlib
import re
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "commands"
sys.path.insert(0, str(ROOT))

from agentlite.cli.main import COMMANDS, group  # noqa: E402  (of this checkout, whatever is installed)
from agentlite.config import gpu_profiles  # noqa: E402  (the same)
from agentlite.config.pipeline import typed  # noqa: E402  (the same)

BLOCK = re.compile(r"```text\n\$ agentlite [a-z ]+ --help-all\n.*?```\n", re.DOTALL)
COLUMNS = 100


def block(name: str) -> str:
    """What `agentlite NAME --help-all` prints, as it stands in the page."""
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):  # no agentlite.yaml
        gpu_profiles.card.cache_clear()
        shown = CliRunner(env={"CUDA_VISIBLE_DEVICES": "-1", "AGENTLITE_RUN": None}).invoke(
            group,
            [*typed(name).split(), "--help-all"],
            prog_name="agentlite",
            terminal_width=COLUMNS,
            catch_exceptions=False,
        )
    gpu_profiles.card.cache_clear()
    return f"```text\n$ agentlite {typed(name)} --help-all\n{shown.output}```\n"


def renewed(text: str, name: str) -> str:
    """A page without a block gets one before its first section."""
    if BLOCK.search(text):
        return BLOCK.sub(lambda _: block(name), text, count=1)
    before, section, after = text.partition("\n## ")
    return f"{before}\n{block(name)}{section}{after}"


def main() -> None:
    for name in COMMANDS:
        path = PAGES / f"{name}.md"
        text = path.read_text(encoding="utf-8")
        try:
            new = renewed(text, name)
        except ModuleNotFoundError as error:
            print(f"{name}: left as it is: {error}")
            continue
        if new != text:
            path.write_text(new, encoding="utf-8")
            print(f"{name}: renewed")


if __name__ == "__main__":
    main()
