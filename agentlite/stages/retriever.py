"""finished prep and files of tools -> a retriever model and its index, evaluated.

At a size of the pool, a query is asked among its right tools and as many others as are missing: the
same others for every query.
"""

import random
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins

from agentlite.config.settings import RetrieverSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS, Step, from_row
from agentlite.core.row_files import Row, find_rows, read_rows, write_json, write_rows
from agentlite.engine import check_libraries, sentence_encoder
from agentlite.engine.trainer import check_trackers
from agentlite.report.retrieval_tables import best_in_words
from agentlite.retrieval import training_pairs
from agentlite.retrieval.rankers import Ranker, Scores, bm25, by_name, by_vectors, likeliest
from agentlite.retrieval.tool_pool import (
    Query,
    ToolIndex,
    ToolPool,
    queries,
    questions,
    read_pool,
    write_index,
)
from agentlite.retrieval.training_pairs import PAIRS, normal
from agentlite.scoring.metrics.confidence import paired_differences
from agentlite.scoring.metrics.ranking import QueryRanking, headline, summaries, value
from agentlite.stages.frame import Figures, Work, plan_of, run_stage
from agentlite.workspace import stage_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.model_source import MADE, Source, find_encoder
from agentlite.workspace.stage_folder import Result, RunTarget, StageFolder

TUNED, UNTRAINED = "tuned", "untrained"
SHOWN = 10  # tools per question in rankings.jsonl


class RetrieverData(NamedTuple):
    """The tools, the queries of each split, and the problems that were found while reading."""

    pool: ToolPool
    queries: Mapping[str, list[Query]]
    problems: list[Row]

    @property
    def counts(self) -> Figures:
        problems = dict(Counter(problem["code"] for problem in self.problems))
        return {
            "tools": len(self.pool.tools),
            "names": len(self.pool.names),
            **{f"{split}_questions": len(queries) for split, queries in self.queries.items()},
            **({"problems": problems} if problems else {}),
        }


class PoolEncoder:
    """A model and its vectors of the pool, both loaded when they are first needed."""

    def __init__(self, source: Source, max_length: int, pool: ToolPool):
        self.source, self.max_length, self.pool = source, max_length, pool

    @cached_property
    def model(self) -> Any:
        return sentence_encoder.load(self.source, self.max_length)

    @cached_property
    def vectors(self) -> Scores:
        model, texts = self.model, self.pool.texts
        with console.waiting(f"{self.source.name}: reading {len(texts)} tools"):
            return sentence_encoder.embed(model, texts)

    def embed(self, texts: Sequence[str]) -> Scores:
        return sentence_encoder.embed(self.model, texts)

    @property
    def ranker(self) -> Ranker:
        return by_vectors(self.vectors, self.embed)


def run(settings: RetrieverSettings, target: RunTarget) -> Result:
    """Trains, or carries on, builds the index and measures. Raises Stopped after a signal."""
    prep = stage_folder.find_finished(settings.data, target.run, "prep")
    source = find_encoder(settings.model, target.run, target.begun)
    files = {f"tools {name}": file_digest(Path(name)) for name in settings.tools}
    digest = ",".join(value[:16] for name, value in prep.outputs.items() if name.startswith(SPLITS))
    inputs = {"data": digest, "model": source.digest, **files}
    plan = plan_of("retriever", settings, inputs)
    check_trackers(settings.report_to)
    trains = settings.max_steps != 0

    def work() -> Work:
        from agentlite.engine import retriever

        if settings.trl and trains and target.dry_run:
            check_libraries("hf")
            retriever.check(settings)
        data = _read(prep.folder, settings.tools, trains)
        _report_problems(data.problems)
        pairs = sum(len(query.tool_indices) for query in data.queries["train"])
        stage = yield {
            **data.counts,
            "pairs": pairs,
            "steps": retriever.schedule(settings, pairs).steps if trains and pairs else 0,
        }
        return _fill(stage, settings, source, data)

    chosen = shlex.quote(f"prep.retriever={target.out}")
    option = "" if target.out == "retriever" else f" --set {chosen}"
    return run_stage(
        plan,
        target,
        work(),
        before_work=sentence_encoder.check_libraries,
        keep=["checkpoints/checkpoint-*"],
        next_command=f"agentlite prep SOURCE... --out prep-5 --retrieve 5{option}",
    )


def key_figure(figures: Mapping[str, object]) -> str:
    return best_in_words(figures)


