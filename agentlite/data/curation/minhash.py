"""Texts -> which are near each other: MinHash names candidates, the exact Jaccard index decides."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from operator import eq
from typing import Any

NEAR = 0.8  # the Jaccard index from which texts are near, unless the user sets another
SHINGLE = 5
MIXER = 0x9E3779B97F4A7C15  # odd, of no pattern
BATCH_SIZE = 64  # texts that are hashed together
SLOTS = 128
SLACK = 0.125  # 3.5 standard deviations of an index of .8 that is estimated from 128 slots
RECALL = 0.999  # chance that two texts that are just near meet in a band
# entries of a bucket; near texts that it has no room for meet in the bands in which they differ
# from others
BUCKET_SIZE = 64
MOST_MISSES = 32  # likely texts that are compared and not near before the others are given up
CACHE_SIZE = 256  # shingles of texts: those of a long dialog take 50 kilobytes


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


def jaccard(first: Any, second: Any) -> float:
    """The index of two texts, by their shingles."""
    import numpy

    shared = len(numpy.intersect1d(first, second, assume_unique=True))
    return shared / (len(first) + len(second) - shared)


def sketches(texts: Iterable[str]) -> Iterator[bytes]:
    """256 bytes a text: 16 bits for each of 128 slots, equal in two texts as often as their Jaccard
    index says.
    """
    import numpy
    from rensa import RMinHash

    texts = iter(texts)
    while batch := [shingles(text) for text in islice(texts, BATCH_SIZE)]:
        ends = numpy.cumsum([0, *map(len, batch)], dtype=numpy.uint64)
        hashes = numpy.concatenate(batch)
        matrix = RMinHash.digest_matrix_from_flat_token_hashes(hashes, ends, SLOTS, 0)
        for row in numpy.array(matrix.to_rows(), numpy.uint32).astype(numpy.uint16):
            yield row.tobytes()


def band_size(threshold: float) -> int:
    """The most slots a band can have, if two texts of this Jaccard index are to meet in one."""
    # Two slots agree with a chance of `threshold`, a whole band with threshold**size, none of the
    # bands with (1 - threshold**size)**bands. A wider band names fewer texts that are not near, so
    # the widest is taken that misses at most one near pair in a thousand.
    return max(
        (size for size in range(1, 17) if 1 - (1 - threshold**size) ** (SLOTS // size) >= RECALL),
        default=1,
    )


def near_pairs(
    order: Sequence[int],
    text: Callable[[int], str],
    threshold: float = NEAR,
    may_match: Callable[[int, int], bool] = lambda number, other: True,
    is_candidate: Callable[[int], bool] = lambda number: True,
    first_only: bool = False,
) -> Iterator[tuple[int, int]]:
    """Each text, by its number, with those before it that are near: the one that shares most bands
    first. `text` reads that of a number, again if that was long ago. `may_match`: whether two are
    to be compared; `is_candidate`: whether a text is compared with those behind it; `first_only`:
    only with the first that is near.

    The cost of a text is bounded, however many others share its bands: the rest is given up once
    many were not near.
    """
    # slots that two sketches must share before their texts are compared: an estimate may be too low
    size, least_slots = band_size(threshold), SLOTS * (threshold - SLACK)
    buckets: dict[bytes, list[int]] = {}
    slots_of: dict[int, memoryview] = {}
    grams = lru_cache(CACHE_SIZE)(lambda number: shingles(text(number)))
    for number, sketch in zip(order, sketches(map(text, order)), strict=True):
        slots = memoryview(sketch).cast("H")
        # the number of a band comes first: the same slots in another band are another key
        bands = [
            # a slot is two bytes of the sketch
            b"%c%b" % (at, sketch[2 * size * at : 2 * size * (at + 1)])
            for at in range(SLOTS // size)
        ]
        candidates = Counter(chain.from_iterable(buckets.get(band, ()) for band in bands))
        misses = 0
        for other, _ in candidates.most_common():
            # the sketches first: `may_match` reads texts
            if sum(map(eq, slots_of[other], slots)) < least_slots or not may_match(number, other):
                continue
            if jaccard(grams(number), grams(other)) >= threshold:
                yield number, other
                if first_only:
                    break
            elif (misses := misses + 1) == MOST_MISSES:
                break
        if is_candidate(number):
            slots_of[number] = slots
            for bucket in (buckets.setdefault(band, []) for band in bands):
                if len(bucket) < BUCKET_SIZE:
                    bucket.append(number)


def copies_among(
    order: Sequence[int],
    text: Callable[[int], str],
    threshold: float = NEAR,
    may_match: Callable[[int, int], bool] = lambda number, other: True,
) -> dict[int, int]:
    """Takes one text after the other: near one that is kept it is its copy, else it is kept.
    Returns the copies, each with the text that is kept.
    """
    copies: dict[int, int] = {}
    for number, other in near_pairs(
        order, text, threshold, may_match, lambda number: number not in copies, first_only=True
    ):
        copies[number] = other
    return copies


def near_known(new: Iterable[str], known: Iterable[str], threshold: float) -> dict[str, str]:
    """The new texts that are near a known one, and not the same, each with that one."""
    ordered = sorted({*known} - {""})
    # the known texts come first, so that each new one meets all of them
    texts, count = [*ordered, *sorted({*new} - {"", *ordered})], len(ordered)
    pairs = near_pairs(
        range(len(texts)),
        texts.__getitem__,
        threshold,
        is_candidate=lambda number: number < count,
        first_only=True,
    )
    return {texts[number]: texts[other] for number, other in pairs if number >= count}
