"""How large the repository is: one table, of this checkout or of a revision.

usage: .venv/bin/python scripts/size.py [REVISION] [--fast]
  --fast: without what needs the commands to run: options of the stages, and collected tests.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHOWN = ("prep", "sft", "pairs", "dpo", "grpo", "eval", "ablate", "make", "rollout", "retriever")


def files(root: Path, *patterns: str) -> list[Path]:
    """What git tracks, and is there."""
    command = ["git", "ls-files", "-z", "--", *patterns]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return [root / name for name in names.split("\0") if name and (root / name).is_file()]


def count_lines(paths: list[Path]) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in paths)


def count_statements(paths: list[Path]) -> int:
    """Docstrings are statements, too."""
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_bytes())))
    return sum(isinstance(node, ast.stmt) for node in nodes)


def setting_names(root: Path) -> list[str]:
    """The annotated fields of the classes in config/settings.py."""
    tree = ast.parse((root / "agentlite/config/settings.py").read_bytes())
    return [
        line.target.id
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    ]


def run(root: Path, folder: str, *words: str) -> str:
    """What Python prints, with the package at `root`."""
    environment = {**os.environ, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


def count_options(root: Path, stage: str, flag: str) -> int:
    """Lines of help that begin with an option."""
    with tempfile.TemporaryDirectory() as empty:
        page = run(root, empty, "-m", "agentlite", stage, flag)
    return len(re.findall(r"^  -", page, re.MULTILINE))


def rows(root: Path, fast: bool) -> Iterator[tuple[str, object]]:
    package, tests = files(root, "agentlite/*.py"), files(root, "tests/*.py")
    lines, statements = count_lines(package), count_statements(package)
    settings = setting_names(root)
    yield "package: lines", lines
    yield "package: statements", statements
    yield "package: statements per line", f"{statements / lines:.2f}"
    yield "package: files", len(package)
    yield "settings", len(settings)
    yield "settings, distinct", len({*settings})
    if not fast:
        for stage in SHOWN:
            short, full = (count_options(root, stage, flag) for flag in ("--help", "--help-all"))
            yield f"options of {stage}: --help, --help-all", f"{short}, {full}"
    yield "tests: lines", count_lines(tests)
    yield "tests: files", len(tests)
    if not fast:
        words = ("-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider")
        counts = re.findall(r"^(\d+)(?:/\d+)? tests? collected", run(root, str(root), *words), re.M)
        yield "tests: collected cases", counts[-1] if counts else "not collected"
    yield "scripts: lines", count_lines(files(root, "scripts"))
    pages = files(root, "*.md")
    yield "Markdown: files", len(pages)
    yield "Markdown: words", sum(len(path.read_text(encoding="utf-8").split()) for path in pages)


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("revision", nargs="?")
    parser.add_argument("--fast", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root, git = ROOT, ["git", "-C", str(ROOT), "worktree"]
        if options.revision:
            root = Path(folder) / "tree"
            words = ["add", "--quiet", "--detach", str(root), options.revision]
            subprocess.run([*git, *words], check=True)
        try:
            for name, value in rows(root, options.fast):
                print(f"{name:42} {value:>10}")
        finally:
            if options.revision:
                subprocess.run([*git, "remove", "--force", str(root)], check=True)


if __name__ == "__main__":
    main()
