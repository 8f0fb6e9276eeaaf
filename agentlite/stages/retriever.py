"""finished prep and files of tools -> a retriever model and its index, evaluated.

At a size of the pool, a query is asked among its right tools and as many others as are missing: the
same others for every query.
"""

import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import convert, to_builtins

from agentlite.config.settings import RetrieverSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS, from_row
from agentlite.core.row_files import Row, read_rows, row_file, write_json, write_rows
from agentlite.data.curation.traits import normalize
from agentlite.engine import check_libraries, retriever, sentence_encoder
from agentlite.engine.trainer import check_trackers
from agentlite.retrieval.rankers import Ranker, Scores, bm25, scores_by_name, top_entries
from agentlite.retrieval.tool_pool import (
    Query,
    ToolPool,
    queries,
    questions,
    read_pool,
    write_index,
)
from agentlite.retrieval.training_pairs import PAIRS, TrainingPair, find_pairs
from agentlite.scoring.metrics.confidence import paired_differences, summary
from agentlite.stages.frame import Figures, Work, plan_of, run_stage
from agentlite.workspace import lookup
from agentlite.workspace.input_files import file_digest
from agentlite.workspace.lookup import MODEL_FOLDER, Result, RunTarget, Source, find_encoder
from agentlite.workspace.stage_folder import StageFolder

SHOWN = 10  # tools per question in rankings.jsonl
MAIN_METRIC = "recall"
# by size of the pool and method: of each query the ranks of its right tools, from 1, rising
Ranks = dict[int, dict[str, list[tuple[int, ...]]]]
Values = dict[str, dict[str, list[float]]]  # of each query, by figure and method


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


def run(settings: RetrieverSettings, target: RunTarget) -> Result:
    """Trains, or carries on, builds the index and measures. Raises Stopped after a signal."""
    prep = lookup.find_finished_stage(settings.data, target.run, "prep")
    source = find_encoder(settings.model, target.run, target.old_plan)
    digest = ",".join(value[:16] for name, value in prep.outputs.items() if name.startswith(SPLITS))
    inputs = {"data": digest, "model": source.digest}
    inputs |= {f"tools {name}": file_digest(Path(name)) for name in settings.tools}
    plan = plan_of("retriever", settings, inputs)
    check_trackers(settings.report_to)
    trains = settings.max_steps != 0

    def work() -> Work:
        if settings.trl and trains and target.dry_run:
            check_libraries("hf")
            retriever.check(settings)
        data = _read_data(prep.folder, settings.tools, trains)
        first_of_code = {problem["code"]: problem for problem in reversed(data.problems)}
        for code, problem in first_of_code.items():
            count = data.counts["problems"][code]
            console.notice(f"{problem['location']}: {code}: {problem['problem']}  [1 of {count}]")
        pair_count = sum(len(query.tool_indices) for query in data.queries["train"])
        steps = retriever.schedule(settings, pair_count).steps if trains and pair_count else 0
        stage = yield {**data.counts, "pairs": pair_count, "steps": steps}
        return _fill_folder(stage, settings, source, data)

    setting = shlex.quote(f"prep.retriever={target.out}")
    option = "" if target.out == "retriever" else f" --set {setting}"
    return run_stage(
        plan,
        target,
        work(),
        before_work=sentence_encoder.check_libraries,
        keep=["checkpoints/checkpoint-*"],
        next_command=f"agentlite prep SOURCE... --out prep-5 --retrieve 5{option}",
    )


def key_figure(figures: Mapping[str, Any]) -> str:
    """The first metric of the best method, the last one, at the largest pool."""
    if "ranking" not in figures:
        return f"{figures['names']} tools"
    best = [*figures["ranking"]["all"].values()][-1]
    metric = [name for name in best if name.startswith(MAIN_METRIC)][-1]
    mean = f" {100 * best[metric]['mean']:.1f} % of"
    return f"{metric.replace(' of', mean)} tools"


def _read_data(data: Path, files: Sequence[str], trains: bool) -> RetrieverData:
    """All tools, and the questions of each split; of train with the examples in files of tools,
    but without those whose question is in dev or test too.
    """
    with console.waiting("retriever: reading the tools"):
        records = {
            split: [from_row(row) for row in read_rows(row_file(data, split))] for split in SPLITS
        }
        pool, examples, problems = read_pool(chain.from_iterable(records.values()), files)
        by_split = {split: queries(records[split], pool) for split in SPLITS}
        held_out = {normalize(query.text) for query in (*by_split["dev"], *by_split["test"])}
        kept_examples = [
            example
            for example in examples
            if held_out.isdisjoint(map(normalize, questions(example)))
        ]
        by_split["train"] += queries(kept_examples, pool)
    if count := len(examples) - len(kept_examples):
        problem = f"{count} examples ask what dev or test ask: not learned"
        problems.append({"location": "--tools", "code": "held out", "problem": problem})
    if trains and not any(query.tool_indices for query in by_split["train"]):
        raise UserError(
            "no question in train needs a tool.",
            "Prepare dialogs with calls; or --max-steps 0, for an index by the model as it is.",
            location=str(data),
        )
    return RetrieverData(pool, by_split, problems)


