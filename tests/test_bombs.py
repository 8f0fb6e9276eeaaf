"""Small files that stand for more than there is memory: read in a stream, or refused, within a
limit of memory.
"""

import gzip
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from support import processes
from support.malformed_rows import line
from support.samples import ROOT

from agentlite.core.errors import UserError
from agentlite.scoring.weight_sweep import read_grid

pytestmark = pytest.mark.long
LIMIT = 3 << 30  # of address space; what is read below stands for 16 GB and more
ROW = line() + b"\n"


def limited(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return processes.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "OMP_NUM_THREADS": "1"},
        timeout=120,
        address_space=LIMIT,
    )


def prep(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    options = ["--run", folder, "--set", "prep.dev=0", "--set", "prep.test=0"]
    return limited("-m", "agentlite", "prep", path, *options, cwd=folder)


def by_gzip(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=9)


def test_many_equal_rows_are_no_bomb(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(by_gzip(ROW * 2000))
    done = prep(path, tmp_path)
    assert done.returncode == 0, done.stderr


def test_one_long_value_in_every_row_of_parquet_is_read_a_few_at_a_time(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = pyarrow.DictionaryArray.from_arrays([0] * 20_000, ["z" * (1 << 20)])
    parquet.write_table(
        pyarrow.table({"text": values}), tmp_path / "rows.parquet", compression="zstd"
    )
    assert (tmp_path / "rows.parquet").stat().st_size < 4 << 20
    program = (
        "import sys; from pathlib import Path; from agentlite.core.row_files import read_parquet\n"
        "rows = read_parquet(Path(sys.argv[1]))\nprint(sum(len(next(rows)['text']) for _ in "
        "range(600)))"
    )
    done = limited("-c", program, tmp_path / "rows.parquet", cwd=tmp_path)
    assert done.stdout.strip() == str(600 << 20), done.stderr


NAMES = "abcdefghij"
LAUGHS = f"a: &a [{'ha, ' * 9}]\n" + "".join(
    f"{name}: &{name} [{f'*{before}, ' * 9}]\n" for before, name in pairwise(NAMES)
)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (LAUGHS, "holds more than"),
        (
            "sft:\n  trl:\n" + "".join(f"    {text}\n" for text in LAUGHS.splitlines()),
            "holds more than",
        ),
        (
            "sft:\n  trl:\n    a: &a '" + "x" * 900_000 + "'\n    b: [" + "*a, " * 20_000 + "]\n",
            "holds more than",
        ),
        ("sft:\n  seed: 1\n" + "#" * (100 << 20), "longer than 1 MiB"),
        ("sft: " + "[" * 100_000, "invalid YAML"),
        ("sft:\n  " + "- " * 100_000, "invalid YAML"),
        ("".join(" " * n + "-\n" for n in range(1400)), "must hold one section"),
        ("? " * 100_000, "invalid YAML"),
        ("sft: !!python/object/apply:os.system ['touch was-run']\n", "invalid YAML"),
    ],
)
def test_a_bomb_of_settings_is_refused_at_once(tmp_path, content, told):
    (tmp_path / "agentlite.yaml").write_text(content, encoding="utf-8")
    done = limited("-m", "agentlite", "sft", "--print-config", cwd=tmp_path)
    assert done.returncode == 2 and told in done.stderr, done.stderr[-2000:]
    assert len(done.stderr) < 2000 and not (tmp_path / "was-run").exists()


def test_a_bomb_of_weightings_is_refused_as_well(tmp_path):
    path = tmp_path / "grid.yaml"
    for content, told in ((LAUGHS, "holds more than"), ("x: " + "[" * 100_000, "invalid YAML")):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=told):
            read_grid(path, [])
