"""Settings that could be read as something else than was meant are errors with their line."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.config import resolve
from agentlite.config.resolve import UserSettings
from agentlite.core.errors import USAGE, UserError

MISTAKES = {  # the text of a section -> its line, the column, and what is said
    "  seed: 1\n  seed: 2\n": (3, 2, "the key 'seed' appears twice"),
    "  trl: {a: 1, b: 2, a: 1}\n": (2, 20, "the key 'a' appears twice"),
    "  data: !!python/object/apply:os.getcwd []\n": (2, 8, "could not determine a constructor"),
    "  data: a: b\n": (2, 9, "mapping values are not allowed here"),
    "  seed: 1\n   data: a\n": (3, 7, "mapping values are not allowed here"),
    "\tseed: 1\n": (2, 0, "found character '\\t' that cannot start any token"),
}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "mine.yaml"


@pytest.mark.parametrize("text", MISTAKES, ids=lambda text: text[:24])
def test_a_mistake_is_refused_with_its_line_and_a_caret(text, file):
    line, column, said = MISTAKES[text]
    file.write_text(f"sft:\n{text}\n", encoding="utf-8")
    with pytest.raises(UserError) as refused:
        resolve.resolve("sft", UserSettings(files=(str(file),), profile="cpu"))
    error = refused.value
    assert error.exit_code == USAGE and error.location == f"{file}:{line}" and said in error.problem
    assert error.problem.splitlines()[-1].index("^") - len("    ") == column


def test_so_is_an_assignment():
    with pytest.raises(UserError, match="cannot be read as YAML: ") as refused:
        resolve.resolve("sft", UserSettings(sets=("sft.trl={a: 1, a: 2}",), profile="cpu"))
    assert refused.value.exit_code == USAGE and len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 0.0001), (".5", 0.5), ("-3", -3), ("1_000", 1000), ("1:30", "1:30"), ("010", "010")],
)
def test_numbers_are_those_of_json(text, value):
    assert resolve.parse_yaml(text) == value


WORDS = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | WORDS


@pytest.mark.long
@given(
    st.dictionaries(
        WORDS, st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(WORDS, inner))
    )
)
def test_what_json_says_is_read_as_json_says_it(content):
    """--print-config writes JSON, and --config reads it."""
    text = json.dumps(content, ensure_ascii=False)
    assert resolve.parse_yaml(text) == content


def test_a_date_is_a_text_and_a_merged_key_may_be_set_again():
    text = "a: &a {x: 1, y: 2025-99-99}\nb: {<<: *a, x: 3}\nc: 2025-01-01\n"
    assert resolve.parse_yaml(text) == {
        "a": {"x": 1, "y": "2025-99-99"},
        "b": {"x": 3, "y": "2025-99-99"},
        "c": "2025-01-01",
    }


def refused(content: bytes, folder: Path) -> UserError:
    path = folder / "a.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        resolve.resolve("prep", UserSettings(files=(str(path),)))
    return caught.value


def test_settings_without_a_command_are_refused_with_an_example(tmp_path: Path) -> None:
    assert "\n  sft:\n    lora_r: 16" in refused(b"test: 0.2\n", tmp_path).fix


def test_a_number_in_place_of_a_name_is_told_like_any_unknown_name(tmp_path: Path) -> None:
    assert refused(b"5:\n  seed: 1\n", tmp_path).problem.startswith("no command '5'.")
    assert refused(b"sft:\n  5: 1\n", tmp_path).problem.startswith("no setting 'sft.5'.")


def test_a_share_may_be_a_percentage(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("prep:\n  test: 20%\n", encoding="utf-8")
    assert resolve.resolve("prep", UserSettings(files=(str(path),))).settings.test == 0.2
    assert resolve.resolve("prep", UserSettings(flags={"test": "12.5%"})).settings.test == 0.125