def _fill_folder(
    stage: StageFolder, settings: RetrieverSettings, source: Source, data: RetrieverData
) -> tuple[list[str], Figures]:
    stage.set_aside_changed(PAIRS)
    folder, pool = stage.folder, data.pool
    write_rows(folder / "problems.jsonl", data.problems)
    vectors, untrained = _encode(source, settings, pool)
    rankers = {"bm25": bm25(pool.texts), "untrained": untrained}  # these two find hard negatives
    figures: dict[str, Any] = {}
    outputs = ["problems.jsonl"]
    if settings.max_steps != 0:
        retriever.check(settings)
        train, dev = _training_pairs(folder / PAIRS, settings, data, [*rankers.values()])
        figures = {"pairs": len(train)}
        figures |= retriever.train(source, settings, folder, pool, train, dev)
        tuned = Source("tuned", str(folder / MODEL_FOLDER), None, "")
        vectors, rankers["tuned"] = _encode(tuned, settings, pool)
        model_files = (path for path in (folder / MODEL_FOLDER).rglob("*") if path.is_file())
        outputs += sorted(path.relative_to(folder).as_posix() for path in model_files)
        outputs += [PAIRS, "metrics.jsonl"]
    outputs += write_index(pool, vectors, folder)
    if data.queries["test"]:
        figures |= measure(folder, settings, data, rankers)
        outputs += ["metrics.json", "rankings.jsonl"]
    else:
        console.notice(
            "retriever: no question in test needs a tool: nothing is measured. Prepare with --test "
            "0.2"
        )
    return outputs, {**data.counts, **figures}


def _encode(source: Source, settings: RetrieverSettings, pool: ToolPool) -> tuple[Scores, Ranker]:
    """The vectors of the pool by a model, and its ranking: by the cosine."""
    model = sentence_encoder.load(source, settings.max_length)
    with console.waiting(f"{source.name}: reading {len(pool.tools)} tools"):
        vectors = sentence_encoder.embed(model, pool.texts)
    return vectors, lambda texts: sentence_encoder.embed(model, texts) @ vectors.T


def _training_pairs(
    path: Path, settings: RetrieverSettings, data: RetrieverData, rankers: Sequence[Ranker]
) -> tuple[list[TrainingPair], list[TrainingPair]]:
    """Those of train and dev. They are written once: a resumed run trains on the very same ones."""
    if not path.exists():
        count, seed = settings.negatives, settings.seed
        with console.waiting("retriever: looking for tools that look right"):
            rows = [
                {"split": split, **to_builtins(pair)}
                for split in ("train", "dev")
                for pair in find_pairs(
                    data.queries[split], data.pool, rankers if count else (), count, seed
                )
            ]
        write_rows(path, rows)
    stored = [*read_rows(path)]
    train, dev = (
        [convert(row, TrainingPair) for row in stored if row["split"] == split]
        for split in ("train", "dev")
    )
    return train, dev


# --- Every ranking method, measured ---


def measure(
    folder: Path, settings: RetrieverSettings, data: RetrieverData, rankers: Mapping[str, Ranker]
) -> dict[str, Any]:
    """Every ranking method, of which the last is the best, on the questions of test: recall at
    every size of the pool, the other metrics at the largest. Writes metrics.json and
    rankings.jsonl; returns the figures of the former.
    """
    queries, pool, best = data.queries["test"], data.pool, [*rankers][-1]
    texts = [query.text for query in queries]
    with console.waiting(f"retriever: ranking {len(pool.tools)} tools for {len(texts)} questions"):
        tool_scores = {name: ranker(texts) for name, ranker in rankers.items()}
        scores = {
            name: scores_by_name(rows, pool.name_indices, len(pool.names))
            for name, rows in tool_scores.items()
        }
        by_size = ranks(queries, pool, scores, settings.sizes, settings.seed)
    known_names = {name for query in data.queries["train"] for name in query.names}
    values = metric_values(queries, by_size, settings.top)
    with console.waiting("retriever: measuring"):
        figures = {
            "ranking": metric_table(queries, values, known_names, settings.seed),
            "differences": differences(queries, values, best, settings.seed),
        }
    write_json(folder / "metrics.json", figures)
    rankings = (
        {
            **query.step._asdict(),
            "question": query.text,
            "right": query.names,
            "ranks": query_ranks,
            "retrieved": [pool.tools[index].name for index in top_entries(row[None], pool, SHOWN)],
        }
        for query, query_ranks, row in zip(
            queries, [*by_size.values()][-1][best], tool_scores[best], strict=True
        )
    )
    write_rows(folder / "rankings.jsonl", rankings)
    return figures


