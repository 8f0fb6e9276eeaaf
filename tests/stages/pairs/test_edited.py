"""pairs --edits: the correct answer against one with a single mistake, in every protocol."""

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from support.generated_run import stage

from agentlite.config.settings import DpoSettings, EvalSettings, PairsSettings, PrepSettings
from agentlite.core.errors import OTHER_PLAN, UserError
from agentlite.core.records import (
    ANY_ARGUMENTS,
    GOLD,
    Gold,
    GoldCall,
    GreedyAnswer,
    PreferencePair,
    Record,
    Side,
    Step,
    from_row,
)
from agentlite.core.row_files import read_rows, write_rows
from agentlite.data.formats import to_record
from agentlite.data.prompt_records import find_prompts
from agentlite.rendering import PROTOCOLS, Prompt, encode_answer, settled, training_rows
from agentlite.rendering.encoding import IGNORED
from agentlite.rendering.template import Template
from agentlite.scoring.gold_edits import EDITS, REFUSAL, elsewhere
from agentlite.scoring.metrics.wrong_answers import WrongKind, wrong_kind
from agentlite.scoring.predictions import prompt_key
from agentlite.scoring.preference_pairs import read_pairs
from agentlite.scoring.read_turn import read_turn
from agentlite.scoring.rewards import WEIGHTS, settle_weights
from agentlite.stages import dpo, pairs, prep
from agentlite.stages import eval as evaluation
from agentlite.stages.pairs.edited import (
    Draw,
    EditedPairs,
    Editor,
    EditShares,
    _figures,
    _mistakes_on_dev,
    _statistics,
    _within_shares,
    edited_pairs,
)
from agentlite.workspace import run_folder
from agentlite.workspace.model_source import find_model, load_template
from agentlite.workspace.run_folder import Result, RunTarget

