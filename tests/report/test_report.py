"""agentlite.report: what is finished is shown, what is not is named, and nothing is claimed beyond
the figures.
"""

import json

import pytest

from agentlite.report import write_report


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


def test_a_run_without_evaluations_says_so(tmp_path):
    assert "No evaluation is finished." in read_report(tmp_path)
