"""What a report reads of a run, in which order, and what it makes of answers and inputs."""

import base64
import json
import random
import shlex
import sys
import zlib

import pytest
from support.generated_run import stage, write_run

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Gold, Message, Record, Step, to_row
from agentlite.report import write_report
from agentlite.report.packing import Cutter
from agentlite.report.page import _by_metric, _by_pair, _links, _statistics, _versions
from agentlite.report.prediction_viewer import pack
from agentlite.report.predictions import Answers, confusion, read_answers
from agentlite.report.provenance import commands, is_given, origins
from agentlite.report.read_run import read_json, read_run, with_models
from agentlite.report.tables import Figures, differences
from agentlite.workspace.digests import file_digest
from agentlite.workspace.folder_lock import held


def made(folder, command, settings=None, inputs=None, rows=None, figures=None, metrics=None):
    plan = {"command": command, "settings": settings or {}, "inputs": inputs or {}}
    stage(folder, plan, rows or {}, figures or {}, metrics)


def evaluated(run, *names):
    for name in names:
        rows = {"predictions.jsonl": [{"name": name}]}
        made(run / "eval" / "prep" / name, "eval", rows=rows, metrics={"metrics": {}})


def test_stages_stand_in_the_order_in_which_they_are_run(tmp_path):
    for name, command in [
        ("a-grpo", "grpo"),
        ("b-dpo", "dpo"),
        ("b-pairs", "pairs"),
        ("sft-2", "sft"),
        ("sft", "sft"),
        ("retriever", "retriever"),
        ("prep", "prep"),
    ]:
        made(tmp_path / name, command)
    made(tmp_path / "a-offered", "prep", {"retrieve": 5})
    made(tmp_path / "z", "unheard-of")
    names = [one.name for one in read_run(tmp_path).stages]
    assert names.index("prep") < names.index("retriever") < names.index("a-offered")
    assert names.index("a-offered") < names.index("sft") < names.index("sft-2")
    assert names.index("b-pairs") < names.index("b-dpo") and "z" not in names
    assert len(names) == 8


def test_members_of_another_workspace_inside_are_not_models_of_this_one(tmp_path):
    evaluated(tmp_path, "a")
    made(tmp_path / "eval" / "prep" / "sft", "sft")
    (tmp_path / "eval" / "prep" / "torn").mkdir()
    (tmp_path / "eval" / "prep" / "torn" / "plan.json").write_text("{")
    (evaluation,) = read_run(tmp_path).evaluations
    assert [*evaluation.models] == ["a"]
    (sentence,) = evaluation.unread
    assert "torn" in sentence and "Run its command again" in sentence


def test_a_stage_is_finished_where_it_says_so_and_has_its_figures_then(tmp_path):
    made(tmp_path / "sft", "sft", {"seed": 1}, {"data": "ab"}, figures={"loss": 0.5})
    made(tmp_path / "dpo", "dpo")
    (tmp_path / "dpo" / "done.json").unlink()
    run = read_run(tmp_path)
    sft, dpo = run.stage("sft"), run.stage("dpo")
    assert (sft.figures, sft.settings, sft.inputs) == ({"loss": 0.5}, {"seed": 1}, {"data": "ab"})
    assert (dpo.done, dpo.figures, dpo.outputs) == (None, {}, {})
    assert run.unread == ["Not finished, so not read: dpo. Run `agentlite dpo` again to finish it."]
    with held(tmp_path / "dpo"):
        assert read_run(tmp_path).unread[0].startswith("Running, so not read: dpo (process ")
    with pytest.raises(UserError, match="does not exist"):
        read_run(tmp_path / "none")


@pytest.mark.parametrize("kinds", [["live", "recorded"], ["recorded", "live"], ["recorded"]])
def test_an_evaluation_is_live_where_a_model_acted_in_an_environment(kinds, tmp_path):
    for number, kind in enumerate(kinds):
        made(tmp_path / "eval" / "prep" / f"m{number}", "eval", metrics={"dialogs_are": kind})
    (evaluation,) = read_run(tmp_path).evaluations
    assert evaluation.is_live is ("live" in kinds)


