"""The value of each pair of a row and a column -> the pairs with the highest sum."""

from collections.abc import Sequence

Table = Sequence[Sequence[float]]


def assign(worth: Table) -> list[tuple[int, int]]:
    """The (row, column) pairs with the highest sum, each row and column at most once, no pair worth
    nothing.
    """
    rows, columns = len(worth), len(worth[0]) if worth else 0
    if rows == columns == 1:
        return [(0, 0)] if worth[0][0] else []
    if rows > columns:
        return sorted((row, column) for column, row in assign(list(zip(*worth, strict=True))))
    row_of = _hungarian(worth, rows, columns)
    pairs = ((row, column) for column, row in row_of.items())
    return sorted((row, column) for row, column in pairs if worth[row][column])


def _hungarian(worth: Table, rows: int, columns: int) -> dict[int, int]:
    """The row of each column that has one, so that the sum is highest: every row gets one.

    The Hungarian method: rows are added one by one, each by the cheapest chain of changes, which
    takes rows**2 * columns steps in all. `rows` are no more than `columns`.
    """
    row_prices, column_prices = [0.0] * rows, [0.0] * columns
    row_of: dict[int, int] = {}
    for added in range(rows):
        least = [float("inf")] * columns
        before: list[int | None] = [None] * columns  # the column from which each was reached
        reached: set[int] = set()
        row, last = added, None
        while True:
            step, nearest = float("inf"), -1
            for column in range(columns):
                if column in reached:
                    continue
                cost = -worth[row][column] - row_prices[row] - column_prices[column]
                if cost < least[column]:
                    least[column], before[column] = cost, last
                if least[column] < step:
                    step, nearest = least[column], column
            row_prices[added] += step
            for column in range(columns):
                if column in reached:
                    row_prices[row_of[column]] += step
                    column_prices[column] -= step
                else:
                    least[column] -= step
            reached.add(nearest)
            if nearest not in row_of:
                break
            row, last = row_of[nearest], nearest
        column = nearest
        while (previous := before[column]) is not None:
            row_of[column] = row_of[previous]
            column = previous
        row_of[column] = added
    return row_of