def ranks(
    queries: Sequence[Query],
    pool: ToolPool,
    scores: Mapping[str, Scores],
    sizes: Sequence[int],
    seed: int,
) -> Ranks:
    """`scores`: by method, (queries, names). Sizes beyond the pool are the pool."""
    import numpy

    # one order for all queries: a larger size has the wrong tools of a smaller one, and more
    others = numpy.random.default_rng(seed).permutation(len(pool.names))
    by_size: Ranks = {}
    for size in sorted({min(size, len(others)) for size in (*sizes, len(others))}):
        by_size[size] = {name: [] for name in scores}
        for number, query in enumerate(queries):
            right = [pool.names[name] for name in query.names if name in pool.names]
            wrong = others[~numpy.isin(others, right)][: max(0, size - len(right))]
            for name, rows in scores.items():
                row = rows[number]
                # A tie counts against the right tools. The best stands behind the wrong ones that
                # score as much, the second also behind the best.
                above = [(row[wrong] >= score).sum() for score in sorted(row[right], reverse=True)]
                query_ranks = tuple(int(count) + rank for rank, count in enumerate(above, 1))
                by_size[size][name].append(query_ranks)
    return by_size


def metrics(ranks: Sequence[int], expected: int, k: int) -> dict[str, float]:
    """ToolRet's and SAGE's definitions. COMP@k: all right tools are among the first k. `expected`:
    how many there are, found or not.
    """
    within = [rank for rank in ranks if rank <= k]
    return {
        f"recall@{k}": len(within) / expected,
        f"comp@{k}": float(len(within) == expected),
        f"ndcg@{k}": _gain(within) / _gain(range(1, min(expected, k) + 1)),
        "mrr": 1 / ranks[0] if ranks else 0.0,
        "map": sum(number / rank for number, rank in enumerate(ranks, 1)) / expected,
    }


def _gain(ranks: Iterable[int]) -> float:
    return sum(1 / log2(rank + 1) for rank in ranks)


def metric_values(queries: Sequence[Query], by_size: Ranks, k: int) -> Values:
    """Recall at every size of the pool, the other metrics at the largest."""
    values: Values = defaultdict(lambda: defaultdict(list))
    for size, by_method in by_size.items():
        for method, rankings in by_method.items():
            for query, query_ranks in zip(queries, rankings, strict=True):
                for name, value in metrics(query_ranks, len(query.names), k).items():
                    if name.startswith(MAIN_METRIC) or size == max(by_size):
                        values[f"{name} of {size}"][method].append(value)
    return values


def metric_table(
    queries: Sequence[Query], values: Values, known_names: Collection[str], seed: int
) -> dict[str, dict[str, dict[str, Any]]]:
    """By view, method and figure: of all questions, and of those whose tools were never right in
    training, where there are any. `known_names`: those that were right there.
    """
    new = [i for i, query in enumerate(queries) if not {*query.names} & {*known_names}]
    views = {"all": range(len(queries)), **({"new tools": new} if new else {})}
    return {
        view: {
            method: {
                figure: to_builtins(summary([by_method[method][i] for i in indices], seed))
                for figure, by_method in values.items()
            }
            for method in next(iter(values.values()))
        }
        for view, indices in views.items()
    }


def differences(
    queries: Sequence[Query], values: Values, best: str, seed: int
) -> list[dict[str, object]]:
    """The recall that `best` has over every other method, on the same queries, whole records drawn
    again.
    """
    steps = [query.step for query in queries]
    by_step = {
        figure: {name: dict(zip(steps, row, strict=True)) for name, row in by_method.items()}
        for figure, by_method in values.items()
        if figure.startswith(MAIN_METRIC)
    }
    others = [(figure, name) for figure in by_step for name in by_step[figure] if name != best]
    pairs = [(by_step[figure][name], by_step[figure][best]) for figure, name in others]
    return [
        {"metric": figure, "first": name, "second": best, **to_builtins(difference)}
        for (figure, name), difference in zip(others, paired_differences(pairs, seed), strict=True)
    ]
