"""The architecture is a test: imports point one way, one folder knows torch, and help loads nothing
heavy.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from agentlite.cli.main import COMMANDS

PACKAGE = Path(__file__).parent.parent / "agentlite"
# Data flows down this list; imports only point up it, or to a neighbour in the same line.
LAYERS = [
    ["core"],
    ["config", "rendering"],
    ["workspace"],
    ["data", "scoring"],
    ["retrieval", "report"],
    ["engine"],
    ["deploy", "stages"],
    ["cli"],
    ["__init__", "__main__"],
]
HEAVY = {"torch", "transformers", "datasets", "numpy", "pyarrow", "trl", "peft", "unsloth"}


def imports(path: Path) -> set[str]:
    """The modules of agentlite that a file imports, wherever in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "agentlite":
            inner = (node.module or "").split(".")[1:]
            found |= {inner[0]} if inner else {alias.name for alias in node.names}
    return found - {"__version__"}


def layer(module: str) -> int:
    return next(index for index, names in enumerate(LAYERS) if module in names)


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_imports_point_one_way(path):
    module = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for imported in imports(path):
        assert layer(imported) <= layer(module), f"{module} imports {imported}"


def test_no_command_imports_another():
    for path in (PACKAGE / "cli/commands").glob("*.py"):
        assert "agentlite.cli.commands" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_loads_nothing_heavy(arguments):
    program = (
        "import sys\nfrom agentlite.cli.main import main\n"
        f"sys.argv = ['agentlite', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint(*sys.modules, file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "Usage: agentlite" in run.stdout
    loaded = {name.split(".")[0] for name in run.stderr.split()}
    assert not HEAVY & loaded
    assert arguments[0] != "--help" or "msgspec" not in loaded


def test_every_file_says_in_its_first_line_what_it_is():
    for path in PACKAGE.rglob("*.py"):
        first = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert first, path


def test_there_is_no_drawer_for_odds_and_ends():
    drawers = {"utils.py", "common.py", "helpers.py", "base.py"}
    assert not drawers & {path.name for path in PACKAGE.rglob("*.py")}
