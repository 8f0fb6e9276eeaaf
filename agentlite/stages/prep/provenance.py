"""The id or location of a row -> where it came from, what was done to it, and where it ended."""

import json
from collections.abc import Iterator, Sequence
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
    matches = [_with_joined(row, folder) for row in _matches(folder, {query})]
    if not any(row["id"] == query for row in matches):
        for made in _made(folder, query):
            matches += [made, *_matches(folder, {*made["of"]})]
    if not matches:
        raise UserError(
            f"no record or row is called '{query}'.",
            "Ids are in train.jsonl and provenance.jsonl, places in rejects.jsonl, as FILE:LINE.",
            location=str(folder),
        )
    return _with_measures(matches, folder)


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


def _matches(folder: Path, queries: set[str]) -> Iterator[Row]:
    for row in read_rows(folder / "provenance.jsonl"):
        if queries & {row["id"], row["location"], row.get("done", {}).get("was")}:
            yield row
    for row in read_rows(folder / "rejects.jsonl"):
        if row["location"] in queries:
            yield {
                "id": "",
                "location": row["location"],
                "end": "rejected",
                "code": row["code"],
                "reason": row["reason"],
            }


def _with_measures(rows: Sequence[Row], folder: Path) -> list[Row]:
    ids = {row["id"] for row in rows}
    measures = {
        row["id"]: {key: value for key, value in row.items() if key not in ("id", "split")}
        for row in read_rows(folder / "measures.jsonl")
        if row["id"] in ids
    }
    return [
        {**row, "measures": measures[row["id"]]} if row["id"] in measures else row for row in rows
    ]


def _with_joined(row: Row, folder: Path) -> Row:
    """A kept train record with the dialog that it is now a part of, if there is one."""
    if row["end"] != "kept" or row["split"] != "train":
        return row
    for dialog in read_rows(find_rows(folder, "train")):
        if row["id"] in json.loads(dialog["meta"]).get("joined", ()):
            return {**row, "joined_into": dialog["id"]}
    return row


def _made(folder: Path, record_id: str) -> Iterator[Row]:
    """A record that was made of others: several in a dialog, or a variant."""
    for split in SPLITS:
        for row in read_rows(find_rows(folder, split)):
            if row["id"] == record_id:
                meta = json.loads(row["meta"])
                done = {name: meta[name] for name in MADE if name in meta}
                of: Sequence[str] = meta.get("joined") or [row["parent"]]
                yield {
                    "id": record_id,
                    "location": "prep",
                    "done": done,
                    "end": "made",
                    "split": split,
                    "of": list(of),
                }


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
