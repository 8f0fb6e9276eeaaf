"""A grid file: weightings alone, or sections; and files that are not a grid."""

from pathlib import Path

import pytest

from agentlite.core.errors import UserError
from agentlite.scoring.grid_file import read_grid_file, read_weightings


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "grid.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "grid.yaml"


def test_one_file_serves_pairs_and_ablate(tmp_path: Path) -> None:
    sections = written(
        tmp_path,
        "by: grpo\nweights:\n  a: {}\n  b: {exact: 1}\nsettings: {grpo.beta: [0.1, 0.2], x.y: 3}\n",
    )
    grid = read_grid_file(sections)
    assert (grid.by, grid.weights) == ("grpo", {"a": {}, "b": {"exact": 1}})
    assert grid.settings == {"grpo.beta": [0.1, 0.2], "x.y": [3]}
    weightings = read_weightings([str(sections)])
    assert weightings["b"]["exact"] == 1 and weightings["a"]["exact"] == 0


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("weights: {a: {exact: 1}}", {"a": {"exact": 1}}),
        ("settings: {dpo.beta: [1]}", {}),
        ("", {}),
        ("weights:\n  a:\n  b: {exact: 1}", {"a": {}, "b": {"exact": 1}}),
    ],
)
def test_what_stands_in_it_says_which_kind_it_is(
    tmp_path: Path, text: str, weights: dict[str, object]
) -> None:
    assert read_grid_file(written(tmp_path, text)).weights == weights


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("settings: [1]", "$.settings"),
        ("by: dpo\nwieghts: {}", "wieghts"),
        ("by: [", "invalid YAML"),
        ("- a\n", "A grid maps settings to lists"),
        ("a: {exact: 1}", "a"),
        ("weights: {a: {exact: 1}, b: 3}", "weights"),
        ("weights: {a: {exact: fast}}", "a"),
    ],
)
def test_a_mistake_names_the_file(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UserError) as caught:
        read_grid_file(path)
    assert problem in str(caught.value) and str(path) in str(caught.value)
