"""Rounds of the search for blueprints: what each slot has at the end, whatever each walk finds."""

from collections.abc import Iterator, Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.stages.make import search
from agentlite.stages.make.search import SearchSetup, Slot

PLACES = [("single", 0), ("single", 1), ("error", 0)]
SLOTS = [Slot(kind, number) for kind, number in PLACES]
EARLIER = [Slot("single", 9, SimpleNamespace(key="taken", made=[]))]
NOTHING, REFUSED = "", "refused"  # a walk that finds nothing, and a slot for which no words are
FOUND = (NOTHING, REFUSED, "a", "b", "taken")


def setup() -> SearchSetup:
    def accepts(slot: Slot) -> bool:
        return slot.blueprint is not None and not slot.blueprint.key.startswith(REFUSED)

    return SearchSetup(SimpleNamespace(name="env"), (), None, 0, 0, accepts)


def scripts() -> Iterator[dict[tuple[Any, int], str]]:
    """What the walk for each slot finds in each of two rounds."""
    for rounds in product(FOUND, repeat=4):
        first, second = rounds[:2], rounds[2:]
        yield {
            (PLACES[0], 0): first[0],
            (PLACES[1], 0): first[1],
            (PLACES[2], 0): "c",
            (PLACES[0], 1): second[0],
            (PLACES[1], 1): second[1],
            (PLACES[2], 1): "never looked for",
        }


def expected(script: dict[tuple[Any, int], str]) -> list[tuple[str, int]]:
    """Of each slot the key of its blueprint, and the round that it is from."""
    keys, done = {"taken"}, dict[Any, tuple[str, int]]()
    for turn, place in product(range(2), PLACES):
        key = script[place, turn]
        if place not in done and key not in {NOTHING, REFUSED, *keys}:
            keys.add(key)
            done[place] = key, turn
    return [done.get(place, ("", 1)) for place in PLACES]


def test_a_slot_of_a_world_has_the_first_blueprint_that_a_second_process_confirms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "ROUNDS", 2)

    def filled(_: object, __: object, slot: Slot, turn: int, keys: set[str]) -> Slot:
        key = script[slot.place, turn]
        if not key or key in keys:
            return slot
        keys.add(key)
        # a refused walk is a copy of nothing: another one may be refused for the same reason
        keys.discard(REFUSED)
        plan: Any = SimpleNamespace(key=key, made=[])
        return Slot(slot.kind, slot.number, plan, results=(f"round {turn}",))

    def confirmed(setup: SearchSetup, slots: Sequence[Slot]) -> Iterator[Slot]:
        yield from filter(setup.accepts, reversed(slots))

    monkeypatch.setattr(search, "_filled", filled)
    monkeypatch.setattr(search, "_confirmed", confirmed)
    for script in scripts():
        found = [*search._found(setup(), None, SLOTS, EARLIER)]
        assert [slot.place for slot in found] == PLACES
        assert [(slot.blueprint.key if slot.blueprint else "", slot.results) for slot in found] == [
            (key, (f"round {turn}",) if key else ()) for key, turn in expected(script)
        ]
