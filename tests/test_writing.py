"""Plain English: patterns that make a sentence be read twice stay out of what a user reads."""

import ast
import re
from pathlib import Path

import pytest
from support.samples import ROOT

# pattern: a sentence that it catches, and one that it leaves alone
PATTERNS = {
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|better\b|worse\b|less\b)": (
        "Max_length is no setting, and there is no other.",
        "There is no such file, and the server is no longer asked.",
    ),
    r"\bis told\b|\bare told\b|\btold so\b": (
        "One row is broken, and is told so.",
        "You told it to stop.",
    ),
    r"\bdear(?:er|est)?\b": ("How dear it is to move away.", "The clear way."),
    r"\bmend(?:s|ed|ing)?\b": ("It mends the rows.", "An amendment."),
    r"\breckon(?:s|ed|ing)?\b": ("The planner reckons with it.", "It counts."),
    r"\bbesides\b(?! the point)|^Beside\b|[.!?] Beside\b": (
        "It is measured besides.",
        "The index stands beside it.",
    ),
    r"\bbears?\b": ("Rows bear their split.", "A bearer token."),
    r"\bdue\b(?! to\b)": ("Where a call is due.", "An error due to rounding."),
    r"\b(?:one|bits|calls|lines?|rows?|steps?|tokens) a (?:dialog|row|second|step|turn|weight)\b": (
        "One row a step is held.",
        "One row per step is held.",
    ),
    r"\b(?:is|are|appear|stands?) there twice\b|\bstands twice\b|\bto be had\b|\bcannot be had\b": (
        "The key is there twice.",
        "The key appears twice.",
    ),
    r"\bthere where\b|\bwhere there is none\b": ("There where it stands.", "Where it stands."),
    r"\ball the same\b": ("Or go on all the same.", "They all score the same."),
    r"\bnor\b": ("Nor is a file read.", "Or a file is read."),
    r"(?:^|[.] )What (?!if\b)[^.?!;:|]{3,80}\b(?:is|are|goes|comes)\b[^?:]*?[.]": (
        "What TRL knows is passed on.",
        "What does a good report show?",
    ),
}
# decisions.md is a log: its entries stay as they were written
PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - {ROOT / "docs/decisions.md"})
CODE = re.compile(r"```.*?```|`[^`\n]*`|\[[^\]]*\]\([^)]*\)", re.DOTALL)


def prose(path: Path) -> str:
    return CODE.sub("X", path.read_text(encoding="utf-8"))


def found(text: str) -> list[str]:
    return [
        f"{pattern}: ...{text[max(0, match.start() - 30) : match.end() + 30]!r}"
        for pattern in PATTERNS
        for match in re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE)
    ]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_catches_its_sentence_and_leaves_the_other(pattern):
    wrong, right = PATTERNS[pattern]
    flags = re.IGNORECASE | re.MULTILINE
    assert re.search(pattern, wrong, flags) and not re.search(pattern, right, flags)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_holds_a_sentence_that_must_be_read_twice(path):
    assert not found(prose(path))


# the texts in the code: help, errors, notices, reports, docstrings; no file is an exception
SOURCES = sorted((ROOT / "agentlite").rglob("*.py"))
MARKUP = re.compile(r"<script.*?</script>|<style.*?</style>|\{[{%#].*?[}%#]\}|<[^>]*>", re.DOTALL)


def texts(source: str) -> list[tuple[int, str]]:
    """The line and the text of each docstring and of each text of two words or more: help, errors,
    notices, reports. What is filled in is an X; parts that stand one after the other are one text.
    """
    tree = ast.parse(source)
    inner = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            parts = node.values
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in parts)
        else:
            continue
        if " " in text.strip() and id(node) not in inner:
            found.append((node.lineno, text))
    return found


def in_one_line(text: str) -> str:
    """A docstring's sentences go on after a line break."""
    return re.sub(r"\s*\n\s*", " ", CODE.sub("X", text))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_in_the_code_must_be_read_twice(path):
    assert not [
        f"line {line}: {sentence}"
        for line, text in texts(path.read_text(encoding="utf-8"))
        for sentence in found(in_one_line(text))
    ]


def test_the_texts_of_code_are_seen():
    source = (
        '"""A row\nis no row."""\nraise UserError(f"{name} is no setting.", "Mend it.")\n'
        'class A:\n    x: int\n    """what is due"""\n'
    )
    seen = [sentence for _, text in texts(source) for sentence in found(in_one_line(text))]
    assert len(seen) == 4


@pytest.mark.parametrize("name", ["report/page.html", "report/page.js", "cli/starter/README.md"])
def test_no_text_of_the_report_and_the_starter_must_be_read_twice(name):
    text = (ROOT / "agentlite" / name).read_text(encoding="utf-8")
    assert not found(MARKUP.sub("\n", text) if name.endswith("html") else text)
