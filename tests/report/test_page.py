"""agentlite.report: report.html says what report.md says, keeps models' texts as text, and stays
small.
"""

import base64
import html
import itertools
import json
import re
import zlib
from collections import Counter

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support.browser import browser, installed
from support.examples import examples
from support.generated_run import stage, write_run

from agentlite.cli.main import group
from agentlite.core.records import ANY_TOOL, Call, Gold, GoldCall, Parsed, Step
from agentlite.report import write_report
from agentlite.report.charts import charts, interval
from agentlite.report.explanations import EXPLANATIONS
from agentlite.report.page import with_code
from agentlite.report.prediction_viewer import pack
from agentlite.report.predictions import NO_CALL, UNREADABLE, Answers, confusion, read_answers
from agentlite.report.provenance import commands, origins
from agentlite.report.read_run import read_run
from agentlite.scoring.metrics.bfcl import RULES as BFCL_RULES
from agentlite.scoring.metrics.model_metrics import GROUPS
from agentlite.scoring.metrics.wrong_answers import IN_WORDS
from agentlite.workspace.digests import file_digest

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
def test_every_figure_of_the_markdown_stands_in_the_page(run):
    text, markdown = seen(read_page(run)), (run / "report.md").read_text(encoding="utf-8")
    tables = [line for line in markdown.splitlines() if line.startswith("|") and "---" not in line]
    cells = {cell.strip() for line in tables for cell in re.split(r"(?<!\\)\|", line)[1:-1]}
    assert len(cells) > 30 and not [cell for cell in cells if cell.replace("\\", "") not in text]
    differences = re.findall(
        r"^- (\w+): (\w+) over (\w+) (.* points \[.*?\]), (.*)\.$", markdown, re.MULTILINE
    )
    assert differences and all(
        f"{gain} {verdict}" in text for _, _, _, gain, verdict in differences
    )


def test_every_figure_of_an_evaluation_is_explained_beside_it(run):
    named = {name for group in GROUPS.values() for name in group.names if name not in BFCL_RULES}
    assert named == EXPLANATIONS.keys()
    text = seen(read_page(run))
    shown = [name for name in EXPLANATIONS if f" {name} " in text]
    assert len(shown) > 20
    assert not [name for name in shown if EXPLANATIONS[name] not in text]


@given(st.text("a`<>&\"' "))
def test_a_sentence_keeps_its_letters_and_brings_no_tag_but_code(sentence):
    text = with_code(sentence)
    assert html.unescape(re.sub(r"</?code>", "", text)) == sentence.replace("`", "")
    assert text.count("<") == 2 * (sentence.count("`") + 1 >> 1)


@pytest.mark.long
def test_what_is_not_finished_is_named_there_too(run, tmp_path):
    half = write_run(tmp_path / "half", ["base", "sft"], 4)
    (half / "eval" / "prep" / "base" / "done.json").unlink()
    (half / "sft" / "done.json").unlink()
    text = seen(page := read_page(half))
    assert "<code>agentlite eval</code>" in page
    assert "Not finished, so not read: base. Run agentlite eval again to finish it." in text
    assert "Not finished, so not read: sft. Run agentlite sft again to finish it." in text
    assert "1 model on 4 prompts" in text


def test_the_title_of_the_page_is_the_result(run):
    page = read_page(run)
    [title] = re.findall(r"<h1>(.*?)</h1>", page)
    assert re.fullmatch(
        r"\w+ picks the right tool for \d+ of 12 questions .*; \w+ for \d+\.", title
    )
    assert page.count(title) == 1


def test_a_run_without_evaluations_has_a_page(tmp_path):
    page = read_page(tmp_path)
    assert "No evaluation is finished." in seen(page) and f"<h1>{tmp_path.name}</h1>" in page


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
    assert {said[1] for step in packed(page)["steps"] for said in step[5]} == {EVIL}
    assert EVIL in seen(page)  # as a problem, in a table