MODEL = "smollm2-135m"
WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "units": {"type": "array", "items": {"type": "string"}},
            "detail": {"type": "boolean"},
        },
        "required": ["city"],
    },
}
TIME = {
    "name": "get_time",
    "description": "Time in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
CITIES = ("Oslo", "Lima", "Bonn", "Rome", "Lyon", "Kyiv", "Cork", "Graz")


def call(name: str, number: int = 0, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call0000{number}", "type": "function", "function": function}


def row(number: int) -> dict[str, Any]:
    """In turn: a call and an answer after its result, an answer alone, two calls at once."""
    city, other = CITIES[number % 8], CITIES[(number + 3) % 8]
    one = call("get_weather", city=city, days=number + 2, units=["mm", "C"])
    asked = f"Is it wet in {city} in {number + 2} days, and what of {other}?"
    turns: list[dict[str, Any]] = [
        {"role": "assistant", "content": "I must look it up.", "tool_calls": [one]},
        {"role": "tool", "content": "4 mm", "tool_call_id": "call00000"},
        {"role": "assistant", "content": f"In {city} it is wet."},
    ]
    if number % 3 == 1:
        asked = f"Thank you for {city}, number {number}."
        turns = [{"role": "assistant", "content": f"You are welcome in {city}."}]
    if number % 3 == 2:
        calls = [one, call("get_time", 1, city=other)]
        turns = [{"role": "assistant", "content": "", "tool_calls": calls}]
    return {"messages": [{"role": "user", "content": asked}, *turns], "tools": [WEATHER, TIME]}


def records(protocol: str) -> list[Record]:
    every = [to_record(openai(row(number)), "openai") for number in range(9)]
    several = PROTOCOLS[protocol].several
    return [one for one in every if several or all(len(m.calls) < 2 for m in one.messages)]


def openai(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "tools": [{"type": "function", "function": one} for one in given["tools"]]}


def edited(
    protocol: str,
    templates: Mapping[str, Template],
    kinds: Sequence[WrongKind] = (),
    answers: Sequence[str] = (),
    **changes: Any,
) -> tuple[Editor, EditedPairs]:
    """`answers`: in place of those of the records."""
    template = templates["tools" if protocol == "chat" else "smollm2"]
    found, settings = records(protocol), PairsSettings(**changes)
    known = elsewhere(found)
    editor = Editor(
        settings,
        known._replace(answers=[*answers]) if answers else known,
        settled(protocol, template),
        template,
        settle_weights(settings.weights),
    )
    shares = EditShares(dict.fromkeys(kinds or EDITS, 1.0), {})
    return editor, edited_pairs(editor, found, shares)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_writes_the_one_mistake_and_reads_it_back(
    protocol: str, templates: dict[str, Template]
) -> None:
    """Each kind, wherever the step has something to edit: never lost, always worse than gold."""
    possible: Counter[str] = Counter()
    by_id = {record.id: record for record in records(protocol)}
    for kind in EDITS:
        editor, made = edited(protocol, templates, [kind])
        possible[kind] = len(made.pairs)
        assert made.steps == len(made.pairs) + made.no_pair.total()
        none = made.no_pair["no edit is possible"]
        assert made.no_pair.total() == none >= sum(one.total() for one in made.impossible.values())
        reader = editor.mixture.protocols[protocol]
        for pair in made.pairs:
            record = by_id[pair.record_id]
            assert (pair.chosen.model, pair.rejected.model) == (GOLD, f"({kind})")
            assert pair.margin >= editor.settings.margin
            gold = record.expected(pair.turn)
            for side, read in ((pair.chosen, ""), (pair.rejected, kind)):
                parsed = read_turn(side.text, reader, record, pair.turn)
                assert wrong_kind(parsed, gold, record.tools) == read
    calls = sum(bool(m.calls) for record in by_id.values() for m in record.messages)
    answers = sum(len(record.turns) for record in by_id.values()) - calls
    several = sum(len(m.calls) > 1 for record in by_id.values() for m in record.messages)
    writes_twice = calls if PROTOCOLS[protocol].several else 0
    assert possible == {
        "unwanted_call": answers,
        "no_call": calls,
        "wrong_tool": calls - several,  # with two calls, both tools are in use
        "number_of_calls": writes_twice,
        **dict.fromkeys(
            ("missing_required", "missing_optional", "extra_parameter", "wrong_type"), calls
        ),
        "other_text": calls,
        "other_value": calls,
    }


@pytest.mark.parametrize("protocol", ["hermes", "react", "toolllama"])
def test_the_same_seed_draws_the_same_edits_and_another_one_others(
    protocol: str, templates: dict[str, Template]
) -> None:
    first, again, other = (edited(protocol, templates, seed=seed)[1] for seed in (1, 1, 2))
    assert first.pairs == again.pairs != other.pairs
    assert first.impossible == again.impossible


def test_an_edit_that_reads_otherwise_than_it_was_meant_is_not_taken(
    templates: dict[str, Template],
) -> None:
    """Words that are a call in another syntax cannot be read: they are not "no call"."""
    bad = [f'get_weather(city="{city}")' for city in CITIES]
    _, made = edited("hermes", templates, ["no_call"], bad)
    assert {pair.rejected.text for pair in made.pairs} == {REFUSAL}


def test_an_edit_that_earns_as_much_as_the_gold_is_counted_and_not_taken(
    templates: dict[str, Template],
) -> None:
    only = dict.fromkeys(WEIGHTS, 0.0) | {"timing_quality": 1.0}
    _, made = edited("hermes", templates, ["other_text"], weights=only)
    calls = sum(bool(m.calls) for record in records("hermes") for m in record.messages)
    assert not made.pairs
    assert made.impossible == {"other_text": {"the reward differs by less than the margin": calls}}


@pytest.mark.parametrize("margin", [0.0, 0.3, 0.6])
def test_an_edit_is_taken_from_the_margin_on(margin: float, templates: dict[str, Template]) -> None:
    """The margins that no setting asks for are those of the edits themselves."""
    _, whole = edited("hermes", templates, margin=0.0)
    _, made = edited("hermes", templates, margin=margin)
    assert all(pair.margin >= margin - 1e-9 for pair in made.pairs)
    small = sum(
        one["the reward differs by less than the margin"] for one in made.impossible.values()
    )
    assert bool(small) is any(pair.margin < margin for pair in whole.pairs)
    least = min(pair.margin for pair in whole.pairs)
    assert edited("hermes", templates, margin=least)[1].pairs == whole.pairs


def test_a_gold_that_cannot_be_chosen_makes_no_pair_and_is_counted(
    templates: dict[str, Template],
) -> None:
    """Its arguments are not known, or it is not right by what the record itself expects."""
    first = records("hermes")[0]
    turn = first.turns[0]
    name = first.messages[turn].calls[0].name
    bare = msgspec.structs.replace(
        first.messages[turn],
        calls=(msgspec.structs.replace(first.messages[turn].calls[0], arguments={}),),
    )
    messages = (*first.messages[:turn], bare, *first.messages[turn + 1 :])
    unknown = msgspec.structs.replace(
        first, messages=messages, gold={turn: Gold((GoldCall(name, ANY_ARGUMENTS),))}
    )
    wrong = msgspec.structs.replace(
        first, gold={turn: Gold((GoldCall("get_time", {"city": ["Oslo"]}),))}
    )
    editor, _ = edited("hermes", templates)
    shares = EditShares(dict.fromkeys(EDITS, 1.0), {})
    made = edited_pairs(editor, [unknown, wrong], shares)
    assert made.no_pair["the data does not know the arguments"] == 1
    assert made.no_pair["the recorded answer is not right itself"] == 1
    assert made.steps == len(made.pairs) + made.no_pair.total() == 4


def test_the_surplus_of_a_kind_is_drawn_by_the_seed_and_the_others_keep_their_order() -> None:
    pairs = [
        PreferencePair(f"r{n}", 1, "hermes", side, msgspec.structs.replace(side, model=f"({kind})"))
        for n, kind in enumerate(["no_call", "other_text"] * 10)
        for side in [Side("a", "turn", GOLD, 0, 1.0)]
    ]
    kept = [
        [pairs.index(one) for one in _within_shares(pairs, {"no_call": 3, "other_text": 9}, seed)]
        for seed in range(4)
    ]
    for one in kept:
        assert one == sorted(one) and len(one) == 12
        assert sum(index % 2 == 0 for index in one) == 3
    assert len({tuple(one) for one in kept}) == 4


def test_the_statistics_are_those_of_the_kinds_that_were_wanted_and_of_no_other() -> None:
    def pair(kind: str, margin: float) -> PreferencePair:
        sides = (Side("a", "turn", name, 0, total) for name, total in ((GOLD, margin), (kind, 0.0)))
        return PreferencePair("r", 1, "hermes", *sides)

    kinds: Counter[WrongKind] = Counter({"wrong_tool": 2, "no_call": 1})
    impossible: dict[WrongKind, Counter[str]] = {"wrong_type": Counter({"a": 2, "b": 3})}
    made = [pair("(wrong_tool)", 0.5), pair("(no_call)", 0.2), pair("(wrong_tool)", 0.75)]
    found = EditedPairs(9, [], made, kinds, impossible, Counter({"no edit": 6}))
    shares = EditShares({"wrong_type": 1.0, "no_call": 3.0, "wrong_tool": 4.0}, {"cut_off": 1})
    stats = _statistics(found, shares, {"exact": 1.0})
    assert stats["edits"] == {
        "no_call": {"wanted": 0.375, "pairs": 1, "mean_margin": 0.2, "impossible": {}},
        "wrong_tool": {"wanted": 0.5, "pairs": 2, "mean_margin": 0.625, "impossible": {}},
        "wrong_type": {
            "wanted": 0.125,
            "pairs": 0,
            "mean_margin": None,
            "impossible": {"a": 2, "b": 3},
        },
    }
    assert [*stats["edits"]] == [kind for kind in EDITS if kind in shares.weights]
    assert stats["no_pair"] == {"no edit": 6} and stats["wrong_answers"] == {"cut_off": 1}
    assert _figures(found) == {
        "steps": 9,
        "pairs": 3,
        "edits": {"no_call": 1, "wrong_tool": 2},
        "impossible": {"wrong_type": 5},
        "no_pair": {"no edit": 6},
        "mean_margin": 0.4833,
    }


def test_kinds_are_drawn_in_their_shares_as_far_as_the_steps_allow() -> None:
    draw = Draw({"no_call": 6.0, "other_text": 3.0, "missing_optional": 1.0})
    for _ in range(100):
        draw.counts[draw.order(Random(0))[0]] += 1
    assert draw.counts == {"no_call": 60, "other_text": 30, "missing_optional": 10}


def test_no_kind_has_more_pairs_for_its_share_than_another(
    templates: dict[str, Template],
) -> None:
    """Steps that know one kind only must not drown the others."""
    draw = Draw({"unwanted_call": 1.0, "no_call": 2.0, "other_text": 1.0})
    draw.counts.update({"unwanted_call": 58, "no_call": 12, "other_text": 4})
    assert draw.most() == {"unwanted_call": 6, "no_call": 12, "other_text": 4}
    rare = Draw({"no_call": 50.0, "other_text": 1.0})
    for _ in range(99):
        rare.counts[rare.order(Random(0))[0]] += 1
    assert rare.most() == rare.counts  # drawn in their shares: nothing is left out
    equal = Draw({"no_call": 0.7, "other_text": 0.7})
    equal.counts.update({"no_call": 3, "other_text": 2})
    assert equal.most() == equal.counts  # 0.7 * (3 / 0.7) is a little less than 3
    alone = Draw({"no_call": 2.0})
    alone.counts["no_call"] = 7
    assert alone.most() == {"no_call": 7} and not Draw({"no_call": 1.0}).most()
    _, made = edited("hermes", templates, ["unwanted_call", "missing_required", "no_call"])
    found = Counter(pair.rejected.model.strip("()") for pair in made.pairs)
    assert found == made.kinds == {"unwanted_call": 4, "missing_required": 3, "no_call": 3}
    assert made.no_pair == {"beyond the share of its kind": 2}
    assert made.steps == len(made.pairs) + 2 and not made.impossible


# --- the stage ---


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A workspace with a prep that has a dev split."""
    path = tmp_path / "rows.jsonl"
    rows = [openai(row(number)) for number in range(40)]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    prep.run(
        PrepSettings(
            sources=(str(path),),
            model=MODEL,
            protocol="hermes",
            test=0.0,
            dev=0.3,
            split_by=("query",),
        ),
        RunTarget(tmp_path / "r", "prep"),
    )
    return tmp_path / "r"


def edit(run: Path, out: str = "pairs", dry_run: bool = False, **changes: Any) -> Result:
    settings = PairsSettings(**{"edits": "equal", "model": MODEL, **changes})
    return pairs.run(settings, RunTarget(run, out, dry_run=dry_run))


@pytest.mark.long
def test_dpo_reads_the_prompt_and_the_answer_that_sft_would_train(run: Path) -> None:
    edit(run)
    folder, template = run / "pairs", load_template(MODEL)
    settings = DpoSettings(data=str(folder), model=MODEL)
    preferences = list(dpo.read_preferences(settings, folder, template))
    found = list(read_pairs(folder / "pairs.jsonl"))
    known = {record.id: record for record in map(from_row, read_rows(folder / "records.jsonl"))}
    assert len(found) == len(preferences) > 15
    for pair, preference in zip(found, preferences, strict=True):
        (encoded,) = training_rows(known[pair.record_id], PROTOCOLS["hermes"], template)
        start = len(preference.prompt)
        whole = [*preference.prompt, *preference.chosen]
        assert encoded.input_ids[: len(whole)] == whole
        assert encoded.labels[start : len(whole)] == preference.chosen
        assert encoded.labels[start - 1] == IGNORED
        rejected = encode_answer(
            pair.rejected.text, pair.rejected.ended, template, preference.prompt
        )
        assert preference.rejected == rejected != preference.chosen


@pytest.mark.long
def test_what_was_drawn_is_counted_and_recorded_and_made_once(run: Path) -> None:
    dry = edit(run, dry_run=True).figures
    assert not (run / "pairs").exists()
    result = edit(run)
    figures = result.figures
    assert {**dry, "lineage": [MODEL]} == {**figures, "folder": "new"}
    assert result.next == f"agentlite dpo --run {run}"
    left_out = figures["no_pair"]["beyond the share of its kind"]
    assert figures["pairs"] == sum(figures["edits"].values()) == figures["steps"] - left_out
    # where two calls use both tools, none is left to take for one of them
    counts = sorted(count for kind, count in figures["edits"].items() if kind != "wrong_tool")
    assert counts[-1] <= counts[0] + 1
    assert figures["edits"].keys() == EDITS.keys()
    statistics = json.loads((run / "pairs/stats.json").read_bytes())
    assert {kind: one["pairs"] for kind, one in statistics["edits"].items()} == figures["edits"]
    margins: dict[str, list[float]] = {}
    for pair in read_pairs(run / "pairs/pairs.jsonl"):
        margins.setdefault(pair.rejected.model.strip("()"), []).append(pair.margin)
    of_kind = {kind: sum(found) / len(found) for kind, found in margins.items()}
    stored = {kind: one["mean_margin"] for kind, one in statistics["edits"].items()}
    assert stored == pytest.approx(of_kind, abs=1e-4)
    every = [margin for found in margins.values() for margin in found]
    assert figures["mean_margin"] == pytest.approx(sum(every) / len(every), abs=1e-4)
    assert {one["wanted"] for one in statistics["edits"].values()} == {round(1 / len(EDITS), 4)}
    impossible = {
        kind: sum(one["impossible"].values()) for kind, one in statistics["edits"].items()
    }
    assert {kind: n for kind, n in impossible.items() if n} == figures["impossible"]
    assert run_folder.read_plan(run / "pairs").settings["edits"] == "equal"
    assert edit(run).status == "up to date"
    before = (run / "pairs/pairs.jsonl").read_bytes()
    (run / "pairs/done.json").unlink()  # as a kill leaves it
    assert edit(run).status == "done" and (run / "pairs/pairs.jsonl").read_bytes() == before
    with pytest.raises(UserError, match="seed") as refused:
        edit(run, seed=1)
    assert refused.value.exit_code == OTHER_PLAN


@pytest.mark.long
def test_edits_have_no_candidates_to_rank(run: Path) -> None:
    edit(run)
    with pytest.raises(UserError, match="holds edited answers, and no candidates"):
        pairs.run(PairsSettings(candidates="pairs", model=MODEL), RunTarget(run, "again"))


@pytest.mark.parametrize(
    "other",
    [
        {"candidates": "pairs"},
        {"grid": ("x.yaml",)},
        {"preferences": ("x.jsonl",)},
        {"rewards": ("x.py:short",)},
        {"endpoint": ("http://127.0.0.1:1/v1",)},
        {"balance": True},
    ],
)
def test_what_needs_a_model_or_candidates_is_refused_beside_edits(
    other: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="asks no model") as refused:
        edit(tmp_path, **other)
    name = {"candidates": "from"}.get(*other, *other)
    assert f"--{name}" in refused.value.fix


@pytest.mark.long
def test_a_pair_that_dpo_could_not_train_is_counted_as_too_long(run: Path) -> None:
    whole = edit(run, "whole").figures
    short = edit(run, "short", max_length=330).figures
    assert 0 < short["pairs"] < whole["pairs"]
    assert short["pairs"] + sum(short["no_pair"].values()) == short["steps"] == whole["steps"]
    settings = DpoSettings(data=str(run / "short"), model=MODEL, max_length=330)
    assert list(dpo.read_preferences(settings, run / "short", load_template(MODEL)))


def answer_as(kinds: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes eval's model answer: a wrong text in turn of `kinds` where a call is expected."""

    def ask(_: Any, __: Any, prompts: Sequence[Prompt], ___: Any, stage: Any) -> Any:
        answers: dict[Step, GreedyAnswer] = {}
        left = list(kinds)
        for one in prompts:
            text, ended = one.answer, "turn"
            if one.record.expected(one.turn).calls and left:
                kind = left.pop(0)
                ended = "cut" if kind == "cut_off" else "turn"
                text = (
                    "Well." if kind == "no_call" else one.answer.replace('"city": "', '"city": "X')
                )
            answers[one.step] = GreedyAnswer(*one.step, prompt_key(one), text, ended, 1)
        write_rows(stage.folder / "answers.jsonl", map(msgspec.to_builtins, answers.values()))
        return answers

    monkeypatch.setattr(evaluation, "ask", ask)


def evaluate(run: Path, split: str = "dev", out: str = "eval-dev") -> dict[str, Any]:
    settings = EvalSettings(model=(MODEL,), split=split, data="prep")
    figures: dict[str, Any] = evaluation.run(settings, RunTarget(run, out)).figures[MODEL]
    return figures


@pytest.mark.long
def test_the_shares_are_those_in_which_the_model_errs_on_dev(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_as(["no_call", "other_text", "other_text", "cut_off"], monkeypatch)
    assert evaluate(run)["wrong_answers"] == {"cut_off": 1, "no_call": 1, "other_text": 2}
    figures = edit(run, edits=MODEL).figures
    edits = figures["edits"]
    assert edits.keys() == {"no_call", "other_text"}
    assert abs(edits["other_text"] - 2 * edits["no_call"]) <= 2
    # an answer has no call to edit, and unwanted calls are not among the mistakes
    assert figures["steps"] == figures["pairs"] + sum(figures["no_pair"].values())
    assert figures["no_pair"]["no edit is possible"] > 0
    plan = run_folder.read_plan(run / "pairs").settings
    assert plan["edits"] == MODEL
    assert plan["wrong_answers"] == {"cut_off": 1, "no_call": 1, "other_text": 2}
    assert (
        f"1 of 4 wrong answers of {MODEL} are of kinds that no edit makes: cut off 1"
        in capsys.readouterr().err
    )


@pytest.mark.long
def test_without_an_evaluation_on_dev_the_command_that_helps_is_named(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_as(["no_call"], monkeypatch)
    evaluate(run, "train", "eval")  # of other records: its shares do not count
    with pytest.raises(UserError, match="was not evaluated on the dev records") as refused:
        edit(run, edits=MODEL)
    assert (
        f"agentlite eval --model {MODEL} --split dev --out eval-dev --run {run}"
        in refused.value.fix
    )
    rows = str(run.parent / "rows.jsonl")  # of a file, any evaluation on dev records counts
    with pytest.raises(UserError, match="was not evaluated on the dev records"):
        edit(run, edits=MODEL, data=rows)
    answer_as([], monkeypatch)
    evaluate(run)
    with pytest.raises(UserError, match="makes no mistake on the dev records") as refused:
        edit(run, edits=MODEL)
    assert "--edits equal" in refused.value.fix


@pytest.mark.long
def test_an_evaluation_that_does_not_count_kinds_is_to_be_run_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_as(["no_call"], monkeypatch)
    evaluate(run)
    folder = run / "eval-dev/prep" / MODEL
    metrics = json.loads((folder / "metrics.json").read_bytes())
    del metrics["wrong_answers"]
    done = run_folder.read(folder).done
    assert done
    with run_folder.open_stage(folder, run_folder.read_plan(folder), force=False) as stage:
        (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
        stage.finish(done.outputs, done.figures)  # as an earlier version left it
    with pytest.raises(UserError, match="does not count wrong answers by kind") as refused:
        edit(run, edits=MODEL)
    assert "--split dev --out eval-dev" in refused.value.fix


def evaluated(run: Path, out: str, wrong: int, age: int, **changed: Any) -> None:
    """An evaluation of the model on dev that was begun so many seconds ago."""
    folder = run / out / "prep" / MODEL
    inputs = {"model": find_model(MODEL, run).digest, "data": dev_digest(run)}
    settings = {"split": "dev", "model": MODEL} | changed.pop("settings", {})
    plan = {"command": "eval", "settings": settings, "inputs": inputs | changed}
    metrics = {"prompts": 9, "metrics": {}, "dialogs": {}, "dialogs_are": "", "by": {}}
    metrics |= {"problems": {}, "wrong_answers": {"no_call": wrong}}
    stage(folder, plan, {}, {}, metrics)
    begun = time.time() - age
    os.utime(folder / "plan.json", (begun, begun))


def dev_digest(run: Path) -> str:
    outputs = run_folder.finished(run / "prep", "prep").outputs
    return next(one for name, one in outputs.items() if name.startswith("dev"))


def mistakes(run: Path) -> Mapping[str, int]:
    settings = PairsSettings(edits=MODEL, model=MODEL)
    prepared = find_prompts("prep", "train", MODEL, find_model(MODEL, run), run)
    return _mistakes_on_dev(settings, prepared, RunTarget(run, "pairs"))


def test_the_newest_evaluation_of_this_very_model_on_these_very_rows_counts(run: Path) -> None:
    evaluated(run, "a", 1, age=50)
    evaluated(run, "b", 2, age=10)
    evaluated(run, "c", 3, age=30)
    assert mistakes(run) == {"no_call": 2}
    evaluated(run, "other-model", 4, age=0, model="another digest")
    evaluated(run, "other-data", 5, age=0, data="another digest")
    evaluated(run, "other-split", 6, age=0, settings={"split": "test"})
    assert mistakes(run) == {"no_call": 2}
