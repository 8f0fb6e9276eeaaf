"""k-means: it finds groups that are there, the same each time, and needs no rows that differ."""

import numpy
import pytest

from agentlite.retrieval.clusters import clusters, nearest_cluster


def around(centres, each, seed=0, width=8):
    """Rows of length 1 near each of some axes, in an order that says nothing."""
    rng = numpy.random.default_rng(seed)
    rows = numpy.concatenate([numpy.eye(width)[one][None].repeat(each, 0) for one in centres])
    rows = rows + rng.normal(0, 0.05, rows.shape)
    order = rng.permutation(len(rows))
    whose = numpy.repeat(centres, each)[order]
    return rows[order] / numpy.linalg.norm(rows[order], axis=1, keepdims=True), whose


@pytest.mark.parametrize("seed", range(5))
def test_groups_that_are_apart_are_found(seed):
    rows, whose = around([0, 3, 5], 20, seed)
    labels, centres = clusters(rows, 3, seed)
    assert len({(label, one) for label, one in zip(labels, whose.tolist(), strict=True)}) == 3
    assert nearest_cluster(rows, centres) == labels


@pytest.mark.parametrize("seed", range(7))
def test_the_largest_cluster_comes_first_and_the_same_seed_gives_the_same(seed):
    rows = numpy.concatenate([around([1], 5)[0], around([2], 30)[0], around([4], 10)[0]])
    labels, centres = clusters(rows, 3, seed)
    assert [labels.count(one) for one in range(3)] == [30, 10, 5]
    again, same = clusters(rows, 3, seed)
    assert again == labels and numpy.array_equal(same, centres)


def test_there_are_no_more_clusters_than_rows_that_differ():
    rows = numpy.eye(4)[[0, 0, 1, 1, 1]]
    labels, centres = clusters(rows, 5, 0)
    assert labels == [1, 1, 0, 0, 0] and len(centres) == 2
    assert clusters(rows[:1], 1, 0)[0] == [0]


def test_where_nothing_is_apart_another_seed_gives_other_clusters():
    angles = numpy.linspace(0, 2 * numpy.pi, 24, endpoint=False)
    rows = numpy.stack([numpy.cos(angles), numpy.sin(angles)], axis=1)
    found = [clusters(rows, 3, seed) for seed in range(6)]
    assert len({(*labels,) for labels, _ in found}) > 1
    for _, centres in found:
        assert numpy.allclose(numpy.linalg.norm(centres, axis=1), 1)
