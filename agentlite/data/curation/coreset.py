"""Chooses what to train on: hard or diverse records (a coreset), and some of earlier runs (replay).

A replay buffer's folder holds `manifest.json` and the rows it names, in a file called by its
content. A run is known by its key, the digest of what it was asked and given: the same run again
draws from the rows that were there before it, and adds nothing. For that the rows before the last
run are kept beside those after it.
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
from typing import Any, Literal, NamedTuple

import msgspec
from filelock import FileLock
from msgspec import Struct

from agentlite.core.errors import LOCKED, UserError
from agentlite.core.records import Record, digest, from_row
from agentlite.core.row_files import Row, disk_errors, encode, replacing, write_json
from agentlite.data.curation.mix import scale_counts
from agentlite.data.curation.traits import dialog_text
from agentlite.data.formats.format import stated_value

# the share of a coreset that is chosen by loss; the rest is chosen by diversity
BY_LOSS = {"loss_topk": 1.0, "diversity": 0.0, "hybrid": 0.6}
FEATURES = 1 << 18
CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
TOKEN = re.compile(f"[{CJK}]+|[^\\W{CJK}]+")
LONG, HARDEST = 512, 5.0


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
    part: Callable[[int], str] = lambda index: "",
) -> tuple[list[int], dict[str, int]]:
    """Chooses `target` of the records, all if there are no more: their indices, ascending, and how
    many were chosen by what. `ids`, `loss`, `text`: of an index; every `part` keeps its share of
    the whole.
    """
    if target >= len(ids):
        return sorted(ids), {"all": len(ids)}
    # in the order of a seeded hash, which settles every tie: the order of the files never does
    pools: dict[str, list[int]] = {}
    for index in sorted(ids, key=lambda index: digest(f"{seed} coreset {ids[index]}")):
        pools.setdefault(part(index), []).append(index)
    sizes = scale_counts({name: len(pool) for name, pool in pools.items()}, target)
    chosen: list[int] = []
    counts: Counter[str] = Counter()
    for name, pool in pools.items():
        size = sizes[name]
        if strategy == "random":
            chosen += pool[:size]
            counts["random"] += size
            continue
        places: list[int] = []
        hard = round(BY_LOSS[strategy] * size)
        if BY_LOSS[strategy] > 0:
            # sorted() is stable: of equal losses the first in the pool wins
            places = sorted(range(len(pool)), key=lambda place: -loss(pool[place]))[:hard]
            counts["loss"] += hard
        if BY_LOSS[strategy] < 1:
            places += farthest(map(text, pool), size - hard, places)
            counts["diversity"] += size - hard
        chosen += [pool[place] for place in places]
    return sorted(chosen), dict(counts)


def farthest(texts: Iterable[str], target: int, chosen: Sequence[int]) -> list[int]:
    """k-center greedy: again and again the text whose nearest among the chosen is farthest, by
    cosine. Texts are named by their place; of equals, the first is taken.
    """
    import numpy

    vectors = Vectors(texts)
    # By place: the cosine to the nearest of the chosen. At -inf none is chosen yet, and argmin
    # takes the first place; at inf it is chosen itself, and never taken again.
    nearest = numpy.full(vectors.size, -numpy.inf)

    def take(place: int) -> None:
        numpy.maximum(nearest, vectors.cosines(place), out=nearest)
        nearest[place] = numpy.inf

    for place in chosen:
        take(place)
    taken: list[int] = []
    for _ in range(target):
        taken.append(int(nearest.argmin()))
        take(taken[-1])
    return taken


def wording(record: Record) -> Wording:
    """The figures of a record that need no model. A token is a word or two CJK characters."""
    counts = Counter(tokens(dialog_text(record)))
    total = counts.total()
    diversity = len(counts) / total if total else 0.0
    own = stated_value(record.meta, "loss")
    if isinstance(own, int | float) and not isinstance(own, bool) and math.isfinite(own):
        return Wording(float(own), diversity)
    entropy = -sum(
        tokens * count / total * math.log(count / total)
        for count, tokens in sorted(Counter(counts.values()).items())
    )
    return Wording(min(HARDEST, total / LONG + entropy / 5), diversity)


def tokens(text: str) -> Iterator[str]:
    """Words without case; of a run of CJK characters, each two that are neighbours."""
    for run in TOKEN.findall(text.casefold()):
        if len(run) > 1 and "\u3040" <= run[0] <= "\ufaff":
            yield from map(add, run, run[1:])
        else:
            yield run


class Vectors:
    """Texts as unit vectors of hashed tokens, each 1 + log of its count, rare ones weighted up.

    Kept by text and by token: a cosine with all others reads only the texts that share a token.
    """

    def __init__(self, texts: Iterable[str]):
        import numpy

        # The entries of a sparse matrix (texts, tokens), twice. By text: features and weights, from
        # starts[text] to starts[text + 1]. By token: owners (the texts) and shares (their weights),
        # from ends[feature - 1] to ends[feature].
        starts, features, entries = array("q", [0]), array("i"), array("i")
        for text in texts:
            counts = Counter(
                zlib.crc32(token.encode("utf-8", "surrogatepass")) % FEATURES
                for token in tokens(text)
            )
            # a text without tokens has one of its own: it is like the others without alone
            for feature, count in sorted((counts or Counter({0: 1})).items()):
                features.append(feature)
                entries.append(count)
            starts.append(len(features))
        self.starts, self.features = numpy.array(starts), numpy.array(features)
        self.size = len(self.starts) - 1
        owners = numpy.repeat(numpy.arange(self.size, dtype=numpy.int32), numpy.diff(self.starts))
        spread = numpy.bincount(self.features, minlength=FEATURES)
        rarity = 1 + numpy.log((1 + self.size) / (1 + spread))
        weights = (1 + numpy.log(numpy.array(entries))) * rarity[self.features]
        # unit length: each entry by the root of the sum of squares of its text
        weights /= numpy.sqrt(numpy.bincount(owners, weights**2, minlength=self.size))[owners]
        by_feature = numpy.argsort(self.features, kind="stable")
        self.weights = weights
        self.ends = numpy.cumsum(spread)
        self.owners, self.shares = owners[by_feature], weights[by_feature]

    def cosines(self, place: int) -> Any:
        """Of one text with every text: float64 of shape (texts,)."""
        import numpy

        own = slice(self.starts[place], self.starts[place + 1])
        # for each token of this text, the entries of all texts that have it
        entries = [
            slice(self.ends[feature - 1] if feature else 0, self.ends[feature])
            for feature in self.features[own]
        ]
        products = [
            self.shares[where] * weight
            for where, weight in zip(entries, self.weights[own], strict=True)
        ]
        owners = numpy.concatenate([self.owners[where] for where in entries])
        # the products of one text are added up; a text that shares no token has 0
        return numpy.bincount(owners, numpy.concatenate(products), minlength=self.size)


# --- replay ---


class ReplayRun(Struct, frozen=True, forbid_unknown_fields=True):
    """A run by its key, the digests of the rows before and after it ("" is the empty buffer), and
    how many were kept.
    """

    key: str
    before: str
    after: str
    rows: int


class BufferManifest(Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["agentlite replay 1"] = "agentlite replay 1"
    runs: tuple[ReplayRun, ...] = ()

    @property
    def rows(self) -> str:
        """The digest of the rows there are now."""
        return self.runs[-1].after if self.runs else ""


class BufferState(NamedTuple):
    """The buffer as a run finds it, or found it when it ran before. `rows`: their digest, an input
    of its plan. `done`: what this run did, if it ran before.
    """

    folder: Path
    key: str
    rows: str
    done: ReplayRun | None


def find_buffer(folder: Path, key: str) -> BufferState:
    """What a run finds; reads no rows. A folder that is missing or empty is an empty buffer. Raises
    UserError for a folder that is not a buffer.
    """
    manifest = _manifest(folder)
    done = next((run for run in manifest.runs if run.key == key), None)
    return BufferState(folder, key, done.before if done else manifest.rows, done)


def buffer_rows(buffer: BufferState) -> list[Row]:
    """The rows that `find_buffer` found. Raises UserError if they are gone."""
    if not buffer.rows:
        return []
    path = _path(buffer.folder, buffer.rows)
    if not path.exists() and buffer.done:
        raise UserError(
            "later runs have changed the buffer: what was there before this one is gone.",
            "The rows that this run drew are in its folder. To draw again, give another "
            "--replay FOLDER.",
            location=f"--replay {buffer.folder}",
        )
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def replay_rows(
    rows: Iterable[Row], new: Container[str], count: int, *, ratio: float, seed: int, buffer: str
) -> list[Row]:
    """The buffer's rows to learn again beside `count` new ones: a share of `ratio` of those, one at
    least.

    `new`: the ids that are not to be replayed: of the new records, and of whatever is held out.
    `buffer`: its digest, so that each run draws others.
    """
    if ratio <= 0 or not count:
        return []
    old = [row for row in rows if row["id"] not in new]
    old.sort(key=lambda row: digest(f"{seed} replay {buffer} {row['id']}"))
    return old[: max(1, math.floor(count * ratio))]


def add_to_buffer(
    buffer: BufferState, new: Iterable[Row], *, capacity: int, seed: int
) -> ReplayRun:
    """Puts the new train rows into the buffer; beyond `capacity` the hybrid coreset of old and new
    stays. For a run that was added before nothing changes.

    Raises UserError if another run has changed the buffer since it was found.
    """
    if buffer.done:
        return buffer.done
    by_id = {row["id"]: row for row in (*new, *buffer_rows(buffer))}
    rows = [by_id[name] for name in sorted(by_id)]  # whatever the order they came in
    records = [from_row(row) for row in rows]
    chosen, _ = coreset(
        dict(enumerate(sorted(by_id))),
        strategy="hybrid",
        target=capacity,
        seed=seed,
        loss=lambda index: wording(records[index]).proxy_loss,
        text=lambda index: dialog_text(records[index]),
    )
    content = b"".join(encode(rows[index]) for index in chosen)
    name = hashlib.sha256(content).hexdigest()
    run = ReplayRun(buffer.key, buffer.rows, name, len(chosen))
    _write(buffer, run, content)
    return run


def _write(buffer: BufferState, run: ReplayRun, content: bytes) -> None:
    """The rows first, then the manifest that names them: killed in between, the buffer is as it
    was.
    """
    folder = buffer.folder
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        manifest = _manifest(folder)
        if manifest.rows != buffer.rows:
            raise UserError(
                "was changed by another run since it was read.",
                "Run the same command again.",
                location=str(folder),
                exit_code=LOCKED,
            )
        if not manifest.runs:  # so rows without a manifest are never ours
            write_json(folder / "manifest.json", manifest)
        with replacing(_path(folder, run.after)) as file:
            file.write(content)
        write_json(folder / "manifest.json", BufferManifest(runs=(*manifest.runs, run)))
        files = {_path(folder, rows) for rows in (run.before, run.after)}
        for path in set(folder.glob("rows-*.jsonl")) - files:
            path.unlink()


def _manifest(folder: Path) -> BufferManifest:
    path = folder / "manifest.json"
    try:
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=BufferManifest)
        strangers = sorted(file.name for file in folder.glob("[!.]*"))
        if not strangers and (folder.is_dir() or not folder.exists()):
            return BufferManifest()
        problem = f"it holds {strangers[0]} but no manifest.json" if strangers else "it is a file"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = f"manifest.json: {error}"
    raise UserError(
        f"is not a complete buffer: {problem}.",
        "Give another --replay FOLDER, or remove this one: it is filled anew, and nothing is "
        "replayed the first time.",
        location=f"--replay {folder}",
    )


def _path(folder: Path, name: str) -> Path:
    return folder / f"rows-{name}.jsonl"