def test_the_reader_holds_every_prediction_with_its_record(run):
    data = packed(read_page(run))
    rows = [
        json.loads(line)
        for line in (run / "eval/prep/sft/predictions.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(data["steps"]) == len(rows) and len(data["records"]) == len(rows)
    for row, (name, turn, record, expected, _, said) in zip(rows, data["steps"], strict=True):
        assert (name, turn) == (row["record_id"], row["turn"]) and len(expected) == 1
        assert data["records"][record][0][turn][2] == expected or expected[0][0] in {
            data["tools"][t][0] for t in data["records"][record][1]
        }
        [mine] = [one for one in said if data["models"][one[0]] == "sft"]
        assert mine[1] == row["text"]
        assert mine[5] == [[call["name"], call["arguments"]] for call in row["calls"]]


@settings(max_examples=examples(20))
@given(st.integers(3_000, 40_000))
def test_what_is_packed_stays_in_its_budget_and_says_what_it_left_out(answers, budget):
    found = pack(answers, ["base", "sft"], ["exact_call"], budget)
    contents = json.loads(zlib.decompress(base64.b64decode(found.text)))
    assert len(found.text) <= budget
    assert any("The first" in note for note in found.notes) == (
        len(contents["steps"]) < len(answers.by_step)
    )


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    run = read_run(write_run(tmp_path_factory.mktemp("more") / "more", ["base", "sft"], 30))
    return read_answers(run, run.evaluations[0])


def test_a_text_of_a_megabyte_is_cut_and_says_by_how_much(tmp_path):
    def endless(record, generator):
        return "x" * 1_000_000, Parsed("", (), "not finished")

    page = read_page(write_run(tmp_path / "long", ["base"], 2, endless))
    assert len(page) < 300_000 and "2 texts are cut after 20,000 characters" in seen(page)
    assert all(
        said[1].endswith("[980,000 more characters]")
        for step in packed(page)["steps"]
        for said in step[5]
    )


NAMES = st.lists(st.sampled_from("abc"), max_size=3)


@given(st.lists(st.tuples(NAMES, NAMES, st.booleans()), min_size=1, max_size=6))
def test_a_confusion_counts_every_tool_that_was_due_once(cases):
    """And pairs it with itself wherever it was called."""
    records, by_step = {}, {}
    for number, (expected, called, torn) in enumerate(cases):
        records[str(number)] = Due(expected)
        calls = [{"name": name, "arguments": "{}"} for name in called]
        by_step[Step(str(number), 1)] = {"m": [{"calls": calls, "problem": "torn" if torn else ""}]}
    found = {one.name: one for one in confusion(Answers(records, by_step), ["m"])}
    wanted = Counter(name for expected, _, _ in cases for name in expected)
    right = Counter(
        name
        for expected, called, torn in cases
        if not torn
        for name in (Counter(expected) & Counter(called)).elements()
    )
    assert {name: one.expected("m") for name, one in found.items() if name != NO_CALL} == wanted
    assert all(one.right("m") == right[name] for name, one in found.items() if name != NO_CALL)
    torn = sum(max(1, len(expected)) for expected, _, torn in cases if torn)
    assert sum(one.called["m"][UNREADABLE] for one in found.values()) == torn


class Due:
    """As much of a record as tells what is due."""

    def __init__(self, names):
        self.gold = Gold(tuple(GoldCall(name) for name in names))

    def expected(self, turn):
        return self.gold


def test_where_any_tool_will_do_none_is_confused_with_another():
    row = {"calls": [{"name": "a"}], "problem": ""}
    answers = Answers({"0": Due([ANY_TOOL])}, {Step("0", 1): {"m": [row]}})
    assert confusion(answers, ["m"]) == []


def test_a_lineage_goes_back_to_the_raw_files_and_sees_what_has_changed(tmp_path):
    run = write_run(tmp_path / "run", ["sft"], 3)
    (tree,) = origins(read_run(run))
    assert (tree.name, [origin.name for origin in tree.origins]) == ("sft", ["prep", "base"])
    data = tree.origins[0]
    assert not data.changed and [(raw.name, raw.digests) for raw in data.origins] == [
        ("dialogs.jsonl", ["ab" * 6])
    ]
    done = json.loads((run / "prep" / "done.json").read_text("utf-8"))
    (run / "prep" / "done.json").write_text(
        json.dumps(done | {"outputs": {"test.jsonl": "0" * 64}}), encoding="utf-8"
    )
    assert origins(read_run(run))[0].origins[0].changed


SETTINGS = {
    "prep": {
        "sources": ["a b.jsonl"],
        "split_by": ["query", "tools"],
        "join": 8,
        "task_weights": {"general": 0.5},
    },
    "sft": {
        "model": "smollm2-135m",
        "learning_rate": 0.001,
        "lora_target_modules": ["all"],
        "max_steps": None,
        "trl": {"weight_decay": 0.01},
        "packing": True,
        "batch_size": 4,
    },
    "pairs": {
        "candidates": "other",
        "weights": {"exact": 1.0},
        "gold": True,
        "data": "x",
        "model": "y",
    },
    "grpo": {"loss_type": "grpo", "temperature": 0.7, "rewards": ["mine.py:short"]},
}


@pytest.mark.parametrize("command", SETTINGS)
def test_a_command_gives_back_the_settings_of_the_plan(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    stage(
        tmp_path / "run" / "own name",
        {"command": command, "settings": SETTINGS[command], "inputs": {}},
        {},
        {},
    )
    (line,) = commands(read_run(tmp_path / "run"))
    import shlex

    name, *words = shlex.split(line)
    assert name == "agentlite" and "--out" in words and "own name" in words
    told = CliRunner().invoke(
        group, [*words, "--print-config"], catch_exceptions=False, standalone_mode=False
    )
    found = yaml.safe_load(told.output)[command]
    kept = {
        key: value
        for key, value in SETTINGS[command].items()
        if command != "pairs" or key not in ("data", "model")
    }
    assert {key: found[key] for key in kept} == kept


@given(st.lists(st.floats(), min_size=1, max_size=600))
def test_a_curve_has_few_points_and_none_that_is_no_number(losses):
    rows = [{"step": step, "loss": loss} for step, loss in enumerate(losses)]
    found, _ = charts(rows)
    numbers = [loss for loss in losses if abs(loss) < 1e300]
    assert len(found) == bool(numbers)
    for chart in found:
        assert 1 <= len(chart.lines[0].points) <= 240 and chart.lines[0].last == numbers[-1]
        assert "nan" not in chart.svg and "inf" not in chart.svg


def test_parts_of_a_reward_share_one_scale():
    rows = [{"step": 1, "loss": 2.0, "reward/exact": 0.25, "reward/wrong_tool": 3.0}]
    others, parts = charts(rows)
    assert [line.name for chart in others for line in chart.lines] == ["loss"]
    assert [(chart.lines[0].name, chart.low, chart.high) for chart in parts] == [
        ("exact", 0, 3),
        ("wrong_tool", 0, 3),
    ]


def test_an_interval_is_drawn_where_it_lies():
    drawn = interval({"mean": 0.5, "low": 0.0, "high": 1.0}, (0.0, 1.0))
    assert 'M1.0 6H99.0"' in drawn and 'class="dot" d="M50.0 6h0"' in drawn


CHOOSE = """(label, value) => {
  const made = [...document.querySelectorAll(".controls label")].find((one) => one.firstChild.data === label).lastChild;
  made.value = value;
  made.dispatchEvent(new Event(made.tagName === "INPUT" ? "input" : "change"));
}"""  # noqa: E501  (verbatim text)
needs_browser = pytest.mark.skipif(
    not installed(), reason="no Chromium is installed: apt-get install chromium"
)


@pytest.fixture(scope="module")
def chromium():
    with browser() as page:
        yield page


@pytest.mark.long
@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize(("width", "dark"), list(itertools.product((1280, 390), (False, True))))
def test_a_page_renders_without_errors_and_without_sideways_scrolling(
    run, chromium, tmp_path, width, dark
):
    read_page(run)
    chromium.open(run / "report.html", width=width, dark=dark)
    assert chromium.errors == []
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.value("document.querySelectorAll('.list button').length") == 12
    assert chromium.value("document.querySelector('.detail').innerText.includes('Expected')")
    shot = chromium.screenshot()
    (tmp_path / "report.png").write_bytes(shot)
    print(f"loaded in {chromium.load_seconds():.2f} s, {len(shot)} bytes of screenshot at {width}")
    assert shot.startswith(b"\x89PNG") and len(shot) > 20_000


@pytest.mark.long
@pytest.mark.browser
@needs_browser
def test_at_1400_pixels_no_table_is_cut_even_with_all_details_open(run, chromium):
    read_page(run)
    chromium.open(run / "report.html", width=1400)
    chromium.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tables = "[...document.querySelectorAll('.wide')]"
    assert chromium.value(f"{tables}.length") > 3
    assert (
        chromium.value(f"{tables}.filter((one) => one.scrollWidth > one.clientWidth).length") == 0
    )


@pytest.mark.long
@pytest.mark.browser
@needs_browser
def test_the_reader_filters_by_model_outcome_and_text(run, chromium):
    read_page(run)
    chromium.open(run / "report.html", width=1280)
    rows = [
        json.loads(line)
        for line in (run / "eval/prep/sft/predictions.jsonl").read_text("utf-8").splitlines()
    ]
    chromium.value(
        f"({CHOOSE})('model', '1'), ({CHOOSE})('by', '1'), ({CHOOSE})('outcome', 'full')"
    )
    right = sum(row["metrics"]["exact_call"] == 1 for row in rows)
    assert (
        0 < right < 12
        and chromium.value("document.querySelectorAll('.list button').length") == right
    )
    kinds = Counter(IN_WORDS[row["wrong"]] for row in rows if row["wrong"])
    chromium.value(f"({CHOOSE})('outcome', 'any')")
    for words, count in kinds.items():
        chromium.value(f"({CHOOSE})('wrong by', '{words}')")
        assert chromium.value("document.querySelectorAll('.list button').length") == count
    assert kinds
    chromium.value(f"({CHOOSE})('wrong by', '')")
    chromium.value(f"({CHOOSE})('outcome', 'any'), ({CHOOSE})('text', '{rows[0]['record_id']}')")
    assert chromium.value("document.querySelectorAll('.list button').length") == 1


def answering(kinds):
    """The answers to the prompts, in turn: `right`; `value`: a wrong one for the first argument;
    `key`: that argument is missing, and another one is there; `tool`: another tool; `calls`: right,
    and given as calls without a text; `words`: no call.
    """
    kinds = iter(kinds)

    def answer(record, generator):
        kind, [call] = next(kinds), record.messages[-1].calls
        (first, value), *others = call.arguments.items()
        changed = {
            "value": Call(call.name, {first: value + "!?", **dict(others)}),
            "key": Call(call.name, {"other": value, **dict(others)}),
            "tool": Call("other_tool", call.arguments),
        }.get(kind, call)
        calls = () if kind == "words" else (changed,)
        return "" if kind == "calls" else "I look.", Parsed("", calls)

    return answer


MARKED = """(side) => [...document.querySelectorAll(`.compared > :nth-child(${side}) mark`)]
  .map((mark) => mark.textContent.trim().split(" ")[0])"""


@pytest.mark.long
@pytest.mark.browser
@needs_browser
def test_what_differs_between_the_expected_and_the_given_call_is_marked(chromium, tmp_path):
    kinds = ["right", "value", "key", "tool", "calls", "words"]
    run = write_run(tmp_path / "run", ["base"], len(kinds), answering(kinds))
    page = read_page(run)
    chromium.open(run / "report.html", width=1280)
    data = packed(page)
    for number, (kind, step) in enumerate(zip(kinds, data["steps"], strict=True)):
        chromium.value(f"document.querySelectorAll('.list button')[{number}].click()")
        [[name, arguments]] = step[3]
        first = next(iter(json.loads(arguments)))
        expected, given = {
            "value": ([], [first]),
            "key": ([first], ["other"]),
            "tool": ([name], ["other_tool"]),
            "words": ([name], []),
        }.get(kind, ([], []))
        assert chromium.value(f"({MARKED})(1)") == expected, kind
        assert chromium.value(f"({MARKED})(2)") == given, kind
        shown = chromium.value("document.querySelector('.compared > :nth-child(2)').innerText")
        assert ("no call" in shown) == (kind == "words") and "nothing" not in shown
    assert chromium.errors == []


@pytest.mark.long
@pytest.mark.browser
@needs_browser
def test_a_failure_is_a_click_away_and_an_answer_has_a_link(chromium, tmp_path):
    kinds = ["right", "value", "right", "tool"]
    run = write_run(tmp_path / "run", ["base"], len(kinds), answering(kinds))
    steps = packed(read_page(run))["steps"]
    opened = "document.querySelector('.detail a').textContent"
    next_failure = "[...document.querySelectorAll('.controls button')].at(-1).click()"
    chromium.open(run / "report.html", width=1280)
    chromium.value(f"({CHOOSE})('by', '1')")  # the exact call
    seen_steps = [chromium.value(f"{next_failure}, {opened}") for _ in range(3)]
    assert seen_steps == [f"{steps[number][0]} / 1" for number in (1, 3, 1)]
    link = chromium.value("document.querySelector('.detail a').getAttribute('href')")
    chromium.value(f"document.querySelector('.list button').click(), location.hash = '{link}'")
    chromium.wait(f"{opened} === '{steps[1][0]} / 1'")
    chromium.value(f"({CHOOSE})('text', 'nothing that anybody said')")
    assert chromium.value("document.querySelector('.list').innerText") == "No prompt matches."
    assert chromium.errors == []


@pytest.mark.long
@pytest.mark.browser
@needs_browser
def test_two_steps_of_one_question_have_different_titles(chromium, tmp_path):
    """The call, and the answer once the result of the call is there."""
    run = write_run(tmp_path / "run", ["base"], 1)
    prep, evaluated = run / "prep", run / "eval/prep/base"
    record = json.loads((prep / "test.jsonl").read_text("utf-8"))
    [call] = record["messages"][1]["tool_calls"]
    result = {"role": "tool", "content": "{}", "tool_call_id": call["id"]}
    record["messages"] += [result, {"role": "assistant", "content": "Done."}]
    stage(prep, json.loads((prep / "plan.json").read_text("utf-8")), {"test.jsonl": [record]}, {})
    answer = json.loads((evaluated / "predictions.jsonl").read_text("utf-8"))
    plan, metrics = (
        json.loads((evaluated / name).read_text("utf-8")) for name in ("plan.json", "metrics.json")
    )
    plan["inputs"]["data"] = file_digest(prep / "test.jsonl")
    stage(evaluated, plan, {"predictions.jsonl": [answer, answer | {"turn": 3}]}, {}, metrics)
    read_page(run)
    chromium.open(run / "report.html", width=1280)
    titles = (
        "[...document.querySelectorAll('.list button > span:last-child')].map(e => e.innerText)"
    )
    first, second = chromium.value(titles)
    assert second == f"after {call['function']['name']}: {first}"


@pytest.mark.long
@pytest.mark.browser
@needs_browser
def test_a_models_text_stays_text_in_the_browser(chromium, tmp_path):
    page = write_run(tmp_path / "run", ["base"], 3, evil) / "report.html"
    read_page(page.parent)
    chromium.open(page, width=1280)
    assert chromium.errors == [] and chromium.value("document.images.length") == 0
    assert chromium.value("document.querySelector('.said > pre').textContent") == EVIL


@pytest.mark.long
@pytest.mark.browser
@needs_browser
def test_tables_are_read_without_javascript(run, chromium):
    read_page(run)
    chromium.open(run / "report.html", width=1280, javascript=False)
    assert chromium.value("document.querySelector('noscript').innerText.includes('JavaScript')")
    assert chromium.value("document.querySelectorAll('table').length") > 5
