"""finished prep and files of tools -> a retriever model and its index, evaluated."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.config.settings import RetrieverSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS, Record, from_row
from agentlite.core.row_files import Row, find_rows, read_rows, write_rows
from agentlite.engine import sentence_encoder
from agentlite.engine.trainer import check_trackers
from agentlite.report.retrieval_tables import best_in_words
from agentlite.retrieval import index, training_pairs
from agentlite.retrieval.queries import Query, queries, questions
from agentlite.retrieval.rankers import BY_WORDS, Ranker
from agentlite.retrieval.tool_pool import ToolFile, ToolPool, read_pool
from agentlite.retrieval.training_pairs import PAIRS
from agentlite.stages.frame import Figures, plan_of, run_stage
from agentlite.stages.retriever.evaluate import TUNED, UNTRAINED, Encoder, measure
from agentlite.stages.training import check_if_installed
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.model_source import MADE, Source, find_encoder, is_static
from agentlite.workspace.run_folder import Result, RunTarget, StageFolder

# epochs and learning rate of a static model, and of one with layers
BY_KIND = {True: (10.0, 2e-2), False: (1.0, 2e-4)}


class Work(NamedTuple):
    """The tools, the queries of each split, and the problems that were found while reading."""

    pool: ToolPool
    queries: Mapping[str, list[Query]]
    problems: list[Row]


def run(settings: RetrieverSettings, target: RunTarget) -> Result:
    """Trains, or carries on, builds the index and measures. Raises Stopped after a signal."""
    data = run_folder.find_stage(settings.data, target.run)
    prepared = run_folder.finished(data, "prep")
    source = find_encoder(settings.model, target.run, target.begun)
    epochs, rate = BY_KIND[is_static(source)]
    settings = replace(
        settings,
        num_epochs=settings.num_epochs or epochs,
        learning_rate=rate if settings.learning_rate is None else settings.learning_rate,
    )
    files = {f"tools {name}": file_digest(Path(name)) for name in settings.tools}
    digest = ",".join(
        value[:16] for name, value in prepared.outputs.items() if name.startswith(SPLITS)
    )
    inputs = {"data": digest, "model": source.digest, **files}
    plan = plan_of("retriever", settings, inputs)
    check_trackers(settings.report_to)
    chosen = shlex.quote(f"prep.retriever={target.out}")
    option = "" if target.out == "retriever" else f" --set {chosen}"
    return run_stage(
        plan,
        target,
        dry_run=lambda: _dry_run(settings, data),
        before_work=sentence_encoder.check_libraries,
        work=lambda stage: _fill(stage, settings, source, _read(settings, data)),
        keep=["checkpoints/checkpoint-*"],
        next_command=f"agentlite prep SOURCE... --out prep-5 --retrieve 5{option}",
    )


def key_figure(figures: Mapping[str, object]) -> str:
    return best_in_words(figures)


def _dry_run(settings: RetrieverSettings, data: Path) -> Figures:
    """Reads all, counts all, trains nothing."""
    from agentlite.engine import retriever

    if settings.trl and settings.max_steps != 0:
        check_if_installed("retriever", "hf", lambda: retriever.check(settings))
    work = _read(settings, data)
    problems = _report_problems(work.problems)
    pairs = sum(len(query.tool_indices) for query in work.queries["train"])
    trains = settings.max_steps != 0 and pairs > 0
    return {
        **_counts(work),
        "pairs": pairs,
        "steps": retriever.schedule(settings, pairs).steps if trains else 0,
        **({"problems": problems} if problems else {}),
    }


def _counts(work: Work) -> dict[str, int]:
    return {
        "tools": len(work.pool.entries),
        "names": len(work.pool.names),
        **{f"{split}_questions": len(of_split) for split, of_split in work.queries.items()},
    }


def _read(settings: RetrieverSettings, data: Path) -> Work:
    with console.waiting("retriever: reading the tools"):
        records = {
            split: [from_row(row) for row in read_rows(find_rows(data, split))] for split in SPLITS
        }
        read = read_pool(chain.from_iterable(records.values()), settings.tools)
        train = [*records["train"], *_new_examples(read, records)]
        by_split = {
            split: queries(train if split == "train" else records[split], read.pool)
            for split in SPLITS
        }
    lost = [
        {
            "location": f"record {query.step.record_id}",
            "code": "not in the pool",
            "problem": f"{name} is expected, but no record or file has it",
        }
        for query in chain.from_iterable(by_split.values())
        for name in query.names
        if name not in read.pool.names
    ]
    several = [
        {
            "location": name,
            "code": "several schemas",
            "problem": f"{count} tools of one name: each is kept",
        }
        for name, count in read.pool.versions.items()
    ]
    if settings.max_steps != 0 and not any(query.tool_indices for query in by_split["train"]):
        raise UserError(
            "no question in train needs a tool.",
            "Prepare dialogs with calls; or --max-steps 0, for an index by the model as it is.",
            location=str(data),
        )
    return Work(read.pool, by_split, [*read.problems, *lost, *several])


def _new_examples(read: ToolFile, records: Mapping[str, Sequence[Record]]) -> list[Record]:
    """The examples in files of tools, without those whose question is in dev or test too."""
    held_out = queries(chain(records["dev"], records["test"]), read.pool)
    held = {training_pairs.normal(query.text) for query in held_out}
    kept = [
        example
        for example in read.examples
        if held.isdisjoint(map(training_pairs.normal, questions(example)))
    ]
    if left := len(read.examples) - len(kept):
        problem = f"{left} examples ask what dev or test ask: not learned"
        read.problems.append({"location": "--tools", "code": "held out", "problem": problem})
    return kept


def _report_problems(problems: Sequence[Row]) -> dict[str, int]:
    """Prints one line for each kind, with its first location. Returns how many there are of each
    kind.
    """
    counts = Counter(problem["code"] for problem in problems)
    for code, count in counts.items():
        first = next(problem for problem in problems if problem["code"] == code)
        more = f"  [+{count - 1} more, see problems.jsonl]" if count > 1 else ""
        console.notice(f"{first['location']}: {code}: {first['problem']}{more}")
    return dict(counts)


def _fill(
    stage: StageFolder, settings: RetrieverSettings, source: Source, work: Work
) -> tuple[list[str], Figures]:
    stage.set_aside_changed(PAIRS)
    folder, problems = stage.folder, _report_problems(work.problems)
    write_rows(folder / "problems.jsonl", work.problems)
    counts = ", ".join(
        f"{len(of_split)} questions in {split}" for split, of_split in work.queries.items()
    )
    console.notice(
        f"retriever: {len(work.pool.entries)} tools under {len(work.pool.names)} names; {counts}"
    )
    trains = settings.max_steps != 0
    untrained, tuned = Encoder(source, settings, work.pool), None
    figures: dict[str, Any] = {}
    if trains:
        figures = _train(folder, settings, source, work, untrained)
        tuned = Encoder(Source(TUNED, str(folder / MADE), None, ""), settings, work.pool)
    outputs = index.write(index.ToolIndex(work.pool, (tuned or untrained).vectors), folder)
    figures |= _counts(work)
    figures |= {"problems": problems} if problems else {}
    figures |= measure(folder, settings, work.queries, untrained, tuned)
    if trains:
        model_files = (path for path in (folder / MADE).rglob("*") if path.is_file())
        outputs += sorted(path.relative_to(folder).as_posix() for path in model_files)
        outputs += [PAIRS, "metrics.jsonl"]
    outputs.append("problems.jsonl")
    if work.queries["test"]:
        outputs += ["metrics.json", "rankings.jsonl"]
    return outputs, figures


def _train(
    folder: Path, settings: RetrieverSettings, source: Source, work: Work, untrained: Encoder
) -> dict[str, object]:
    """The pairs are written once: a resumed run trains on the very same ones."""
    from agentlite.engine import retriever

    retriever.check(settings)
    path = folder / PAIRS
    if not path.exists():
        with console.waiting("retriever: looking for tools that look right"):
            rankers: dict[str, Ranker] = {}
            if settings.negatives:
                rankers = {"bm25": BY_WORDS["bm25"](work.pool.texts), UNTRAINED: untrained.ranker}
            rows = [
                {"split": split, **training_pairs.to_row(pair, work.pool)}
                for split in ("train", "dev")
                for pair in training_pairs.pairs(
                    work.queries[split], work.pool, rankers, settings.negatives, settings.seed
                )
            ]
        write_rows(path, rows)
    pairs: dict[str, list[training_pairs.TrainingPair]] = {"train": [], "dev": []}
    for row in read_rows(path):
        pairs[row["split"]].append(training_pairs.from_row(row))
    figures = retriever.train(source, settings, folder, work.pool, pairs["train"], pairs["dev"])
    return {"pairs": len(pairs["train"]), **figures}