@pytest.mark.parametrize(
    "place", ["settings", "inputs", "by source", "prep", "own prep", "nowhere"]
)
def test_bfcl_is_known_wherever_a_plan_or_a_figure_names_it(place, tmp_path):
    def source(*places):
        return "bfcl:multiple" if place in places else "rows.jsonl"

    made(tmp_path / "prep", "prep", {"sources": [source("prep")]})
    if place == "own prep":
        made(tmp_path / "held-out", "prep", {"sources": [source("own prep")]})
    made(
        tmp_path / "eval" / "held-out" / "m",
        "eval",
        {"data": source("settings")},
        {source("inputs"): "ab"},
        metrics={"by": {"source": {source("by source"): {}}}},
    )
    run = read_run(tmp_path)
    assert run.is_bfcl(run.evaluations[0]) is (place != "nowhere")


def test_models_stand_in_the_order_in_which_they_were_compared_and_others_follow(tmp_path):
    evaluated(tmp_path, "a", "b", "c", "d")
    compare = tmp_path / "eval" / "prep" / "compare.json"
    compare.write_text(json.dumps({"models": ["d", "b"]}))
    (evaluation,) = read_run(tmp_path).evaluations
    assert [*evaluation.models] == ["d", "b", "a", "c"] and evaluation.name == "prep"


def test_a_comparison_is_current_while_the_predictions_are_those_that_were_compared(tmp_path):
    evaluated(tmp_path, "a", "b")
    folder = tmp_path / "eval" / "prep"
    digests = {name: file_digest(folder / name / "predictions.jsonl") for name in "ab"}

    def is_current(predictions):
        compared = {"models": ["a", "b"], "predictions": predictions}
        (folder / "compare.json").write_text(json.dumps(compared))
        return read_run(tmp_path).evaluations[0].is_current

    assert is_current(digests) and is_current({"a": digests["a"]}) and is_current({})
    assert not is_current({**digests, "b": "0" * 64})
    assert not is_current({**digests, "gone": digests["a"]})


def test_a_file_of_a_stage_is_read_only_as_it_was_left(tmp_path):
    made(tmp_path / "sft", "sft", rows={"metrics.jsonl": [{"step": 1}]}, metrics={"a": 1})
    (found,) = read_run(tmp_path).stages
    assert found.rows("metrics.jsonl") == [{"step": 1}] and found.json("metrics.json") == {"a": 1}
    assert found.json("none.json") == {} and found.rows("none.jsonl") == []
    (tmp_path / "sft" / "metrics.json").write_text('{"a": 2}')
    run = read_run(tmp_path)
    assert run.stages[0].json("metrics.json") == {}
    assert run.unread == [
        "metrics.json has changed since the stage wrote it, so not read: sft. Run "
        "`agentlite sft` again with --force."
    ]
    assert run.stage("sft") is run.stages[0] and run.stage("dpo") is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read"), ("{", "cannot be read"), ("[1]", "is not a JSON")],
)
def test_a_broken_file_is_an_error_with_its_path(content, problem, tmp_path):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=problem) as refused:
        read_json(path)
    assert refused.value.location == str(path) and "--force" in refused.value.fix


# --- which tools are confused ---


def expecting(*names):
    calls = tuple(Call(name, {}, f"c{n}") for n, name in enumerate(names))
    return Record(
        messages=(Message("user", str(names)), Message("assistant", "", calls)),
        gold={} if names else {1: Gold()},
    )


def answer(*called, problem=""):
    return {"calls": [{"name": name, "arguments": "{}"} for name in called], "problem": problem}


