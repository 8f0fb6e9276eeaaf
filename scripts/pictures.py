"""The pictures in docs/, from a workspace of `agentlite init`: the report, the terminal, the board.

usage: .venv/bin/python scripts/pictures.py FOLDER [NAME...]
  FOLDER holds data.jsonl and runs/default with eval and pairs; those of the board need sft and an
  eval of two models in it. NAME: only these pictures, such as terminal-prep, which needs no model.
  Those of the report and of the board need Chromium.
"""

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import Page, browser  # noqa: E402  (the path comes first)

DOCS = ROOT / "docs"
COLUMNS = 100
COLOURS = 96  # of a picture: a page has few, and a palette makes its file small
MARGIN = 24


class Shot(NamedTuple):
    """A part of the report: from the beginning of one element to the end of another."""

    first: str
    last: str
    width: int = 1280
    dark: bool = False
    before: str = ""  # JavaScript that runs first


# the first answer of the tuned model that is wrong, as a reader finds it
FAILURE = """(() => {
  const [model, by] = document.querySelectorAll("#predictions-1 select");
  for (const [one, text] of [[model, "sft"], [by, "exact_call"]]) {
    one.value = [...one.options].find((option) => option.textContent === text).value;
    one.dispatchEvent(new Event("change"));
  }
  [...document.querySelectorAll("#predictions-1 .controls button")].at(-1).click();
})()"""
REPORTS = {
    "report-desktop": Shot("header", "#differences-1"),
    "report-dark": Shot("#predictions-1", "#predictions-1", dark=True, before=FAILURE),
    "report-answers": Shot("#predictions-1", "#predictions-1", before=FAILURE),
    "report-phone": Shot("header", "#models-1", width=390),
}
COMMANDS = {
    "terminal-prep": "agentlite prep data.jsonl broken.jsonl --run runs/broken --max-rejects 0.1",
    "terminal-eval": "agentlite eval",
    "terminal-grid": "agentlite pairs --from pairs --grid grids/rewards.yaml",
}


class BoardShot(NamedTuple):
    """A view of the board. `ready`: a condition in JavaScript; `steps`: acts, each with a condition
    that is waited for.
    """

    view: str
    ready: str
    width: int = 1280
    height: int = 0  # 0: the whole page
    dark: bool = False
    steps: tuple[tuple[str, str], ...] = ()


def _is_there(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)}) !== null"


RUN = "runs/default"
EVALUATION = f"{RUN}/eval/prep/sft"
LOAD = 240  # seconds of a step: a model is loaded, and answers
CHAT = (
    ("document.querySelector('a.try').click()", _is_there("#chat-model")),
    ("document.querySelector('#main form').requestSubmit()", _is_there("button.go")),
    (
        "document.querySelector('button.go').click()",
        "document.querySelector('.dialog').lastChild.className === 'turn assistant'"
        " || document.querySelector('.turn textarea') !== null",
    ),
)
SELECT_TWO = tuple(
    (
        f"document.querySelectorAll('tbody input')[{number}].click()",
        f"document.querySelectorAll('tbody input:checked').length === {count}",
    )
    for count, number in enumerate((1, 0), 1)  # the base model first
)
PAIRED = (
    "[...document.querySelectorAll('button')].find((one) => one.textContent.startsWith('Paired'))"
    ".click()",
    "document.querySelectorAll('table').length === 2",
)
WRONG = f"results?answers={EVALUATION}&wrong=wrong"
BOARD = {
    "board-runs": BoardShot("runs?sort=id", _is_there("tbody tr")),
    "board-curves": BoardShot(f"curves?id={RUN}/sft", _is_there(".chart")),
    "board-phone": BoardShot(
        f"curves?id={RUN}/sft", _is_there(".chart"), width=390, height=844, dark=True
    ),
    "board-results": BoardShot("results", _is_there("tbody tr"), steps=(*SELECT_TWO, PAIRED)),
    "board-results-phone": BoardShot(
        "results", _is_there("tbody tr"), width=390, height=844, steps=SELECT_TWO
    ),
    "board-answer": BoardShot(
        WRONG,
        _is_there("article.answer"),
        steps=(("document.querySelector('article.answer a').click()", _is_there(".turn")),),
    ),
    "board-start": BoardShot(f"start?stage=sft&from={RUN}/sft", _is_there(".command code")),
    "board-chat": BoardShot(WRONG, _is_there("a.try"), steps=CHAT),
}
FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # rich names those of another server
BROKEN = [
    {"messages": [{"role": "user", "content": "Cold?"}, {"role": "assistant", "content": "No."}]},
    {"messages": [{"role": "user", "content": "Jazz."}, {"role": "assistant", "content": ""}]},
]


