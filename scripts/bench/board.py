"""How fast the board is with 1,000 runs and 100,000 answers, and what it costs a training.

    .venv/bin/python scripts/bench/board.py [PART ...] [--runs 1000] [--predictions 100000]

Part `large`: that many runs, and one more with an evaluation of that many answers, in a temporary
folder. `first_data_seconds`: until the page's files and the first rows are served. With Chromium,
`first_paint_seconds` and `first_rows_seconds`: until they are painted; `all_rows_seconds`: until
every run is listed; `milliseconds`: of each interaction the median and the longest, from the click
to the second frame behind its effect, and the CPU time that the page and the server take for it, as
means, which grow little where other programs keep the machine busy; `mib`: memory of the server at
its start, with all runs, and the most at the end. Part `report`: what the whole report of those
answers takes, in a process of its own.

Part `training`: the steps of one `sft` of a tiny model. The page, open on its curves, comes and
goes every few seconds; `ratio` is that of the median steps with and without it, each turn beside
its neighbour, with its 95 % interval over the turns.
"""

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import quote, urlsplit

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.boards import trained  # noqa: E402
from support.browser import Page, browser, installed  # noqa: E402
from support.generated_run import stage, write_run  # noqa: E402
from tiny import make_model  # noqa: E402

from agentlite.core.records import digest  # noqa: E402
from agentlite.core.row_files import read_rows  # noqa: E402
from agentlite.scoring.metrics.confidence import middle, redrawn  # noqa: E402
from agentlite.workspace.digests import file_digest  # noqa: E402

PARTS = ("large", "report", "training")
SEEDS = 1000  # answers that are made up; the others are these under other ids
# texts that all, few and no answers hold
SEARCHED = ("e", "tool", "aeiou", "lor", "zzzz", "mi", "no such text")
EVALUATION = "big/eval/prep/sft"
# the time of the first frame with a row in the table
WATCH = """
new MutationObserver((changes, watch) => {
  if (!document.querySelector("tbody tr")) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.firstRows = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
# from an act to the frame behind the one in which a condition holds
TIMED = """
(async () => {
  const frame = () => new Promise((next) => requestAnimationFrame(next));
  const begun = performance.now();
  %s;
  while (!(%s)) {
    if (performance.now() > begun + 60000) throw new Error("never came: %s");
    await frame();
  }
  await frame();
  return performance.now() - begun;
})()
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--predictions", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=4000, help="of the training")
    parser.add_argument("--turn", type=float, default=8.0, help="seconds with, or without the page")
    parser.add_argument("--turns", type=int, default=7, help="of each interaction, at most 7")
    parser.add_argument("--keep", type=Path, help="leave the runs in this folder")
    options = parser.parse_args()
    if unknown := {*options.parts} - {*PARTS}:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as folder:
        root = (options.keep or Path(folder)) / "runs"
        for part in options.parts or PARTS:
            if part != "training" and not (root / EVALUATION / "done.json").exists():
                with patch("os.fsync"):  # a thousand runs need not survive a power cut
                    make_runs(root, options.runs, options.predictions)
            measured = {
                "large": lambda: large(root, options.predictions, options.turns),
                "report": lambda: report(root),
                "training": lambda: training(Path(folder) / "trained", options.steps, options.turn),
            }[part]()
            sizes = {"runs": options.runs, "predictions": options.predictions}
            named = {} if part == "training" else sizes
            print(json.dumps({"part": part, **named, **measured}), flush=True)


def make_runs(root: Path, runs: int, predictions: int) -> None:
    for number in range(runs):
        trained(root / f"run-{number:04}/sft", lora_r=2 ** (number % 8), seed=number)
    big = write_run(root / "big", ["sft"], SEEDS)
    records = [*read_rows(big / "prep/test.jsonl")]
    answers = [*read_rows(big / "eval/prep/sft/predictions.jsonl")]
    metrics = json.loads((big / "eval/prep/sft/metrics.json").read_bytes())
    ids = [digest(str(number)) for number in range(predictions)]
    stage(
        big / "prep",
        {"command": "prep", "settings": {}, "inputs": {}},
        {"test.jsonl": ({**records[n % SEEDS], "id": one} for n, one in enumerate(ids))},
        {"kept": predictions},
    )
    given = ({**answers[n % SEEDS], "record_id": one} for n, one in enumerate(ids))
    inputs = {"data": file_digest(big / "prep/test.jsonl")}
    plan = {"command": "eval", "settings": {"split": "test", "model": "sft"}, "inputs": inputs}
    metrics["prompts"] = predictions
    (big / "eval/prep/compare.json").unlink()
    stage(big / "eval/prep/sft", plan, {"predictions.jsonl": given}, {}, metrics)


