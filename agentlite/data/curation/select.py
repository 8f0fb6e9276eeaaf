"""Traits of all records -> which are kept, and of each other one why not: in this order, and in no
other.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import UserError, nearest
from agentlite.data.curation.contradictions import contradictions
from agentlite.data.curation.decontaminate import HeldOut, leaks
from agentlite.data.curation.dedup import Copies, borne, call_copies, equal_copies, near_copies
from agentlite.data.curation.mix import draw, parse_mix
from agentlite.data.curation.traits import Traits


class End(NamedTuple):
    """Why a record is not kept, as a code; `of`: the id of the record it is a copy of or
    contradicts, or the place of the held-out row that it gives away.
    """

    code: str
    of: str = ""


class Selection:
    """What is chosen from, and what is left of it: `kept` are indices, `ends` says of every other
    record why.

    `told`: figures for the user, by name; `notes`: sentences.
    """

    def __init__(
        self,
        settings: PrepSettings,
        traits: list[Traits],
        sources: Sequence[str],
        sketches: Sequence[bytes],
        near_text: Callable[[int], str],
        held_out: HeldOut,
    ):
        self.settings, self.traits, self.sources = settings, traits, sources
        self.sketches, self.near_text, self.held_out = sketches, near_text, held_out
        self.kept = list(range(len(traits)))
        self.ends: dict[int, End] = {}
        self.notes: list[str] = []
        self.told: dict[str, object] = {}

    @property
    def here(self) -> list[Traits]:
        """The traits of the records that are left, in the order of `kept`."""
        return [self.traits[index] for index in self.kept]

    def leave_out(self, ends: Mapping[int, End]) -> None:
        """By place in `kept`."""
        self.ends |= {self.kept[place]: end for place, end in ends.items()}
        self.kept = [index for place, index in enumerate(self.kept) if place not in ends]


def choose(choice: Selection) -> None:
    """Takes every step."""
    for step in STEPS.values():
        step(choice)


def check_duplicates(names: Sequence[str]) -> None:
    """Raises UserError for a kind of copies that is none."""
    for name in names:
        if name not in COPIES:
            raise UserError(
                f"no copies are called '{name}'.", nearest(name, COPIES), location="--duplicates"
            )


def _equal(choice: Selection) -> Copies:
    return equal_copies(choice.here, [choice.sources[index] for index in choice.kept])


def _calls(choice: Selection) -> Copies:
    return call_copies(choice.here, seed=choice.settings.seed)


def _near(choice: Selection) -> Copies:
    sketches = [choice.sketches[index] for index in choice.kept]
    return near_copies(
        choice.here,
        sketches,
        lambda place: choice.near_text(choice.kept[place]),
        seed=choice.settings.seed,
        threshold=choice.settings.near,
    )


COPIES: dict[str, tuple[str, Callable[[Selection], Copies]]] = {
    "equal": ("D401", _equal),
    "calls": ("D402", _calls),
    "near": ("D403", _near),
}


def _without_copies(choice: Selection) -> None:
    """The one that is kept takes over the split of its copies."""
    for name, (code, find) in COPIES.items():
        if name not in choice.settings.duplicates:
            continue
        here, copies = choice.here, find(choice)
        for place, split in borne(here, copies).items():
            index = choice.kept[place]
            choice.traits[index] = choice.traits[index]._replace(split=split)
        choice.leave_out({place: End(code, here[of].id) for place, of in copies.items()})


def _without_contradictions(choice: Selection) -> None:
    here = choice.here
    groups = contradictions(here)
    if not groups:
        return
    choice.told["contradictions"] = sum(map(len, groups))
    if choice.settings.contradictions == "drop":
        others = {place: _otherwise(place, group, here) for group in groups for place in group}
        choice.leave_out({place: End("F321", here[other].id) for place, other in others.items()})
    else:
        one, other = groups[0][0], _otherwise(groups[0][0], groups[0], here)
        choice.notes.append(
            f"{sum(map(len, groups))} records contradict each other, {here[one].id} and "
            f"{here[other].id} among them (--contradictions drop leaves such out)"
        )


def _otherwise(place: int, group: Sequence[int], here: Sequence[Traits]) -> int:
    """The first of the group that calls otherwise."""
    return next(other for other in group if here[other].keys.first != here[place].keys.first)


def _without_leaks(choice: Selection) -> None:
    held_out = choice.held_out
    found = (
        leaks(choice.here, held_out.traits, threshold=choice.settings.near)
        if held_out.traits
        else {}
    )
    choice.leave_out(
        {place: End("F331", held_out.places[leak.of]) for place, leak in found.items()}
    )


def _drawn(choice: Selection) -> None:
    settings = choice.settings
    drawn = draw(
        choice.here,
        [choice.sources[index] for index in choice.kept],
        mix=parse_mix(settings.mix),
        task_weights=settings.task_weights,
        limit=settings.limit,
        seed=settings.seed,
    )
    choice.notes += drawn.notes
    if settings.mix:
        choice.told["mixed"] = drawn.by_group
    chosen = set(drawn.indices)
    choice.leave_out(
        {place: End("F312") for place in range(len(choice.kept)) if place not in chosen}
    )


STEPS: dict[str, Callable[[Selection], None]] = {
    "copies": _without_copies,
    "contradictions": _without_contradictions,
    "leaks": _without_leaks,
    "drawn": _drawn,
}
