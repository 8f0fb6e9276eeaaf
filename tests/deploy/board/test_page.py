"""The page in a real browser: what it shows, that it follows a run, and that no text becomes
markup.
"""

import json
import shutil
import time
from typing import Any
from urllib.parse import quote

import pytest
from support.boards import EVIL, EVIL_NAME, evil_runs, serving, trained
from support.browser import Page, browser, installed
from support.examples import turn
from support.generated_run import stage, write_run
from support.processes import environment, waits_until
from support.samples import DATA, OSLO, WEATHER_TOOL

import agentlite
from agentlite.core.row_files import read_rows, write_rows
from agentlite.deploy.board import board_server, stage_form
from agentlite.workspace.digests import file_digest
from agentlite.workspace.run_folder import Plan, open_stage, read

pytestmark = [
    pytest.mark.long,
    pytest.mark.browser,
    pytest.mark.skipif(
        not installed(), reason="no Chromium is installed: apt-get install chromium"
    ),
]
VIEWS = ("runs", "curves", "results", "start", "chat")


@pytest.fixture(scope="module")
def chromium():
    with browser() as page:
        yield page


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for number in range(5):
        trained(root / f"alpha{number}/sft", lora_r=2**number, seed=7)
    write_run(root / "weather", ["base", "sft"], 6)
    with serving([root]) as made:
        yield made


def opened(page: Page, address: str, **look: Any) -> None:
    """Loads the page anew, also where only what stands behind # has changed."""
    page.open("about:blank", width=300, javascript=False)
    page.open(address, **look)


def head(page: Page, name: str) -> None:
    """Clicks on the heading of a column."""
    buttons = "[...document.querySelectorAll('thead button')]"
    page.value(f"{buttons}.find((one) => one.innerText.startsWith({json.dumps(name)})).click()")


def typed(page: Page, selector: str, text: str) -> None:
    """Sets a field as a person does."""
    page.value(
        f"(() => {{ const field = document.querySelector({json.dumps(selector)});"
        f"field.value = {json.dumps(text)};"
        "field.dispatchEvent(new Event('input', {bubbles: true}));"
        "field.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def press(page: Page, key: str) -> None:
    code = {"Tab": 9, "Enter": 13}.get(key, 0)
    written = "\r" if key == "Enter" else key if len(key) == 1 else ""
    for kind in ("keyDown", "keyUp"):
        text: dict[str, Any] = {"text": written} if written and kind == "keyDown" else {}
        page.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)


def quoted(text: str) -> str:
    return quote(text, safe="")


def test_the_table_sorts_filters_and_shows_what_differs(chromium, server):
    root = server.folders[0]
    opened(chromium, f"{server.url}#runs?text=alpha", width=1300)
    heads = chromium.value("[...document.querySelectorAll('thead th')].map((one) => one.innerText)")
    assert "lora_r" in heads and "seed" not in heads  # the same everywhere
    rows = "[...document.querySelectorAll('tbody tr')].map((row) => row.dataset.id)"
    head(chromium, "lora_r")
    assert chromium.value(rows) == [f"{root}/alpha{n}/sft" for n in range(5)]
    head(chromium, "lora_r")
    assert chromium.value(rows)[0] == f"{root}/alpha4/sft"
    typed(chromium, "#filter", "lora_r=16")
    assert f"{root}/alpha4/sft" in chromium.value(rows)
    assert f"{root}/alpha1/sft" not in chromium.value(rows)
    link = chromium.value("location.href")
    opened(chromium, link, width=1300)  # a link shows another person the same
    assert chromium.value("document.getElementById('filter').value") == "lora_r=16"
    assert f"{root}/alpha1/sft" not in chromium.value(rows)
    assert not chromium.errors


