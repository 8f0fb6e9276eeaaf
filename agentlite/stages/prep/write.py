"""What prep read and selected -> its files: records by split, provenance, measures, stats."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from agentlite.core import console
from agentlite.core.records import SPLITS, Record, from_row, to_row, wire_message
from agentlite.core.row_files import Row, read_rows, row_file, write_json, write_rows
from agentlite.data.augment import augment, has_augmentation
from agentlite.data.curation.coreset import add_to_buffer
from agentlite.data.curation.traits import Traits, traits
from agentlite.data.ingest import ENDS, RecordSize, measure
from agentlite.rendering import encoding, mixture_of, renderer
from agentlite.stages.prep.select import NOT_IN_CORESET, Selection
from agentlite.workspace import lookup
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import find_model

QUANTILES = (0.5, 0.9, 0.99, 1.0)
MOST_CALLED = 10  # tools that stats.json counts
MOST_NAMED = 20  # tools with an invalid schema that stats.json names
Measures = list[tuple[Traits, RecordSize]]  # of the records in the file of a split
OUTPUTS = ("provenance.jsonl", "measures.jsonl", "stats.json", "rejects.jsonl")
FIXES = {  # where test rows are rare, or one kind of train rows is
    "test": "eval can hardly measure these; raise --test, or add such rows",
    "call": "a model learns not to call",
    "no_call": "a model learns to call where nothing fits; --no-call-share .12 adds such rows",
}
FEW, RARE = 20, 0.08  # rows from which balance counts; the share below which a kind is rare


def write_all(folder: Path, selection: Selection) -> tuple[list[str], dict[str, Any]]:
    """Writes all files, and adds the train records to the buffer. Returns the names of the files,
    with that of the rejects, and the figures.
    """
    ingested = selection.ingested
    suffix = "parquet" if selection.settings.rows == "parquet" else "jsonl"
    files = {name: f"{name}.{suffix}" for name in SPLITS}
    with console.waiting(f"prep: writing {len(selection.kept)} records"):
        splits = {name: _write_split(name, folder / files[name], selection) for name in SPLITS}
    record_splits = {index: record.split for index, record in selection.kept.items()}
    provenance = ingested.provenance(selection.ends, record_splits, selection.repeats)
    origin = {"location": "the buffer", "format": "agentlite", "end": "kept", "split": "train"}
    replayed = ({"id": row["id"], **origin} for row in selection.replayed)
    write_rows(folder / "provenance.jsonl", chain(provenance, replayed))
    write_rows(folder / "measures.jsonl", _measures(selection, splits))
    figures = figures_of(selection, splits)
    for note in notes_on_balance(figures["balance"]):
        console.notice(f"prep: {note}")
        selection.notes.append(note)
    if selection.buffer:
        figures["buffer"] = add_to_buffer(
            selection.buffer,
            ingested.rows.read(selection.in_split("train")),
            capacity=selection.settings.continual_buffer_size,
            seed=selection.settings.seed,
        )
    write_json(folder / "stats.json", {**figures, "notes": selection.notes})
    return [*files.values(), *OUTPUTS], figures


def _write_split(split: str, file: Path, selection: Selection) -> Measures:
    ingested = selection.ingested
    indices = selection.in_split(split)
    replayed = selection.replayed if split == "train" else ()
    rows: Iterator[Row] = (
        {**row, "split": split} for row in chain(ingested.rows.read(indices), replayed)
    )
    # behind the others, as they are: no variants are made of a record a second time
    repeated = [index for index in indices for _ in range(1, selection.repeats.get(index, 1))]
    copies = ({**row, "split": split} for row in ingested.rows.read(repeated))
    measures = [(ingested.traits[index], ingested.sizes[index]) for index in indices]
    if split == "train" and (replayed or has_augmentation(selection.settings)):
        records, counts = augment([*map(from_row, rows)], selection.context)
        if counts:
            selection.figures["made"] = counts
        rows = map(to_row, records)
        measures = [(traits(record), measure(record, selection.context)) for record in records]
    write_rows(file, chain(rows, copies))
    return measures + [(ingested.traits[index], ingested.sizes[index]) for index in repeated]


def _measures(selection: Selection, splits: Mapping[str, Measures]) -> Iterator[Row]:
    """A row for each record in the files of the splits; and, without a split, for each that the
    coreset left out or that is now a part of another record. They stand in a file of their own: the
    records, which are inputs of other stages, do not change with the model that measures them.
    """
    ingested, written_ids = selection.ingested, set[str]()  # a repeated record has one row
    left_out = [index for index, end in selection.ends.items() if end.code == NOT_IN_CORESET]
    records = [(split, *pair) for split, measures in splits.items() for pair in measures]
    indices = sorted({*selection.kept, *left_out})
    records += [("", ingested.traits[index], ingested.sizes[index]) for index in indices]
    for split, record, size in records:
        if record.id not in written_ids:
            written_ids.add(record.id)
            yield {
                "id": record.id,
                **({"split": split} if split else {}),
                "tokens": size.tokens,
                "trained_tokens": size.trained,
                "longest_row": size.longest,
                "proxy_loss": round(size.wording.proxy_loss, 6),
                "lexical_diversity": round(size.wording.lexical_diversity, 6),
            }


# --- figures ---


def figures_of(
    selection: Selection, splits: Mapping[str, Measures] | None = None
) -> dict[str, Any]:
    """How the rows that were read ended, and why; and what is in the files of the splits, once they
    are written. Figures of what does not happen in every run are left out where it did not.
    """
    ingested, ends = selection.ingested, selection.ends
    by_file = ingested.by_file(ends)
    totals = {
        end: sum(counts[end] for counts in by_file.values()) for end in ("read", *ENDS.values())
    }
    assert totals["read"] == sum(totals[end] for end in ENDS.values()), totals
    events: dict[str, Any] = {
        "rejects": dict(Counter(reject.code for reject in ingested.rejects).most_common()),
        "left_out": dict(ingested.left_out(ends).most_common()),
        "cut": ingested.done["cut"].total(),
        "repaired": {method: len(rows) for method, rows in ingested.repairs.items()},
        "personal": dict(ingested.done["personal"] + ingested.done["masked"]),
        "retrieved": dict(ingested.done["retrieved"]),
        "for_tests": ingested.done["for_tests"].total(),
        "invalid_schemas": dict(ingested.done["invalid_schemas"].most_common(MOST_NAMED)),
        "undescribed": len(ingested.done["undescribed"]),
    }
    figures = {name: value for name, value in events.items() if value} | selection.figures
    if splits:
        figures = {**_counts(selection, splits["train"]), **figures}
        figures["balance"] = {name: _balance(measures) for name, measures in splits.items()}
        figures |= statistics([*chain.from_iterable(splits.values())])
    return {
        **totals,
        **figures,
        "by_file": {
            source: {"formats": dict(ingested.formats[source]), **counts}
            for source, counts in by_file.items()
        },
    }


def _counts(selection: Selection, train: Measures) -> dict[str, int]:
    """`new_tools`: how many test records call none of the tools that are called in training."""
    kept = selection.kept
    train_tools = {name for index in selection.in_split("train") for name in kept[index].tools}
    test_tools = [kept[index].tools for index in selection.in_split("test")]
    return {
        **{split: len(selection.in_split(split)) for split in SPLITS},
        "groups": selection.figures["groups"],
        "new_tools": sum(bool(names) and train_tools.isdisjoint(names) for names in test_tools),
        "train_rows": len(train),
        "trained_tokens": sum(size.trained for _, size in train),
    }


def _balance(measures: Measures) -> dict[str, int]:
    """How many records that offer tools call one, and how many call none."""
    calls = Counter(bool(size.called) for _, size in measures if size.offered)
    return {"call": calls[True], "no_call": calls[False]}


def notes_on_balance(balance: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Says where rows of one kind are rare: who learns only calls calls where nothing fits."""
    for split, counts in balance.items():
        total, rare = sum(counts.values()), min(counts, key=lambda kind: counts[kind])
        if split == "dev" or total < FEW or counts[rare] >= RARE * total:
            continue
        call = "one" if rare == "call" else "none"
        fix = FIXES["test" if split == "test" else rare]
        yield f"{counts[rare]} of {total} {split} rows with tools call {call}: {fix}"


