"""What a model has read and said in dialogs that go on -> their next turn reads new tokens alone.

A dialog's next prompt begins with the ids of its last one and of its answer. Their keys and values
are kept in main memory until the next call of the sampler, which reads what comes behind them.
"""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

# An eighth of the machine's memory for the keys and values of a call, and as much for those of the
# call before. What is above is read again.
MOST_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8


class Columns(NamedTuple):
    """Keys and values of ids, (heads, columns, size) for each layer; a column for each id."""

    ids: tuple[int, ...]
    layers: Sequence[tuple[Any, Any]]


NOTHING = Columns((), ())


class ReadBefore:
    """What the last call of the sampler has read and sampled. One for each model and its weights:
    after a step of training it is worth nothing.
    """

    def __init__(self) -> None:
        self.last: list[Columns] = []
        self.now: dict[tuple[int, ...], Columns] = {}  # ids may come twice: alike samples, halves
        self.bytes = 0

    def begin_call(self) -> None:
        """Forgets what the last call did not need again: it belongs to dialogs that have ended."""
        self.last, self.now, self.bytes = [*self.now.values()], {}, 0

    def longest(self, prompt: Sequence[int]) -> Columns:
        """The longest part that is known of the head of a prompt. Its last id is not in it: the
        answer begins with the logits behind that one.
        """
        head = tuple(prompt[:-1])
        shared = [(_common(head, one.ids), index) for index, one in enumerate(self.last)]
        length, index = max(shared, default=(0, 0))
        if length == 0:
            return NOTHING
        layers = [(k[:, :length], v[:, :length]) for k, v in self.last[index].layers]
        return Columns(head[:length], layers)

    def keep(self, columns: Columns) -> None:
        size = sum(one.nbytes for layer in columns.layers for one in layer)
        if columns.ids not in self.now and self.bytes + size <= MOST_BYTES:
            self.now[columns.ids] = columns
            self.bytes += size


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """With how many equal ids both begin. By halves: comparing slices costs less than each id."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