def test_runs_are_chosen_by_keyboard_and_their_curves_drawn_over_each_other(chromium, server):
    opened(chromium, f"{server.url}#runs?text=alpha&command=sft&sort=id", width=1300)
    for key in ("x", "j", "x"):
        press(chromium, key)
    link = "document.querySelector('.tools a')"
    assert chromium.value(f"{link}.innerText") == "Curves of 2 selected"
    chromium.value(f"{link}.click()")
    chromium.wait("document.querySelectorAll('.chart').length === 3")
    lines = "document.querySelectorAll('.chart[data-names=loss] path').length"
    assert chromium.value(lines) == 2
    said = chromium.value("document.querySelector('.chart[data-names=loss] svg').ariaLabel")
    assert "alpha0/sft loss 0.06667" in said and "alpha1/sft loss" in said
    press(chromium, "1")
    chromium.wait("document.getElementById('filter') !== null")
    press(chromium, "/")
    assert chromium.value("document.activeElement.id") == "filter"
    assert not chromium.errors


def test_a_run_is_followed_while_it_grows(chromium, tmp_path):
    with (
        serving([tmp_path]) as server,
        open_stage(tmp_path / "grpo", Plan("grpo", {}, {}), force=False) as stage,
    ):
        opened(chromium, f"{server.url}#curves", width=1300)
        now = time.time()
        for last in (3, 6):
            rows = ({"step": n, "loss": 1 / n, "reward/exact": 0.5} for n in range(1, last + 1))
            write_rows(stage.folder / "metrics.jsonl", rows)
            pace = ({"step": n, "steps": 8, "at": now + 60 * n} for n in range(1, last + 1))
            write_rows(stage.folder / "pace.jsonl", pace)
            answer = {
                "record_id": "r",
                "turn": 0,
                "text": f"answer {last}",
                "components": {"exact": 0.25},
            }
            write_rows(stage.folder / "rollouts.jsonl", [answer])
            chromium.wait(f"document.body.innerText.includes('running, step {last} of 8')")
            chromium.wait(f"document.body.innerText.includes('answer {last}')")
            chromium.wait(f"document.querySelector('.steps').innerText.endsWith('{last}')")
        text = chromium.value("document.body.innerText")
        for part in ("2 min left", "exact 0.25", "Components of the reward"):
            assert part in text
        assert chromium.value("document.title") == "(1) agentlite board"
    assert not chromium.errors


def test_no_text_of_a_stranger_becomes_markup(chromium, tmp_path):
    run = evil_runs(tmp_path)
    with serving([tmp_path]) as server:
        name = f"{run}/grpo"
        opened(chromium, server.url, width=1300)
        for hash in (
            "runs?figures=all",
            f"curves?id={quoted(name)}",
            f"start?stage=grpo&from={quoted(f'{run}/{EVIL_NAME}')}",
            f"results?run={quoted(str(run))}",
            "results?figures=all",
            f"results?answers={quoted(name)}&text={quoted(EVIL)}&wrong={quoted(EVIL)}",
            f"results?answers={quoted(f'{run}/eval/prep/{EVIL_NAME}')}",
            f"results?answers={quoted(f'{run}/eval/prep/{EVIL_NAME}')}&open=0",
            f"chat?about={quoted(f'{run}/eval/prep/{EVIL_NAME}')}&record=0&turn=1",
            f"runs?text={quoted(EVIL)}&sort={quoted(EVIL)}&command={quoted(EVIL)}",
            f"{quoted(EVIL)}",
            "start?stage=__proto__",
        ):
            chromium.value(f"location.hash = {json.dumps(f'#{hash}')}")
            time.sleep(0.5)
            assert chromium.value("window.hacked === undefined")
            assert chromium.value("document.querySelectorAll('img, main script').length") == 0
        chromium.value(f"location.hash = {json.dumps(f'#curves?id={quoted(name)}')}")
        chromium.wait("document.querySelector('.answer pre') !== null")
        assert chromium.value("document.querySelector('.answer pre').textContent") == EVIL
    blocked = [error for error in chromium.errors if "Security Policy" in error]
    assert not blocked  # nothing even tried


