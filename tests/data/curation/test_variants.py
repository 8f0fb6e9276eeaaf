"""Which records get a variant, and why others get none."""

from itertools import combinations

import pytest

from agentlite.core.records import Message, Record
from agentlite.data.curation.variants import Kind, variant, variants_of

RECORDS = [
    Record(messages=(Message("user", f"Question {number}?"), Message("assistant", "Yes.")))
    for number in range(60)
]


def chosen(name: str, seed: int, share: float = 0.5) -> list[str]:
    """The ids of the records that are chosen for a kind of this name."""
    ids: list[str] = []

    def make(record: Record) -> str:
        ids.append(record.id)
        return "none is made"

    made = variants_of(RECORDS, {name: Kind(share, make)}, seed)
    assert not made.records and made.counts == ({name: {"none is made": len(ids)}} if share else {})
    return ids


def test_each_seed_and_each_kind_chooses_records_of_its_own() -> None:
    found = [chosen(name, seed) for name in ("masked", "wanted") for seed in (0, 1)]
    assert all(15 < len(ids) < 45 for ids in found)
    assert all(one != other for one, other in combinations(found, 2))
    assert chosen("masked", 1) == found[1]
    assert (chosen("masked", 0, 0.0), len(chosen("masked", 0, 1.0))) == ([], 60)
    assert {*chosen("masked", 0, 0.2)} < {*chosen("masked", 0, 0.6)}


@pytest.mark.parametrize(
    ("text", "counts"), [("No.", {"made": 60}), (" ", {"E216 would reject it": 60})]
)
def test_a_variant_that_prep_would_reject_is_counted_and_not_made(
    text: str, counts: dict[str, int]
) -> None:
    def make(record: Record) -> Record:
        return variant(record, "made so", messages=(record.messages[0], Message("assistant", text)))

    made = variants_of(RECORDS, {"other": Kind(1.0, make)}, 0)
    assert made.counts == {"other": counts}
    assert [one.parent for one in made.records] == [one.id for one in RECORDS if text == "No."]
