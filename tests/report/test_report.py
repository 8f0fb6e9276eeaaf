"""agentlite.report: what is finished is shown, what is not is named, and nothing is claimed beyond
the figures.
"""

import json
import re

import pytest

from agentlite.core.errors import UserError
from agentlite.report import write_report
from agentlite.report.tables import BFCL_SENTENCE, table


def figure(mean, count=104, low=None, high=None):
    return {
        "mean": mean,
        "std": 0.5,
        "count": count,
        "low": low or mean / 2,
        "high": high or (1 + mean) / 2,
    }


def metrics(mean, source="bfcl:multiple"):
    part = {"prompts": 52, "metrics": {"exact_call": figure(mean, 52)}}
    return {
        "prompts": 104,
        "metrics": {
            "exact_call": figure(mean),
            "call_decision": figure(0.5),
            "rouge": figure(0.25),
        },
        "timing": {"timing_precision": None, "recall": figure(0.75), "unreadable": 7, "count": 104},
        "by": {"tools": {"1": part, "2-4": part}, "source": {source: part}},
        "problems": {"call not closed | torn": 7},
    }


def plan(command, **settings):
    return {"command": command, "settings": settings, "inputs": {}}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def run(tmp_path):
    """A run with two evaluated models, one half evaluated, and the stage that tuned one of them."""
    run = tmp_path / "weather"
    sft = {
        "settings": {"learning_rate": 0.001, "lora_r": 16},
        "inputs": {"data": "ab12" * 16},
        "versions": {"trl": "1"},
    }
    write(run / "prep" / "plan.json", plan("prep", sources=["bfcl:multiple"]))
    write(run / "prep" / "done.json", {"outputs": {}, "figures": {"kept": 300}, "seconds": 2.0})
    write(run / "sft" / "plan.json", {"command": "sft", **sft})
    write(
        run / "sft" / "done.json", {"outputs": {}, "figures": {"loss": 0.123456}, "seconds": 400.0}
    )
    for model, mean in (("smollm2-135m", 0.0625), ("sft", 0.625)):
        folder = run / "eval" / "prep" / model
        write(folder / "plan.json", plan("eval", seed=7))
        write(folder / "metrics.json", metrics(mean))
        write(folder / "done.json", {"outputs": {}, "figures": {}, "seconds": 60.0})
    write(run / "eval" / "prep" / "half" / "plan.json", plan("eval"))
    rows = [
        {"metric": "exact_call", "mean": 0.5625, "low": 0.4, "high": 0.7, "beyond_noise": True},
        {"metric": "call_decision", "mean": -0.01, "low": -0.1, "high": 0.1, "beyond_noise": False},
    ]
    pair = {"first": "smollm2-135m", "second": "sft", "count": 100}
    differences = [row | pair for row in rows]
    models = ["smollm2-135m", "sft"]
    write(
        run / "eval" / "prep" / "compare.json",
        {"prompts": 100, "models": models, "differences": differences},
    )
    return run


def read_report(run):
    return write_report(run).read_text(encoding="utf-8")


def test_a_report_shows_both_models_with_their_intervals(run):
    report = read_report(run)
    assert "| model | exact_call | call_decision | rouge |" in report
    assert "| sft | 62.5 % [31.2, 81.2] n=104 |" in report
    assert "| smollm2-135m | 6.2 % [3.1, 53.1] n=104 |" in report
    assert report.index("| smollm2-135m |") < report.index(
        "| sft |"
    )  # as they were compared, not by name


def test_both_reports_begin_with_the_result_in_words(run):
    report = read_report(run)
    page = re.sub(r"<[^>]+>", "", (run / "report.html").read_text(encoding="utf-8"))
    page = " ".join(page.split())
    sentence = (
        "smollm2-135m is right to call a tool, or not to, for 52 of 104 questions; sft for 52. "
        "The difference is within noise: it may be chance."
    )
    assert sentence in report and sentence in page
    assert report.index(sentence) < report.index("| model |")


def test_a_report_says_that_a_split_of_bfcl_is_no_leaderboard(run):
    assert BFCL_SENTENCE in read_report(run)


def test_other_data_gets_no_sentence_about_bfcl(run):
    write(run / "prep" / "plan.json", plan("prep", sources=["dialogs.jsonl"]))
    for model in ("sft", "smollm2-135m"):
        write(run / "eval" / "prep" / model / "metrics.json", metrics(0.5, "dialogs.jsonl"))
    assert BFCL_SENTENCE not in read_report(run)


