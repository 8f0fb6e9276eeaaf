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

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import browser  # noqa: E402  (the path comes first)

DOCS = ROOT / "docs"
COLUMNS = 100
# name: width, height of the part that is shown (0: all of it), dark
REPORTS = {
    "report-desktop": (1400, 1500, False),
    "report-dark": (1400, 1500, True),
    "report-phone": (390, 2400, False),
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
        for name, (width, height, dark) in reports.items():
            page.open(folder / "runs/default/report.html", width=width, dark=dark)
            (DOCS / f"{name}.png").write_bytes(page.screenshot(height=height or None))
            assert not page.errors, page.errors


if __name__ == "__main__":
    main()
