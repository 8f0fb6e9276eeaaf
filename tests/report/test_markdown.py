"""agentlite.report.markdown: which sections report.md has, and that its tables hold any text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated_run import stage

from agentlite.report.markdown import WORST, as_table, described, markdown
from agentlite.report.read_run import read_run
from agentlite.report.tables import BFCL_SENTENCE, NO_EVALUATION
from agentlite.workspace.digests import file_digest

FIGURE = {"mean": 0.5, "low": 0.25, "high": 0.75, "count": 4}


def made(folder, command, settings=None, metrics=None, rows=None, figures=None):
    plan = {"command": command, "settings": settings or {}, "inputs": {}}
    stage(folder, plan, rows or {}, figures or {}, metrics)


def sections(run):
    return [line for line in markdown(read_run(run)).splitlines() if line.startswith("#")]


def test_a_workspace_without_stages_has_no_section_of_them_and_says_what_is_missing(tmp_path):
    assert sections(tmp_path) == [f"# Report of {tmp_path.name}"]
    assert NO_EVALUATION in markdown(read_run(tmp_path))
    made(tmp_path / "sft", "sft")
    assert sections(tmp_path) == [f"# Report of {tmp_path.name}", "## Stages"]


def test_an_evaluation_of_which_nothing_was_read_is_named_with_its_reason_alone(tmp_path):
    made(tmp_path / "eval" / "prep" / "m", "eval", metrics={"metrics": {"exact_call": FIGURE}})
    whole = markdown(read_run(tmp_path))
    assert NO_EVALUATION not in whole and "| m | 50.0 % [25.0, 75.0] n=4 |" in whole
    assert "### Paired differences" not in whole and "### Rollouts" not in whole
    (tmp_path / "eval" / "prep" / "m" / "done.json").unlink()
    text = markdown(read_run(tmp_path))
    assert NO_EVALUATION in text and "### " not in text and BFCL_SENTENCE not in text
    assert "## Evaluation on prep\n\nNot finished, so not read: m." in text


@pytest.mark.parametrize(("count", "turned"), [(8, False), (9, True)])
def test_a_table_of_more_than_eight_figures_has_a_row_for_each(count, turned, tmp_path):
    figures = {f"figure_{n}": FIGURE for n in range(count)}
    made(tmp_path / "eval" / "prep" / "m", "eval", metrics={"metrics": {}, "other": figures})
    text = markdown(read_run(tmp_path))
    assert ("| figure_1 | 50.0 % [25.0, 75.0] n=4 |" in text) is turned
    assert ("| figure_0 | figure_1 |" in text) is not turned


@pytest.mark.parametrize("has_any", [True, False])
@pytest.mark.parametrize("outdated", [False, True])
def test_differences_are_shown_only_of_the_predictions_that_were_compared(
    outdated, has_any, tmp_path
):
    folder = tmp_path / "eval" / "prep"
    for name in "ab":
        rows = {"predictions.jsonl": [{"name": name}]}
        made(folder / name, "eval", metrics={"metrics": {"exact_call": FIGURE}}, rows=rows)
    ends = {"mean": 0.5, "low": 0.25, "high": 0.75, "beyond_noise": True}
    row = {"metric": "exact_call", "first": "a", "second": "b", "count": 4, **ends}
    digests = {name: file_digest(folder / name / "predictions.jsonl") for name in "ab"}
    compared = {"models": ["a", "b"], "predictions": digests}
    compared["differences"] = [row] if has_any else []
    if outdated:
        compared["predictions"]["b"] = "0" * 64
    (folder / "compare.json").write_text(json.dumps(compared))
    text = markdown(read_run(tmp_path))
    assert ("### Paired differences" in text) is has_any
    if not has_any:
        return
    part = text[text.index("### Paired differences") :]
    assert ("- exact_call: b over a +50.0 points" in part) is not outdated
    assert ("Run `agentlite eval --model a --model b` again." in part) is outdated


@pytest.mark.parametrize("failed", [0, 2, 9])
def test_the_worst_rollouts_are_listed_and_those_that_did_not_fail_are_not(failed, tmp_path):
    rollouts = [
        {
            "task": f"t{n}",
            "sample": 0,
            "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
            "turns": [{"text": "a"}],
            "ended": "user",
            "scores": {"env": float(n >= failed)},
        }
        for n in range(12)
    ]
    rows = {"trajectories.jsonl": rollouts}
    made(tmp_path / "eval" / "prep" / "m", "eval", metrics={"metrics": {}}, rows=rows)
    text = markdown(read_run(tmp_path))
    part = text[text.index("### Rollouts") :].split("###")[1]
    assert f"{failed} of 12 rollouts failed. The page" in part
    assert part.count("\n- ") == min(failed, WORST)


def test_what_a_model_was_trained_on_before_stands_above_its_figures(tmp_path):
    learned = {"records": 40, "by_stage": {"sft": 3}}
    metrics = {"metrics": {"exact_call": FIGURE}, "learned_before": learned}
    made(tmp_path / "eval" / "prep" / "m", "eval", metrics=metrics)
    text = markdown(read_run(tmp_path))
    assert text.index("3 of 40 records ask what sft was trained on") < text.index("| m | 50.0 %")


def test_an_ablation_links_to_its_picture_and_a_retriever_says_how_long_a_question_takes(tmp_path):
    made(tmp_path / "a b", "ablate")
    cells = [{"name": "first", "differs": "", "state": "done", "note": "", "command": ""}]
    table = {"metrics": [], "start": None, "by": "dpo", "split": "dev", "verdict": ["So."]}
    cells = [{**cell, "figures": {"x": 1}, "differences": {}} for cell in cells]
    done = json.loads((tmp_path / "a b" / "done.json").read_bytes())
    (tmp_path / "a b" / "table.json").write_text(json.dumps({**table, "cells": cells}))
    done["outputs"] = {"table.json": file_digest(tmp_path / "a b" / "table.json")}
    (tmp_path / "a b" / "done.json").write_text(json.dumps(done))
    names = ("recall@5", "comp@5", "ndcg@5", "mrr", "map")
    ranked = {"all": {"10": {"bm25": dict.fromkeys(names, FIGURE)}}}
    figures = {"ranking": ranked, "differences": [], "latency_ms": {"bm25": 0.125}}
    made(tmp_path / "retriever", "retriever", metrics=figures)
    text = markdown(read_run(tmp_path))
    assert "](a%20b/table.svg)" in text and "ms a question: bm25 0.125" in text


def test_a_stage_is_described_by_what_it_has(tmp_path):
    made(tmp_path / "sft", "sft", {"seed": 7}, figures={"loss": 0.5})
    made(tmp_path / "dpo", "dpo")
    (tmp_path / "dpo" / "done.json").unlink()
    run = read_run(tmp_path)
    done, undone = described(run.stage("sft")), described(run.stage("dpo"))
    assert done.startswith("**sft**\n\n- settings: seed 7\n- versions: agentlite 0\n- figures: ")
    assert "- inputs" not in done and "- seconds: " in done
    assert undone == "**dpo** (not finished)\n\n- versions: agentlite 0"


cells = st.text("ab|\\<\n é", max_size=12)


@given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_table_has_a_line_for_each_row_and_a_bar_for_each_cell_whatever_they_hold(rows):
    head, rule, *body = as_table(rows).split("\n")
    assert rule == "| --- | --- | --- |" and len(body) == len(rows) - 1
    for line, row in zip([head, *body], rows, strict=True):
        assert [unescaped(cell) for cell in split(line)] == [" ".join(text.split()) for text in row]
        assert "<" not in line


def split(line):
    """The cells of a row, as Markdown finds them: a bar behind a backslash is text."""
    found, escaped = [""], False
    for letter in line.removeprefix("| ").removesuffix(" |"):
        if letter == "|" and not escaped:
            found.append("")
        else:
            found[-1] += letter
        escaped = letter == "\\" and not escaped
    return [cell.strip(" ") for cell in found]


def unescaped(cell):
    found, letters = "", iter(cell)
    for letter in letters:
        found += next(letters) if letter == "\\" else letter
    return found.replace("&lt;", "<").strip(" ")
