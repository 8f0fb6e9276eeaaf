"""The tables in docs/planning.md: what `agentlite plan` says, beside what was published."""

import json
import sys

import pytest
from click.testing import CliRunner
from support.samples import ROOT

from agentlite.cli.main import group

sys.path.insert(0, str(ROOT / "scripts"))
import planning_table
from planning_table import CARDS, COMMANDS, MODELS, UNSLOTH, cell, least


@pytest.mark.long
def test_the_page_holds_the_tables_as_they_are_now():
    text = planning_table.PAGE.read_text(encoding="utf-8")
    assert planning_table.block() in text, "python scripts/planning_table.py renews it"
    assert "Calculated, not measured on a GPU" in planning_table.block()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("model", ["Qwen2.5-1.5B", "Llama-3.1-8B"])
def test_a_cell_is_what_the_command_prints(model, command, tmp_path):
    for card in CARDS:
        words = ["plan", "--model", MODELS[model], "--command", command, "--fit", f"{card}GB"]
        answer = CliRunner().invoke(group, [*words, "--json", "--run", str(tmp_path)])
        planned = json.loads(answer.stdout)["plan"]
        shown = cell(model, command, card)
        assert (shown == "–") is not planned["gib"]["fits"]
        if shown != "–":
            assert shown.startswith(f"{planned['bits']} bit, {planned['batch_size']} x ")
            assert shown.endswith(f": {planned['gib']['total']:.1f}")


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
