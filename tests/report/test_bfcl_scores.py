"""BFCL's categories over all evaluations of a run: v4's multi-turn group and overall, by hand."""

import json
import re

import pytest
from support.generated_rollouts import rollout, says, write_live
from support.generated_run import stage

from agentlite.core.row_files import write_json
from agentlite.report import write_report
from agentlite.report.bfcl_scores import bfcl_table, figures_of, missing
from agentlite.report.read_run import read_run
from agentlite.scoring.metrics.bfcl import SUBSET
from agentlite.scoring.metrics.figures import EXPLANATIONS

MULTI_TURN = {
    "multi_turn_base": [1, 1, 1, 0],
    "multi_turn_miss_func": [1, 0],
    "multi_turn_miss_param": [0, 0],
    "multi_turn_long_context": [1],
}


def live(run, verdicts, model="sft"):
    for category, values in verdicts.items():
        done = [
            rollout(str(n), [says("Hm.")], {"bfcl": float(value)}) for n, value in enumerate(values)
        ]
        write_live(run, {model: done}, env=f"bfcl:{category}")
    return run


def recorded(run, verdicts, model="sft", digest=None):
    """An evaluation on recorded prompts of BFCL's."""
    figures = {
        name: {"mean": sum(values) / len(values), "count": len(values), "low": 0.1, "high": 0.9}
        for name, values in verdicts.items()
    }
    plan = {"command": "eval", "settings": {}, "inputs": {"model": digest or model * 4}}
    metrics = {"metrics": {}, "bfcl": {"bfcl_overall": {"mean": 0.99, "count": 9}, **figures}}
    stage(run / "eval/prep" / model, plan, {}, {}, metrics)
    return run


def table_of(run):
    return bfcl_table(read_run(run))


def test_four_categories_make_the_multi_turn_group_by_hand(tmp_path):
    [one] = table_of(live(tmp_path, MULTI_TURN)).models.values()
    # (3/4 + 1/2 + 0 + 1) / 4: each category weighs the same, however many dialogs it has
    assert one.figures["bfcl_multi_turn"]["mean"] == pytest.approx(0.5625)
    assert one.figures["bfcl_overall"]["mean"] == pytest.approx(0.5625)
    assert one.figures["bfcl_multi_turn"]["count"] == 9
    assert one.figures["multi_turn_base"]["mean"] == 0.75 and one.figures["bfcl_live"] is None
    assert one.scores.name == SUBSET
    assert not [name for name in one.scores.not_measured if name.startswith("multi_turn")]
    assert {"multiple", "live_simple", "irrelevance", "memory_kv"} <= {*one.scores.not_measured}


def test_the_overall_has_the_weights_of_v4_by_hand(tmp_path):
    run = recorded(live(tmp_path, MULTI_TURN), {"multiple": [1, 0], "irrelevance": [1, 1, 1, 0]})
    [one] = table_of(run).models.values()
    # non-live 1/2, irrelevance 3/4, multi-turn 0.5625 by 10, 10 and 30
    assert one.figures["bfcl_overall"]["mean"] == pytest.approx((5 + 7.5 + 16.875) / 50)
    assert one.figures["multiple"] == {"mean": 0.5, "count": 2, "low": 0.1, "high": 0.9}


def test_categories_that_were_not_measured_are_named_in_both_reports(tmp_path):
    run = live(tmp_path / "run", {"multi_turn_base": [1, 0]})
    live(run, {"multi_turn_base": [0, 0], "multi_turn_miss_func": [1, 0]}, "base")
    write_report(run)
    page = re.sub(r"<[^>]+>", " ", (run / "report.html").read_text(encoding="utf-8"))
    report = (run / "report.md").read_text(encoding="utf-8")
    for name, first in (("sft", "multi_turn_miss_func, multi_turn_miss_param"),):
        assert f"Of {name} these categories were not measured:" in page and first in page
    part = report[report.index("## BFCL v4") :]
    assert "| bfcl_multi_turn | 25.0 %" in part and "| multi_turn_miss_func | 50.0 %" in part
    assert [row[0] for row in figures_of(table_of(run)).cells][1:] == [
        "bfcl_overall",
        "bfcl_non_live",
        "bfcl_live",
        "bfcl_irrelevance",
        "bfcl_multi_turn",
        "multi_turn_base",
        "multi_turn_miss_func",
        "bfcl_agentic",
    ]
    for name in ("bfcl_multi_turn", "multi_turn_base", "bfcl_overall"):
        assert EXPLANATIONS[name] in page.replace("&#39;", "'")
    told = json.loads((run / "bfcl.json").read_bytes())
    assert told["weights"]["bfcl_multi_turn"] == 30 and {*told["models"]} == {"base", "sft"}
    assert told["models"]["sft"]["bfcl"]["bfcl_multi_turn"]["mean"] == 0.5
    assert told["models"]["sft"]["measured_in"] == {"multi_turn_base": "eval/bfcl-multi_turn_base"}
    assert len(missing(table_of(run))) == 2


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"extra_tools": 4}, "extra_tools"),
        ({"extra_tools": 0}, "extra_tools"),
        ({"max_turns": 5}, "max_turn"),
        ({"max_turns": 30}, "max_turn"),
    ],
)
def test_what_was_not_asked_as_bfcl_asks_is_left_out_and_named(tmp_path, settings, option):
    run = live(tmp_path / "run", {"multi_turn_base": [1], "multi_turn_miss_func": [1]})
    alone = live(tmp_path / "alone", {"multi_turn_base": [1]})
    path = run / "eval/bfcl-multi_turn_base/sft/plan.json"
    plan = json.loads(path.read_bytes())
    for one in (path, alone / path.relative_to(run)):
        write_json(one, {**plan, "settings": {**plan["settings"], **settings}})
    table = table_of(run)
    [one] = table.models.values()
    assert [*one.measured_in] == ["multi_turn_miss_func"]
    [sentence] = table.left_out
    assert "bfcl-multi_turn_base of sft is left out" in sentence and option in sentence
    for folder in (run, alone):  # also where nothing else was measured
        write_report(folder)
        assert option in (folder / "report.md").read_text(encoding="utf-8")