class Board:
    """`agentlite board`, as a user starts it."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str):
        self.process, self.url = process, url

    def get(self, path: str) -> bytes:
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port)
        connection.request("GET", place.path + path)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        found = answer.read()
        connection.close()
        return found

    def mib(self, what: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(text.partition(f"{what}:")[2].split()[0]) // 1024

    def cpu_seconds(self) -> float:
        """Of all its threads, also of those that have ended."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        parts = text.rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def opened(folder: Path) -> Iterator[Board]:
    words = [sys.executable, "-m", "agentlite", "board", str(folder), "--port", "0", "--json"]
    # as it is for a user after the first start: modules are compiled
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder.parent / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    try:
        assert process.stdout
        yield Board(process, json.loads(process.stdout.readline())["url"])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def large(root: Path, predictions: int, turns: int) -> dict[str, Any]:
    os.sync()
    with opened(root) as board:  # compiles
        board.get("api/facts")
        board.get("api/rows")
    with opened(root) as board:
        begin = board.mib("VmRSS")
        started = time.perf_counter()
        for path in ("", "board.css", *(one.name for one in (ROOT / PAGES).glob("*.js"))):
            board.get(path)
        board.get("api/facts")
        first = json.loads(board.get("api/rows"))
        seconds = time.perf_counter() - started
        found = {"first_data_seconds": round(seconds, 2), "first_rows": len(first["rows"])}
        if installed() is None:
            return found | {"first_paint_seconds": "not measured: no Chromium"}
    with opened(root) as board, browser() as page:  # anew: nothing was read yet
        found |= painted(page, board)
        rows = board.mib("VmRSS")
        found["milliseconds"] = interactions(page, board, root, predictions, turns)
        found["mib"] = {"begin": begin, "all_runs": rows, "most": board.mib("VmHWM")}
        assert not page.errors, page.errors
    return found


def painted(page: Page, board: Board) -> dict[str, Any]:
    page.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    page.open(board.url, width=1400)
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    page.wait(f"({paint}) > 0 && window.firstRows > 0")
    found = {"first_paint_seconds": round(page.value(paint) / 1000, 2)}
    found["first_rows_seconds"] = round(page.value("window.firstRows") / 1000, 2)
    page.wait("!document.getElementById('summary').innerText.includes('to read')", 300)
    return found | {"all_rows_seconds": round(page.value("performance.now()") / 1000, 1)}


class Views(NamedTuple):
    """Addresses and expressions of the page, for the folder that is looked at."""

    root: Path

    @property
    def answers(self) -> str:
        return f"#results?answers={quote(f'{self.root}/{EVALUATION}', safe='')}"

    def run(self, number: int) -> str:
        return f"#curves?id={quote(f'{self.root}/run-00{number}1/sft', safe='')}"


GO = "location.hash = "
FIRST = "document.querySelector('tbody tr')?.dataset.id"
SORTED_BY = "document.querySelector('th[aria-sort]')?.innerText"
ANSWER = "document.querySelector('article.answer')?.dataset.number"
STATE = "document.querySelector('.tools [role=status]')?.innerText"