# whatever the server says: every text of every answer becomes one that tries to be markup. Names of
# fields stay; those that a stranger may choose (of settings, figures, curves, tools) are made so
# by `evil_runs` above.
POISON = """
(() => {
  const evil = %s;
  const kept = new Set(%s);
  const poisoned = (value, key) => {
    if (typeof value === "string") return kept.has(key) ? value : value + evil;
    if (Array.isArray(value)) return value.map((one) => poisoned(one, key));
    if (value === null || typeof value !== "object") return value;
    const entries = Object.entries(value).map(([name, one]) => [name, poisoned(one, name)]);
    return Object.fromEntries(entries);
  };
  const json = Response.prototype.json;
  window.poisoned = 0;
  Response.prototype.json = async function () {
    window.poisoned += 1;
    const answer = await json.call(this);
    return window.refused ? { error: { message: evil } } : poisoned(answer, "");
  };
  Object.defineProperty(Response.prototype, "ok", { get: () => !window.refused });
})()
"""
# by which the page finds its way: ids and names of workspaces, and states that it compares
KEPT = ["id", "run", "runs", "folders", "record", "state", "command", "groups", "components"]


@pytest.mark.parametrize("refused", [False, True])
def test_no_text_in_any_answer_of_the_server_becomes_markup(chromium, server, refused):
    root = server.folders[0]
    name = quoted(f"{root}/weather/eval/prep/sft")
    script = POISON % (json.dumps(EVIL), json.dumps(KEPT))
    added = chromium.call("Page.addScriptToEvaluateOnNewDocument", source=script)["identifier"]
    seen = ""
    try:
        opened(chromium, server.url, width=1300)
        for hash in (
            "runs?figures=all",
            f"curves?id={quoted(f'{root}/alpha1/sft')}",
            f"results?id={name}&id={quoted(f'{root}/weather/eval/prep/base')}&figures=all",
            f"results?answers={name}",
            f"results?answers={name}&open=0",
            f"results?run={quoted(f'{root}/weather')}",
            f"chat?about={name}&record=0&turn=1",
            "start?stage=grpo",
            "chat",
        ):
            chromium.value(f"window.refused = {json.dumps(refused)}")  # an error is shown as well
            before = chromium.value("window.poisoned")
            chromium.value(f"location.hash = {json.dumps(f'#{hash}')}")
            if not hash.startswith("results?run"):
                chromium.wait(f"window.poisoned > {before}")
            time.sleep(0.3)
            assert chromium.value("window.hacked === undefined"), hash
            assert chromium.value("document.querySelectorAll('img, main script').length") == 0, hash
            seen += chromium.value("document.body.textContent")
    finally:
        chromium.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added)
        opened(chromium, server.url, width=1300)
    assert seen.count(EVIL) > (5 if refused else 50)  # they were shown, as text
    assert not [error for error in chromium.errors if "Security Policy" in error]


# the roles that a screen reader names a thing by; each needs a name
NAMED = {"button", "link", "checkbox", "combobox", "textbox", "searchbox", "image", "img", "table"}
NAMED |= {"log", "progressbar", "Iframe", "navigation", "columnheader"}


def test_a_screen_reader_finds_a_name_for_everything_and_the_marks_of_a_page(chromium, server):
    root = server.folders[0]
    name = quoted(f"{root}/weather/eval/prep/sft")
    chromium.call("Accessibility.enable")
    found: dict[str, set[str]] = {}
    for hash, ready in {
        "runs?sort=id": "tbody tr",
        f"curves?id={quoted(f'{root}/alpha1/sft')}": ".chart",
        "results": "tbody tr",
        f"results?answers={name}": "article.answer",
        f"results?answers={name}&open=0": ".turn",
        "start?stage=sft": ".command code",
        "chat": "#chat-model",
    }.items():
        opened(chromium, f"{server.url}#{hash}", width=1300)
        chromium.wait(f"document.querySelector({json.dumps(ready)}) !== null")
        nodes = chromium.call("Accessibility.getFullAXTree")["nodes"]
        seen = [
            (one.get("role", {}).get("value", ""), one.get("name", {}).get("value", "").strip())
            for one in nodes
            if not one["ignored"]
        ]
        nameless = [role for role, text in seen if role in NAMED and not text and role != "table"]
        assert not nameless, (hash, nameless)
        roles = {role for role, _ in seen}
        assert {"main", "navigation", "banner", "heading", "status"} <= roles, (hash, roles)
        found[hash] = roles
    assert {"table", "rowheader", "columnheader", "checkbox"} <= found["runs?sort=id"]
    assert "log" in found["chat"] and {"image", "img"} & found[[*found][1]]
    assert chromium.value("document.documentElement.lang") == "en"


