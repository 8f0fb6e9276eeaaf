"""agentlite.report: the page has every figure, and keeps models' texts as text."""

import base64
import html
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated_rollouts import rollout, says, write_rollout
from support.generated_run import stage, write_run

from agentlite.core.records import Parsed
from agentlite.report import write_report
from agentlite.report.charts import charts
from agentlite.report.tables import gain, gain_interval, interval, mean, verdict

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def evil(record, generator):
    return EVIL, Parsed("", (), EVIL)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two models on twelve prompts, the one of them trained in the run."""
    return write_run(tmp_path_factory.mktemp("runs") / "weather", ["base", "sft"], 12)


def read_page(run):
    write_report(run)
    return (run / "report.html").read_text(encoding="utf-8")


def seen(page):
    """What stands on a page without JavaScript."""
    body = re.sub(r"<(script|style)\b.*?</\1>|<svg.*?</svg>", " ", page, flags=re.DOTALL)
    return " ".join(
        html.unescape(
            re.sub(r"<wbr>|<[^>]*>", lambda tag: "" if tag[0] == "<wbr>" else " ", body)
        ).split()
    )


def packed(page):
    text = re.search(r'class="packed">([^<]*)<', page)[1]
    return json.loads(zlib.decompress(base64.b64decode(text)))


@pytest.mark.long
def test_every_figure_stands_in_the_page(run):
    text = seen(read_page(run))
    for path in run.glob("eval/prep/*/metrics.json"):
        metrics = json.loads(path.read_text(encoding="utf-8"))
        groups = [metrics[name] for name in ("metrics", "dialogs", "timing", "tools")]
        figures = [one for group in groups for one in group.values() if isinstance(one, dict)]
        assert len(figures) > 15
        assert all(f"{mean(one)} {interval(one)}" in text for one in figures)
    compared = json.loads((run / "eval/prep/compare.json").read_text(encoding="utf-8"))
    assert compared["differences"] and all(
        f"{gain(r)} {gain_interval(r)} {verdict(r)}" in text for r in compared["differences"]
    )


def test_every_stage_that_trains_has_its_curves_also_while_it_is_not_finished(tmp_path):
    rows = [{"step": step, "loss": 1 / step, "reward/exact": 0.5} for step in range(1, 9)]
    for name in ("sft", "dpo", "grpo", "distill", "retriever"):
        plan = {"command": name, "settings": {}, "inputs": {}}
        stage(tmp_path / name, plan, {"metrics.jsonl": rows}, {})
    (tmp_path / "dpo/done.json").unlink()
    with (tmp_path / "dpo/metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 9, "lo')  # it is being written
    page = read_page(tmp_path)
    training = page[page.index('id="training"') : page.index('id="settings"')]
    assert training.count('<figure class="chart">') == 2 * 5
    assert "not finished, step 8" in training


def test_figures_of_a_retriever_of_an_earlier_version_are_left_out(tmp_path):
    plan = {"command": "retriever", "settings": {}, "inputs": {}}
    ranked = {"all": {"10": {"bm25": {}}}, "known tools": {"10": {"bm25": {}}}}
    stage(tmp_path / "retriever", plan, {}, {}, {"methods": ["bm25"], "ranking": ranked})
    assert 'id="retrieval"' not in read_page(tmp_path)


def test_a_page_names_nothing_to_load_and_forbids_it(run):
    page = read_page(run)
    assert "default-src 'none'" in page
    assert not re.search(
        r"""(src|href)\s*=\s*(?!["']?#)|url\(|@import|https?:""", page.split("<script type")[0]
    )


def test_a_models_text_never_becomes_markup(tmp_path):
    """Not in the tables, where problems and names stand, and not in the data, where texts stand."""
    page = read_page(write_run(tmp_path / EVIL.replace("/", "_")[:60], ["base"], 3, evil))
    assert EVIL not in page and "<img" not in page and page.count("<script") == 2
    assert {a["text"] for step in packed(page)["steps"] for a in step["answers"]} == {EVIL}
    assert EVIL in seen(page)  # as a problem, in a table


def test_the_reader_holds_every_prediction_with_its_record(run):
    data = packed(read_page(run))
    rows = [
        json.loads(line)
        for line in (run / "eval/prep/sft/predictions.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(data["steps"]) == len(rows) and len(data["records"]) == len(rows)
    for row, step in zip(rows, data["steps"], strict=True):
        assert (step["id"], step["turn"]) == (row["record_id"], row["turn"])
        record, [[tool, _]] = data["records"][step["id"]], step["expected"]
        [call] = record["messages"][step["turn"]]["tool_calls"]
        assert call["function"]["name"] == tool
        assert tool in {data["tools"][number]["function"]["name"] for number in record["tools"]}
        [mine] = [a for a in step["answers"] if data["models"][a["model"]] == "sft"]
        assert mine == {**row, "model": mine["model"]}


@given(st.lists(st.floats(), min_size=1, max_size=600))
def test_a_curve_has_few_points_and_none_that_is_no_number(losses):
    rows = [{"step": step, "loss": loss} for step, loss in enumerate(losses)]
    found = charts(rows)
    numbers = [loss for loss in losses if abs(loss) < 1e300]
    assert len(found) == bool(numbers)
    for chart in found:
        [line] = chart["lines"]
        assert 1 <= len(line["points"]) <= 240 and line["last"] == numbers[-1]
        assert "nan" not in chart["svg"] and "inf" not in chart["svg"]


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)


def in_the_browser(page: Path) -> str:
    """The page as a browser has it once its scripts have run to their end."""
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000")
    command = [str(CHROMIUM), *options, "--dump-dom", page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert 'data-ready="true"' in done.stdout, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed: apt-get install chromium")
def test_a_page_runs_to_its_end_and_a_models_text_stays_text(run, tmp_path):
    read_page(run)
    shown = in_the_browser(run / "report.html")
    assert shown.count("<button") >= 12 and "Expected" in shown
    page = write_run(tmp_path / "run", ["base"], 3, evil) / "report.html"
    read_page(page.parent)
    shown = in_the_browser(page)
    assert html.escape(EVIL, quote=False) in shown and "<img" not in shown
    scores = {"env": 1.0, "polite": 0.5}
    rollouts = [rollout("apple", [says("Done.")], scores, sample=number) for number in (0, 1)]
    read_page(write_rollout(tmp_path / "rollouts", rollouts))
    shown = in_the_browser(tmp_path / "rollouts" / "report.html")
    assert '<option value="1">polite</option>' in shown
