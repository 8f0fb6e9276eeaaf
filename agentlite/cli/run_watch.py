"""`agentlite runs --watch`: the stages of workspaces as they change, with the curve of the loss."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentlite.cli.run_listing import key_figure, stages_of
from agentlite.core.console import COLOURS, notice
from agentlite.deploy.board.newest_answers import newest_answers
from agentlite.deploy.board.stage_state import in_words
from agentlite.deploy.board.workspaces import StageRow, Workspaces, as_json

PAUSE = 2.0  # seconds between two looks
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 24  # characters of a curve
# each with the width of a terminal from which on it is shown
COLUMNS = {
    "stage": 0,
    "state": 0,
    "left": 0,
    "loss": 0,
    "curve or result": 90,
    "tokens/s": 70,
    "GiB": 100,
}
LONGEST_TEXT = 300  # characters of the newest answer


def watch(folders: Sequence[Path], *, json_lines: bool) -> None:
    """Until Ctrl-C. On a terminal a table that is drawn anew; elsewhere, or with `json_lines`, a
    line for each stage whenever it changes. Raises UserError 2 where there is no folder.
    """
    board = Workspaces(folders, key_figure)
    while board.look():
        pass
    for folder in folders:
        if not folder.is_dir():
            stages_of(folder)
        elif not any(Path(row.run).is_relative_to(folder) for row in board.rows()[0]):
            notice(f"{folder}: holds no stage yet; waiting for one")
    try:
        if json_lines or not sys.stdout.isatty():
            _lines(board, json_lines)
        else:
            _table(board)
    except KeyboardInterrupt:
        return


def _lines(board: Workspaces, json_lines: bool) -> None:
    since = -1
    while True:
        rows, gone = board.rows(since)
        since = board.version
        for row in rows:
            text = msgspec.json.encode(as_json([row])[0]).decode() if json_lines else line(row)
            print(text, flush=True)
        for name in gone:
            text = msgspec.json.encode({"id": name, "state": "gone"}).decode()
            print(text if json_lines else f"{name}: gone", flush=True)
        time.sleep(PAUSE)
        board.look()


def line(row: StageRow) -> str:
    """`runs/a/sft: running, step 3 of 9, 2 min left  loss 0.412`"""
    left = f", {_time(row.left)} left" if row.left is not None else ""
    figure = f"  {row.figure}" if row.figure else ""
    return f"{row.id}: {in_words(row.state, row.detail)}{left}{figure}"


def _table(board: Workspaces) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_view(board, console.height, console.width), refresh=True)
            time.sleep(PAUSE)
            board.look()


def _view(board: Workspaces, height: int, width: int) -> Any:
    """Running stages first, then those written last; as many stages as there are lines, and as many
    columns as there is room for.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = sorted(board.rows()[0], key=lambda row: (row.state != "running", -row.written))
    names = short_names(rows)
    shown = [name for name, least in COLUMNS.items() if width >= least]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown:
        to_left = name in ("stage", "state", "curve or result")
        table.add_column(name, justify="left" if to_left else "right", no_wrap=True)
    room = max(3, height - 6)
    for row in rows[:room]:
        curves = (board.curves(row.id) or {}).get("curves", {})
        loss = curves.get("loss")
        cells: dict[str, Any] = {
            "stage": Text(_from_behind(names[row.id], width // 3)),
            "state": Text(in_words(row.state, row.detail), COLOURS.get(row.state, "")),
            "left": _time(row.left),
            "loss": f"{loss['last']:.3f}" if loss else "",
            "curve or result": sparkline(loss["y"])
            if loss
            else Text(row.figure[: max(WIDTH, width - 80)]),
            "tokens/s": _last(curves, "tokens_per_second"),
            "GiB": _last(curves, "memory_gib"),
        }
        table.add_row(*(cells[name] for name in shown))
    parts: list[Any] = [table]
    if len(rows) > room:
        parts.append(Text(f"and {len(rows) - room} others: agentlite runs", "dim"))
    if rows and rows[0].state == "running":
        parts += _newest(board, rows[0].id)
    return Group(*parts)


def short_names(rows: Sequence[StageRow]) -> dict[str, str]:
    """The ids without the folder that all workspaces are in, or the one workspace."""
    runs = {row.run for row in rows}
    try:
        shared = os.path.commonpath(runs) if runs else ""
    except ValueError:  # some from /, some from here
        shared = ""
    # not in the middle of a name: the id begins with its workspace
    return {row.id: row.id.removeprefix(f"{shared}/") if shared else row.id for row in rows}


def _from_behind(text: str, most: int) -> str:
    """The end of a path says more than its beginning."""
    return text if len(text) <= most else f"…{text[1 - most :]}"


def _newest(board: Workspaces, name: str) -> list[Any]:
    from rich.text import Text

    folder = board.folder(name)
    answers = newest_answers(folder, 1) if folder else []
    if not answers:
        return []
    one = answers[0]
    scores = ", ".join(f"{key} {value:.3g}" for key, value in one.components.items())
    text = " ".join("".join(map(_visible, one.text[:LONGEST_TEXT])).split())
    return [Text(f"\nnewest answer ({one.about}) {scores}", "bold"), Text(text)]


def _visible(sign: str) -> str:
    """A model's text must not steer the terminal."""
    return sign if sign.isprintable() else " "


def _last(curves: dict[str, Any], name: str) -> str:
    last = curves[name]["last"] if name in curves else None
    return "" if last is None else f"{last:,.0f}" if abs(last) >= 100 else f"{last:.3g}"


def sparkline(values: Sequence[float]) -> str:
    """A curve as wide as WIDTH, from its lowest to its highest value."""
    size = -(-len(values) // WIDTH) or 1
    means = [
        sum(values[start : start + size]) / len(values[start : start + size])
        for start in range(0, len(values), size)
    ]
    low, high = min(means, default=0.0), max(means, default=0.0)
    reach = (high - low) or 1.0
    return "".join(BARS[round((value - low) / reach * (len(BARS) - 1))] for value in means)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for name, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} s"
