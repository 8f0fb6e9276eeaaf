"""Shards that cannot be gathered: rows that were not dealt out evenly, seeds, and versions."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.config.resolve import plain_settings
from agentlite.config.settings import PrepSettings, fields
from agentlite.core.errors import OTHER_PLAN, UserError
from agentlite.stages.prep import shards
from agentlite.workspace import run_folder
from agentlite.workspace.run_folder import Done, Plan, open_stage


def dealt(rows: int, count: int) -> list[int]:
    """Row after row to shard after shard."""
    return [len(range(number, rows, count)) for number in range(count)]


def refuse_uneven(held: list[int]) -> None:
    plan = Plan(shards.COMMAND, {"sources": ["a.jsonl"]}, {}, {})
    found = [
        shards._FoundShard(Path(f"run/prep-{n}"), plan, shards.ShardNumber(n, len(held)))
        for n in range(1, len(held) + 1)
    ]
    shards._refuse_uneven(found, [Done({}, {"rows": rows}, 0.0) for rows in held])


@given(st.integers(0, 40), st.integers(1, 7))
def test_rows_that_were_dealt_out_evenly_are_gathered(rows: int, count: int) -> None:
    refuse_uneven(dealt(rows, count))


@pytest.mark.long
@given(st.integers(2, 40), st.integers(2, 7), st.data())
def test_a_row_that_is_in_another_shard_is_an_error(
    rows: int, count: int, data: st.DataObject
) -> None:
    held = dealt(rows, count)
    source = data.draw(st.sampled_from([n for n in range(count) if held[n]]))
    target = data.draw(st.sampled_from([n for n in range(count) if n != source]))
    held[source] -= 1
    held[target] += 1
    with pytest.raises(UserError, match="were not read alike") as refused:
        refuse_uneven(held)
    assert refused.value.exit_code == OTHER_PLAN and "--force" in refused.value.fix


@pytest.mark.parametrize(("protocol", "refused"), [("hermes", False), ("hermes=2,react", True)])
def test_another_seed_is_another_prep_only_where_it_chooses_protocols(
    protocol: str, refused: bool
) -> None:
    """It draws the splits as well, but over all rows, where they are gathered."""
    planned, given = (
        plain_settings(PrepSettings(sources=("a.jsonl",), protocol=protocol, seed=seed))
        for seed in (0, 1)
    )
    found = shards.Shards([], PrepSettings(), {"model": "m"}, planned, {})
    shards.refuse_other_rows(found, planned, "m")
    if not refused:
        shards.refuse_other_rows(found, given, "m")
        return
    with pytest.raises(UserError) as caught:
        shards.refuse_other_rows(found, given, "m")
    assert (caught.value.location, caught.value.exit_code) == ("--seed", OTHER_PLAN)


# what is done with all rows, or how, once each of them has been read
LATER = {
    *("mix", "limit", "join", "join_tokens", "task_weights", "contradictions", "near", "holdout"),
    *("coreset_strategy", "coreset_target_size", "coreset_loss", "coreset_model"),
    *("replay", "continual_buffer_size", "continual_replay_ratio"),
    *("distractors", "remove_tool", "relax_required", "want_optional", "no_call_answer_zh"),
    *("mask_names", "dev", "test", "split_by", "seed", "rows", "max_rejects"),
    *("workers", "shard", "gather"),
}


@pytest.mark.parametrize("key", fields("prep"))
def test_each_setting_is_of_the_rows_or_of_what_is_done_with_them_later(key: str) -> None:
    """Of the rows: shards that were read with another one cannot be gathered."""
    planned = plain_settings(PrepSettings(sources=("a.jsonl",), protocol="hermes"))
    found = shards.Shards([], PrepSettings(), {"model": "m"}, planned, {})
    changed = {**planned, key: "react"}
    if key in LATER:
        return shards.refuse_other_rows(found, changed, "m")
    with pytest.raises(UserError) as refused:
        shards.refuse_other_rows(found, changed, "m")
    assert refused.value.location == f"--{key.replace('_', '-')}"


def test_a_shard_of_another_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    own = run_folder.versions()
    for version in ("0.0.9", own["agentlite"]):
        settings: dict[str, Any] = {"shard": "1/2"}
        plan = Plan(shards.COMMAND, settings, {}, {**own, "agentlite": version})
        with open_stage(tmp_path / version, plan, force=False):
            pass
    assert shards._found(tmp_path / own["agentlite"]).number == (1, 2)
    with pytest.raises(UserError, match=r"agentlite 0\.0\.9, and this is") as refused:
        shards._found(tmp_path / "0.0.9")
    assert refused.value.exit_code == OTHER_PLAN
