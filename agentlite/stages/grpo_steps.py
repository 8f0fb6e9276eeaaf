"""The steps of GRPO: which prompts or tasks each takes, and a log of what was sampled in them."""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
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


class PromptSchedule:
    """Which prompts rest: those whose last group all scored the same, for `epochs`. An epoch has a
    group for each prompt, and a step `groups` of them. `keys`: what each prompt is known by.
    """

    def __init__(self, keys: Sequence[Hashable], epochs: float, groups: float):
        self.keys, self.steps = keys, epochs * len(keys) / groups
        self.visits: dict[Hashable, Visit] = {}

    @classmethod
    def of(cls, settings: GrpoSettings, keys: Sequence[Hashable]) -> "PromptSchedule":
        groups = settings.batch_size * settings.gradient_accumulation / settings.group_size
        return cls(keys, settings.rested_epochs, groups)

    def visited(self, key: Hashable, step: int, totals: Collection[float]) -> None:
        """`totals`: of the answers of its group, without those that have no score."""
        times = self.visits.get(key, NEVER).times + 1
        self.visits[key] = Visit(step, times, len({round(value, 9) for value in totals}) < 2)

    def select(self, groups: Sequence[int], step: int) -> list[int]:
        """The prompts of a step that was to have those of `groups`. In the place of one that rests
        comes the one that was learned from least and longest ago of those that do not.
        """
        visits = [self.visits.get(key, NEVER) for key in self.keys]
        awake = {
            index
            for index, visit in enumerate(visits)
            if not visit.flat or step - visit.step >= self.steps
        }
        chosen: list[int] = []
        for index in groups:
            others = awake - {*groups} - {*chosen}
            if index not in awake and others:
                index = min(
                    others, key=lambda other: (visits[other].times, visits[other].step, other)
                )
            chosen.append(index)
        return chosen
