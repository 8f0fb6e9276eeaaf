"""The card that is planned for, by its memory or by the name that its driver gives."""

import pytest

from agentlite.config import this_machine
from agentlite.engine.planning.gpus import CARDS, machine_of
from agentlite.engine.planning.memory import GIB


def test_the_card_of_this_machine_is_planned_with_the_memory_that_is_free(monkeypatch):
    card = this_machine.Gpu("NVIDIA L4", 22.5, 9.5, 8.9)
    monkeypatch.setattr(this_machine, "find_gpu", lambda: card)
    machine = machine_of("auto")
    assert (machine.capacity, machine.card, machine.name) == (9.5 * GIB, CARDS["l4"], "NVIDIA L4")
    assert machine_of("rtx4090").capacity == 24 * GIB and not machine_of("cpu").gpu


@pytest.mark.parametrize(("capability", "bf16"), [(7.5, False), (8.6, True)])
def test_a_card_whose_name_is_not_known_is_known_by_all_of_its_memory(
    capability, bf16, monkeypatch
):
    card = this_machine.Gpu("Graphics Device", 24, 3.0, capability)
    monkeypatch.setattr(this_machine, "find_gpu", lambda: card)
    machine = machine_of("auto")
    assert (machine.card, machine.capacity) == (CARDS["rtx4090"], 3 * GIB)
    assert machine.bf16 is bf16
