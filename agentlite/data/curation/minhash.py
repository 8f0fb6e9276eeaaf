"""Near texts: MinHash sketches name candidates, the exact Jaccard index decides."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import eq
from typing import Any

from agentlite.data.curation.union_find import root, tie

SHINGLE = 5
SEPARATOR = "\0" * SHINGLE
MIXER = 0x9E3779B97F4A7C15  # odd, of no pattern
AT_ONCE = 1 << 18  # characters that are hashed together
SLOTS = 128
SLACK = 0.125  # 3.5 standard deviations of an index of .8 that is estimated from 128 slots
SURE = 0.999  # chance that two texts that are just near meet in a band
# entries of a bucket; near texts that it has no room for meet in the bands in which they differ
# from others
CROWD = 64
MOST = 32  # texts that are compared with another one, the likeliest first, and found not to be near
REMEMBERED = 256  # shingles of texts: those of a long dialog take 50 kilobytes


def shingles(text: str) -> object:
    """Its character 5-grams as 64-bit hashes, each once, sorted: uint64 of shape (grams,). A
    shorter text is one.
    """
    import numpy

    grams = numpy.sort(_hashes([text])[0])
    return grams[
        numpy.concatenate([[True], grams[1:] != grams[:-1]])
    ]  # a fifth of the time of numpy.unique


def jaccard(one: Any, other: Any) -> float:
    """The index of two texts, by their shingles."""
    import numpy

    shared = len(numpy.intersect1d(one, other, assume_unique=True))
    return shared / (len(one) + len(other) - shared)


def sketches(texts: Iterable[str]) -> Iterator[bytes]:
    """256 bytes a text: 16 bits for each of 128 slots, equal in two texts as often as their Jaccard
    index says.
    """
    import numpy
    from rensa import RMinHash

    for some in _batches(texts):
        hashes, offsets = _hashes(some)
        rows = RMinHash.digest_matrix_from_flat_token_hashes(hashes, offsets, SLOTS, 0).to_rows()
        yield from (row.tobytes() for row in numpy.array(rows, numpy.uint32).astype(numpy.uint16))


def _hashes(texts: Sequence[str]) -> tuple[Any, Any]:
    """The hashes of the shingles of all texts, one after the other, and where those of each begin
    and end.
    """
    import numpy

    codes = numpy.frombuffer(
        SEPARATOR.join([*texts, ""]).encode("utf-32-le", "surrogatepass"), numpy.uint32
    )
    lengths = numpy.array([len(text) for text in texts])
    counts = numpy.maximum(1, lengths - SHINGLE + 1)
    offsets = numpy.concatenate([[0], numpy.cumsum(counts)])
    begins = numpy.cumsum(lengths + len(SEPARATOR)) - lengths - len(SEPARATOR)
    # for each shingle, where its first character stands in `codes`: the running number of the
    # shingle, moved by how much further its text begins in `codes` than its shingles in the list
    places = numpy.arange(offsets[-1]) + numpy.repeat(begins - offsets[:-1], counts)
    hashes = numpy.zeros(len(places), numpy.uint64)
    # all shingles at once, a character further at each step; products wrap around at 64 bits
    for step in range(SHINGLE):
        hashes = (hashes + codes[places + step]) * MIXER
        hashes ^= hashes >> numpy.uint64(29)
    return hashes, offsets.astype(numpy.uint64)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text) + SHINGLE
        if size >= AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def band_size(threshold: float) -> int:
    """The most slots a band can have, so that two texts of this Jaccard index meet in one of the
    bands.
    """
    # Two slots agree with a chance of `threshold`, a whole band with threshold**size, none of the
    # bands with (1 - threshold**size)**bands. A wider band names fewer texts that are not near, so
    # the widest is taken that misses at most one near pair in a thousand.
    return max(
        (size for size in range(1, 17) if 1 - (1 - threshold**size) ** (SLOTS // size) >= SURE),
        default=1,
    )


class MinHashIndex:
    """Which of the texts that were added are likely to be near another one. `kind`: only texts of
    one kind are.

    The cost of a text is bounded, however many others share its bands.
    """

    def __init__(self, threshold: float, worth: Container[bytes] | None = None):
        self.least, self.size, self.worth = SLOTS * (threshold - SLACK), band_size(threshold), worth
        self.buckets: dict[bytes, list[int]] = {}
        self.sketches: dict[int, bytes] = {}

    def add(self, number: int, sketch: bytes, kind: int = 0) -> None:
        """`number` stands for the text. Bands that are not among the `worth` ones are left out: no
        other has them.
        """
        self.sketches[number] = sketch
        for key in bands(sketch, self.size, kind):
            if self.worth is None or key in self.worth:
                bucket = self.buckets.setdefault(key, [])
                if len(bucket) < CROWD:
                    bucket.append(number)

    def like(self, sketch: bytes, kind: int = 0) -> Iterator[int]:
        """The numbers of those that seem near, the one that shares most bands first."""
        slots = memoryview(sketch).cast("H")
        met = Counter(
            chain.from_iterable(self.buckets.get(key, ()) for key in bands(sketch, self.size, kind))
        )
        for number, _ in met.most_common():
            if sum(map(eq, memoryview(self.sketches[number]).cast("H"), slots)) >= self.least:
                yield number


def bands(sketch: bytes, size: int, kind: int = 0) -> Iterator[bytes]:
    """Keys of the bands: equal in two sketches where all slots of a band are, and the kind."""
    width, mark = 2 * size, kind.to_bytes(8, "little") if kind else b""
    # the number of the band comes first: the same slots in another band are another key
    for number in range(SLOTS // size):
        yield b"%c%b%b" % (number, mark, sketch[number * width : (number + 1) * width])


def shared_bands(
    sketches: Sequence[bytes], threshold: float, kinds: Sequence[int] | None = None
) -> set[bytes]:
    """The keys that several sketches have: those of a text that is near no other need no memory."""
    size = band_size(threshold)
    all_bands = [
        bands(sketch, size, kind)
        for sketch, kind in zip(sketches, kinds or [0] * len(sketches), strict=True)
    ]
    shared: set[bytes] = set()
    # the first band of all sketches, then the second of all: a key stands for one band only, so
    # `seen` need not outlive it
    for _ in range(SLOTS // size):
        seen: set[bytes] = set()
        for key in map(next, all_bands):
            shared.add(key) if key in seen else seen.add(key)
    return shared


def index_for(
    sketches: Sequence[bytes], threshold: float, kinds: Sequence[int] | None = None
) -> MinHashIndex:
    """An empty index for sketches that are all known beforehand."""
    return MinHashIndex(threshold, shared_bands(sketches, threshold, kinds))


def is_near(text: Callable[[int], str], threshold: float) -> Callable[[int, int], bool]:
    """Whether two texts have a Jaccard index of `threshold` or more. `text` reads them, again if
    that was long ago.
    """

    @lru_cache(REMEMBERED)
    def of(number: int) -> Any:
        return shingles(text(number))

    return lambda one, other: jaccard(of(one), of(other)) >= threshold


def near_ties(texts: Sequence[str], threshold: float) -> Iterator[tuple[int, int]]:
    """Indices of near texts: pairs enough to tie all near ones together, and no pair that is not
    near.
    """
    sketched = list(sketches(texts))
    index, near = index_for(sketched, threshold), is_near(texts.__getitem__, threshold)
    parents = list(range(len(texts)))
    for number, own in enumerate(sketched):
        missed = 0
        for other in index.like(own):
            # tied already, by way of others: another comparison would change nothing
            if root(parents, other) == root(parents, number):
                continue
            if near(number, other):
                tie(parents, [(other, number)])
                yield other, number
            elif (missed := missed + 1) == MOST:  # the likeliest came first: the rest is given up
                break
        index.add(number, own)