def test_the_keyboard_alone_leads_to_a_wrong_answer_and_back(chromium, server):
    opened(chromium, f"{server.url}#results?text=weather&sort=-id", width=1300)
    chromium.wait("document.querySelectorAll('tbody tr').length === 2")
    reached = []
    for _ in range(40):  # Tab comes to everything that can be clicked, in the order of the page
        press(chromium, "Tab")
        reached.append(
            chromium.value("document.activeElement.title || document.activeElement.innerText")
        )
        if "weather/eval/prep/sft" in reached[-1]:
            break
    assert reached[0] == "Skip to the content"
    press(chromium, "Enter")
    chromium.wait("document.querySelectorAll('article.answer').length === 6")
    for key in ("j", "j", "k", "Enter"):
        press(chromium, key)
    chromium.wait("document.querySelector('.turn') !== null")
    assert chromium.value("location.hash").endswith("open=1")
    chromium.value("history.back()")
    chromium.wait("document.querySelectorAll('article.answer').length === 6")
    press(chromium, "1")
    chromium.wait("location.hash.startsWith('#runs')")
    assert not chromium.errors


def test_evaluations_are_selected_and_opened_by_keys(chromium, server):
    opened(chromium, f"{server.url}#results?text=weather&sort=id", width=1300)
    chromium.wait("document.querySelectorAll('tbody tr').length === 2")
    for key in ("x", "j", "x"):
        press(chromium, key)
    chromium.wait("document.querySelectorAll('.figures').length > 0")
    here = chromium.value("document.querySelector('tbody tr.here').dataset.id")
    assert here.endswith("/eval/prep/sft")
    press(chromium, "Enter")
    chromium.wait("document.querySelectorAll('article.answer').length === 6")
    assert chromium.value("document.querySelector('h2').innerText") == here
    assert not chromium.errors


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1300])
def test_every_view_fits_the_screen_and_has_names_for_who_cannot_see_it(
    chromium, server, width, dark
):
    controls = "'input, select, textarea, button, svg[role=img], iframe'"
    named = "one.labels?.length || one.ariaLabel || one.title || one.innerText?.trim()"
    names = f"[...document.querySelectorAll({controls})].filter((one) => !({named})).length"
    ready = {"runs": "table", "curves": ".chart", "results": "tbody tr", "start": ".command code"}
    ready["chat"] = "#chat-model"
    for view in VIEWS:
        words = f"?id={server.folders[0]}/alpha1/sft" if view == "curves" else ""
        opened(chromium, f"{server.url}#{view}{words}", width=width, dark=dark)
        chromium.wait(f"document.querySelector('{ready[view]}') !== null")
        assert chromium.value("document.documentElement.scrollWidth") <= width
        assert chromium.value(names) == 0
        current = chromium.value("document.querySelector('nav [aria-current]').dataset.view")
        assert current == view
        text = chromium.value("document.body.innerText")
        assert not [sign for sign in ("[object", "undefined", "NaN") if sign in text]
        assert not chromium.errors


def test_the_report_of_a_workspace_is_shown_and_can_ask_the_board_for_nothing(chromium, server):
    run = server.folders[0] / "weather"
    opened(chromium, f"{server.url}#results?run={run}", width=1300)
    chromium.wait("document.querySelector('iframe').contentDocument === null")  # another origin
    opened(chromium, f"{server.url}report?run={run}", width=1300)
    assert "base" in chromium.value("document.body.innerText")
    assert chromium.value("self.origin") == "null"
    opened(chromium, f"{server.url}#results?run={run}", width=1300)
    chromium.value("[...document.querySelectorAll('.tools input')].at(-1).click()")
    chromium.wait("location.hash.endsWith('model=base')")
    chromium.wait("document.querySelector('iframe').src.endsWith('model=base')")
    opened(chromium, f"{server.url}report?run={run}", width=1300)
    read_back = "fetch('api/rows').then(() => 'read', () => 'refused')"
    assert chromium.value(read_back) == "refused"


