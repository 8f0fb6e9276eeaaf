"""Plain English: patterns that make a sentence be read twice stay out of what a user reads."""

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


def found(path: Path) -> list[str]:
    text = prose(path)
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
    assert not found(path)
