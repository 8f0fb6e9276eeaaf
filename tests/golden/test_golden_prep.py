"""Every file that prep writes: for each format, the seeds, the demo and six sets of options."""

from pathlib import Path

import pytest
from support.golden import Golden, digests
from support.samples import ROOT

import agentlite

FILES = sorted((ROOT / "tests/support/rows").glob("*/*.jsonl"))
OPTIONS = {
    "masked": {"personal": "mask", "duplicates": ("near", "calls"), "seed": 5},
    "taught": {"no_call_share": 0.4, "mask_names": 0.5, "distractors": 2, "join": 3},
    "mixed": {"protocol": "hermes=2,react", "limit": 60, "long_rows": "cut", "max_length": 300},
    "coreset": {"coreset_strategy": "diversity", "coreset_target_size": 20},
    "parquet": {"split_by": ("query", "tools"), "dev": 0.3, "test": 0.3, "seed": 1},
    "held_out": {"holdout": ("tests/support/rows/weather.jsonl",), "contradictions": "drop"},
}


def prep(folder: Path, *sources: str, **options: object) -> dict[str, str]:
    given = {"model": "smollm2-135m", "max_rejects": 1.0, "protocol": "hermes", **options}
    agentlite.prep(*sources, run=str(folder), **given)
    return digests(folder / "prep")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_each_format(
    path: Path, tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # rows name the file they come from
    golden(path.stem, prep(tmp_path, str(path.relative_to(ROOT)), dev=0.2, test=0.2))


@pytest.mark.parametrize("name", OPTIONS)
def test_sets_of_options(
    name: str, tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    files = [str(path.relative_to(ROOT)) for path in FILES if path.parent.name == "formats"]
    sources = [*files, "bfcl:simple_python", "bfcl:irrelevance"]
    golden(name, prep(tmp_path, *sources, **OPTIONS[name]))


def test_the_demo(tmp_path: Path, golden: Golden) -> None:
    golden("demo", prep(tmp_path, config=(str(ROOT / "configs/recipes/demo.yaml"),)))
