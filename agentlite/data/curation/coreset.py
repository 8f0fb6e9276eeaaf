"""Chooses what to train on: hard or diverse records (a coreset), and some of earlier runs (replay).

A replay buffer's folder holds the rows that each run left, in a file NUMBER-KEY-DIGEST.jsonl. The
key of a run is the digest of what it was asked and given: the same run again draws from the file
before its own, and adds nothing.
"""

import hashlib
import math
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from operator import add
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from agentlite.core.errors import LOCKED, UserError
from agentlite.core.records import Record, digest, from_row
from agentlite.core.row_files import Row, disk_errors, json_line, read_rows, replacing
from agentlite.data.curation.mix import scale_counts
from agentlite.data.curation.traits import dialog_text
from agentlite.data.formats.format import stated_value

# the share of a coreset that is chosen by loss; the rest is chosen by diversity
BY_LOSS = {"loss_topk": 1.0, "diversity": 0.0, "hybrid": 0.6}
FEATURES = 1 << 18
CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
TOKEN = re.compile(f"[{CJK}]+|[^\\W{CJK}]+")
LONG, HARDEST = 512, 5.0
BUFFER_FILE = re.compile(r"[0-9]{4,}-[0-9a-f]{16}-[0-9a-f]{64}[.]jsonl")


class Wording(NamedTuple):
    """`proxy_loss`: how hard a dialog looks without a model: the `loss` of its row or of the row's
    metadata; or, from 0 to 5, its tokens / 512 + their entropy in nats / 5.
    `lexical_diversity`: different tokens / tokens, which falls with the length; 0 without tokens.
    """

    proxy_loss: float
    lexical_diversity: float


def coreset(
    ids: Mapping[int, str],
    *,
    strategy: str,
    target: int,
    seed: int,
    loss: Callable[[int], float],
    text: Callable[[int], str],
    stratum_of: Callable[[int], str] = lambda index: "",
) -> tuple[list[int], dict[str, int]]:
    """Chooses `target` of the records, all if there are no more: their indices, ascending, and how
    many were chosen by what. `ids`, `loss`, `text`: of an index; every stratum keeps its share, and
    `stratum_of` names that of an index.
    """
    if target >= len(ids):
        return sorted(ids), {"all": len(ids)}
    # in the order of a seeded hash, which settles every tie: the order of the files never does
    pools: dict[str, list[int]] = {}
    for index in sorted(ids, key=lambda index: digest(f"{seed} coreset {ids[index]}")):
        pools.setdefault(stratum_of(index), []).append(index)
    sizes = scale_counts({name: len(pool) for name, pool in pools.items()}, target)
    chosen: list[int] = []
    counts: Counter[str] = Counter()
    for name, pool in pools.items():
        size = sizes[name]
        if strategy == "random":
            chosen += pool[:size]
            counts["random"] += size
            continue
        positions: list[int] = []  # in the pool
        hard_count = round(BY_LOSS[strategy] * size)
        if BY_LOSS[strategy] > 0:
            # sorted() is stable: of equal losses the first in the pool wins
            positions = sorted(range(len(pool)), key=lambda at: -loss(pool[at]))[:hard_count]
            counts["loss"] += hard_count
        if BY_LOSS[strategy] < 1:
            positions += farthest_texts(map(text, pool), size - hard_count, positions)
            counts["diversity"] += size - hard_count
        chosen += [pool[position] for position in positions]
    return sorted(chosen), dict(counts)


def farthest_texts(texts: Iterable[str], target: int, chosen: Sequence[int]) -> list[int]:
    """k-center greedy: again and again the text whose nearest among the chosen is farthest, by
    cosine. Texts are named by their index; of equals, the first is taken.

    A text is a unit vector of hashed tokens, each 1 + log of its count, rare ones weighted up.
    """
    import numpy

    # the entries of a sparse matrix; those of a text begin at its start
    starts, columns, entries = [0], array("i"), array("i")
    for text in texts:
        counts = Counter(
            zlib.crc32(token.encode("utf-8", "surrogatepass")) % FEATURES for token in tokens(text)
        )
        # a text without tokens has one of its own: it is like the others without alone
        for column, count in sorted((counts or Counter({0: 1})).items()):
            columns.append(column)
            entries.append(count)
        starts.append(len(columns))
    size = len(starts) - 1
    # of each entry: the index of its text, and its token, numbered without gaps; `spread`: in how
    # many texts each token stands
    owners = numpy.repeat(numpy.arange(size), numpy.diff(starts))
    _, features, spread = numpy.unique(columns, return_inverse=True, return_counts=True)
    rarity = 1 + numpy.log((1 + size) / (1 + spread))
    weights = (1 + numpy.log(entries)) * rarity[features]
    # unit length: each entry by the root of the sum of squares of its text
    weights /= numpy.sqrt(numpy.bincount(owners, weights**2, minlength=size))[owners]
    # by token, so that a cosine reads only the texts that share one
    by_feature = numpy.argsort(features, kind="stable")
    sorted_owners, sorted_weights = owners[by_feature], weights[by_feature]
    ends = numpy.cumsum(spread)
    # By text: the cosine to the nearest of the chosen. At -inf none is chosen yet, and argmin
    # takes the first text; at inf it is chosen itself, and never taken again.
    nearest_cosines = numpy.full(size, -numpy.inf)

    def choose(index: int) -> None:
        own = slice(starts[index], starts[index + 1])
        slices = [slice(ends[token] - spread[token], ends[token]) for token in features[own]]
        # the cosine of each text with this one: the products of the weights that they share, summed
        products = [sorted_weights[s] * w for s, w in zip(slices, weights[own], strict=True)]
        sharers = numpy.concatenate([sorted_owners[s] for s in slices])
        cosines = numpy.bincount(sharers, numpy.concatenate(products), minlength=size)
        numpy.maximum(nearest_cosines, cosines, out=nearest_cosines)
        nearest_cosines[index] = numpy.inf

    for index in chosen:
        choose(index)
    indices: list[int] = []
    for _ in range(target):
        indices.append(int(nearest_cosines.argmin()))
        choose(indices[-1])
    return indices