def typed(command: str, folder: Path) -> str:
    """What a command prints on a terminal, with its colours, both streams together."""
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "HF_HUB_OFFLINE": "1"}
    main, side = pty.openpty()
    words = command.removeprefix("agentlite ").split()
    process = subprocess.Popen(
        [sys.executable, "-m", "agentlite", *words],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=side,
        stderr=side,
    )
    os.close(side)
    printed = b""
    while True:
        try:
            part = os.read(main, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        printed += part
    os.close(main)
    if process.wait():
        raise SystemExit(printed.decode())
    # a bar hides the cursor, and is gone when the cursor is shown again
    text = re.sub(r"\x1b\[\?25l.*?\x1b\[\?25h", "", printed.decode(), flags=re.DOTALL)
    return re.sub(r"\x1b\[\d*[AK]", "", text).replace("\r\n", "\n").replace("\r", "")


def drawn(command: str, printed: str) -> str:
    """An SVG of a terminal."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=COLUMNS,
        color_system="truecolor",
        force_terminal=True,
    )
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(printed))
    return FONTS.sub("", console.export_svg(title="agentlite"))


def taken(page: Page, report: Path, shot: Shot) -> bytes:
    """A small PNG of a part of the report."""
    page.open(report, width=shot.width, dark=shot.dark)
    if shot.before:
        page.value(shot.before)
    top, bottom = page.value(
        f"[document.querySelector('{shot.first}').getBoundingClientRect().top + scrollY,"
        f" document.querySelector('{shot.last}').getBoundingClientRect().bottom + scrollY]"
    )
    assert not page.errors, page.errors
    whole = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return small(whole.crop((0, max(0, int(top) - MARGIN), whole.width, int(bottom) + MARGIN)))


def small(picture: Image.Image) -> bytes:
    png = io.BytesIO()
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(png, "png", optimize=True)
    return png.getvalue()


@contextmanager
def board_of(folder: Path) -> Iterator[str]:
    """The address of a board over the workspaces of a folder."""
    words = [sys.executable, "-m", "agentlite", "board", "--port", "0", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def seen(page: Page, address: str, shot: BoardShot) -> bytes:
    """A small PNG of a view of the board."""
    page.open("about:blank", width=shot.width, javascript=False)
    page.open(f"{address}#{shot.view}", width=shot.width, dark=shot.dark)
    page.wait(f"!document.getElementById('summary').innerText.includes('to read') && {shot.ready}")
    for act, wanted in shot.steps:
        page.value(act)
        page.wait(wanted, LOAD)
    time.sleep(1)  # the text of the state is there as well
    assert not page.errors, page.errors
    # where it is not cut at a height: as high as what is there
    bottom = page.value("Math.ceil(document.querySelector('main').getBoundingClientRect().bottom)")
    whole = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return small(whole.crop((0, 0, whole.width, shot.height or min(whole.height, bottom + MARGIN))))


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    folder, wanted = Path(sys.argv[1]), sys.argv[2:] or [*COMMANDS, *REPORTS, *BOARD]
    rows = [*map(json.dumps, BROKEN), json.dumps(BROKEN[0])[:50]]  # the last one is cut
    (folder / "broken.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for name, command in COMMANDS.items():
        if name not in wanted:
            continue
        (DOCS / f"{name}.svg").write_text(drawn(command, typed(command, folder)), encoding="utf-8")
    if not {*REPORTS, *BOARD} & {*wanted}:
        return
    with browser() as page:
        for name in [name for name in REPORTS if name in wanted]:
            png = taken(page, folder / "runs/default/report.html", REPORTS[name])
            (DOCS / f"{name}.png").write_bytes(png)
        views = [name for name in BOARD if name in wanted]
        if views:
            with board_of(folder) as address:
                for name in views:
                    (DOCS / f"{name}.png").write_bytes(seen(page, address, BOARD[name]))


if __name__ == "__main__":
    main()
