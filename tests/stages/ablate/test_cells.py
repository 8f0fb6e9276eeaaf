"""A grid file, and files that are none."""

from pathlib import Path

import pytest

from agentlite.core.errors import UserError
from agentlite.stages.ablate.cells import folder_name, read_grid
from agentlite.stages.eval.subjects import slug


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "grid.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "grid.yaml"


def test_a_file_has_weightings_and_settings(tmp_path: Path) -> None:
    text = "by: grpo\nweights:\n  a:\n  b: {exact: 1}\nsettings: {grpo.beta: [0.1, 0.2], x.y: 3}\n"
    grid = read_grid(written(tmp_path, text))
    assert (grid.by, grid.weights) == ("grpo", {"a": None, "b": {"exact": 1}})
    assert grid.settings == {"grpo.beta": [0.1, 0.2], "x.y": 3}
    assert read_grid(written(tmp_path, "")).weights is None


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
        read_grid(path)
    assert problem in str(caught.value) and str(path) in str(caught.value)


def test_cells_with_folders_of_their_own_have_evaluations_of_their_own() -> None:
    models = [folder_name(f"dpo-{name}") for name in ("a=1", "a-1", "准确", "速度", "a" * 200)]
    assert len({*models}) == 5 and [*map(slug, models)] == models