def _read(data: Path, files: Sequence[str], trains: bool) -> RetrieverData:
    """All tools, and the questions of each split; of train with the examples in files of tools,
    but without those whose question is in dev or test too.
    """
    with console.waiting("retriever: reading the tools"):
        records = {
            split: [from_row(row) for row in read_rows(find_rows(data, split))] for split in SPLITS
        }
        read = read_pool(chain.from_iterable(records.values()), files)
        by_split = {split: queries(records[split], read.pool) for split in SPLITS}
        held_out = {normal(query.text) for query in (*by_split["dev"], *by_split["test"])}
        examples = [
            example
            for example in read.examples
            if held_out.isdisjoint(map(normal, questions(example)))
        ]
        by_split["train"] += queries(examples, read.pool)
    problems = [*read.problems]
    if left := len(read.examples) - len(examples):
        problem = f"{left} examples ask what dev or test ask: not learned"
        problems.append({"location": "--tools", "code": "held out", "problem": problem})
    if trains and not any(query.tool_indices for query in by_split["train"]):
        raise UserError(
            "no question in train needs a tool.",
            "Prepare dialogs with calls; or --max-steps 0, for an index by the model as it is.",
            location=str(data),
        )
    return RetrieverData(read.pool, by_split, problems)


def _report_problems(problems: Sequence[Row]) -> None:
    """Prints one line for each kind, with its first location."""
    counts = Counter(problem["code"] for problem in problems)
    for code, count in counts.items():
        first = next(problem for problem in problems if problem["code"] == code)
        more = f"  [+{count - 1} more, see problems.jsonl]" if count > 1 else ""
        console.notice(f"{first['location']}: {code}: {first['problem']}{more}")


def _fill(
    stage: StageFolder, settings: RetrieverSettings, source: Source, data: RetrieverData
) -> tuple[list[str], Figures]:
    stage.set_aside_changed(PAIRS)
    folder = stage.folder
    write_rows(folder / "problems.jsonl", data.problems)
    counts = ", ".join(
        f"{len(of_split)} questions in {split}" for split, of_split in data.queries.items()
    )
    console.notice(
        f"retriever: {len(data.pool.tools)} tools under {len(data.pool.names)} names; {counts}"
    )
    trains = settings.max_steps != 0
    untrained, tuned = PoolEncoder(source, settings.max_length, data.pool), None
    figures: dict[str, Any] = {}
    if trains:
        figures = _train(folder, settings, source, data, untrained)
        made = Source(TUNED, str(folder / MADE), None, "")
        tuned = PoolEncoder(made, settings.max_length, data.pool)
    outputs = write_index(ToolIndex(data.pool, (tuned or untrained).vectors), folder)
    figures |= data.counts
    figures |= measure(folder, settings, data.queries, untrained, tuned)
    if trains:
        model_files = (path for path in (folder / MADE).rglob("*") if path.is_file())
        outputs += sorted(path.relative_to(folder).as_posix() for path in model_files)
        outputs += [PAIRS, "metrics.jsonl"]
    outputs.append("problems.jsonl")
    if data.queries["test"]:
        outputs += ["metrics.json", "rankings.jsonl"]
    return outputs, figures


def _train(
    folder: Path,
    settings: RetrieverSettings,
    source: Source,
    data: RetrieverData,
    untrained: PoolEncoder,
) -> dict[str, object]:
    """The pairs are written once: a resumed run trains on the very same ones."""
    from agentlite.engine import retriever

    retriever.check(settings)
    path = folder / PAIRS
    if not path.exists():
        with console.waiting("retriever: looking for tools that look right"):
            rankers: dict[str, Ranker] = {}
            if settings.negatives:
                rankers = {"bm25": bm25(data.pool.texts), UNTRAINED: untrained.ranker}
            rows = [
                {"split": split, **training_pairs.to_row(pair, data.pool)}
                for split in ("train", "dev")
                for pair in training_pairs.pairs(
                    data.queries[split], data.pool, rankers, settings.negatives, settings.seed
                )
            ]
        write_rows(path, rows)
    pairs: dict[str, list[training_pairs.TrainingPair]] = {"train": [], "dev": []}
    for row in read_rows(path):
        pairs[row["split"]].append(training_pairs.from_row(row))
    figures = retriever.train(source, settings, folder, data.pool, pairs["train"], pairs["dev"])
    return {"pairs": len(pairs["train"]), **figures}


# --- Every ranking method, measured ---


class QueryRanks(NamedTuple):
    """The ranks of each query's right tools by method, at a size of the pool."""

    size: int
    by_method: dict[str, list[QueryRanking]]