def wording(record: Record) -> Wording:
    """The figures of a record that need no model. A token is a word or two CJK characters."""
    counts = Counter(tokens(dialog_text(record)))
    total = counts.total()
    diversity = len(counts) / total if total else 0.0
    loss = stated_value(record.meta, "loss")
    if isinstance(loss, int | float) and not isinstance(loss, bool) and math.isfinite(loss):
        return Wording(float(loss), diversity)
    # tokens that stand equally often have equal terms: 40 that stand once are one term, times 40
    entropy = -sum(
        times * count / total * math.log(count / total)
        for count, times in sorted(Counter(counts.values()).items())
    )
    return Wording(min(HARDEST, total / LONG + entropy / 5), diversity)


def tokens(text: str) -> Iterator[str]:
    """Words without case; of a run of CJK characters, each two that are neighbours."""
    for run in TOKEN.findall(text.casefold()):
        if len(run) > 1 and "\u3040" <= run[0] <= "\ufaff":
            yield from map(add, run, run[1:])
        else:
            yield run


# --- replay ---


class BufferState(NamedTuple):
    """The buffer as a run finds it, or found it when it ran before: the file of rows of the run
    before it, and that which it left itself; "" where there is none.
    """

    folder: Path
    key: str
    previous_file: str
    own_file: str = ""


def find_buffer(folder: Path, key: str) -> BufferState:
    """What a run finds; reads no rows. A folder that is missing or empty is an empty buffer. Raises
    UserError for a folder that is not a buffer.
    """
    files = ["", *_files(folder)]
    own = next((file for file in files if f"-{key}-" in file), "")
    return BufferState(folder, key, files[files.index(own) - 1] if own else files[-1], own)


def buffer_rows(buffer: BufferState) -> list[Row]:
    """The rows that `find_buffer` found."""
    return list(read_rows(buffer.folder / buffer.previous_file)) if buffer.previous_file else []


def replay_rows(
    rows: Iterable[Row], barred: Container[str], count: int, *, ratio: float, seed: int, buffer: str
) -> list[Row]:
    """The buffer's rows to learn again beside `count` new ones: a share of `ratio` of those, one at
    least.

    `barred`: the ids that are not to be replayed: of the new records, and of whatever is held out.
    `buffer`: the name of its rows, so that each run draws others.
    """
    if ratio <= 0 or not count:
        return []
    replayable = [row for row in rows if row["id"] not in barred]
    replayable.sort(key=lambda row: digest(f"{seed} replay {buffer} {row['id']}"))
    return replayable[: max(1, math.floor(count * ratio))]


def add_to_buffer(buffer: BufferState, new: Iterable[Row], *, capacity: int, seed: int) -> int:
    """Puts the new train rows into the buffer; beyond `capacity` the hybrid coreset of old and new
    stays. For a run that was added before nothing changes. Returns the number of rows.

    Raises UserError if another run has changed the buffer since it was found.
    """
    folder = buffer.folder
    if buffer.own_file:
        return sum(1 for _ in read_rows(folder / buffer.own_file))
    by_id = {row["id"]: row for row in (*new, *buffer_rows(buffer))}
    rows = [by_id[record_id] for record_id in sorted(by_id)]  # whatever the order they came in
    records = [from_row(row) for row in rows]
    chosen, _ = coreset(
        dict(enumerate(sorted(by_id))),
        strategy="hybrid",
        target=capacity,
        seed=seed,
        loss=lambda index: wording(records[index]).proxy_loss,
        text=lambda index: dialog_text(records[index]),
    )
    content = b"".join(json_line(rows[index]) for index in chosen)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        files = _files(folder)
        if buffer.previous_file != (files[-1] if files else ""):
            raise UserError(
                "was changed by another run since it was read.",
                "Run the same command again.",
                location=str(folder),
                exit_code=LOCKED,
            )
        name = f"{len(files) + 1:04}-{buffer.key}-{hashlib.sha256(content).hexdigest()}.jsonl"
        with replacing(folder / name) as file:
            file.write(content)
    return len(chosen)


def _files(folder: Path) -> list[str]:
    """The rows that each run left, in the order of the runs."""
    names = sorted(file.name for file in folder.glob("[!.]*"))
    strangers = [name for name in names if not BUFFER_FILE.fullmatch(name)]
    if strangers or folder.is_file():
        problem = f"it holds {strangers[0]}" if strangers else "it is a file"
        raise UserError(
            f"is not a buffer: {problem}.",
            "Give another --replay FOLDER, or remove this one: it is filled anew, and nothing is "
            "replayed the first time.",
            location=f"--replay {folder}",
        )
    return names
