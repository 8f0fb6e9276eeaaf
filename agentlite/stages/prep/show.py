"""A finished prep -> its records for `--rows -` and `--show N`, and what `--why` says of a row."""

import json
from collections.abc import Iterator
from pathlib import Path

from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS, from_row
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import Row, find_rows, read_rows
from agentlite.rendering import encoding, mixture_of, renderer
from agentlite.workspace import run_folder
from agentlite.workspace.model_source import find_model, load_template

MADE = ("joined", "made", "cut_from")  # keys of a record's meta that say how it was made


def written_rows(folder: Path) -> Iterator[Row]:
    """The rows of all splits."""
    for split in SPLITS:
        yield from read_rows(find_rows(folder, split))


def rendered(folder: Path, count: int) -> Iterator[str]:
    """The first records as text, with trained tokens between ⟦ and ⟧; a heading before each."""
    plan = run_folder.read_plan(folder)
    template = load_template(find_model(plan.settings["model"], folder.parent, folder).base)
    mixture = mixture_of(plan.settings["protocol"], template)
    for _, row in zip(range(count), written_rows(folder), strict=False):
        record = from_row(row)
        protocol = mixture.of(record)
        yield f"── {record.id}  {record.source}  {record.task}  {record.split}  {protocol.name}"
        for text in renderer.render(record, protocol, template):
            yield encoding.show(text, lambda piece: f"⟦{piece}⟧")


def why(folder: Path, query: str) -> list[Row]:
    """Every row of provenance.jsonl with this id or location, and rejects of this location; of a
    record that was made of others, also their rows; each with its row of measures.jsonl, if it has
    one. Raises UserError if there is none.
    """
    run_folder.finished(folder, "prep")
    rows = _rows_read(folder, {query})
    trained = [row for row in rows if row.get("split") == "train"]
    for record in read_rows(find_rows(folder, "train")) if trained else ():
        joined = json.loads(record["meta"]).get("joined", ())
        for row in trained:
            if row["id"] in joined:
                row["joined_into"] = record["id"]
    if not any(row["id"] == query for row in rows):
        for record in written_rows(folder):
            if record["id"] == query:
                made = _made(record)
                rows += [made, *_rows_read(folder, {*made["of"]})]
    if not rows:
        raise UserError(
            f"no record or row is called '{query}'.",
            "Ids are in train.jsonl and provenance.jsonl, places in rejects.jsonl, as FILE:LINE.",
            location=str(folder),
        )
    for measured in read_rows(folder / "measures.jsonl"):
        for row in rows:
            if row["id"] == measured["id"]:
                row["measures"] = {
                    key: value for key, value in measured.items() if key not in ("id", "split")
                }
    return rows


def _rows_read(folder: Path, names: set[str]) -> list[Row]:
    """The rows that were read and have one of these ids or locations; rejects by their location."""
    rows = [
        row
        for row in read_rows(folder / "provenance.jsonl")
        if names & {row["id"], row["location"], row.get("done", {}).get("was")}
    ]
    for reject in read_rows(folder / "rejects.jsonl"):
        if reject["location"] in names:
            why = {"code": reject["code"], "reason": reject["reason"]}
            rows.append({"id": "", "location": reject["location"], "end": "rejected", **why})
    return rows


def _made(record: Row) -> Row:
    """The row of a record that was made of others: several in a dialog, or a variant."""
    meta = json.loads(record["meta"])
    return {
        "id": record["id"],
        "location": "prep",
        "done": {name: meta[name] for name in MADE if name in meta},
        "end": "made",
        "split": record["split"],
        "of": list(meta.get("joined") or [record["parent"]]),
    }


def as_text(row: Row) -> str:
    """A row of `why` in a few lines."""
    read_as = f", read as {row['format']}" if row.get("format") else ""
    lines = [f"{row['id'] or 'a row'}  from {row['location']}{read_as}"]
    lines += [f"  {name}: {_plain(value)}" for name, value in row.get("done", {}).items()]
    end = f"  {row['end']}" + (f" in {row['split']}" if row.get("split") else "")
    end += f", joined with others into {row['joined_into']}" if "joined_into" in row else ""
    if code := row.get("code"):
        end += f": {code} {CODES[code].meaning if code in CODES else ''}"
        end += f" ({row['reason']})" if "reason" in row else ""
    lines.append(end)
    if "measures" in row:
        lines.append(f"  {_plain(row['measures'])}")
    of = row.get("of", ())
    lines += [f"  see {other}" for other in ([of] if isinstance(of, str) else of)]
    return "\n".join(lines)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
