"""The tables in docs/planning.md: what `agentlite plan` says, beside what was published."""

import sys

import pytest
from support.samples import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import planning_table
from planning_table import CARDS, UNSLOTH, cell, least


@pytest.mark.long
def test_the_page_holds_the_tables_as_they_are_now():
    text = planning_table.PAGE.read_text(encoding="utf-8")
    assert planning_table.block() in text, "python scripts/planning_table.py renews it"
    assert "Calculated, not measured on a GPU" in planning_table.block()


def test_16_bit_is_chosen_on_no_card_below_the_minimum_that_unsloth_publishes():
    for model, (four, sixteen) in UNSLOTH.items():
        for card in CARDS:
            shown = cell(model, "sft", card)
            assert card >= sixteen or not shown.startswith("16 bit"), (model, card)
            assert card >= four or shown == "–", (model, card)


@pytest.mark.parametrize("bits", [4, 16])
def test_the_least_that_is_planned_is_near_what_unsloth_publishes(bits):
    """Its table is a rule of thumb, of which no length is known: within 45 % of it, and in 4 bit
    above it."""
    for model, (four, sixteen) in UNSLOTH.items():
        published = four if bits == 4 else sixteen
        assert 0.75 * published <= least(model, bits) <= 1.45 * published, model
        assert bits == 16 or least(model, bits) >= published, model