@pytest.mark.parametrize(
    ("expected", "row", "pairs"),
    [
        ("a", answer("a"), {"a": {"a": 1}}),
        ("a", answer("b"), {"a": {"b": 1}}),
        ("a", answer(), {"a": {"no call": 1}}),
        ("a", answer("a", problem="torn"), {"a": {"unreadable": 1}}),
        ("ab", answer("b", "c"), {"a": {"c": 1}, "b": {"b": 1}}),
        ("a", answer("a", "b"), {"a": {"a": 1}, "no call": {"b": 1}}),
        ("aa", answer("a"), {"a": {"a": 1, "no call": 1}}),
        ("", answer(), {"no call": {"no call": 1}}),
        ("", answer("b"), {"no call": {"b": 1}}),
        ("", answer(problem="torn"), {"no call": {"unreadable": 1}}),
    ],
)
def test_each_expected_tool_is_paired_with_the_one_called_for_it(expected, row, pairs):
    record = expecting(*expected)
    answers = Answers({record.id: record}, {Step(record.id, 1): {"m": [row]}})
    found = {one.name: dict(one.called["m"]) for one in confusion(answers, ["m"])}
    assert found == pairs


def test_the_most_often_confused_tools_come_first_and_only_three_are_named_instead():
    one, two = expecting("b"), expecting("a")
    wrong = [answer(name) for name in "ccccdddeef"]
    answers = Answers(
        {one.id: one, two.id: two},
        {
            Step(one.id, 1): {"m": [*wrong, answer("b")], "n": [answer("b")]},
            Step(two.id, 1): {"m": [answer("x")], "n": []},
            Step("unknown", 1): {"m": [answer("x")]},
        },
    )
    found = confusion(answers, ["m", "n"])
    assert [(tool.name, tool.wrong) for tool in found] == [("b", 10), ("a", 1)]
    assert found[0].instead("m") == [("c", 4), ("d", 3), ("e", 2)]
    assert found[0].instead("n") == []  # the right one is no other
    assert (found[0].expected("m"), found[0].right("m"), found[0].right("n")) == (11, 1, 1)


def test_answers_come_with_the_records_of_the_very_file_they_were_asked_from(tmp_path):
    asked, other = expecting("a"), expecting("b")
    made(tmp_path / "prep", "prep", rows={"test.jsonl": map(to_row, [asked, other])})
    made(tmp_path / "prep-2", "prep", rows={"test.jsonl": [to_row(other)]})
    row = {"record_id": asked.id, "turn": 1, **answer("a")}
    digest = file_digest(tmp_path / "prep" / "test.jsonl")
    folder = tmp_path / "eval" / "prep" / "m"
    made(folder, "eval", inputs={"data": digest}, rows={"predictions.jsonl": [row]}, metrics={})
    run = read_run(tmp_path)
    found = read_answers(run, run.evaluations[0])
    assert found.records == {asked.id: asked}
    assert found.by_step == {Step(asked.id, 1): {"m": [row]}}
    (tmp_path / "prep" / "test.jsonl").write_text("")
    assert read_answers(run, run.evaluations[0]).records == {}


@pytest.mark.parametrize(
    ("limit", "text", "cut", "count"),
    [(3, "abc", "abc", 0), (3, "abcd", "abc … [1 more characters]", 1), (3, "", "", 0)],
)
def test_a_text_is_cut_at_its_limit_and_says_how_much_is_missing(limit, text, cut, count):
    cutter = Cutter(limit)
    assert cutter(text) == cut
    assert (cutter.count, cutter.longest) == (count, min(limit, len(text)))


