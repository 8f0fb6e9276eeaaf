"""The id or location of a row -> where it came from, what was done to it, and where it ended."""

import json
from pathlib import Path

from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import Row, find_rows, read_rows
from agentlite.workspace import run_folder

MADE = ("joined", "made", "cut_from")  # keys of a record's meta that say how it was made


def why(folder: Path, query: str) -> list[Row]:
    """Every row of provenance.jsonl with this id or location, and rejects of this location; of a
    record that was made of others, also their rows; each with its row of measures.jsonl, if it has
    one. Raises UserError if there is none.
    """
    run_folder.finished(folder, "prep")
    rows = _rows_read(folder, {query})
    parts = [row for row in rows if row["end"] == "kept" and row["split"] == "train"]
    for dialog in read_rows(find_rows(folder, "train")) if parts else ():
        joined = json.loads(dialog["meta"]).get("joined", ())
        for row in parts:
            if row["id"] in joined:
                row["joined_into"] = dialog["id"]
    if not any(row["id"] == query for row in rows):
        for split in SPLITS:
            for record in read_rows(find_rows(folder, split)):
                if record["id"] == query:
                    made = _made(record, split)
                    rows += [made, *_rows_read(folder, {*made["of"]})]
    if not rows:
        raise UserError(
            f"no record or row is called '{query}'.",
            "Ids are in train.jsonl and provenance.jsonl, places in rejects.jsonl, as FILE:LINE.",
            location=str(folder),
        )
    for measured in read_rows(folder / "measures.jsonl"):
        measures = {key: value for key, value in measured.items() if key not in ("id", "split")}
        for row in rows:
            if row["id"] == measured["id"]:
                row["measures"] = measures
    return rows


def as_text(row: Row) -> str:
    """A row of `why` in a few lines."""
    lines = [
        f"{row['id'] or 'a row'}  from {row['location']}"
        + (f", read as {row['format']}" if row.get("format") else "")
    ]
    lines += [f"  {name}: {_plain(value)}" for name, value in row.get("done", {}).items()]
    end = f"  {row['end']}" + (f" in {row['split']}" if row.get("split") else "")
    end += f", joined with others into {row['joined_into']}" if "joined_into" in row else ""
    if code := row.get("code"):
        end += f": {code} {CODES[code].meaning if code in CODES else ''}"
        end += f" ({row['reason']})" if "reason" in row else ""
    of = row.get("of", ())
    lines.append(end)
    if "measures" in row:
        lines.append(f"  {_plain(row['measures'])}")
    lines += [f"  see {other}" for other in ([of] if isinstance(of, str) else of)]
    return "\n".join(lines)


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


def _made(record: Row, split: str) -> Row:
    """The row of a record that was made of others: several in a dialog, or a variant."""
    meta = json.loads(record["meta"])
    return {
        "id": record["id"],
        "location": "prep",
        "done": {name: meta[name] for name in MADE if name in meta},
        "end": "made",
        "split": split,
        "of": list(meta.get("joined") or [record["parent"]]),
    }


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
