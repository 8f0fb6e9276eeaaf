"""Finished run folders -> report.html and report.md, pages for people."""

from pathlib import Path

from agentlite.core.row_files import replacing, write_json
from agentlite.report.bfcl_scores import as_json, bfcl_table
from agentlite.report.page import reports
from agentlite.report.read_run import read_run


def write_report(run: Path) -> Path:
    """Writes report.html and report.md into `run` from its finished stages; returns the path of
    report.md. Where models have acted in BFCL's dialogs, bfcl.json has v4's table.

    Both name the stages that were not read. Raises UserError where there is no run, or a finished
    stage left a broken file.
    """
    workspace = read_run(run)
    for name, text in reports(workspace).items():
        with replacing(run / name) as file:
            file.write(text.encode("utf-8", "replace"))
    if table := bfcl_table(workspace):
        write_json(run / "bfcl.json", as_json(table))
    else:
        (run / "bfcl.json").unlink(missing_ok=True)
    return run / "report.md"
