"""Vectors -> clusters: k-means with seeds chosen far apart, the same on every machine."""

from random import Random
from typing import Any

ROUNDS = 50


def clusters(vectors: Any, count: int, seed: int) -> tuple[list[int], Any]:
    """The cluster of each row, and the centres. `vectors`: of length 1, shape (rows, width).

    Rows that are equal share a cluster, so that there may be fewer than `count`. The numbers go by
    size, the largest first.
    """
    import numpy

    centres = _far_apart(vectors, count, Random(seed))
    labels = numpy.zeros(len(vectors), int)
    for _ in range(ROUNDS):
        labels = numpy.argmax(vectors @ centres.T, axis=1)
        moved = numpy.stack(
            [
                _length_1(vectors[labels == one].mean(axis=0))
                if (labels == one).any()
                else centres[one]
                for one in range(len(centres))
            ]
        )
        if numpy.allclose(moved, centres, atol=1e-6):
            break
        centres = moved
    sizes = numpy.bincount(labels, minlength=len(centres))
    order = sorted(
        (one for one in range(len(centres)) if sizes[one]), key=lambda one: (-sizes[one], one)
    )
    number = {one: place for place, one in enumerate(order)}
    return [number[int(label)] for label in labels], centres[order]


def nearest_cluster(vectors: Any, centres: Any) -> list[int]:
    """The cluster whose centre is nearest to each row."""
    import numpy

    return [int(label) for label in numpy.argmax(vectors @ centres.T, axis=1)]


def _far_apart(vectors: Any, count: int, rng: Random) -> Any:
    """k-means++: each next centre is drawn by its squared distance from those that there are."""
    import numpy

    chosen = [rng.randrange(len(vectors))]
    distance = 1 - vectors @ vectors[chosen[0]]  # half the squared distance, at length 1
    while len(chosen) < count:
        weights = numpy.maximum(distance, 0).cumsum()
        if weights[-1] < 1e-6:  # no row is apart from all centres
            break
        chosen.append(int(numpy.searchsorted(weights, rng.random() * weights[-1], "right")))
        distance = numpy.minimum(distance, 1 - vectors @ vectors[chosen[-1]])
    return vectors[chosen].copy()


def _length_1(vector: Any) -> Any:
    import numpy

    length = numpy.linalg.norm(vector)
    return vector / length if length > 0 else vector
