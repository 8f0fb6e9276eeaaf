"""Finished run folders -> report.html and report.md, pages for people. Reads, never hooks."""

from pathlib import Path

from agentlite.core.row_files import replacing
from agentlite.report.markdown import markdown
from agentlite.report.page import page
from agentlite.report.read_run import read_run


def write_report(run: Path) -> Path:
    """Writes report.html and report.md into `run` from what is finished there, and gives the way to
    report.md.

    Both name what was not read. Raises UserError where there is no run, or a finished stage left a
    broken file.
    """
    read = read_run(run)
    for name, text in (("report.html", page(read)), ("report.md", markdown(read))):
        with replacing(run / name) as file:
            file.write(text.encode("utf-8", "replace"))
    return run / "report.md"