def test_a_wrong_answer_is_found_read_and_its_prompt_taken_to_the_chat(chromium, server):
    name = f"{server.folders[0]}/weather/eval/prep/sft"
    opened(chromium, f"{server.url}#results?text=weather&sort=-id", width=1300)
    link = "document.querySelector('tbody tr th a')"
    chromium.wait(f"{link}?.title === {json.dumps(name)}")
    assert chromium.value(f"{link}.innerText") == "weather/eval/prep/sft"
    chromium.value(f"{link}.click()")
    chromium.wait("document.querySelectorAll('article.answer').length === 6")
    typed(chromium, "main select", "wrong")
    chromium.wait("!document.querySelector('.parts .done')")
    shown = "[...document.querySelectorAll('article.answer')]"
    wrong = chromium.value(f"{shown}.map((one) => one.querySelector('a').innerText)")
    rows = [*read_rows(server.folders[0] / "weather/eval/prep/sft/predictions.jsonl")]
    assert wrong == [f"{row['record_id']}/{row['turn']}" for row in rows if row["wrong"]]
    press(chromium, "Enter")
    chromium.wait("document.querySelector('.sides mark') !== null")
    asked = chromium.value("document.querySelector('.turn.user pre').textContent")
    chromium.value("document.querySelector('a.try').click()")
    chromium.wait("document.querySelector('#chat-model') !== null")
    assert chromium.value("document.querySelector('.turn.user pre').textContent") == asked
    assert chromium.value("document.getElementById('chat-model').value") == "sft"
    assert chromium.value("document.getElementById('chat-run').value").endswith("/weather")
    tools = chromium.value("document.querySelector('details textarea').value")
    assert json.loads(tools)[0]["function"]["name"]
    assert not chromium.errors


def test_a_click_on_a_view_leads_back_from_a_filter(chromium, server):
    opened(chromium, f"{server.url}#runs", width=1300)
    count = "document.querySelectorAll('tbody tr').length"
    every = chromium.value(count)
    typed(chromium, "#filter", "alpha1")
    assert chromium.value(count) < every and "alpha1" in chromium.value("location.hash")
    chromium.value("document.querySelector('nav a').click()")
    chromium.wait(f"{count} === {every} && document.getElementById('filter').value === ''")


def test_evaluations_are_set_side_by_side(chromium, server):
    opened(chromium, f"{server.url}#results", width=1300)
    chromium.wait("document.querySelectorAll('tbody tr').length === 2")
    for number in range(2):
        chromium.value(f"document.querySelectorAll('tbody input')[{number}].click()")
    chromium.wait(
        "document.querySelectorAll('.figures[data-name=exact_call] .figure').length === 2"
    )
    assert "the same questions" in chromium.value("document.body.innerText")
    link = chromium.value("location.href")
    opened(chromium, link, width=390)  # a link shows another person the same
    chromium.wait("document.querySelectorAll('.figures[data-name=exact_call] .dot').length === 2")
    assert chromium.value("document.documentElement.scrollWidth") <= 390
    assert not chromium.errors