@pytest.mark.long
def test_texts_are_cut_shorter_step_by_step_before_a_prompt_is_left_out():
    record = expecting("a")
    generator = random.Random(0)  # what no packing makes shorter
    text = "".join(chr(generator.randint(33, 900)) for _ in range(30_000))
    row = {"record_id": record.id, "turn": 1, "text": text, **answer("a"), "metrics": {}}
    row["new_tokens"] = 1
    answers = Answers({record.id: record}, {Step(record.id, 1): {"m": [row]}})
    sizes = {}
    for limit in (20_000, 4_000, 1_000):
        found = next(
            one
            for budget in (10**6, *range(60_000, 0, -500))
            if f"{limit:,}" in "".join((one := pack(answers, ["m"], [], budget)).notes)
        )
        sizes[limit] = len(found.text)
        assert found.notes == [
            f"1 texts are cut after {limit:,} characters; each says how much of it is missing."
        ]
    assert sizes[20_000] > sizes[4_000] > sizes[1_000]


# --- what a model was made from ---


def test_an_input_is_changed_where_its_stage_holds_another_last_digest(tmp_path):
    made(tmp_path / "sft", "sft", {"model": "base"}, {"model": "c" * 32}, {"adapter": [{"a": 1}]})
    adapter = file_digest(tmp_path / "sft" / "adapter")[:16]
    made(tmp_path / "dpo", "dpo", {"model": "sft"}, {"model": f"{'b' * 16}+{adapter}"})
    made(tmp_path / "grpo", "grpo", {"model": "sft"}, {"model": f"{adapter},{'b' * 16}"})
    dpo, grpo = origins(read_run(tmp_path))
    assert [(one.name, one.origins[0].changed) for one in (dpo, grpo)] == [
        ("dpo", False),
        ("grpo", True),
    ]
    assert dpo.origins[0].digests == ["b" * 12, adapter[:12]]
    assert (dpo.origins[0].role, dpo.origins[0].name) == ("model", "sft")
    assert [one.name for one in dpo.origins[0].origins] == ["base"]
    assert grpo.origins[0].shown_above and not grpo.origins[0].origins
    assert not dpo.origins[0].shown_above


def test_a_setting_is_given_where_it_is_not_the_default(tmp_path):
    made(tmp_path / "sft", "sft", {"seed": 12345, "max_steps": None})
    (found,) = read_run(tmp_path).stages
    assert is_given(found, "seed") and not is_given(found, "unheard_of")


def test_an_evaluation_is_one_command_of_all_models_and_files(tmp_path):
    folder = tmp_path / "eval-2" / "prep"
    made(folder / "sft", "eval", {"model": "sft", "split": "test", "seed": 7}, metrics={})
    asked = {"prompt_set": {"predictions": "said.jsonl", "limit": 3}}
    made(folder / "said", "eval", {}, figures=asked, metrics={})
    (line,) = commands(read_run(tmp_path))
    words = shlex.split(line)
    assert words[:8] == [
        "agentlite",
        "eval",
        "--out",
        "eval-2",
        "--predictions",
        "said.jsonl",
        "--model",
        "sft",
    ]
    assert words[words.index("--seed") + 1] == "7" and words[words.index("--limit") + 1] == "3"


def test_numbers_of_a_stage_are_tables_and_counts_of_one_kind_have_bars():
    values = {
        "kept": 4,
        "sources": ["a", "b"],
        "by_task": {"general": 3, "planning": 1},
        "lengths": {"mean": 2.5, "max": None},
        "splits": {"train": {"records": 3, "calls": 2}, "dev": {"records": 1}},
        "none": {},
    }
    found = [(one.title, one.head, one.rows, one.bars) for one in _statistics(values)]
    assert found == [
        ("", [], [["kept", "4"], ["sources", "a, b"]], []),
        ("by task", [], [["general", "3"], ["planning", "1"]], [100.0, 33.3]),
        ("lengths", [], [["mean", "2.5"], ["max", "-"]], []),
        ("splits", ["", "records", "calls"], [["train", "3", "2"], ["dev", "1", "-"]], []),
    ]