def test_bfcl_is_known_by_its_prompts_where_no_prep_is_left(run):
    (run / "prep" / "plan.json").unlink()
    assert BFCL_SENTENCE in read_report(run)


def test_differences_are_put_in_words(run):
    report = read_report(run)
    assert (
        "exact_call: sft over smollm2-135m +56.2 points [+40.0, +70.0], beyond noise, on 100 "
        "prompts."
    ) in report
    assert (
        "call_decision: sft over smollm2-135m -1.0 points [-10.0, +10.0], within noise: " in report
    )
    assert "100 prompts cannot tell them apart" in report


def test_what_is_not_finished_is_named_and_not_read(run):
    (run / "eval" / "prep" / "half" / "metrics.json").write_text("torn {", encoding="utf-8")
    report = read_report(run)
    assert "Not finished, so not read: half." in report and "| half |" not in report


def test_slices_timing_problems_and_settings_are_there(run):
    report = read_report(run)
    assert "| 2-4 | sft | 62.5 % [31.2, 81.2] n=52 |" in report
    assert "By source" not in report  # one source: the table would repeat the whole
    assert "| sft | not measured | 75.0 % [37.5, 87.5] n=104 | - | - | - | 7 |" in report
    assert "| call not closed \\| torn | 7 | 7 |" in report
    assert (
        "learning_rate 0.001, lora_r 16" in report
        and "data ab12ab12ab12" in report
        and "ab12" * 4 not in report
    )
    assert "trl 1" in report and "loss 0.1235" in report and "seconds: 400" in report


def test_a_report_written_twice_is_the_same_and_leaves_nothing_beside_it(run):
    assert read_report(run) == read_report(run)
    assert sorted(path.name for path in run.iterdir()) == [
        "eval",
        "prep",
        "report.html",
        "report.md",
        "sft",
    ]


def test_every_table_row_has_as_many_cells_as_its_head(run):
    for block in read_report(run).split("\n\n"):
        if block.startswith("|"):
            assert len({line.replace("\\|", "").count("|") for line in block.splitlines()}) == 1


def test_a_run_without_evaluations_says_so(tmp_path):
    assert "No evaluation is finished." in read_report(tmp_path)


def test_other_groups_of_figures_are_tables_and_what_is_null_was_not_measured(run):
    path = run / "eval" / "prep" / "sft" / "metrics.json"
    groups = {
        "dialogs": {"end_to_end_success": figure(0.5), "timing": None},
        "bfcl": {"live": {"simple": figure(0.25)}},
        "perplexity": {"general": {"mean": 12.3456, "low": 11.0, "high": 13.0, "count": 40}},
    }
    write(path, metrics(0.625) | groups)
    report = read_report(run)
    assert (
        "| sft | 50.0 % [25.0, 75.0] n=104 | not measured |" in report
        and "| smollm2-135m | - | - |" in report
    )
    assert "| model | live simple |" in report and "| sft | 25.0 % [12.5, 62.5] n=104 |" in report
    assert "| sft | 12.35 [11, 13] n=40 |" in report


def test_a_slice_of_another_name_is_shown(run):
    for model in ("sft", "smollm2-135m"):
        by = {
            "difficulty": {
                name: {"metrics": {"exact_call": figure(0.5)}} for name in ("easy", "hard")
            }
        }
        write(run / "eval" / "prep" / model / "metrics.json", metrics(0.5) | {"by": by})
    assert "### By difficulty" in read_report(run)


def test_what_was_changed_after_it_was_finished_is_named_and_not_read(run):
    path = run / "eval" / "prep" / "sft"
    write(
        path / "done.json", {"outputs": {"metrics.json": "0" * 64}, "figures": {}, "seconds": 1.0}
    )
    report = read_report(run)
    assert (
        "metrics.json has changed since the stage wrote it, so not read: sft." in report
        and "| sft | 62.5" not in report
    )


@pytest.mark.parametrize(
    ("name", "damage", "sentence"),
    [
        ("plan.json", {"seal": "0" * 64}, "plan.json was changed since it was written"),
        ("plan.json", {"inputs": 1}, "plan.json cannot be read (Expected `object`, got `int`"),
        ("done.json", {"seal": "0" * 64}, "done.json cannot be trusted (it was changed)"),
    ],
)
def test_a_plan_or_a_done_that_cannot_be_trusted_is_named_and_not_read(run, name, damage, sentence):
    for folder in (run / "sft", run / "eval" / "prep" / "sft"):
        write(folder / name, json.loads((folder / name).read_text(encoding="utf-8")) | damage)
    report = read_report(run)
    assert report.count(sentence) == 2 and report.count("so not read: sft.") == 2
    assert "| sft | 62.5" not in report and "0.1235" not in report


