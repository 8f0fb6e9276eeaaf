"""How fast near copies are found, beside datasketch in the same run.

    .venv/bin/python scripts/bench/curation.py [--texts 1000] [--seed 0]      needs datasketch

Seconds of one core for the near copies among dialogs of about 5,000 characters, half of them copies
with some words changed; with as many slots and the same bands on both sides. `recall`: the share
found of the copies whose Jaccard index is .8 or more.
"""

import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from common import make_parser, make_words, show

from agentlite.data.curation.minhash import (
    NEAR,
    SHINGLE,
    SLOTS,
    band_size,
    jaccard,
    near_pairs,
    shingles,
)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    show(speed(options.texts, random.Random(options.seed)))


def speed(count: int, chance: random.Random) -> dict[str, Any]:
    try:
        import datasketch
    except ImportError:
        sys.exit("datasketch is not installed: pip install datasketch")
    texts, near = make_copies(count, make_words(chance), chance)
    ours, our_seconds = time_search(lambda: our_copies(texts))
    theirs, their_seconds = time_search(lambda: their_copies(texts, datasketch))
    return {
        "texts": len(texts),
        "characters": sum(map(len, texts)) // len(texts),
        "near_copies": len(near),
        "seconds": {"agentlite": round(our_seconds, 2), "datasketch": round(their_seconds, 2)},
        "ratio": round(their_seconds / our_seconds, 1),
        "recall": {"agentlite": share(near, ours), "datasketch": share(near, theirs)},
        "wrong": {"agentlite": len(ours - near), "datasketch": len(theirs - near)},
    }


def make_copies(
    count: int, words: list[str], chance: random.Random
) -> tuple[list[str], set[tuple[int, int]]]:
    """Texts, the second half copies of the first with up to a tenth of their words changed; the
    pairs that are near.
    """
    originals = [chance.choices(words, k=1000) for _ in range(count // 2)]
    copies = []
    for original in originals:
        share = chance.uniform(0, 0.1)
        copies.append(
            [chance.choice(words) if chance.random() < share else word for word in original]
        )
    texts = ["".join(text) for text in [*originals, *copies]]
    pairs = zip(range(count // 2), range(count // 2, 2 * (count // 2)), strict=True)
    return texts, {
        (a, b) for a, b in pairs if jaccard(shingles(texts[a]), shingles(texts[b])) >= NEAR
    }


def our_copies(texts: Sequence[str]) -> set[tuple[int, int]]:
    pairs = near_pairs(range(len(texts)), texts.__getitem__)
    return {(other, number) for number, other in pairs}


def their_copies(texts: Sequence[str], datasketch: Any) -> set[tuple[int, int]]:
    size = band_size(NEAR)
    lsh = datasketch.MinHashLSH(num_perm=SLOTS, params=(SLOTS // size, size))
    pairs = set()
    for number, text in enumerate(texts):
        hashes = datasketch.MinHash(num_perm=SLOTS)
        hashes.update_batch(
            {text[start : start + SHINGLE].encode() for start in range(len(text) - SHINGLE + 1)}
        )
        pairs |= {(other, number) for other in lsh.query(hashes)}
        lsh.insert(number, hashes)
    return pairs


def time_search(find: Callable[[], set[tuple[int, int]]]) -> tuple[set[tuple[int, int]], float]:
    started = time.process_time()
    return find(), time.process_time() - started


def share(near: set[Any], pairs: set[Any]) -> float:
    return round(len(near & pairs) / len(near), 4) if near else 1.0


if __name__ == "__main__":
    main()
