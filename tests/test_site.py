"""The documentation as a site: every page is in the menu, and the builder finds nothing wrong."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.processes import environment
from support.samples import ROOT

from agentlite.cli.main import COMMANDS

DOCS = ROOT / "docs"
WRITTEN = [path.name for path in DOCS.glob("*.md")]


def menu(entry: Any) -> Iterator[str]:
    """The pages of an entry of `nav`: a page, or a title with a page or more entries."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from menu(inner)


def test_every_page_is_in_the_menu_once_and_in_the_index() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    helped = [f"commands/{name}.md" for name in COMMANDS]
    assert sorted(menu(nav)) == sorted([*WRITTEN, *helped])
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert not [name for name in WRITTEN if name != "index.md" and f"({name})" not in index]


@pytest.mark.long
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    left_out = shutil.ignore_patterns("commands")
    shutil.copytree(DOCS, tmp_path / "docs", ignore=left_out)
    helped = [sys.executable, str(ROOT / "scripts/help_pages.py"), "docs"]
    subprocess.run(helped, cwd=tmp_path, check=True, env=environment())
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    printed = re.sub(r"\x1b\[[\d;]*m", "", built.stdout + built.stderr)
    assert "No issues found" in printed, re.findall(r"\S+\.md:\S+|.*does not exist", printed)
    for name in [*WRITTEN, *(f"commands/{name}.md" for name in COMMANDS)]:
        page = "index.html" if name == "index.md" else f"{name.removesuffix('.md')}/index.html"
        assert (tmp_path / "site" / page).is_file(), page
