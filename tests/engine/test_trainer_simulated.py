"""What Unsloth's configurations make of the arguments of a trainer: simulated, not run on a GPU."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from support import trainers
from support.simulated_cuda import simulated

from agentlite.config.settings import GrpoSettings

pytestmark = pytest.mark.torch

LOSS_TYPES = get_args(get_type_hints(GrpoSettings)["loss_type"])
# Field -> what Unsloth has in place of TRL's value, and why it stays so.
ALLOWED = {
    "gradient_checkpointing_kwargs": {"use_reentrant": True},  # its checkpointing is reentrant
    "padding_free": None,  # it leaves padding out where that is faster; sft alone reads it
    "router_aux_loss_coef": 0.0,  # its loss of grpo has no such term; for mixtures of experts
    "generation_kwargs": {},  # none, written in another way
}


class EnoughError(Exception):
    """The configuration is made, and no model is needed."""


def enough(*_: Any, **__: Any) -> Any:
    raise EnoughError


def differences() -> dict[str, dict[str, dict[str, Any]]]:
    """Of each trainer's configuration from TRL's own class with the same values: by field, ours and
    TRL's.
    """
    from agentlite.engine import dpo, grpo, load_libraries, sft, trainer

    load_libraries("unsloth")
    made: list[tuple[Any, dict[str, Any], Any]] = []
    configuration = trainer.configuration

    def noted(config_class: Any, values: dict[str, Any]) -> Any:
        made.append((config_class, values, configuration(config_class, values)))
        return made[-1][2]

    trainer.configuration = noted
    rows, plan, folder = trainers.short_rows(), trainer.Schedule(6, 4, 2), Path("run")
    sft.load = enough
    with contextlib.suppress(EnoughError):
        sft.make_trainer(trainers.source(folder), trainers.sft(), folder, rows, rows[:2], plan)
    dpo.configure(trainers.dpo(), folder, plan)
    for loss_type in LOSS_TYPES:
        grpo.configure(trainers.grpo(loss_type=loss_type), folder, trainers.task(), plan)
    mine = {"mask_truncated_completions": True, "epsilon_high": 0.3, "weight_decay": 0.1}
    chosen = trainers.grpo(loss_type="dapo", trl=mine)
    grpo.configure(chosen, folder, trainers.task(), plan)
    found: dict[str, dict[str, dict[str, Any]]] = {"ours": {}, "passed": {}}
    for name, (config_class, values, ours) in zip(
        ("sft", "dpo", *LOSS_TYPES, "passed"), made, strict=True
    ):
        own = [base for base in config_class.__mro__ if base.__name__ == config_class.__name__][-1]
        assert own is not config_class, "Unsloth's class stands in place of TRL's"
        plain = own(**values)
        found["ours"][name] = {
            field.name: [getattr(ours, field.name), getattr(plain, field.name)]
            for field in dataclasses.fields(plain)
            if repr(getattr(ours, field.name)) != repr(getattr(plain, field.name))
        }
    passed = made[-1][2]
    found["passed"] = {key: getattr(passed, key) for key in mine}
    return found


@pytest.fixture(scope="module")
def found():
    return simulated(differences, card="rtx3060")


@pytest.mark.parametrize("name", ["sft", "dpo", *LOSS_TYPES])
def test_a_configuration_holds_what_trls_own_class_makes_of_the_same_settings(found, name):
    for field, (ours, _) in found["ours"][name].items():
        assert field in ALLOWED and ours == ALLOWED[field], field


def test_what_a_user_passes_through_is_kept(found):
    assert found["passed"] == {
        "mask_truncated_completions": True,
        "epsilon_high": 0.3,
        "weight_decay": 0.1,
    }
