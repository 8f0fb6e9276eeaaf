"""pairs --preferences: recorded preferences become pairs, as sampled ones do; dpo trains them."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.samples import WEATHER_TOOL

from agentlite import prep
from agentlite.config.settings import DpoSettings, PairsSettings
from agentlite.core.records import PreferencePair, from_row
from agentlite.core.row_files import read_rows, read_structs
from agentlite.engine.dpo import Preference
from agentlite.stages import dpo, pairs
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Result, RunTarget, finished_stage

MODEL = "smollm2-135m"
TOOL = WEATHER_TOOL["function"]


def call(city: str) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": {"city": city}}
    return {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}


def row(number: int) -> dict[str, Any]:
    """Every second one is a call against an answer, the others are texts, and have no tools."""
    question = {"role": "user", "content": f"Is it wet in Oslo on day {number}?"}
    if number % 2:
        return {"prompt": [question], "chosen": f"On day {number} it is.", "rejected": "No idea."}
    return {
        "prompt": [question],
        "tools": [TOOL],
        "chosen": [call("Oslo")],
        "rejected": [{"role": "assistant", "content": "I cannot look that up."}],
    }


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def take(tmp_path: Path) -> Any:
    """Takes rows into the stage `pairs` of a workspace."""

    def run(rows: list[dict[str, Any]], out: str = "pairs", **changes: Any) -> Result:
        file = write(tmp_path / "preferences.jsonl", rows)
        settings = PairsSettings(**{"preferences": (file,), "model": MODEL, **changes})
        return pairs.run(settings, RunTarget(tmp_path / "r", out))

    return run


def preferences(folder: Path) -> list[Preference]:
    settings, stage = DpoSettings(data=str(folder), model=MODEL), finished_stage(folder, "pairs")
    return list(dpo.read_preferences(settings, stage, load_template(MODEL)))


def test_rows_become_pairs_once_each_and_in_their_order(take: Any, tmp_path: Path) -> None:
    rows = [row(number) for number in range(6)]
    figures = take([*rows, rows[0]]).figures
    assert [figures[name] for name in ("read", "pairs", "steps", "rejected")] == [7, 6, 6, 0]
    found = list(read_structs(tmp_path / "r/pairs/pairs.jsonl", PreferencePair))
    texts = [pair.chosen.text for pair in found]
    assert texts[1::2] == [f"On day {number} it is." for number in (1, 3, 5)]
    assert texts[0].startswith("<tool_call>") and '"city": "Oslo"' in texts[0]
    assert all(pair.margin > 0 for pair in found)
    assert take(rows, "mine").next.startswith("agentlite dpo --data mine --out dpo-mine")
    tokenizer = load_template(MODEL).tokenizer
    for pair, ids in zip(found, preferences(tmp_path / "r/pairs"), strict=True):
        for side, answer in ((pair.chosen, ids.chosen), (pair.rejected, ids.rejected)):
            assert tokenizer.decode(answer, skip_special_tokens=False) == side.text + "<|im_end|>"


@pytest.mark.parametrize(
    "keys", [("chosen_score", "rejected_score"), ("score_chosen", "score_rejected")]
)
def test_the_scores_of_a_row_are_those_of_its_pair(
    keys: tuple[str, str], take: Any, tmp_path: Path
) -> None:
    """A row whose scores contradict its sides is rejected; one without scores has 1 and 0."""
    scores = [(0.9, 0.2), (4, 4.0), (0.1, 0.8), ("high", None)]
    rows = [{**row(n), **dict(zip(keys, both, strict=True))} for n, both in enumerate(scores)]
    assert take(rows, max_rejects=0.5).figures["rejected_by_code"] == {"E219": 1}
    found = list(read_structs(tmp_path / "r/pairs/pairs.jsonl", PreferencePair))
    totals = [(pair.chosen.total, pair.rejected.total) for pair in found]
    assert totals == [(0.9, 0.2), (4.0, 4.0), (1.0, 0.0)]


def test_a_row_that_is_none_is_set_aside_with_its_bytes_and_its_reason(
    take: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = {"prompt": "a", "chosen": "b", "rejected": "b"}
    long = {"prompt": "a", "chosen": "b " * 400, "rejected": "c"}
    figures = take(
        [row(0), same, {"prompt": "a"}, long, row(1)], max_rejects=0.6, max_length=300
    ).figures
    assert figures["pairs"] == 2
    assert figures["rejected_by_code"] == {"E219": 1, "E202": 1, "E217": 1}
    rejects = list(read_rows(tmp_path / "r/pairs/rejects.jsonl"))
    assert [one["location"].rpartition(":")[2] for one in rejects] == ["2", "3", "4"]
    assert [one["code"] for one in rejects] == ["E219", "E202", "E217"]
    assert json.loads(rejects[0]["raw"]) == same and all(one["hint"] for one in rejects)
    assert "E219 chosen and rejected are the same" in capsys.readouterr().err


@pytest.fixture
def prepared(tmp_path: Path) -> Any:
    """A finished prep of the workspace, all of whose records are held out."""

    def run(split: str = "test", **changes: Any) -> None:
        held_out = [
            {
                "messages": [
                    {"role": "user", "content": f"{question} Call {phone}, it is urgent."},
                    call(city),
                    {"role": "tool", "content": "4 mm"},
                    {"role": "assistant", "content": "Yes."},
                ],
                "tools": [TOOL],
                "split": split,
            }
            for question, city, phone in (
                (CONCERT, "Oslo", "+49 170 1234567"),
                ("Is the harbour of Rotterdam under water?", LONG, "+49 170 7654321"),
            )
        ]
        file = write(tmp_path / "rows.jsonl", held_out)
        prep(file, run=str(tmp_path / "r"), model=MODEL, **changes)

    return run


LONG = "Rotterdam, the harbour behind the bridge, on the southern bank of the river"
CONCERT = "Will it rain in Oslo this evening, when the concert in the park by the river begins?"
LEAKING = [
    {"prompt": f"{CONCERT} Call +49 170 1234567, it is urgent."},
    {"prompt": f"{CONCERT.upper()} call +49 170 1234567: it is urgent"},
    {"prompt": f"{CONCERT} Call +49 170 1234567, it is so urgent."},
    {"prompt": "Something else?", "chosen": [call(LONG)], "tools": [TOOL]},
]


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("personal", ["report", "mask"])
def test_a_pair_that_gives_a_held_out_record_away_is_left_out_and_counted(
    take: Any, prepared: Any, tmp_path: Path, capsys: Any, split: str, personal: str
) -> None:
    """The same question, nearly the same, or the same telling calls."""
    prepared(split, personal=personal)
    leaking = [{"chosen": "Yes.", "rejected": "No.", **one} for one in LEAKING]
    figures = take([*leaking, row(1)]).figures
    assert (figures["left_out"], figures["pairs"], figures["rejected"]) == ({"F331": 4}, 1, 0)
    assert "4 pairs give away a dev or test record of prep (F331)" in capsys.readouterr().err
    (pair,) = read_structs(tmp_path / "r/pairs/pairs.jsonl", PreferencePair)
    (record,) = map(from_row, read_rows(tmp_path / "r/pairs/records.jsonl"))
    assert pair.record_id == record.id and record.messages[0].content.endswith("on day 1?")


@pytest.mark.parametrize("thoughts", ["keep", "drop"])
def test_thoughts_are_left_out_of_preferences_where_prep_left_them_out(
    take: Any, prepared: Any, tmp_path: Path, thoughts: str
) -> None:
    prepared(thoughts=thoughts)
    thought = "<think>\nI look.\n</think>\n\n"
    take([{**row(1), "chosen": f"{thought}Yes.", "rejected": f"{thought}No."}])
    (pair,) = read_structs(tmp_path / "r/pairs/pairs.jsonl", PreferencePair)
    (record,) = map(from_row, read_rows(tmp_path / "r/pairs/records.jsonl"))
    before = thought if thoughts == "keep" else ""
    assert [pair.chosen.text, pair.rejected.text] == [f"{before}Yes.", f"{before}No."]
    assert record.id == pair.record_id and record.messages[-1].content == f"{before}Yes."


def test_dpo_trains_on_recorded_preferences(take: Any, tmp_path: Path, tiny_model: Path) -> None:
    """Texts without tools and calls alike; the chosen answers end up the likelier ones."""
    take([row(number) for number in range(8)], model=str(tiny_model))
    few = {"max_steps": 4, "batch_size": 2, "gradient_accumulation": 1, "max_length": 1024}
    settings = DpoSettings(model=str(tiny_model), engine="hf", learning_rate=5e-3, **few)
    figures = dpo.run(settings, RunTarget(tmp_path / "r", "dpo")).figures
    assert figures["pairs"] == 8 and figures["margin"] > 0


def test_of_several_rejected_answers_a_bad_one_is_rejected_alone(take: Any, tmp_path: Path) -> None:
    question = {"role": "user", "content": "Is it wet?"}
    answers = {"messages": [question, {"role": "assistant", "content": "Yes."}]}
    several = {**answers, "rejected_response": ["No.", "Yes.", "Perhaps."]}
    figures = take([several], max_rejects=0.5).figures
    assert [figures[name] for name in ("read", "rejected", "steps", "pairs")] == [3, 1, 1, 2]
    (reject,) = read_rows(tmp_path / "r/pairs/rejects.jsonl")
    assert (reject["code"], reject["part"]) == ("E219", "2")
    found = read_structs(tmp_path / "r/pairs/pairs.jsonl", PreferencePair)
    assert [pair.rejected.text for pair in found] == ["No.", "Perhaps."]
    assert len(preferences(tmp_path / "r/pairs")) == 2