def typed(selector: str, text: str) -> str:
    return (
        f"(() => {{ const field = document.querySelector('{selector}'); field.value = '{text}';"
        "field.dispatchEvent(new Event('input', {bubbles: true}));"
        "field.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def clicked(name: str) -> str:
    every = "[...document.querySelectorAll('button')]"
    return f"{every}.find((one) => one.textContent === '{name}').click()"


class Interaction(NamedTuple):
    """`act`: the number of a turn -> what is done, and what holds once the page has answered.
    `begins`: the view in which it is done; `stays`: whether the next turn goes on from there.
    """

    act: Callable[[int], tuple[str, str]]
    begins: str = "#start"
    stays: bool = False


def interactions_of(views: Views, predictions: int, turns: int) -> dict[str, Interaction]:
    head, runs = "[...document.querySelectorAll('thead button')]", "#runs?command=sft"
    return {
        "sort runs": Interaction(
            lambda n: (
                f"window.was = {SORTED_BY};"
                f"{head}.find((one) => one.innerText.startsWith('seed')).click()",
                f"{SORTED_BY} !== window.was",
            ),
            runs,
            stays=True,
        ),
        "filter runs": Interaction(
            lambda n: (
                typed("#filter", f"run-0{n}2"),
                f"document.querySelectorAll('tbody tr').length && {FIRST}.includes('run-0{n}2')",
            ),
            runs,
            stays=True,
        ),
        "open a run": Interaction(
            lambda n: (
                f"{GO}'{views.run(n)}'",
                "document.querySelector('.chart') && document.querySelector('h2').innerText"
                f".includes('run-00{n}1')",
            )
        ),
        "open the evaluations": Interaction(
            lambda n: (f"{GO}'#results'", "document.querySelector('tbody tr')")
        ),
        "open its answers": Interaction(lambda n: (f"{GO}'{views.answers}&x={n}'", ANSWER)),
        "next page": Interaction(
            lambda n: (f"window.was = {ANSWER}; {clicked('Next')}", f"{ANSWER} !== window.was"),
            views.answers,
            stays=True,
        ),
        "last page": Interaction(
            lambda n: (f"window.was = {ANSWER}; {clicked('Last')}", f"{ANSWER} !== window.was"),
            views.answers,
        ),
        "wrong answers": Interaction(
            lambda n: (
                f"window.was = {STATE};" + typed("main select", ("wrong", "right")[n % 2]),
                f"{STATE} !== window.was",
            ),
            views.answers,
            stays=True,
        ),
        "open an answer": Interaction(
            lambda n: (
                f"{GO}'{views.answers}&open={predictions * 9 // 10 * n // turns}'",
                "document.querySelector('.turn')",
            )
        ),
        "try the prompt": Interaction(
            lambda n: (
                "document.querySelector('a.try').click()",
                "document.querySelector('#chat-model') && document.querySelector('.turn')",
            ),
            f"{views.answers}&open=7",
        ),
    }


def interactions(
    page: Page, board: Board, root: Path, predictions: int, turns: int
) -> dict[str, Any]:
    """Each is done several times, to other effect each time, after all has come to rest."""
    views = Views(root)
    page.call("Performance.enable", timeDomain="threadTicks")
    page.value(f"{GO}'#start'")
    page.wait("document.querySelector('.command code') !== null")
    found = {"a link to the last answer: first sign": linked(page, board, views, predictions)}
    for name, one in interactions_of(views, predictions, turns).items():
        times: list[Measured] = []
        for number in range(turns):
            if number == 0 or not one.stays:
                come_to_rest(page, one.begins)
            begin, wanted = one.act(number)
            times.append(timed(page, board, begin, wanted, name))
        found[name] = summed_up(times)
    return found | searches(page, board, views, turns)


def linked(page: Page, board: Board, views: Views, predictions: int) -> list[int]:
    """Nothing of the answers was read yet: the page says how far it is. Then all is read."""
    sign = "document.querySelector('.turn') || document.body.innerText.includes('being read')"
    cold = timed(page, board, f"{GO}'{views.answers}&open={predictions - 1}'", sign, "link")
    page.wait("document.querySelector('.turn') !== null", 300)
    page.value(f"{GO}'{views.answers}'")
    page.wait(f"({STATE} ?? 'reading').includes('reading') === false", 300)
    return summed_up([cold])


def come_to_rest(page: Page, view: str) -> None:
    page.value(f"{GO}'{view}'")
    ready = "!document.body.innerText.includes('reading…')"
    page.wait(f"document.querySelector('main').childElementCount && {ready}")
    time.sleep(0.6)
    if "&open=" in view:
        page.wait("document.querySelector('a.try') !== null")


def searches(page: Page, board: Board, views: Views, turns: int) -> dict[str, list[int]]:
    page.value(f"{GO}'{views.answers}'")
    page.wait("document.querySelector('article.answer') !== null")
    first, whole = [], []
    for text in SEARCHED[:turns]:
        begin = f"window.was = {STATE};" + typed("#filter", text)
        first.append(timed(page, board, begin, f"{STATE} !== window.was", "text"))
        whole.append(timed(page, board, "", f"!{STATE}.includes('reading')", "text"))
    return {
        "first answers with a text": summed_up(first),
        "all answers with it, after that": summed_up(whole),
    }


class Measured(NamedTuple):
    """Milliseconds."""

    wall: float
    page: float
    server: float


def timed(page: Page, board: Board, begin: str, wanted: str, name: str) -> Measured:
    before, server = thread_time(page), board.cpu_seconds()
    wall = page.value(TIMED % (begin, wanted, name))
    spent = thread_time(page) - before
    return Measured(wall, 1000 * spent, 1000 * (board.cpu_seconds() - server))


def thread_time(page: Page) -> float:
    """Seconds of CPU time of the page's main thread."""
    metrics = page.call("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


def summed_up(times: list[Measured]) -> list[int]:
    """The median and the longest, and the mean CPU times of the page and of the server."""
    walls = [one.wall for one in times]
    spent = [statistics.mean(each) for each in zip(*times, strict=True)][1:]
    return [round(one) for one in (statistics.median(walls), max(walls), *spent)]


def report(root: Path) -> dict[str, Any]:
    with opened(root) as board:
        started = time.perf_counter()
        content = board.get(f"report?run={quote(f'{root}/big')}")
        seconds = time.perf_counter() - started
        return {
            "report_seconds": round(seconds, 1),
            "report_megabytes": round(len(content) / 1e6, 1),
            "server_mib": board.mib("VmHWM"),
        }


def training(root: Path, steps: int, turn: float) -> dict[str, Any]:
    if installed() is None:
        return {"ratio": "not measured: no Chromium"}
    run = root / "runs/tiny"
    run.mkdir(parents=True)
    make_model(root / "model")
    rows = ROOT / "tests/support/rows/weather.jsonl"
    model = ["--model", str(root / "model")]
    agentlite("prep", str(rows), "--run", str(run), *model, "--dev", "0", "--test", "0")
    words = ["sft", "--run", str(run), *model, "--max-steps", str(steps)]
    words += ["--profile", "cpu", "--save-steps", str(steps), "--batch-size", "4"]
    words += ["--gradient-accumulation", "1"]
    spans: list[tuple[bool, float, float]] = []
    with opened(root / "runs") as board, browser() as page:
        process = subprocess.Popen([sys.executable, "-m", "agentlite", *words], stdout=sys.stderr)
        pace = run / "sft/pace.jsonl"
        while process.poll() is None and not pace.exists():
            time.sleep(0.2)
        time.sleep(turn)  # the first steps are slower
        # in pairs whose order changes: a machine that grows slower weighs on both sides
        order = [True, False, False, True]
        while process.poll() is None:
            with_page = order[len(spans) % 4]
            address = f"{board.url}#curves?id={quote(f'{run}/sft', safe='')}"
            if with_page:
                page.open(address, width=1400)
            else:
                page.open("about:blank", width=1400, javascript=False)
            begun = time.time()
            time.sleep(turn)
            spans.append((with_page, begun, time.time()))
        assert process.returncode == 0, f"sft ended with {process.returncode}"
        looked = len(json.loads(board.get("api/rows"))["rows"])
    return {**ratio([*read_rows(pace)], spans), "stages": looked}


def ratio(rows: list[Any], spans: list[tuple[bool, float, float]]) -> dict[str, Any]:
    """Of the median steps, pair by pair of neighbouring spans."""
    steps = [
        (later["at"], (later["at"] - earlier["at"]) / (later["step"] - earlier["step"]))
        for earlier, later in pairwise(rows)
    ]
    medians = []
    for is_open, begun, ended in spans:
        inside = [seconds for at, seconds in steps if begun < at <= ended]
        medians.append((is_open, statistics.median(inside) if len(inside) > 3 else None))
    ratios = []
    for one, other in zip(medians[::2], medians[1::2], strict=False):
        with_page, without = sorted([one, other], key=lambda each: not each[0])
        if with_page[1] and without[1]:
            ratios.append(with_page[1] / without[1])
    low, high = middle(map(statistics.median, redrawn(ratios, 0)))
    return {
        "ratio": round(statistics.median(ratios), 3),
        "interval": [round(low, 3), round(high, 3)],
        "pairs": len(ratios),
        "step_milliseconds": round(1000 * statistics.median(seconds for _, seconds in steps), 1),
    }


def agentlite(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "agentlite", *words], check=True, stdout=sys.stderr)


PAGES = "agentlite/deploy/board/page"

if __name__ == "__main__":
    main()
