"""The pictures in docs/, from a finished workspace of `agentlite init`: the report, the terminal.

usage: .venv/bin/python scripts/pictures.py FOLDER [NAME...]
  FOLDER holds data.jsonl and runs/default with eval and pairs. NAME: only these pictures, such as
  terminal-prep, which needs no model. Those of the report need Chromium.
"""

import io
import json
import os
import pty
import re
import subprocess
import sys
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
    part = whole.crop((0, max(0, int(top) - MARGIN), whole.width, int(bottom) + MARGIN))
    png = io.BytesIO()
    part.quantize(COLOURS, dither=Image.Dither.NONE).save(png, "png", optimize=True)
    return png.getvalue()


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    folder, wanted = Path(sys.argv[1]), sys.argv[2:] or [*COMMANDS, *REPORTS]
    rows = [*map(json.dumps, BROKEN), json.dumps(BROKEN[0])[:50]]  # the last one is cut
    (folder / "broken.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for name, command in COMMANDS.items():
        if name not in wanted:
            continue
        (DOCS / f"{name}.svg").write_text(drawn(command, typed(command, folder)), encoding="utf-8")
    reports = {name: shown for name, shown in REPORTS.items() if name in wanted}
    if not reports:
        return
    with browser() as page:
        for name, shot in reports.items():
            png = taken(page, folder / "runs/default/report.html", shot)
            (DOCS / f"{name}.png").write_bytes(png)


if __name__ == "__main__":
    main()
