"""Losses of records: each is computed once, and what is on disk is what was computed."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentlite.data.curation.loss_cache import all_losses, known_losses, losses_file


def test_an_id_is_computed_once_however_often_it_is_wanted(tmp_path: Path) -> None:
    wanted: list[list[str]] = []

    def forward(ids: Sequence[str]) -> Iterator[tuple[str, float]]:
        wanted.append([*ids])
        yield from ((one, float(len(one))) for one in ids)

    path = losses_file(tmp_path, "key")
    assert all_losses(path, ["aa", "b", "aa"], forward) == {"aa": 2.0, "b": 1.0}
    assert all_losses(path, ["ccc", "b", "ccc"], forward) == {"ccc": 3.0, "b": 1.0}
    assert wanted == [["aa", "b"], ["ccc"]]
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["aa", "b", "ccc"]


def test_each_key_has_a_file_of_its_own_and_no_number_that_is_none_is_in_it(tmp_path: Path) -> None:
    for key, loss in (("one", 1.0), ("other", math.inf)):
        found = all_losses(losses_file(tmp_path, key), ["a"], lambda ids, loss=loss: [("a", loss)])  # type: ignore[misc]
        assert found == {"a": loss}
    assert known_losses(losses_file(tmp_path, "one")) == {"a": 1.0}
    assert known_losses(losses_file(tmp_path, "other")) == {}
