"""Renews the tree in docs/design.md: every file of the package with its first line, by floor.

usage: python scripts/file_tree.py
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "agentlite"
PAGE = ROOT / "docs" / "design.md"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from test_layout import FLOORS  # noqa: E402  (of this checkout, whatever is installed)

BLOCK = re.compile(r"```text\nagentlite/\n.*?```\n", re.DOTALL)
COLUMN = 34  # where the first lines begin


def first_line(path: Path) -> str:
    """Of a Python file the first line of its docstring; of any other file nothing."""
    if path.suffix != ".py" or not path.exists():
        return ""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def line(depth: int, name: str, text: str) -> str:
    return f"{'  ' * depth + name:<{COLUMN}}{text}".rstrip()


def lines(folder: Path, depth: int) -> Iterator[str]:
    """The files of a folder, then its folders, each with its own files under it."""
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if path.is_dir() and path.name != "__pycache__":
            inside = [*lines(path, depth + 1)]  # none where only __pycache__ is left of a folder
            if inside:
                yield line(depth, f"{path.name}/", first_line(path / "__init__.py"))
                yield from inside
        elif path.is_file() and path.name != "__init__.py":
            yield line(depth, path.name, first_line(path))


def block() -> str:
    """The tree as it stands in the page: rooms by floor, the lowest floor first."""
    tree = ["agentlite/"]
    for number, rooms in enumerate(FLOORS, 1):
        for room in rooms:
            folder = PACKAGE / room
            tree += [
                "",
                line(1, f"{room}/", f"FLOOR {number}. {first_line(folder / '__init__.py')}"),
            ]
            tree += lines(folder, 2)
    return "\n".join(["```text", *tree, "```", ""])


def renewed(text: str) -> str:
    return BLOCK.sub(lambda _: block(), text, count=1)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    if renewed(text) != text:
        PAGE.write_text(renewed(text), encoding="utf-8")
        print(f"{PAGE.name}: renewed")


if __name__ == "__main__":
    main()
