"""The id of a record, or the place of a row -> where it came from, what was done to it, and where
it ended.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import Row, find_rows, read_rows
from agentlite.workspace import run_folder

MADE = ("joined", "made", "cut_from")  # what the meta of a record says of how it was made


def why(folder: Path, asked: str) -> list[Row]:
    """Every row of ways.jsonl that bears the id or the place, and rejects of that place; of one
    that was made, how, and the ways of those it was made of. Raises UserError if there is none.
    """
    run_folder.finished(folder, "prep")
    if not (folder / "ways.jsonl").exists():
        raise UserError(
            "has no ways.jsonl: an earlier version wrote it.",
            "Run prep again with --force.",
            location=str(folder),
        )
    found = [_with_joined(row, folder) for row in _found(folder, {asked})]
    for made in _made(folder, asked) if not any(row["id"] == asked for row in found) else ():
        found += [made, *_found(folder, {*made["of"]})]
    if not found:
        raise UserError(
            f"no record or row is called '{asked}'.",
            "Ids are in train.jsonl and ways.jsonl, places in rejects.jsonl, as FILE:LINE.",
            location=str(folder),
        )
    return found


def told(row: Row) -> str:
    """A way in a few lines."""
    lines = [
        f"{row['id'] or 'a row'}  from {row['place']}"
        + (f", read as {row['format']}" if row.get("format") else "")
    ]
    lines += [f"  {name}: {_plain(value)}" for name, value in row.get("done", {}).items()]
    end = f"  {row['end']}" + (f" in {row['split']}" if row.get("split") else "")
    end += f", joined with others into {row['joined_into']}" if "joined_into" in row else ""
    if code := row.get("code"):
        end += f": {code} {CODES[code].meaning if code in CODES else ''}" + (
            f" ({row['reason']})" if "reason" in row else ""
        )
    of = row.get("of", ())
    lines += [end, *(f"  see {other}" for other in ([of] if isinstance(of, str) else of))]
    return "\n".join(lines)


def _found(folder: Path, asked: set[str]) -> Iterator[Row]:
    for row in read_rows(folder / "ways.jsonl"):
        if asked & {row["id"], row["place"], row.get("done", {}).get("was")}:
            yield row
    for row in read_rows(folder / "rejects.jsonl"):
        if row["place"] in asked:
            yield {
                "id": "",
                "place": row["place"],
                "end": "rejected",
                "code": row["code"],
                "reason": row["reason"],
            }


def _with_joined(row: Row, folder: Path) -> Row:
    """A kept train record with the dialog that it is now a part of, if there is one."""
    if row["end"] != "kept" or row["split"] != "train":
        return row
    into = (
        one["id"]
        for one in read_rows(find_rows(folder, "train"))
        if row["id"] in json.loads(one["meta"]).get("joined", ())
    )
    found = next(into, None)
    return {**row, "joined_into": found} if found else row


def _made(folder: Path, asked: str) -> Iterator[Row]:
    """A record that was made of others: several in a dialog, a variant."""
    for split in SPLITS:
        for row in read_rows(find_rows(folder, split)):
            if row["id"] == asked:
                meta = json.loads(row["meta"])
                done = {name: meta[name] for name in MADE if name in meta}
                of: Sequence[str] = meta.get("joined") or [row["parent"]]
                yield {
                    "id": asked,
                    "place": "prep",
                    "done": done,
                    "end": "made",
                    "split": split,
                    "of": list(of),
                }


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
