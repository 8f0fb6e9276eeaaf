"""Chooses the part of the records to train on: hard ones, diverse ones, both, or at random."""

import math
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import add
from typing import Any, NamedTuple

from agentlite.core.records import Record, digest
from agentlite.data.curation.fingerprints import dialog_text
from agentlite.data.curation.mix import scaled
from agentlite.data.formats.extra_fields import stated_in

BY_LOSS = 0.6  # of a hybrid; the rest is chosen by diversity
FEATURES = 1 << 18
CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
TOKEN = re.compile(f"[{CJK}]+|[^\\W{CJK}]+")
LONG, HARDEST = 512, 5.0


class Coreset(NamedTuple):
    """Indices of the chosen, in their own order; how many were chosen by what; what a user should
    know.
    """

    chosen: list[int]
    counts: dict[str, int]
    notes: list[str]


class CoresetPool(NamedTuple):
    """What is chosen from, in the order of a seeded hash, which settles every tie; the order of the
    files never does.

    `losses` is empty where the strategy asks for none; `text` reads that of a record.
    """

    size: int
    losses: Sequence[float]
    text: Callable[[int], str]


class Wording(NamedTuple):
    """`proxy_loss`: how hard a dialog looks without a model: the `loss` of its row or of the row's
    metadata; or, from 0 to 5, its tokens / 512 + their entropy in nats / 5.
    `lexical_diversity`: different tokens / tokens, which falls with the length; 0 without tokens.
    """

    proxy_loss: float
    lexical_diversity: float


Choice = dict[str, list[int]]  # by what they were chosen -> places in the pool


def coreset(
    ids: Sequence[str],
    *,
    strategy: str,
    target: int | None,
    seed: int,
    losses: Mapping[str, float] = {},
    text: Callable[[int], str] = lambda index: "",
    strata: Sequence[str] = (),
) -> Coreset:
    """Chooses `target` of the records. `losses`: by id, for the strategies of LOSSES; `text`: the
    dialog of an index, where unlike ones are looked for; `strata`: the part of each record, where
    every part keeps its share of the whole.
    """
    if target is None or target >= len(ids):
        notes = [f"coreset: {target} asked for, all {len(ids)} there are taken"] if target else []
        return Coreset(list(range(len(ids))), {"all": len(ids)}, notes)
    # The order of all pools, so the order of the files decides nothing: strategies know the places
    # in a pool alone, and of equals they take the first place.
    order = sorted(range(len(ids)), key=lambda index: digest(f"{seed} coreset {ids[index]}"))
    members: dict[str, list[int]] = {}
    for index in order:
        members.setdefault(strata[index] if strata else "", []).append(index)
    sizes = scaled({name: len(indices) for name, indices in members.items()}, target)
    chosen: list[int] = []
    counts: Counter[str] = Counter()
    for name, indices in members.items():
        known = [losses[ids[index]] for index in indices] if strategy in LOSSES else []
        pool = CoresetPool(len(indices), known, partial(_text_at, text, indices))
        for reason, places in STRATEGIES[strategy](pool, sizes[name]).items():
            chosen += [indices[place] for place in places]
            counts[reason] += len(places)
    return Coreset(sorted(chosen), dict(counts), [])


def wording(record: Record) -> Wording:
    """The figures of a record that need no model. A token is a word or two CJK characters."""
    counts = Counter(tokens(dialog_text(record)))
    total = counts.total()
    diversity = len(counts) / total if total else 0.0
    own = stated_in(record.meta, "loss")
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


def _text_at(text: Callable[[int], str], indices: Sequence[int], place: int) -> str:
    return text(indices[place])


def _hardest(pool: CoresetPool, target: int) -> Choice:
    # sorted() is stable: of equal losses the first place wins
    return {"loss": sorted(range(pool.size), key=lambda place: -pool.losses[place])[:target]}


def _unlike(pool: CoresetPool, target: int) -> Choice:
    return {"diversity": _farthest(pool, target, [])}


def _hybrid(pool: CoresetPool, target: int) -> Choice:
    """The records chosen by diversity also differ from those chosen by loss."""
    hard = _hardest(pool, round(BY_LOSS * target))["loss"]
    return {"loss": hard, "diversity": _farthest(pool, target - len(hard), hard)}


def _any(pool: CoresetPool, target: int) -> Choice:
    return {"random": list(range(target))}


STRATEGIES: dict[str, Callable[[CoresetPool, int], Choice]] = {
    "loss_topk": _hardest,
    "diversity": _unlike,
    "hybrid": _hybrid,
    "random": _any,
}
LOSSES = ("loss_topk", "hybrid")


def _farthest(pool: CoresetPool, target: int, chosen: Sequence[int]) -> list[int]:
    """k-center greedy: again and again the one whose nearest among the chosen is farthest, by
    cosine.
    """
    import numpy

    cosines = Vectors(map(pool.text, range(pool.size))).cosines
    # By place: the cosine to the nearest of the chosen. At -inf none is chosen yet, and argmin
    # takes the first place; at inf it is chosen itself, and never taken again.
    nearest = numpy.full(pool.size, -numpy.inf)
    for place in chosen:
        numpy.maximum(nearest, cosines(place), out=nearest)
    nearest[list(chosen)] = numpy.inf
    found: list[int] = []
    for _ in range(target):
        place = int(nearest.argmin())
        found.append(place)
        numpy.maximum(nearest, cosines(place), out=nearest)
        nearest[place] = numpy.inf
    return found


class Vectors:
    """Texts as unit vectors of hashed tokens, each 1 + log of its count, rare ones weighted up.

    Kept by text and by token: a cosine with all others reads only the texts that share a token.
    """

    def __init__(self, texts: Iterable[str]):
        import numpy

        # The entries of a sparse matrix (texts, tokens), twice. By text: features and weights, from
        # starts[text] to starts[text + 1]. By token: owners (the texts) and shares (their weights),
        # from ends[feature - 1] to ends[feature].
        self.starts, self.features, counts = _counted(texts)
        self.size = len(self.starts) - 1
        owners = numpy.repeat(numpy.arange(self.size, dtype=numpy.int32), numpy.diff(self.starts))
        spread = numpy.bincount(self.features, minlength=FEATURES)
        rarity = 1 + numpy.log((1 + self.size) / (1 + spread))
        weights = (1 + numpy.log(counts)) * rarity[self.features]
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
        found = [
            slice(self.ends[feature - 1] if feature else 0, self.ends[feature])
            for feature in self.features[own]
        ]
        products = [
            self.shares[where] * weight
            for where, weight in zip(found, self.weights[own], strict=True)
        ]
        owners = numpy.concatenate([self.owners[where] for where in found])
        # the products of one text are added up; a text that shares no token has 0
        return numpy.bincount(owners, numpy.concatenate(products), minlength=self.size)


def _counted(texts: Iterable[str]) -> tuple[Any, Any, Any]:
    """Where the tokens of each text start, the tokens as numbers below FEATURES, and how often each
    occurs.
    """
    import numpy

    starts, features, counts = array("q", [0]), array("i"), array("i")
    for text in texts:
        # a text without tokens has one of its own: it is like the others without, and like no other
        found = Counter(
            zlib.crc32(token.encode("utf-8", "surrogatepass")) % FEATURES for token in tokens(text)
        )
        for feature, count in sorted((found or Counter({0: 1})).items()):
            features.append(feature)
            counts.append(count)
        starts.append(len(features))
    return numpy.array(starts), numpy.array(features), numpy.array(counts)