@turn(0, of=2)
def test_a_stage_is_started_watched_stopped_and_carried_on_from_the_page(
    chromium, tmp_path, tiny_model, monkeypatch
):

    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    run = tmp_path / "runs/weather"
    agentlite.prep(
        str(DATA / "weather.jsonl"), run=str(run), model=str(tiny_model), dev=0.2, test=0.3
    )
    fields: dict[str, Any] = {
        "max_steps": "300",  # long enough to be stopped half way on any machine
        "batch_size": "1",
        "profile": "cpu",
        "lora_r": "4",
    }
    with serving([tmp_path / "runs"]) as server:
        opened(chromium, f"{server.url}#start?stage=sft", width=1300)
        chromium.wait("document.querySelector('[name=max_steps]') !== null")
        for name, text in fields.items():
            typed(chromium, f"[name={name}]", text)
        typed(chromium, "[name=save_steps]", "10")
        typed(chromium, "[name=gradient_accumulation]", "1")
        code = "document.querySelector('.command code').innerText"
        chromium.wait(f"{code}.includes('accumulation=1')")
        shown = chromium.value(code)
        assert shown.startswith(f"agentlite sft --run {run} ") and "--max-steps=300" in shown
        chromium.wait("!document.querySelector('button.first').disabled")
        chromium.value("document.querySelector('button.first').click()")
        chromium.wait("document.querySelector('[data-command] .running') !== null")

        chromium.value("location.hash = '#curves'")
        chromium.wait("document.querySelector('.chart[data-names^=loss]') !== null", 240)
        begun = chromium.value("document.querySelector('.steps').innerText")
        chromium.wait(f"document.querySelector('.steps').innerText !== {json.dumps(begun)}", 60)

        chromium.value("location.hash = '#start?stage=sft'")
        chromium.wait("document.querySelector('button.stop') !== null")
        chromium.value("document.querySelector('button.stop').click()")
        chromium.wait("document.querySelector('[data-command]').innerText.includes('stopped')", 120)
        assert read(run / "sft").done is None
        assert list((run / "sft/checkpoints").glob("checkpoint-*"))
        steps = len((run / "sft/metrics.jsonl").read_bytes().splitlines())

        link = f"#start?stage=sft&from={run}/sft"  # "start one like it": the same command again
        chromium.value(f"location.hash = {json.dumps(link)}")
        chromium.wait("document.querySelector('[name=max_steps]')?.value === '300'")
        typed(chromium, "[name=profile]", "cpu")
        chromium.wait(f"{code}.includes('profile=cpu')")
        chromium.wait("!document.querySelector('button.first').disabled")
        chromium.value("document.querySelector('button.first').click()")
        assert waits_until(lambda: read(run / "sft").done is not None, 300)
        text = (run / "sft/metrics.jsonl").read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines()]
        assert [row["step"] for row in rows] == [*range(1, 301)] and 0 < steps < 300
        chromium.value("location.hash = '#runs'")
        chromium.wait("document.querySelector('td.done') !== null")
    assert not chromium.errors


