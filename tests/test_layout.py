"""The architecture is a test: rooms, floors, circles, names, first lines, and what help may
load.
"""

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from support.samples import ROOT

from agentlite.cli.main import COMMANDS

PACKAGE = ROOT / "agentlite"
# A room imports rooms above its line only: not its own line's other rooms, and none below.
FLOORS = [
    ["core"],
    ["config", "rendering"],
    ["workspace"],
    ["data", "scoring"],
    ["retrieval", "report", "environments"],
    ["engine"],
    ["deploy", "stages"],
    ["cli"],
]
ROOMS = [room for floor in FLOORS for room in floor]
# `core` could become a drawer for odds and ends: a new file in it is a decision.
CORE = {
    "__init__",
    "tool_results",
    "conditions",
    "console",
    "distributed",
    "errors",
    "json_schema",
    "kept_replies",
    "openai_client",
    "plain_words",
    "records",
    "reject_codes",
    "row_files",
    "user_code",
    "version",
}
HEAVY = {"torch", "transformers", "datasets", "numpy", "pyarrow", "trl", "peft", "unsloth", "httpx"}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


FILES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of agentlite that a module imports, wherever in it: in functions too."""
    found: set[str] = set()
    for node in ast.walk(tree_of(FILES[module])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in FILES}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} imports by a relative name"
            if node.module and node.module.partition(".")[0] == "agentlite":
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {name if name in FILES else node.module for name in whole}
    return frozenset(found)


def test_the_package_is_its_rooms():
    there = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert there == {*ROOMS, "__init__.py", "__main__.py", "py.typed"}
    assert {path.stem for path in (PACKAGE / "core").glob("*.py")} == CORE


@pytest.mark.long
def test_imports_point_up_the_floors():
    above: set[str] = set()
    for floor in FLOORS:
        for module in (
            name for name in FILES if name.split(".")[1:2] and name.split(".")[1] in floor
        ):
            for imported in imports(module):
                assert imported != "agentlite", f"{module} imports the whole package"
                room = imported.split(".")[1]
                assert room in {module.split(".")[1], *above}, f"{module} imports {imported}"
        above |= {*floor}


def neighbours(package: str) -> dict[str, set[str]]:
    """In a folder: each file or folder of it -> the others of the same folder that it imports."""
    graph: dict[str, set[str]] = {}
    for module in FILES:
        if module != package and not module.startswith(f"{package}."):
            continue
        unit = module.removeprefix(package).lstrip(".").partition(".")[0] or "__init__"
        others = graph.setdefault(unit, set())
        for imported in imports(module):
            if imported == package:
                others.add("__init__")
            elif imported.startswith(f"{package}."):
                others.add(imported.removeprefix(f"{package}.").partition(".")[0])
        others.discard(unit)
    return graph


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """What is left when everything that imports nothing of the rest has been taken away."""
    left = {unit: set(others) for unit, others in graph.items()}
    while free := [unit for unit, others in left.items() if not others & left.keys()]:
        for unit in free:
            del left[unit]
    return sorted(left)


def test_no_two_classes_have_the_same_name() -> None:
    names = Counter(
        node.name
        for path in (ROOT / "agentlite").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ClassDef)
    )
    assert not [name for name, count in names.items() if count > 1]


def test_no_folder_holds_a_circle():
    for package in (name for name, path in FILES.items() if path.name == "__init__.py"):
        assert not circle_in(neighbours(package)), package


def test_no_command_imports_another():
    for path in (PACKAGE / "cli/commands").glob("*.py"):
        assert "agentlite.cli.commands" not in path.read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments", [[], ["--help"], *([name, "--help-all"] for name in COMMANDS)]
)
def test_help_loads_nothing_heavy(arguments):
    program = (
        "import sys\nfrom agentlite.cli.main import main\n"
        f"sys.argv = ['agentlite', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint(*sys.modules, file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ("Usage: agentlite" if arguments else "\nNext:\n") in run.stdout
    loaded = {name.split(".")[0] for name in run.stderr.split()}
    assert not HEAVY & loaded
    assert arguments != ["--help"] or "msgspec" not in loaded


def test_a_file_says_in_its_first_line_what_it_is_for():
    assert all(ast.get_docstring(tree_of(path)) for path in FILES.values())


@pytest.mark.long
def test_one_module_alone_names_the_files_of_a_stage():
    """All others ask workspace.lookup, so that all trust the same."""
    named = {
        module
        for module, path in FILES.items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value.endswith(("plan.json", "done.json", "failed.json")) and " " not in node.value
    }
    assert named == {"agentlite.workspace.lookup"}


def test_there_is_no_drawer_for_odds_and_ends():
    drawers = {"utils.py", "common.py", "helpers.py", "base.py", "misc.py"}
    assert not drawers & {path.name for path in PACKAGE.rglob("*.py")}
