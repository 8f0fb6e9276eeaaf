"""`agentlite report`: renews the report of a workspace, says the result, and opens the page."""

import json
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

from agentlite.cli.options import OUTPUT, Command, RunOptions
from agentlite.cli.run_listing import stages_of
from agentlite.report import write_report
from agentlite.report.headline import headline
from agentlite.report.read_run import read_run
from agentlite.report.tables import NO_EVALUATION, differences
from agentlite.workspace import stage_folder


class ReportOptions(RunOptions, frozen=True, kw_only=True):
    no_browser: Annotated[bool, OUTPUT] = False
    """write the page and print its path, without opening it"""


def report(options: ReportOptions) -> None:
    """Writes report.html; prints the result of each evaluation, and the path."""
    folder = Path(options.run)
    stages_of(folder)
    evaluations = read_run(folder).evaluations
    with stage_folder.in_turn(folder):
        page = write_report(folder)
    sentences = {
        one.name: headline(one.metrics, differences(one)) for one in evaluations if one.models
    }
    if options.as_json:
        result = {"command": "report", "page": str(page), "sentences": sentences}
        print(json.dumps(result, ensure_ascii=False))
        return
    for name, of_one in sentences.items():
        title = [f"{name}:"] if len(sentences) > 1 else []
        print(*title, *of_one, sep="\n")
    if not sentences:
        print(NO_EVALUATION)
    # a browser needs a window; one in text mode would take the terminal
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    has_screen = sys.stdout.isatty() and bool(display or sys.platform == "darwin")
    opened = not options.no_browser and has_screen and webbrowser.open(page.resolve().as_uri())
    print(f"report: {page}" if opened else f"report: {page} (one file: open it in any browser)")


COMMAND = Command("report", ReportOptions, report)
