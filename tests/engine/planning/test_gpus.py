"""The card that is planned for, by its memory or by the name that its driver gives."""

import pytest

from agentlite.config import gpu_profiles
from agentlite.engine.planning.gpus import machine_of, speed_of
from agentlite.engine.planning.memory import GIB
from agentlite.engine.planning.time_and_disk import CARDS


@pytest.mark.parametrize(
    ("name", "gib", "key"),
    [
        ("NVIDIA GeForce RTX 2080 Ti", 11, "rtx2080 ti"),
        ("NVIDIA GeForce RTX 3060", 12, "rtx3060"),
        ("NVIDIA GeForce RTX 4060", 8, "rtx4060"),
        ("NVIDIA GeForce RTX 4060 Ti", 16, "rtx4060 ti"),
        ("NVIDIA GeForce RTX 4090", 23.99, "rtx4090"),
        ("NVIDIA GeForce RTX 5090", 31.8, "rtx5090"),
        ("Tesla T4", 15, "t4"),
        ("NVIDIA L4", 22.5, "l4"),
        ("NVIDIA L40S", 45, "l40s"),
        ("NVIDIA A10", 22.5, "a10"),
        ("NVIDIA A10G", 22.5, "a10g"),
        ("NVIDIA A100-SXM4-40GB", 39.6, "a100 40gb"),
        ("NVIDIA A100-SXM4-80GB", 79.3, "a100"),
        ("NVIDIA H100 80GB HBM3", 79.6, "h100"),
        ("NVIDIA H200", 140, "h200"),
        ("NVIDIA RTX A6000", 48, "a6000"),
        ("NVIDIA RTX 6000 Ada Generation", 48, "rtx6000 ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 95, "pro 6000"),
        ("Graphics Device", 24, "rtx4090"),
        ("Quadro T400", 4, "rtx4060"),
    ],
)
def test_a_card_is_known_by_its_name_and_else_by_its_memory(name, gib, key):
    assert speed_of(name, gib) == CARDS[key]


def test_the_card_of_this_machine_is_planned_with_the_memory_that_is_free(monkeypatch):
    card = gpu_profiles.Gpu("NVIDIA L4", 22.5, 9.5, 8.9)
    monkeypatch.setattr(gpu_profiles, "card", lambda: card)
    machine = machine_of("auto")
    assert (machine.capacity, machine.card, machine.name) == (9.5 * GIB, CARDS["l4"], "NVIDIA L4")
    assert machine_of("rtx4090").capacity == 24 * GIB and not machine_of("cpu").gpu


@pytest.mark.parametrize(("capability", "bf16"), [(7.5, False), (8.6, True)])
def test_a_card_whose_name_is_not_known_is_known_by_all_of_its_memory(
    capability, bf16, monkeypatch
):
    card = gpu_profiles.Gpu("Graphics Device", 24, 3.0, capability)
    monkeypatch.setattr(gpu_profiles, "card", lambda: card)
    machine = machine_of("auto")
    assert (machine.card, machine.capacity) == (CARDS["rtx4090"], 3 * GIB)
    assert machine.bf16 is bf16