@turn(1, of=2)
def test_a_model_is_talked_to_and_its_call_answered_by_hand(chromium, caller, monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    with serving([caller]) as server:
        opened(chromium, f"{server.url}#chat?run={caller}&model=sft", width=1300)
        chromium.value("document.querySelector('#main form').requestSubmit()")
        chromium.wait("document.body.innerText.includes('sft is ready')", 240)
        typed(chromium, "details textarea", json.dumps([WEATHER_TOOL]))
        typed(chromium, "#chat-text", OSLO["content"])
        chromium.value("document.querySelector('.say').requestSubmit()")
        chromium.wait("document.querySelector('.turn textarea') !== null", 120)
        assert 'get_weather({"city": "Oslo"})' in chromium.value("document.body.innerText")
        typed(chromium, ".turn textarea", "4 mm")
        chromium.value("document.querySelector('.turn textarea').form.requestSubmit()")
        chromium.wait("document.body.innerText.includes('Yes, 4 mm.')", 120)
    assert not chromium.errors


@turn(1, of=2)
def test_a_wrong_answer_is_tried_again_in_the_chat_and_functions_answer_its_call(
    chromium, caller, tmp_path, monkeypatch
):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    run = tmp_path / "runs/weather"
    shutil.copytree(caller, run)
    [record] = read_rows(run / "prep/train.jsonl")
    said = {"text": "No.", "wrong": "no_call", "calls": [], "metrics": {"exact_call": 0.0}}
    stage(
        run / "eval/prep/sft",
        {
            "command": "eval",
            "settings": {"model": "sft"},
            "inputs": {"data": file_digest(run / "prep/train.jsonl")},
        },
        {"predictions.jsonl": [{"record_id": record["id"], "turn": 1, **said}]},
        {},
    )
    tools = tmp_path / "tools.py"
    tools.write_text("def get_weather(city):\n    return '4 mm'\n", encoding="utf-8")
    with serving([tmp_path / "runs"]) as server:
        name = quoted(f"{run}/eval/prep/sft")
        opened(chromium, f"{server.url}#results?answers={name}&wrong=wrong", width=1300)
        chromium.wait("document.querySelector('article.answer a.try') !== null")
        chromium.value("document.querySelector('article.answer a.try').click()")
        chromium.wait("document.querySelector('#chat-model')?.value === 'sft'")
        assert (
            chromium.value("document.querySelector('.turn.user pre').textContent")
            == (OSLO["content"])
        )
        chromium.wait("document.body.innerText.includes('Load one to let it answer')")
        chromium.value("document.querySelector('#main form').requestSubmit()")
        chromium.wait("document.querySelector('button.go') !== null", 240)
        typed(chromium, "details input", str(tools))
        chromium.value("document.querySelector('button.go').click()")
        chromium.wait("document.body.innerText.includes('Yes, 4 mm.')", 240)
        roles = "[...document.querySelectorAll('.turn')].map((one) => one.className)"
        wanted = ["turn user", "turn assistant", "turn tool", "turn assistant"]
        assert chromium.value(roles) == wanted
        chromium.value("location.hash = '#runs'")  # a dialog outlives a look elsewhere
        chromium.wait("document.querySelector('#filter') !== null")
        chromium.value("location.hash = '#chat'")
        chromium.wait(f"{roles}.length === 4")
        for label, left in (("Undo", 0), ("New dialog", 0)):
            buttons = "[...document.querySelectorAll('button')]"
            chromium.value(f"{buttons}.find((one) => one.textContent === '{label}').click()")
            assert len(chromium.value(roles)) == left
    assert not chromium.errors


def test_differences_are_those_of_the_command_that_is_shown(chromium, server, monkeypatch):
    figures = {"metric": "exact_call", "first": "sft", "second": "base", "mean": -0.25}
    figures |= {"low": -0.5, "high": 0.0, "count": 6, "p_holm": 0.5, "beyond_noise": False}
    commands = []

    def answer_of(words):  # test_evaluations asks the command itself
        commands.append(words)
        return {"figures": {"differences": [figures]}}

    monkeypatch.setattr(board_server, "answer_of", answer_of)
    opened(chromium, f"{server.url}#results", width=1300)
    chromium.wait("document.querySelectorAll('tbody tr').length === 2")
    for number in range(2):
        chromium.value(f"document.querySelectorAll('tbody input')[{number}].click()")
    buttons = "[...document.querySelectorAll('button')]"
    chromium.value(f"{buttons}.find((one) => one.textContent === 'Paired differences').click()")
    chromium.wait("document.querySelectorAll('table').length === 2", 120)
    command = chromium.value("document.querySelector('.command code').innerText")
    assert command.startswith("agentlite eval --compare=") and command.count("--compare=") == 2
    assert command == stage_form.as_typed_command(commands[0][:-1])
    rows = chromium.value("document.querySelectorAll('table')[1].innerText")
    for part in ("exact call", "base over sft", "-25.0", "[-50.0, 0.0]", "within noise"):
        assert part in rows
    assert not chromium.errors


def test_an_empty_board_says_how_to_begin_and_a_harmed_run_is_a_row_that_says_so(
    chromium, tmp_path
):
    with serving([tmp_path]) as server:
        opened(chromium, server.url, width=390)
        chromium.wait("document.body.innerText.includes('Nothing was run here yet')")
        for view in VIEWS:
            chromium.value(f"location.hash = '#{view}'")
            chromium.wait(f"document.querySelector('nav [aria-current]').dataset.view === '{view}'")
        assert not chromium.value("!document.getElementById('trouble').hidden")
        trained(tmp_path / "a/sft")
        (tmp_path / "a/sft/metrics.jsonl").write_text('{"step": 1, "loss"', encoding="utf-8")
        (tmp_path / "b/sft").mkdir(parents=True)
        (tmp_path / "b/sft/plan.json").write_text('{"command": ', encoding="utf-8")
        chromium.value("location.hash = '#runs'")
        chromium.wait("document.querySelectorAll('tbody tr').length === 2")
        states = "[...document.querySelectorAll('td.state')].map((one) => one.innerText)"
        assert all(text.startswith("broken") for text in chromium.value(states))
        chromium.value("document.querySelector('tbody a').click()")
        chromium.wait("document.querySelector('h2') !== null")
        assert not chromium.value("!document.getElementById('trouble').hidden")
    assert not chromium.errors
