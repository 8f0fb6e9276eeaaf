"""`prep --from pairs`: which candidates become training rows, what of them is learned, what is said
about the others.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.sampled_pairs import records_of, sampled
from support.samples import DATA, WEATHER

import agentlite
from agentlite.core.conditions import parse_keep
from agentlite.core.records import Candidate, Gold, Message, Record, from_row
from agentlite.core.row_files import json_line, read_rows
from agentlite.rendering import PROTOCOLS
from agentlite.stages.prep.candidates import REWARD, _record, choose_candidates
from agentlite.workspace.input_files import embedded_tokenizer


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A workspace with a prep, and with candidates of its train records."""
    folder = tmp_path / "run"
    options = {"model": "smollm2-135m", "protocol": "hermes", "dev": 0.0, "test": 0.0}
    agentlite.prep(str(DATA / "weather.jsonl"), run=str(folder), **options)
    sampled(folder)
    return folder


def prep(run: Path, *sources: str, **settings: Any) -> Any:
    given = {"trajectories": ("pairs",), "keep": "best", "model": "smollm2-135m", **settings}
    return agentlite.prep(*sources, run=str(run), out="best", protocol="hermes", **given)


def learned(run: Path, out: str = "best") -> list[Record]:
    return [
        from_row(row)
        for name in ("train", "dev", "test")
        for row in read_rows(run / out / f"{name}.jsonl")
    ]


def test_at_each_step_the_first_of_the_best_right_candidates_is_learned(run):
    result = prep(run)
    steps = {(record.id, turn): record for record in records_of(run) for turn in record.turns}
    made = learned(run)
    assert {(one.meta["candidate"]["record"], one.turns[-1]) for one in made} == steps.keys()
    for one in made:
        origin = one.meta["candidate"]
        assert (origin["model"], origin["sample"]) == ("sft", 2)
        record = steps[origin["record"], origin["turn"]]
        assert one.messages[-1].calls == tuple(
            replace(call, id="") for call in record.messages[origin["turn"]].calls
        )
        assert one.gold_at(one.turns[-1]) == record.gold_at(origin["turn"])
        assert one.parent == record.id  # so that it never faces its own question in a test
    [figures] = result.figures["candidates"].values()
    assert figures == {
        "read": 4 * len(steps),
        "below": 2 * len(steps),
        "unusable": 0,
        "surpassed": len(steps),
        "kept": len(steps),
    }
    assert figures["read"] == sum(figures[n] for n in ("below", "unusable", "surpassed", "kept"))
    # each row is named by the line of its candidate
    candidates = list(read_rows(run / "pairs" / "candidates.jsonl"))
    rows = list(read_rows(run / "best" / "provenance.jsonl"))
    lines = [int(row["location"].rpartition("candidates.jsonl:")[2]) for row in rows]
    assert {candidates[line - 1]["sample"] for line in lines} == {2} and len(lines) == len(made)


def test_dev_questions_that_were_sampled_are_learned_and_measure_nothing_any_more(run):
    dev = [{**row, "split": "dev"} for row in read_rows(run / "prep" / "train.jsonl")]
    (run / "prep" / "train.jsonl").write_bytes(b"".join(map(json_line, dev)))
    sampled(run, split="dev")
    result = prep(run, str(DATA / "weather.jsonl"), dev=0.3, test=0.3)
    made = [one for one in learned(run) if "candidate" in one.meta]
    assert made and {one.split for one in made} == {"train"}
    asked = {one.messages[0].content for one in made}
    elsewhere = [one for one in learned(run) if one.split != "train"]
    assert not asked & {one.messages[0].content for one in elsewhere}
    assert result.figures["train"] >= len(made)


@pytest.mark.long
@pytest.mark.parametrize(
    ("keep", "samples", "met"),
    [("", {2, 3}, 2), ("exact>=1,best", {2}, 2), ("reward>=-5", {2, 3}, 4)],
)
def test_a_condition_takes_the_place_of_being_right(run, keep, samples, met):
    """What was cut off, or calls no tool on offer, is never learned."""
    result = prep(run, keep=keep, duplicates=("none",))
    [figures] = result.figures["candidates"].values()
    steps = figures["read"] // 4
    assert (figures["kept"], figures["read"] - figures["below"]) == (
        len(samples) * steps,
        met * steps,
    )
    assert {one.meta["candidate"]["sample"] for one in learned(run)} == samples
    assert result.figures.get("rejects", {}) == {}


@pytest.mark.parametrize(
    ("text", "ended", "is_learned"),
    [
        ("It is wet.", "turn", True),
        ("It is wet.", "cut", False),
        ("<tool_call>\n{", "turn", False),
        ('<tool_call>\n{"name": "sell", "arguments": {}}\n</tool_call>', "turn", False),
    ],
)
@pytest.mark.parametrize("has_gold", [True, False])
def test_a_candidate_is_the_last_turn_and_the_only_one_to_be_learned(
    text: str, ended: Any, is_learned: bool, has_gold: bool
) -> None:
    asked = (Message("user", "Wet?"), Message("assistant", "Where?"), Message("user", "In Oslo."))
    words = (*asked, Message("assistant", "Yes."), Message("user", "Thanks."))
    gold = {1: Gold(), 3: Gold(known=has_gold)}
    record = Record(messages=words, tools=(WEATHER,), gold=gold, split="dev", meta={"a": 1})
    one = Candidate(record.id, 3, "hermes", "m", 4, text, ended, 1)
    made = _record(one, 0.5, {record.id: record}, {"hermes": PROTOCOLS["hermes"]})
    assert (made is not None) == is_learned
    if made is None:
        return
    assert [message.content for message in made.messages] == ["Wet?", "Where?", "In Oslo.", text]
    assert made.messages[1].loss is False
    assert made.messages[3].loss is not False and made.tools == record.tools
    assert made.gold == ({3: Gold()} if has_gold else {})
    assert (made.split, made.parent) == ("train", record.id)
    origin = {"record": record.id, "turn": 3, "model": "m", "sample": 4, REWARD: 0.5}
    assert made.meta == {"a": 1, "candidate": origin}


def test_a_call_in_a_thought_that_the_prompt_opens_is_not_learned(run, tmp_path):
    """Hermes is read as the template of the model has it, as in eval."""
    base, weights = tmp_path / "base", shutil.ignore_patterns("*.safetensors")
    shutil.copytree(embedded_tokenizer("smollm2-135m"), base, ignore=weights)
    (base / "model.safetensors").touch()
    template = base / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant\n'", "assistant\n<think>\n'"))
    sampled(run, "thinking", model=str(base))
    rows, counts = choose_candidates(run / "thinking", parse_keep("best"))
    assert not rows and counts["unusable"] == counts["read"] - counts["below"] > 0
