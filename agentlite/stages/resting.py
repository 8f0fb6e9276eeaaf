"""The prompts or tasks of a step of GRPO: one whose answers all earned the same rests."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from agentlite.config.settings import GrpoSettings


class Visit(NamedTuple):
    """The last step that a prompt was learned from in, how often it was, and whether all answers of
    the last group earned the same.
    """

    step: int
    times: int
    flat: bool


NEVER = Visit(-1, 0, flat=False)


class Resting:
    """Of `count` prompts. `rest`: steps for which one rests; 0: none does."""

    def __init__(self, count: int, rest: float):
        self.count, self.rest = count, rest
        self.visits: dict[int, Visit] = {}

    def visited(self, index: int, step: int, totals: Collection[float]) -> None:
        """`totals`: what the answers of its group earned, without those that have no score."""
        times = self.visits.get(index, NEVER).times + 1
        self.visits[index] = Visit(step, times, len({round(one, 9) for one in totals}) < 2)

    def awake(self, groups: Sequence[int], step: int) -> list[int]:
        """The prompts of a step that was to have those of `groups`. In the place of one that rests
        comes the one that was learned from least and longest ago of those that do not.
        """
        chosen: list[int] = []
        for index in groups:
            if self._rests(index, step):
                others = {*range(self.count)} - {*groups} - {*chosen}
                awake = [
                    (seen.times, seen.step, other)
                    for other in others
                    for seen in [self.visits.get(other, NEVER)]
                    if not self._rests(other, step)
                ]
                index = min(awake)[-1] if awake else index
            chosen.append(index)
        return chosen

    def _rests(self, index: int, step: int) -> bool:
        visit = self.visits.get(index, NEVER)
        return visit.flat and step - visit.step < self.rest


def resting_of(settings: GrpoSettings, count: int) -> Resting:
    """For `count` prompts. An epoch has a group for each."""
    groups = settings.batch_size * settings.gradient_accumulation / settings.group_size
    return Resting(count, settings.rested_epochs * count / groups)
