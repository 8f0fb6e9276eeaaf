"""agentlite.config.yaml_errors: the line of a mistake is shown, and no word of the library."""

from pathlib import Path

import pytest

from agentlite.config.resolve import Given, resolve
from agentlite.core.errors import UserError


def refused(content: bytes, folder: Path) -> UserError:
    path = folder / "a.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        resolve("prep", Given(files=(str(path),)))
    return caught.value


@pytest.mark.parametrize(
    ("content", "line", "words", "piece"),
    [
        ("prep:\n  dev: 0.1\n   test: 0.2\n", 3, "the indentation is wrong", "test: 0.2"),
        ("prep:\n  dev: 0.1\n test: 0.2\n", 3, "the indentation is wrong", "test: 0.2"),
        ("prep:\n\ttest: 0.2\n", 2, "the indentation contains a tab", None),
        ('prep:\n  system: "a\n  test: 1\n', 2, "a quote or a bracket is not closed", '"a'),
        ("prep:\n  mix: [a, b\n  test: 1\n", 2, "a bracket is not closed", "[a, b"),
        ("prep:\n  system: a: b\n", 2, "a text with a colon has no quotes", ": b"),
        ("prep:\n  system: @me\n", 2, "a character that cannot begin a value", "@me"),
        ("prep:\n  system: *me\n", 2, "a text that begins with * has no quotes", "*me"),
        ("prep:\n  dev: 0.1\n  test\n", 3, "a colon is missing", ""),
        ('prep:\n  system: "a" b\n', 2, "there is text behind a quote or a bracket", "b"),
        ('prep:\n  system: "\\q"\n', 2, "a backslash in double quotes", '"\\q'),
    ],
)
def test_a_mistake_is_shown_in_its_line(
    tmp_path: Path, content: str, line: int, words: str, piece: str | None
) -> None:
    error = refused(content.encode(), tmp_path)
    assert error.location == f"{tmp_path / 'a.yaml'}:{line}"
    assert error.fix
    behind = refused(f"{content}  \n\n".encode(), tmp_path)  # blank lines change nothing
    assert (behind.problem, behind.location) == (error.problem, error.location)
    head, shown, caret = error.problem.splitlines()
    assert head == f"invalid YAML: {words}."
    if piece is not None:
        assert shown[caret.index("^") :].startswith(piece)
    if piece == "":  # what is missing is missing at the end of the line
        assert caret.index("^") == len(shown)


SIGNS = ["**Be brief**", "* a", "& a", "> Be brief", "|x", "!important", "!!x a", "{{a}}", "? a"]
SIGNS += ["- a", "%a", "`a`", "="]


def test_settings_without_a_command_are_shown_under_the_one_that_has_them(tmp_path: Path) -> None:
    assert "\n  prep:\n    test: ..." in refused(b"test: 0.2\n", tmp_path).fix
    assert "\n  grpo:\n    group_size: ..." in refused(b"group_size: 4\n", tmp_path).fix


def test_a_share_may_be_a_percentage(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("prep:\n  test: 20%\n", encoding="utf-8")
    assert resolve("prep", Given(files=(str(path),))).settings.test == 0.2
    assert resolve("prep", Given(flags={"test": "12.5%"})).settings.test == 0.125
