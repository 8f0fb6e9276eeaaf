"""The steps of GRPO: which prompts or tasks each takes, and a log of what was sampled in them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from agentlite.config.settings import GrpoSettings
from agentlite.core.row_files import Appender, write_rows
from agentlite.engine import checkpoints

Row = TypeVar("Row", bound=Struct)


def restore_log(
    path: Path, read: Callable[[Path], Iterable[Row]], stays: Callable[[Row, int], bool]
) -> list[Row]:
    """The rows of a log that stay where its run goes on from the newest checkpoint: those of later
    steps are dropped, and these steps are taken again. `stays`: of a row, after how many steps.
    """
    taken = checkpoints.restore_log(path.name, path.parent)
    with Appender(path):  # makes it, or cuts a torn line
        pass
    rows = [row for row in read(path) if stays(row, taken)]
    write_rows(path, map(msgspec.to_builtins, rows))
    return rows


class Visit(NamedTuple):
    """The last step that a prompt was learned from in, how often it was, and whether all answers of
    the last group scored the same.
    """

    step: int
    times: int
    flat: bool


NEVER = Visit(-1, 0, flat=False)


class Resting:
    """Which of `count` prompts rest: those whose last group all scored the same, for `rest` steps.
    An epoch has a group for each.
    """

    def __init__(self, count: int, rest: float):
        self.count, self.rest = count, rest
        self.visits: dict[int, Visit] = {}

    @classmethod
    def of(cls, settings: GrpoSettings, count: int) -> "Resting":
        groups = settings.batch_size * settings.gradient_accumulation / settings.group_size
        return cls(count, settings.rested_epochs * count / groups)

    def visited(self, index: int, step: int, totals: Collection[float]) -> None:
        """`totals`: of the answers of its group, without those that have no score."""
        times = self.visits.get(index, NEVER).times + 1
        self.visits[index] = Visit(step, times, len({round(value, 9) for value in totals}) < 2)

    def awake(self, groups: Sequence[int], step: int) -> list[int]:
        """The prompts of a step that was to have those of `groups`. In the place of one that rests
        comes the one that was learned from least and longest ago of those that do not.
        """
        chosen: list[int] = []
        for index in groups:
            if self._rests(index, step):
                others = {*range(self.count)} - {*groups} - {*chosen}
                awake = [
                    (visit.times, visit.step, other)
                    for other in others
                    for visit in [self.visits.get(other, NEVER)]
                    if not self._rests(other, step)
                ]
                index = min(awake)[-1] if awake else index
            chosen.append(index)
        return chosen

    def _rests(self, index: int, step: int) -> bool:
        visit = self.visits.get(index, NEVER)
        return visit.flat and step - visit.step < self.rest
