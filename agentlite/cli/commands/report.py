"""`agentlite report`: renews the report of a workspace, and says the result."""

import json
from pathlib import Path

from agentlite.cli.options import Command, RunOptions
from agentlite.cli.run_listing import stages_of
from agentlite.report import write_report
from agentlite.report.headline import headline
from agentlite.report.read_run import read_run
from agentlite.report.tables import NO_EVALUATION, differences
from agentlite.workspace import stage_folder


def report(options: RunOptions) -> None:
    """Writes report.html; prints the result of each evaluation, and the path."""
    folder = Path(options.run)
    stages_of(folder)
    evaluations = read_run(folder).evaluations
    with stage_folder.in_turn(folder):
        page = write_report(folder)
    sentences = {e.name: headline(e.metrics, differences(e)) for e in evaluations if e.models}
    if options.as_json:
        result = {"command": "report", "page": str(page), "sentences": sentences}
        print(json.dumps(result, ensure_ascii=False))
        return
    for name, lines in sentences.items():
        title = [f"{name}:"] if len(sentences) > 1 else []
        print(*title, *lines, sep="\n")
    if not sentences:
        print(NO_EVALUATION)
    print(f"report: {page} (one file: open it in any browser)")


COMMAND = Command("report", RunOptions, report)