def test_optional_figures_may_be_missing(tmp_path):
    folder = tmp_path / "eval" / "prep" / "base"
    write(folder / "plan.json", plan("eval"))
    write(folder / "done.json", {"outputs": {}, "figures": {}, "seconds": 1.0})
    write(folder / "metrics.json", {"metrics": {"exact_call": {"mean": 0.5, "count": 2}}})
    assert "| base | 50.0 % n=2 |" in read_report(tmp_path)


def test_a_broken_file_is_named(run):
    path = run / "eval" / "prep" / "sft" / "metrics.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"metrics\.json"):
        write_report(run)


def test_a_run_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        write_report(tmp_path / "nowhere")


def test_a_table_has_a_head_and_a_row_a_model():
    rows = table({"base": metrics(0.5), "other": {"metrics": {"call_decision": figure(0.5)}}})
    assert rows[0] == ["model", "exact_call", "call_decision", "rouge"]
    assert rows[1][:2] == ["base", "50.0 % [25.0, 75.0] n=104"]
    assert rows[2] == ["other", "-", "50.0 % [25.0, 75.0] n=104", "-"]


def ranked(mean, count=40):
    return {name: figure(mean, count) for name in ("recall@5", "comp@5", "ndcg@5", "mrr", "map")}


@pytest.mark.long
def test_a_retriever_is_shown_beside_what_else_brings_tools_before_the_rows_that_it_brought(run):
    sizes = {
        "100": {"bm25": ranked(0.5), "tuned": ranked(0.75)},
        "500": {"bm25": ranked(0.25), "tuned": ranked(0.625)},
    }
    few = {"500": {"bm25": ranked(0.1, 7), "tuned": ranked(0.2, 7)}}
    over = {
        "view": "all",
        "tools": 500,
        "metric": "recall@5",
        "first": "bm25",
        "second": "tuned",
        "mean": 0.375,
        "low": 0.2,
        "high": 0.5,
        "count": 40,
        "beyond_noise": True,
    }
    told = {
        "ranking": {"all": sizes, "known tools": sizes, "new tools": few},
        "latency_ms": {"search": 0.5},
        "differences": [over, {**over, "first": "keyword"}, {**over, "view": "new tools"}],
    }
    write(run / "retriever" / "plan.json", plan("retriever"))
    write(run / "retriever" / "metrics.json", told)
    write(
        run / "retriever" / "done.json",
        {"outputs": {}, "figures": {"pairs": 12, **told}, "seconds": 9.0},
    )
    write(run / "prep-5" / "plan.json", plan("prep", sources=["x"], retrieve=5))
    report, page = read_report(run), (run / "report.html").read_text(encoding="utf-8")
    part = report[report.index("## Retrieval by retriever") :]
    assert (
        "### All questions, Questions with a tool that was right in training" in part
    )  # the same ones, told once
    assert "| by | recall@5 of 100 | recall@5 of 500 | comp@5 of 500 |" in part
    assert "| tuned | 75.0 % [37.5, 87.5] n=40 | 62.5 % [31.2, 81.2] n=40 |" in part
    assert "### Questions whose tools were never right in training" in part
    assert (
        part.count("- recall@5 of 500: tuned over") == 1
        and "over bm25 +37.5 points [+20.0, +50.0]" in part
    )
    assert "ms a question: search 0.5" in part
    assert "- figures: pairs 12\n" in part  # what has tables is not told as a line
    assert "- figures: kept 300" in part and part.index("**retriever**") < part.index("**prep-5**")
    assert part.index("**prep-5**") < part.index("**sft**")
    assert '<a href="#retrieval">Retrieval</a>' in page and page.count("recall@5 of 500") >= 2
    assert page.index("agentlite retriever") < page.index("agentlite prep --out prep-5 x")
    write(
        run / "retriever" / "done.json",
        {"outputs": {"metrics.json": "0" * 64}, "figures": {}, "seconds": 9.0},
    )
    assert (
        "metrics.json has changed since the stage wrote it, so not read: retriever"
        in read_report(run)
    )
    assert "Retrieval by retriever" not in read_report(run)
