"""Losses of records under a model, each computed once and kept across killed runs."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from agentlite.core.row_files import Appender, disk_errors


class Loss(Struct, frozen=True, forbid_unknown_fields=True):
    """A row of a losses file: nats a trained token, of a record."""

    id: str
    loss: float


Pass = Callable[[Sequence[str]], Iterable[tuple[str, float]]]


def losses_file(folder: Path, key: str) -> Path:
    """Where the losses under `key` are: the digest of the model, and of whatever else they depend
    on.
    """
    return folder / f"losses-{key}.jsonl"


def known_losses(path: Path) -> dict[str, float]:
    """What is in a losses file; a last line that was torn does not count."""
    if not path.exists():
        return {}
    *lines, _ = path.read_bytes().split(b"\n")
    rows = [msgspec.json.decode(line, type=Loss) for line in lines]
    return {row.id: row.loss for row in rows}


def all_losses(path: Path, ids: Sequence[str], forward: Pass) -> dict[str, float]:
    """The loss of every id. `forward` is handed the ids that the file lacks, and each loss is
    written as it comes.

    A loss that is not a number is handed on and not written.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with Appender(path) as file:
        found = known_losses(path)
        for record_id, loss in forward(
            [record_id for record_id in dict.fromkeys(ids) if record_id not in found]
        ):
            found[record_id] = loss
            if math.isfinite(loss):
                file.append(msgspec.to_builtins(Loss(record_id, loss)))
    return {record_id: found[record_id] for record_id in ids}
