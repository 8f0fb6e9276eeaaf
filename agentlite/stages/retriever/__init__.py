"""finished prep and files of tools -> a retriever model and its index, evaluated."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import RetrieverSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS, from_row
from agentlite.core.row_files import Row, find_rows, read_rows, write_rows
from agentlite.engine import check_libraries, sentence_encoder
from agentlite.engine.trainer import check_trackers
from agentlite.report.retrieval_tables import best_in_words
from agentlite.retrieval import training_pairs
from agentlite.retrieval.rankers import Ranker, bm25
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
from agentlite.stages.frame import Figures, Work, plan_of, run_stage
from agentlite.stages.retriever.evaluate import TUNED, UNTRAINED, PoolEncoder, measure
from agentlite.workspace import stage_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.model_source import MADE, Source, find_encoder
from agentlite.workspace.stage_folder import Result, RunTarget, StageFolder


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