def test_versions_are_named_by_stage_unless_all_have_the_same(tmp_path):
    made(tmp_path / "prep", "prep")
    evaluated(tmp_path, "m")
    assert _versions(read_run(tmp_path)) == [("all stages", {"agentlite": "0"})]
    plan = {"command": "sft", "settings": {}, "inputs": {}, "versions": {"agentlite": "1"}}
    stage(tmp_path / "sft", plan, {}, {})
    assert _versions(read_run(tmp_path)) == [
        ("prep, eval m", {"agentlite": "0"}),
        ("sft", {"agentlite": "1"}),
    ]


def test_both_reports_are_written_whole(tmp_path, disk_calls):
    assert write_report(tmp_path) == tmp_path / "report.md"
    renamed = [call.split()[-1] for call in disk_calls if call.startswith("rename")]
    assert renamed == ["report.html", "report.md"]


def test_a_page_links_to_the_sections_that_have_content(tmp_path):
    made(tmp_path / "prep", "prep", rows={"stats.json": []})
    assert _links({**EMPTY, "origins": [1], "commands": [1]}) == [
        ("lineage", "Lineage"),
        ("settings", "Settings"),
        ("commands", "Commands"),
    ]
    one = {"evaluation": read_run(tmp_path), "models": [1], "differences": [], "answered": True}
    names = ["models-1", "slices-1", "tools-1", "predictions-1"]
    assert [anchor for anchor, _ in _links({**EMPTY, "evaluations": [one]})] == names
    live = {**one, "answered": False, "rollouts": [1]}
    names = ["models-1", "slices-1", "rollouts-1", "rollouts"]
    assert [name for name, _ in _links({**EMPTY, "evaluations": [live], "acted": [1]})] == names
    one["answered"] = False
    several = _links({**EMPTY, "evaluations": [{**one, "models": []}, {**one, "differences": [1]}]})
    on = f" on {tmp_path.name}"
    assert several[:2] == [("models-2", f"Models{on}"), ("differences-2", f"Differences{on}")]


EMPTY = dict.fromkeys(
    [
        "evaluations",
        "bfcl",
        "ablations",
        "acted",
        "retrievers",
        "trained",
        "origins",
        "statistics",
        "commands",
    ],
    (),
)


def test_gains_of_each_pair_of_models_stand_together_on_one_scale_around_zero():
    rows = [
        {"first": first, "second": second, "metric": metric, "mean": mean}
        for first, second, metric, mean in [
            ("a", "b", "x", 0.1),
            ("a", "c", "x", -0.4),
            ("a", "b", "y", 0.2),
        ]
    ]
    found = _by_pair(rows)
    assert [(one["first"], one["second"], len(one["rows"])) for one in found] == [
        ("a", "b", 2),
        ("a", "c", 1),
    ]
    assert {one["scale"] for one in found} == {(-0.4, 0.4)}


def test_a_metric_has_marks_at_its_ends_and_half_only_on_a_scale_of_shares():
    share, loss = {"mean": 0.5, "low": 0.4, "high": 0.6}, {"mean": 2.0}
    table = Figures("t", ["model"], ["x", "y"], [(["a"], [share, loss]), (["b"], [None, "-"])])
    x, y = _by_metric(table)
    assert (x["name"], x["scale"], x["marks"]) == ("x", (0.0, 1.0), (0, 0.5, 1))
    assert (y["name"], y["scale"], y["marks"]) == ("y", (0.0, 2.0), (0,))
    assert x["rows"] == [("a", share), ("b", None)] and y["rows"] == [("a", loss), ("b", "-")]


def test_a_ranking_again_has_none_of_the_settings_of_its_candidates(tmp_path):
    settings = {
        "candidates": "pairs",
        "model": "m",
        "data": "d",
        "split": "dev",
    }
    made(tmp_path / "again", "pairs", settings)
    made(tmp_path / "pairs", "pairs", {**settings, "candidates": None})
    again, first = map(shlex.split, commands(read_run(tmp_path)))
    assert again[:6] == ["agentlite", "pairs", "--out", "again", "--from", "pairs"]
    assert not {"m", "d", "dev"} & {*again} and {"m", "d", "dev"} <= {*first}