def measure(
    folder: Path,
    settings: RetrieverSettings,
    by_split: Mapping[str, Sequence[Query]],
    untrained: PoolEncoder,
    tuned: PoolEncoder | None,
) -> dict[str, Any]:
    """Every ranking method on the questions of test: writes metrics.json and rankings.jsonl.
    Returns the key figures; none where test has no question.
    """
    queries, pool, seed = by_split["test"], untrained.pool, settings.seed
    if not queries:
        console.notice(
            "retriever: no question in test needs a tool: nothing is measured. Prepare with --test "
            "0.2"
        )
        return {}
    known = {name for query in by_split["train"] for name in query.names}
    rankers = {"bm25": bm25(pool.texts), UNTRAINED: untrained.ranker}
    if tuned:
        rankers[TUNED] = tuned.ranker
    best = TUNED if tuned else UNTRAINED
    with console.waiting(
        f"retriever: ranking {len(pool.tools)} tools for {len(queries)} questions"
    ):
        texts = [query.text for query in queries]
        entries = {name: ranker(texts) for name, ranker in rankers.items()}
        scores = {
            name: by_name(table, pool.owners, len(pool.names)) for name, table in entries.items()
        }
        by_size = list(ranks(queries, pool, scores, settings.sizes, seed))
    with console.waiting("retriever: measuring"):
        measured = figures(queries, by_size, settings.top, known, seed)
        shown = headline(measured["all"][str(by_size[0].size)][best])
        gains = differences(queries, by_size, shown[0], best, seed)
    methods = [*by_size[0].by_method]
    write_json(
        folder / "metrics.json", {"methods": methods, "ranking": measured, "differences": gains}
    )
    ranked = zip(queries, by_size[-1].by_method[best], entries[best], strict=True)
    rankings = [
        {
            **query.step._asdict(),
            "question": query.text,
            "right": query.names,
            "ranks": ranking.ranks,
            "retrieved": [pool.tools[entry].name for entry in likeliest(row[None], pool, SHOWN)],
        }
        for query, ranking, row in ranked
    ]
    write_rows(folder / "rankings.jsonl", rankings)
    return {"ranking": _short(measured, shown), "differences": gains}


def ranks(
    queries: Sequence[Query],
    pool: ToolPool,
    scores: Mapping[str, Scores],
    sizes: Sequence[int],
    seed: int,
) -> Iterator[QueryRanks]:
    """`scores`: of each name, by method. Sizes beyond the pool are the pool."""
    import numpy

    others = list(range(len(pool.names)))
    random.Random(seed).shuffle(others)
    for size in sorted({min(size, len(others)) for size in (*sizes, len(others))}):
        by_method: dict[str, list[QueryRanking]] = {name: [] for name in scores}
        for number, query in enumerate(queries):
            # the columns that the query is asked among, the right ones first
            right = [pool.names[name] for name in query.names if name in pool.names]
            wrong = (place for place in others if place not in right)
            here = [*right, *islice(wrong, max(0, size - len(right)))]
            for name, table in scores.items():
                row = table[number][here]
                # a tie counts against the right tools
                rest = numpy.sort(row[len(right) :])
                best = numpy.sort(row[: len(right)])[::-1]
                above = len(rest) - numpy.searchsorted(rest, best, side="left")
                ranked = tuple(int(count) + rank for rank, count in enumerate(above, 1))
                by_method[name].append(QueryRanking(ranked, len(query.names)))
        yield QueryRanks(size, by_method)


def figures(
    queries: Sequence[Query],
    by_size: Sequence[QueryRanks],
    ks: Sequence[int],
    known: set[str],
    seed: int,
) -> dict[str, Any]:
    """By view, size and method: every metric. `known`: names that were right somewhere in
    training.
    """
    return {
        view: {
            str(size): {
                method: to_builtins(summaries([ranked[place] for place in places], ks, seed))
                for method, ranked in by_method.items()
            }
            for size, by_method in by_size
        }
        for view, places in _views(queries, known).items()
    }


def differences(
    queries: Sequence[Query],
    by_size: Sequence[QueryRanks],
    metric: str,
    second: str,
    seed: int,
) -> list[dict[str, object]]:
    """What `second` has over every other method, on the same queries, whole records drawn again."""
    compared: list[dict[str, object]] = []
    values: list[tuple[dict[Step, float], dict[Step, float]]] = []
    steps = [query.step for query in queries]
    for size, by_method in by_size:
        own = {
            method: {step: value(one, metric) for step, one in zip(steps, ranked, strict=True)}
            for method, ranked in by_method.items()
        }
        for first in own:
            if first != second:
                compared.append({"tools": size, "metric": metric, "first": first, "second": second})
                values.append((own[first], own[second]))
    return [
        {**names, **to_builtins(difference)}
        for names, difference in zip(compared, paired_differences(values, seed), strict=True)
    ]


def _views(queries: Sequence[Query], known: set[str]) -> dict[str, list[int]]:
    """Which queries count: all; those whose right tools were never right in training; those where
    some was; those of a task. Without the views that have none.
    """
    new = [known.isdisjoint(query.names) for query in queries]
    views = {
        "all": [True] * len(new),
        "new tools": new,
        "known tools": [not is_new for is_new in new],
        "tool_retrieval": [query.task == "tool_retrieval" for query in queries],
    }
    return {
        view: [place for place, counts in enumerate(counted) if counts]
        for view, counted in views.items()
        if any(counted)
    }


def _short(figures: Mapping[str, Any], shown: Sequence[str]) -> dict[str, object]:
    """The key figures of each method; metrics.json has the rest."""
    return {
        view: {
            size: {
                method: {
                    name: {key: one[name][key] for key in ("mean", "low", "high", "count")}
                    for name in shown
                }
                for method, one in methods.items()
            }
            for size, methods in sizes.items()
        }
        for view, sizes in figures.items()
    }
