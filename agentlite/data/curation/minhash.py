"""Texts -> which are near each other: MinHash names candidates, the exact Jaccard index decides."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, islice
from operator import eq
from typing import Any

NEAR = 0.8  # the Jaccard index from which texts are near, unless the user sets another
SHINGLE = 5
MIXER = 0x9E3779B97F4A7C15  # odd, of no pattern
AT_ONCE = 64  # texts that are hashed together
SLOTS = 128
SLACK = 0.125  # 3.5 standard deviations of an index of .8 that is estimated from 128 slots
SURE = 0.999  # chance that two texts that are just near meet in a band
# entries of a bucket; near texts that it has no room for meet in the bands in which they differ
# from others
CROWD = 64
MOST = 32  # texts that are compared with another one, the likeliest first, and found not to be near
REMEMBERED = 256  # shingles of texts: those of a long dialog take 50 kilobytes


def shingles(text: str) -> Any:
    """Its character 5-grams as 64-bit hashes, each once, sorted: uint64 of shape (grams,). A
    shorter text is one.
    """
    import numpy

    padded = text.ljust(SHINGLE, "\0").encode("utf-32-le", "surrogatepass")
    codes = numpy.frombuffer(padded, numpy.uint32)
    hashes = numpy.zeros(len(codes) - SHINGLE + 1, numpy.uint64)
    # all at once, a character further at each step; products wrap around at 64 bits
    for step in range(SHINGLE):
        hashes = (hashes + codes[step : step + len(hashes)]) * numpy.uint64(MIXER)
        hashes ^= hashes >> numpy.uint64(29)
    hashes.sort()
    is_first = numpy.concatenate([[True], hashes[1:] != hashes[:-1]])
    return hashes[is_first]  # a fifth of the time of numpy.unique


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

    texts = iter(texts)
    while batch := [shingles(text) for text in islice(texts, AT_ONCE)]:
        ends = numpy.cumsum([0, *map(len, batch)], dtype=numpy.uint64)
        hashes = numpy.concatenate(batch)
        sketched = RMinHash.digest_matrix_from_flat_token_hashes(hashes, ends, SLOTS, 0)
        for row in numpy.array(sketched.to_rows(), numpy.uint32).astype(numpy.uint16):
            yield row.tobytes()


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


class NearTexts:
    """The texts that were added, each by a number, and which of them is near another text. `text`
    reads the text of a number, again if that was long ago.

    The cost of a text is bounded, however many others share its bands.
    """

    def __init__(self, text: Callable[[int], str], threshold: float):
        self.threshold, self.size = threshold, band_size(threshold)
        self.buckets: dict[bytes, list[int]] = {}
        self.sketches: dict[int, bytes] = {}
        self.shingles = lru_cache(REMEMBERED)(lambda number: shingles(text(number)))

    def add(self, number: int, sketch: bytes) -> None:
        self.sketches[number] = sketch
        for key in _bands(sketch, self.size):
            bucket = self.buckets.setdefault(key, [])
            if len(bucket) < CROWD:
                bucket.append(number)

    def near(
        self, number: int, sketch: bytes, may_be: Callable[[int], bool] = lambda other: True
    ) -> Iterator[int]:
        """The texts that are near this one, the one that shares most bands first; the rest is given
        up once many were not near.
        """
        slots, least = memoryview(sketch).cast("H"), SLOTS * (self.threshold - SLACK)
        buckets = (self.buckets.get(key, ()) for key in _bands(sketch, self.size))
        likely = (other for other, _ in Counter(chain.from_iterable(buckets)).most_common())
        missed = 0
        for other in likely:
            # the sketches first: `may_be` reads texts
            alike = sum(map(eq, memoryview(self.sketches[other]).cast("H"), slots))
            if alike < least or not may_be(other):
                continue
            if jaccard(self.shingles(number), self.shingles(other)) >= self.threshold:
                yield other
            elif (missed := missed + 1) == MOST:
                return


def _bands(sketch: bytes, size: int) -> Iterator[bytes]:
    """Keys of the bands: equal in two sketches where all slots of a band are."""
    width = 2 * size
    # the number of the band comes first: the same slots in another band are another key
    for number in range(SLOTS // size):
        yield b"%c%b" % (number, sketch[number * width : (number + 1) * width])


def copies_among(
    order: Sequence[int],
    text: Callable[[int], str],
    threshold: float = NEAR,
    may_be: Callable[[int, int], bool] = lambda one, other: True,
) -> dict[int, int]:
    """Takes one text after the other: near one that is kept it is its copy, else it is kept.
    Returns the copies, each with the text that is kept. `text`: reads that of a number, again for
    the few that are compared.
    """
    known = NearTexts(text, threshold)
    copies: dict[int, int] = {}
    for number, sketch in zip(order, sketches(map(text, order)), strict=True):
        near = known.near(number, sketch, partial(may_be, number))
        if (kept := next(near, None)) is None:
            known.add(number, sketch)
        else:
            copies[number] = kept
    return copies


def nearest(asked: Iterable[str], known: Iterable[str], threshold: float) -> dict[str, str]:
    """The texts that are near one that is known, and not the same, each with that one."""
    first = sorted({*known} - {""})
    then = sorted({*asked} - {"", *first})
    texts = [*first, *then]
    index = NearTexts(texts.__getitem__, threshold)
    found: dict[str, str] = {}
    for number, sketch in enumerate(sketches(texts)):
        if number < len(first):
            index.add(number, sketch)
        elif (other := next(index.near(number, sketch), None)) is not None:
            found[texts[number]] = texts[other]
    return found


def near_ties(
    texts: Sequence[str],
    threshold: float,
    are_apart: Callable[[int, int], bool] = lambda one, other: True,
) -> Iterator[tuple[int, int]]:
    """Indices of near texts. `are_apart`: whether two are still to be compared."""
    known = NearTexts(texts.__getitem__, threshold)
    for number, own in enumerate(sketches(texts)):
        for other in known.near(number, own, partial(are_apart, number)):
            yield other, number
        known.add(number, own)