def test_an_input_of_a_stage_that_is_not_finished_is_not_called_changed(tmp_path):
    made(tmp_path / "sft", "sft", {"data": "prep"}, {"data": "0" * 16})
    made(tmp_path / "prep", "prep")
    assert origins(read_run(tmp_path))[0].origins[0].changed
    (tmp_path / "prep" / "done.json").unlink()
    assert not origins(read_run(tmp_path))[0].origins[0].changed


def test_a_viewer_shows_the_messages_up_to_the_last_step_and_each_tool_once(tmp_path, dialog):
    other = Record(messages=dialog.messages[:3], tools=dialog.tools[:1])
    said = {"text": "x", "problem": "", "metrics": {"a": 0.5}, "new_tokens": 3, "wrong": "no_call"}
    rows = {turn: {"m": [{**said, "slices": {"task": "t"}}]} for turn in (2, 4)}
    answers = Answers(
        {dialog.id: dialog, other.id: other},
        {**{Step(dialog.id, turn): row for turn, row in rows.items()}, Step(other.id, 2): rows[2]},
    )
    packed = pack(answers, ["k", "m"], ["a", "b"], 10**6)
    found = json.loads(zlib.decompress(base64.b64decode(packed.text)))
    assert packed.notes == []
    assert [len(messages) for messages, _ in found["records"]] == [5, 3]
    assert [tools for _, tools in found["records"]] == [[0, 1], [0]]
    assert [tool[0] for tool in found["tools"]] == ["get_weather", "get_time"]
    assert [step[:3] for step in found["steps"]] == [
        [dialog.id, 2, 0],
        [dialog.id, 4, 0],
        [other.id, 2, 1],
    ]
    assert found["steps"][0][3:] == [
        [["get_weather", '{"city":["Oslo"]}']],
        {"task": "t"},
        [[1, "x", "", [0.5, None], 3, [], "no call where one is wanted"]],
    ]
    assert found["steps"][1][3] == []


def test_the_viewers_of_all_evaluations_share_the_budget_of_a_page(tmp_path, monkeypatch):
    for data in ("prep", "other", "third"):
        made(tmp_path / "eval" / data / "m", "eval", metrics={"metrics": {}})
    budgets = []

    def record_budget(answers, models, metrics, budget):
        budgets.append(budget)
        return pack(answers, models, metrics, budget)

    monkeypatch.setattr(sys.modules["agentlite.report.page"], "pack", record_budget)
    write_report(tmp_path)
    assert budgets == [1_500_000] * 3


@pytest.mark.long
def test_a_choice_of_models_keeps_them_and_the_differences_between_them(tmp_path):
    folder = write_run(tmp_path / "weather", ["base", "sft", "dpo"], 6)
    compare = folder / "eval" / "prep" / "compare.json"
    digests = {
        name: file_digest(compare.parent / name / "predictions.jsonl")
        for name in ("base", "sft", "dpo")
    }
    compare.write_text(json.dumps({**json.loads(compare.read_bytes()), "predictions": digests}))
    run = read_run(folder)
    [chosen] = with_models(run, ["base", "dpo", "none"]).evaluations
    assert list(chosen.models) == ["base", "dpo"] and chosen.is_current
    pairs = {(row["first"], row["second"]) for row in differences(chosen)}
    assert pairs == {("base", "dpo")}
    whole = run.evaluations[0].compared
    assert chosen.compared == {
        **whole,
        "models": ["base", "dpo"],
        "predictions": {name: digests[name] for name in ("base", "dpo")},
        "differences": [
            row for row in whole["differences"] if row["first"] + row["second"] == "basedpo"
        ],
    }
    assert with_models(run, []) == run
    assert not with_models(run, ["none"]).evaluations
