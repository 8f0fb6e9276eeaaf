"""Chooses the part of the records to train on: hard ones, diverse ones, both, or at random."""

import math
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

from agentlite.core.records import Record, digest
from agentlite.data.curation.fingerprints import dialog_text
from agentlite.data.curation.mix import scaled
from agentlite.data.formats.format import stated_in

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
    sizes = scaled({name: len(pool) for name, pool in pools.items()}, target)
    chosen: list[int] = []
    counts: Counter[str] = Counter()
    for name, pool in pools.items():
        if strategy == "random":
            chosen += pool[: sizes[name]]
            counts["random"] += sizes[name]
            continue
        hard = round(BY_LOSS[strategy] * sizes[name])
        # sorted() is stable: of equal losses the first in the pool wins
        places = (
            sorted(range(len(pool)), key=lambda place: -loss(pool[place]))[:hard] if hard else []
        )
        if BY_LOSS[strategy] > 0:
            counts["loss"] += hard
        if BY_LOSS[strategy] < 1:
            places += farthest(map(text, pool), sizes[name] - hard, places)
            counts["diversity"] += sizes[name] - hard
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
    for place in chosen:
        numpy.maximum(nearest, vectors.cosines(place), out=nearest)
    nearest[list(chosen)] = numpy.inf
    taken: list[int] = []
    for _ in range(target):
        place = int(nearest.argmin())
        taken.append(place)
        numpy.maximum(nearest, vectors.cosines(place), out=nearest)
        nearest[place] = numpy.inf
    return taken


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