def statistics(measures: Measures) -> dict[str, object]:
    """Counts, largest first; `length`: tokens of the longest row of a record, by quantile."""
    records, sizes = [record for record, _ in measures], [size for _, size in measures]
    called = Counter(name for size in sizes for name in size.called)
    tokens, trained = sum(size.tokens for size in sizes), sum(size.trained for size in sizes)
    return {
        "by_source": dict(Counter(record.source for record in records).most_common()),
        "by_task": dict(Counter(record.task for record in records).most_common()),
        "turns": quantiles([size.turns for size in sizes]),
        "length": quantiles([size.longest for size in sizes]),
        "longest_answer": max((size.longest_answer for size in sizes), default=0),
        "tokens": {
            "all": tokens,
            "trained": trained,
            "trained_share": round(trained / tokens, 4) if tokens else 0.0,
        },
        "tools": {
            "offered": len({name for size in sizes for name in size.offered}),
            "called": len(called),
            "calls": called.total(),
            "most_called": dict(called.most_common(MOST_CALLED)),
            "offered_at_once": quantiles([len(size.offered) for size in sizes]),
        },
    }


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """The smallest value that so many of the records do not exceed, to 4 decimals."""
    ordered = sorted(values)
    return {
        # -int(-x // 1) is x rounded up: the rank of the value, from 1
        f"{share:.0%}": round(ordered[max(0, -int(-share * len(ordered) // 1) - 1)], 4)
        for share in QUANTILES
        if ordered
    }


# --- a finished prep, for `--rows -` and `--show N` ---


def read_splits(folder: Path) -> Iterator[Row]:
    """The rows of all splits."""
    for split in SPLITS:
        yield from read_rows(row_file(folder, split))


def openai_row(record: Record) -> Row:
    """A record as OpenAI's API has it, {"messages", "tools"}; {"text"} of a plain text. `weight: 0`
    takes a turn out of training, as OpenAI's fine-tuning reads it: also one with calls whose
    arguments are not known, which are written as empty ones.
    """
    if record.is_text:
        return {"text": record.messages[0].content}
    messages = []
    for index, message in enumerate(record.messages):
        is_learned = message.loss and not record.unknown_arguments(index)
        is_left_out = message.role == "assistant" and not is_learned
        messages.append(wire_message(message) | ({"weight": 0} if is_left_out else {}))
    tools = {"tools": [tool.schema for tool in record.tools]} if record.tools else {}
    return {"messages": messages, **tools}


def render_first(folder: Path, count: int) -> Iterator[str]:
    """The first records as text, with trained tokens between ⟦ and ⟧; a heading before each."""
    plan = lookup.read_plan(folder)
    template = load_template(find_model(plan.settings["model"], folder.parent, plan).base)
    mixture = mixture_of(plan.settings["protocol"], template)
    for _, row in zip(range(count), read_splits(folder), strict=False):
        record = from_row(row)
        protocol = mixture.protocol_of(record)
        yield f"── {record.id}  {record.source}  {record.task}  {record.split}  {protocol.name}"
        for text in renderer.render(record, protocol, template):
            yield encoding.mark_trained(text, lambda piece: f"⟦{piece}⟧")
