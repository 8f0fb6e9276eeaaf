"""The tools of BFCL, over a thousand, and their real questions -> what each way of ranking brings,
and how fast.

    .venv/bin/python scripts/bench/retrieval.py [query] [tool] [speed] [--work runs/bench/retrieval]
    [--json FILE]

query: split by question, so that most tools of test were right in train too; tool: no tool of test
was ever right in train; speed: an index of 10,000 tools, on one core. What was done already is not
done again.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from common import make_parser, python

CATEGORIES = (
    "simple_python,simple_java,simple_javascript,multiple,parallel,parallel_multiple,live_simple,"
    "live_multiple,live_parallel,live_parallel_multiple,irrelevance,live_irrelevance,live_relevance"
)
BY = {"query": "query,near,parent,calls", "tool": "query,near,parent,calls,tools"}
TOOLS, QUESTIONS, ENCODED = 10_000, 200, 500


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} [all of them]"
    )
    parser.add_argument("--work", type=Path, default=Path("runs/bench/retrieval"))
    parser.add_argument(
        "--set", action="append", default=[], help="settings of the retriever, as there"
    )
    parser.add_argument("--json", type=Path, help="file that the figures are added to")
    options = parser.parse_args()
    figures = {part: PARTS[part](options) for part in options.parts or PARTS}
    if options.json:
        old_figures = json.loads(options.json.read_bytes()) if options.json.exists() else {}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({**old_figures, **figures}, indent=1), encoding="utf-8")


def train_retriever(part: str, options: argparse.Namespace) -> dict[str, Any]:
    """prep and retriever, as a user runs them."""
    run = ("--run", options.work / part, "--json")
    prep_options = "--model smollm2-135m --protocol hermes --test .3 --dev .05 --max-length 32768"
    prep_options += f" --max-rejects 1 --set prep.split_by=[{BY[part]}]"
    python("-m", "agentlite", "prep", f"bfcl:{CATEGORIES}", *prep_options.split(), *run)
    started = time.monotonic()
    sets = [word for setting in options.set for word in ("--set", setting)]
    python("-m", "agentlite", "retriever", *sets, *run)
    done = json.loads((options.work / part / "retriever" / "done.json").read_bytes())
    seconds_here = round(time.monotonic() - started, 1)
    return {**done["figures"], "seconds": done["seconds"], "here": seconds_here}


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """On one core: reading tools into vectors, and finding five of 10,000 once a question is a
    vector.
    """
    import torch

    from agentlite.engine import sentence_encoder
    from agentlite.retrieval.rankers import bm25, top_entries
    from agentlite.workspace.lookup import find_encoder

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    pool, texts = many_tools(options.work)
    run = options.work / "query"
    source = find_encoder("retriever" if run.exists() else "all-minilm-l6-v2", run)
    model = sentence_encoder.load(source, 96)
    sentence_encoder.embed(model, texts[:8])
    tools_a_second = rate(lambda: sentence_encoder.embed(model, pool.texts[:ENCODED]), ENCODED)
    vectors = random_vectors(len(pool.tools), model.get_embedding_dimension())
    questions = random_vectors(QUESTIONS, vectors.shape[1])
    started = time.perf_counter()
    keyword_ranker = bm25(pool.texts)
    bm25_seconds = time.perf_counter() - started
    figures = {
        "tools": len(pool.tools),
        "names": len(pool.names),
        "encode_tools_a_second": tools_a_second,
        "bm25_tools_a_second": len(pool.tools) / bm25_seconds,
        "encode_question_ms": median_ms(lambda n: sentence_encoder.embed(model, texts[n : n + 1])),
        "search_ms": median_ms(lambda n: top_entries(questions[n : n + 1] @ vectors.T, pool, 5)),
        "bm25_ms": median_ms(lambda n: top_entries(keyword_ranker(texts[n : n + 1]), pool, 5)),
    }
    print(*(f"{name:24} {value:.4g}" for name, value in figures.items()), sep="\n")
    return figures


def many_tools(work: Path) -> tuple[Any, list[str]]:
    """BFCL's own, again and again under other names; and its questions."""
    from msgspec.structs import replace

    from agentlite.core.records import from_row
    from agentlite.core.row_files import read_rows
    from agentlite.retrieval.tool_pool import ToolPool, questions

    prep_folder = work / "query" / "prep"
    if not prep_folder.exists():
        sys.exit(f"{prep_folder}: run the part `query` first")
    records = [
        from_row(row)
        for split in ("train", "test")
        for row in read_rows(prep_folder / f"{split}.jsonl")
    ]
    tools = [tool for record in records for tool in record.tools]
    pool = ToolPool()
    number = 0
    while len(pool.tools) < TOOLS:
        tool = tools[number % len(tools)]
        pool.add(
            replace(tool, name=f"{tool.name}_{number // len(tools)}")
            if number >= len(tools)
            else tool
        )
        number += 1
    return pool, [questions(record)[0] for record in records[:QUESTIONS]]


def random_vectors(count: int, size: int) -> Any:
    import numpy

    vectors = numpy.random.default_rng(0).standard_normal((count, size)).astype("float32")
    return vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)


def rate(job: Any, count: int) -> float:
    started = time.perf_counter()
    job()
    return count / (time.perf_counter() - started)


def median_ms(job: Any) -> float:
    """Median milliseconds."""
    milliseconds = []
    for number in range(QUESTIONS):
        started = time.perf_counter()
        job(number)
        milliseconds.append(1000 * (time.perf_counter() - started))
    return median(milliseconds)


PARTS = {
    "query": lambda options: train_retriever("query", options),
    "tool": lambda options: train_retriever("tool", options),
    "speed": speed,
}

if __name__ == "__main__":
    main()
