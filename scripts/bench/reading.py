"""How fast raw rows are read and checked, and how much memory prep takes for many of them.

    .venv/bin/python scripts/bench/reading.py [--megabytes 100] [--whole]

`megabytes_a_second`: bytes of JSONL to checked records, by the processor time of one core (target:
100), beside a bare `json.loads` of the same lines, in turns; `ratio` is ours to that. Medians over
parts of 400 rows. The rows are dialogs of three calls with four tools of fifty, about 7.5 kB each.
--whole: prep of that many megabytes in a process of its own, with rendering; its highest memory in
`prep_mebibytes` (target: 400 for 1,000).
"""

import io
import itertools
import json
import operator
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from common import make_parser, make_words, python, show

ROWS_A_MEGABYTE = 133
PART = 400  # rows


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        write_rows(path, options.megabytes * ROWS_A_MEGABYTE)
        measure = measure_prep if options.whole else measure_reading
        show(measure(path))


def write_rows(path: Path, count: int) -> None:
    chance = random.Random(0)
    words = make_words(chance)
    tools = [tool(n, words, chance) for n in range(50)]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(
            json.dumps(row(chance.sample(tools, 4), words, chance)) + "\n" for _ in range(count)
        )


def tool(number: int, words: list[str], chance: random.Random) -> dict[str, Any]:
    properties = {
        f"part_{n}": {"type": "string", "description": text(8, words, chance)} for n in range(3)
    }
    parameters = {"type": "object", "properties": properties, "required": ["part_0"]}
    function = {
        "name": f"tool_{number}",
        "description": text(15, words, chance),
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


def row(tools: list[dict[str, Any]], words: list[str], chance: random.Random) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": text(20, words, chance)}]
    for number, tool in enumerate(tools[:3]):
        arguments = json.dumps({"part_0": text(3, words, chance), "part_1": text(2, words, chance)})
        function = {"name": tool["function"]["name"], "arguments": arguments}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": text(40, words, chance)},
            {"role": "assistant", "content": text(20, words, chance), "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": text(100, words, chance)},
            {"role": "assistant", "content": text(60, words, chance)},
        ]
    return {"messages": messages, "tools": tools}


def text(count: int, words: list[str], chance: random.Random) -> str:
    return " ".join(chance.choices(words, k=count))


def measure_reading(path: Path) -> dict[str, Any]:
    """In turns, some rows each: a machine is not always equally fast."""
    from agentlite.data.curation.validate import validate
    from agentlite.data.formats import to_record
    from agentlite.data.formats.raw_rows import decode, read_lines

    def ours(rows: Path) -> None:
        for line in read_lines(str(rows), io.BytesIO()):
            validate(to_record(decode(line).value))

    def bare(rows: Path) -> None:
        with open(rows, "rb") as file:
            for line in file:
                json.loads(line)

    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    part_file = path.with_name("part.jsonl")
    with open(path, "rb") as file:
        while lines := list(itertools.islice(file, PART)):
            part_file.write_bytes(b"".join(lines))
            for name, read in (("ours", ours), ("bare", bare)):
                started = time.process_time()
                read(part_file)
                rates[name].append(part_file.stat().st_size / 1e6 / (time.process_time() - started))
    medians = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    return {
        "megabytes": round(path.stat().st_size / 1e6),
        "megabytes_a_second": medians["ours"],
        "of_the_fastest_tenth": round(statistics.quantiles(rates["ours"], n=10)[-1], 1),
        "bare_json_a_second": medians["bare"],
        "ratio": round(statistics.median(map(operator.truediv, rates["ours"], rates["bare"])), 2),
    }


def measure_prep(path: Path) -> dict[str, Any]:
    words = ("prep", path, "--run", path.parent, "--model", "smollm2-135m", "--max-length", 4096)
    started = time.perf_counter()
    figures = python("-m", "agentlite", *words, "--json")["figures"]
    seconds = time.perf_counter() - started
    highest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {
        "megabytes": round(path.stat().st_size / 1e6),
        "kept": figures["kept"],
        "seconds": round(seconds),
        "prep_mebibytes": round(highest),
    }


if __name__ == "__main__":
    main()
