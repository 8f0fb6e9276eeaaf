"""How much memory and time `prep --gather` takes for a record, and what a machine can gather.

    .venv/bin/python scripts/bench/gathering.py [--records 40000] [--memory 24]

Shards of a quarter of the records and of all of them are gathered, each by a process of its own:
`bytes_a_record` is the difference of their highest memory by that of their records, and
`base_mebibytes` is left for none. `records_a_second` is by the processor time of that difference,
`disk_bytes_a_record` the length of a shard's file. `in_memory`: millions of records that fit in
--memory GB, of which a tenth stays free; computed, not tried.

plain: the defaults. near: --duplicates equal,calls,near. coreset: the hardest half by its proxy
loss. The records are dialogs of three calls with four tools of fifty, about 7.5 kB each, that have
nothing in common; only their sizes are those of one of them.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from reading import row, tool

KINDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "plain": ({}, []),
    "near": ({"duplicates": ["equal", "calls", "near"]}, []),
    "coreset": (
        {},
        ["--coreset-strategy", "loss_topk", "--coreset-loss", "proxy", "--coreset-target-size"],
    ),
}
FREE = 0.1  # of the memory


class Gathered(NamedTuple):
    """What one process took: its highest memory, and its processor time."""

    records: int
    bytes: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=40_000)
    parser.add_argument("--memory", type=float, default=24, help="GB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = {
            kind: measured(kind, options.records, options.memory, Path(folder) / kind)
            for kind in KINDS
        }
    print(json.dumps(figures, indent=2))


def measured(kind: str, records: int, memory: float, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    few, many = (gathered(kind, count, folder) for count in (records // 4, records))
    added = many.records - few.records
    each = (many.bytes - few.bytes) / added
    base = few.bytes - each * few.records
    shard = folder / f"shard-{records}" / "taken.msgpack"
    return {
        "records": many.records,
        "bytes_a_record": round(each),
        "base_mebibytes": round(base / 2**20),
        "records_a_second": round(added / (many.seconds - few.seconds)),
        "disk_bytes_a_record": round(shard.stat().st_size / records),
        "in_memory": round(((1 - FREE) * memory * 1e9 - base) / each / 1e6, 1),
    }


def gathered(kind: str, count: int, folder: Path) -> Gathered:
    """A shard of so many records, gathered by a process of its own."""
    settings, words = KINDS[kind]
    shard = f"shard-{count}"
    write_shard(folder, shard, count, settings)
    size = [str(count // 2)] if words else []
    command = ["prep", shard, "--gather", "--run", str(folder), "--out", f"of-{count}", "--json"]
    with open(folder / "result.json", "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "agentlite", *command, *words, *size], stdout=file
        )
        _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit("the shard could not be gathered")
    figures = json.loads((folder / "result.json").read_bytes())["figures"]
    assert figures["read"] == count, figures
    return Gathered(count, used.ru_maxrss * 1024, used.ru_utime + used.ru_stime)


def write_shard(folder: Path, name: str, count: int, settings: dict[str, Any]) -> None:
    """A shard that was made of one row, with so many records in its place."""
    from agentlite import prep
    from agentlite.data.taken_rows import read_taken, write_taken
    from agentlite.stages.prep.shards import CATALOGUE, TAKEN
    from agentlite.workspace import run_folder

    source = folder / "rows.jsonl"
    source.write_text(json.dumps(next(raw_rows())) + "\n", encoding="utf-8")
    where: dict[str, Any] = {"run": str(folder), "out": name, "shard": "1/1"}
    prep(str(source), **where, model="smollm2-135m", max_length=4096, **settings)
    stage = folder / name
    (sample,) = next(read_taken(stage / TAKEN)).samples
    plan = run_folder.read_plan(stage)
    with run_folder.open_stage(stage, plan, force=False) as open_stage:
        open_stage.reopen()
        counts = write_taken(stage / TAKEN, rows_like(sample, count, bool(sample.sketch)))
        open_stage.finish([TAKEN, CATALOGUE], {**counts, "candidates": {}})


def rows_like(sample: Any, count: int, near: bool) -> Iterator[Any]:
    """What became of rows with other texts and the same sizes as the sample."""
    from agentlite.config.settings import PrepSettings
    from agentlite.core.records import to_row
    from agentlite.core.row_files import encode
    from agentlite.data.curation.dedup import near_text
    from agentlite.data.curation.minhash import sketches
    from agentlite.data.curation.traits import traits
    from agentlite.data.formats import RawLine, quick
    from agentlite.data.ingest_row import IngestedRow, clean

    for number, raw in zip(range(count), raw_rows(), strict=False):
        place = f"rows.jsonl:{number + 1}"
        read = quick(RawLine(place, json.dumps(raw).encode() + b"\n"))
        assert read
        record = clean(read, PrepSettings(personal="off")).record
        taken = sample._replace(
            row=encode(to_row(record)),
            location=place,
            traits=traits(record),
            sketch=next(sketches([near_text(record)])) if near else b"",
        )
        yield IngestedRow("rows.jsonl", "openai", (), [taken])


def raw_rows() -> Iterator[dict[str, Any]]:
    chance = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(5000)]
    tools = [tool(number, words, chance) for number in range(50)]
    while True:
        yield row(chance.sample(tools, 4), words, chance)


if __name__ == "__main__":
    main()
