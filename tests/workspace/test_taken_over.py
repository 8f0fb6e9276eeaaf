"""What a stage takes over from the one it starts from: settings, the adapter's shape, its line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.config.settings import default
from agentlite.core.errors import UserError
from agentlite.workspace import lookup
from agentlite.workspace.lookup import Plan, RunTarget, Source
from agentlite.workspace.stage_folder import open_stage


def begin(folder: Path, **settings: Any) -> None:
    with open_stage(folder, Plan("sft", settings, {}), force=False):
        pass


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """base -> sft -> dpo, and a model of all weights."""
    modules = {"lora_target_modules": ["q", "v"]}
    begin(tmp_path / "sft", model="base", full=False, lora_r=4, lora_alpha=8, **modules)
    begin(tmp_path / "dpo", model="sft", full=False, lora_r=4, lora_alpha=8)
    begin(tmp_path / "whole", model="base", lora_r=4, full=True)
    begin(tmp_path / "loop", model="loop")
    return tmp_path


def test_the_line_goes_from_the_base_to_the_stage(run):
    assert lookup.lineage("base", run) == ["base"]
    assert lookup.lineage("sft", run) == ["base", "sft"]
    assert lookup.lineage("dpo", run) == ["base", "sft", "dpo"]
    assert lookup.lineage("loop", run) == ["loop"]


def test_rows_that_are_longer_than_usual_are_taken_over_and_shorter_ones_are_not(tmp_path):
    usual = default("sft", "max_length")
    for length, taken in ((usual - 1, False), (usual, False), (usual + 1, True)):
        begin(tmp_path / f"prep-{length}", max_length=length)
        expected = {"max_length": (length, f"prep-{length}")} if taken else {}
        assert lookup.max_length_of("sft", f"prep-{length}", tmp_path) == expected
    assert lookup.max_length_of("sft", "nowhere", tmp_path) == {}


def test_the_system_text_is_that_of_the_records_also_through_the_stages_between(tmp_path):
    begin(tmp_path / "prep", system="Be brief.")
    begin(tmp_path / "silent", system="")
    begin(tmp_path / "sft", data="prep")
    begin(tmp_path / "pairs", data="prep", system="Be blunt.")
    begin(tmp_path / "dpo", data="pairs")
    begin(tmp_path / "loop", data="round")
    begin(tmp_path / "round", data="loop")
    names = ("prep", "sft", "dpo", "silent", "loop", "elsewhere", "")
    found = {name: lookup.system_prompt_of(name, tmp_path) for name in names}
    known = {"prep": "Be brief.", "sft": "Be brief.", "dpo": "Be blunt."}
    assert found == {name: known.get(name, "") for name in names}


def test_a_stage_cannot_be_made_from_what_was_made_from_it(run):
    base, sft, dpo = (
        Source(name, "base", None, "d", made_from=made_from)
        for name, made_from in (("base", ()), ("sft", ("base",)), ("dpo", ("base", "sft")))
    )
    for model in (sft, dpo):
        with pytest.raises(UserError, match=f"{model.name} was made from it") as refused:
            lookup.refuse_circle(model, RunTarget(run, "sft"))
        assert refused.value.location == str(run / "sft") and refused.value.exit_code == 2
    lookup.refuse_circle(sft, RunTarget(run, "dpo"))
    lookup.refuse_circle(base, RunTarget(run, "sft"))


def test_the_shape_of_an_adapter_is_taken_over_and_that_of_whole_weights_is_not(run):
    shape = {
        name: lookup.adapter_shape(lookup.stored_settings(name, run))
        for name in ("sft", "whole", "base", "")
    }
    sft = {"lora_r": 4, "lora_alpha": 8, "lora_target_modules": ["q", "v"]}
    assert shape == {"sft": sft, "whole": {}, "base": {}, "": {}}


def test_an_adapter_that_would_change_its_shape_is_refused(run, monkeypatch):
    source = Source("sft", "base", run, "d", settings=lookup.stored_settings("sft", run))
    monkeypatch.setattr(lookup, "find_model", lambda *_: source)
    shape = {"lora_r": 4, "lora_alpha": 8, "lora_target_modules": ("q", "v")}
    settings = SimpleNamespace(model="sft", **shape)
    assert lookup.find_learner("dpo", settings, RunTarget(run, "dpo")) == source
    for key, value, words in (
        ("lora_r", 5, "has lora_r 4, not 5"),
        ("lora_target_modules", ("v", "q"), 'has lora_target_modules ["q", "v"], not ["v", "q"]'),
    ):
        changed = SimpleNamespace(**{**vars(settings), key: value})
        with pytest.raises(UserError) as refused:
            lookup.find_learner("dpo", changed, RunTarget(run, "dpo"))
        assert words in refused.value.problem
        assert refused.value.location == f"dpo.{key}" and "--model base" in refused.value.fix
