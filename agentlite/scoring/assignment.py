"""The value of each pair of a row and a column -> the pairs with the highest sum."""

from collections.abc import Sequence

Table = Sequence[Sequence[float]]


def assign(worth: Table) -> list[tuple[int, int]]:
    """The (row, column) pairs with the highest sum, each at most once, no pair worth nothing."""
    rows, columns = len(worth), len(worth[0]) if worth else 0
    if rows == columns == 1:  # most turns have one call: nothing is to be chosen
        return [(0, 0)] if worth[0][0] else []
    if rows > columns:
        return sorted((row, column) for column, row in assign(list(zip(*worth, strict=True))))
    pairs = ((row, column) for column, row in _hungarian(worth, rows, columns).items())
    return sorted((row, column) for row, column in pairs if worth[row][column])


def _hungarian(worth: Table, rows: int, columns: int) -> dict[int, int]:
    """The row of each column that has one, so that the sum is highest: every row gets one.

    The Hungarian method: rows are added one by one, each by the cheapest chain of changes, which
    takes rows**2 * columns steps in all. `rows` are no more than `columns`.

    A chain: the new row takes a column, whose row takes another one, and so on to a column that is
    free. The prices keep the cost of every pair at or above 0, and at 0 for the pairs that are
    made, so that the cheapest chain is found as Dijkstra finds a shortest path.
    """
    start = columns  # a column that is none: the row that is added stands in it at first
    row_prices, column_prices = [0.0] * rows, [0.0] * (columns + 1)
    row_of: dict[int, int] = {}
    for new_row in range(rows):
        # of each column, the cost of the cheapest chain to it, and the column before it in that
        costs, previous = [float("inf")] * columns, [start] * columns
        reached_columns, free_columns = list[int](), list(range(columns))
        column, row_of[start] = start, new_row
        while column in row_of:
            row = row_of[column]
            reached_columns.append(column)
            for free_column in free_columns:
                cost = -worth[row][free_column] - row_prices[row] - column_prices[free_column]
                if cost < costs[free_column]:
                    costs[free_column], previous[free_column] = cost, column
            nearest = min(free_columns, key=costs.__getitem__)
            increase = costs[nearest]
            for reached in reached_columns:
                row_prices[row_of[reached]] += increase
                column_prices[reached] -= increase
            free_columns.remove(nearest)
            for free_column in free_columns:
                costs[free_column] -= increase
            column = nearest
        while column != start:  # back along the chain: each column gets the row before it
            row_of[column], column = row_of[previous[column]], previous[column]
    row_of.pop(start, None)
    return row_of
