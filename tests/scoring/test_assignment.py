"""agentlite.scoring.assignment: the pairs with the highest sum."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from agentlite.scoring.assignment import assign


def best(worth):
    """The highest sum of any assignment, by trying all."""
    rows, columns = len(worth), len(worth[0])
    if rows < columns:
        return best([*zip(*worth, strict=True)])
    return max(
        sum(worth[row][column] for column, row in enumerate(chosen))
        for chosen in permutations(range(rows), columns)
    )


tables = st.integers(1, 5).flatmap(
    lambda columns: st.lists(
        st.lists(st.sampled_from([0, 0.25, 0.5, 1]), min_size=columns, max_size=columns),
        min_size=1,
        max_size=5,
    )
)


@given(tables)
def test_an_assignment_is_the_best_there_is_and_takes_nothing_twice(worth):
    pairs = assign(worth)
    assert sum(worth[row][column] for row, column in pairs) == best(worth)
    assert all(worth[row][column] for row, column in pairs)
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
