"""An ablation's table.json -> rows for a screen and the page."""

from typing import NamedTuple

from agentlite.report import tables
from agentlite.report.read_run import Json, WorkspaceRun
from agentlite.scoring.metrics.figures import TITLES


class ReportedAblation(NamedTuple):
    """A finished ablation: its name, its table, and its seconds and GiB by cell."""

    name: str
    table: Json
    costs: Json

    @property
    def title(self) -> str:
        cells = len(self.table["cells"])
        return f"{self.name}: {cells} cells by {self.table['by']} on {self.table['split']}"


def ablations(run: WorkspaceRun) -> list[ReportedAblation]:
    """Those whose files are as they were left."""
    return [
        ReportedAblation(stage.name, table, stage.json("costs.json"))
        for stage in run.stages
        if stage.plan.command == "ablate" and (table := stage.json("table.json"))
    ]


def rows(table: Json, costs: Json, *, differs: bool = True) -> list[list[str]]:
    """A head, the model that all cells start from, and a row for each cell, in the order of the
    grid.
    """
    metrics, first = table["metrics"], table["cells"][0]["name"]
    titles = [TITLES.get(metric, metric) for metric in metrics]
    head = ["cell", *(["what differs"] if differs else []), *titles]
    head += [f"{title}, points over {first}" for title in titles]
    body = []
    for cell in [*([table["start"]] if table["start"] else []), *table["cells"]]:
        row = [cell["name"], *([cell["differs"] or "the first"] if differs else [])]
        if cell["figures"]:
            row += [tables.share(cell["figures"].get(metric)) for metric in metrics]
        else:
            row += [cell["state"], *[tables.ABSENT for _ in metrics[1:]]]
        for metric in metrics:
            gain = cell["differences"].get(metric)
            beyond = ", beyond noise" if gain and gain["beyond_noise"] else ""
            row.append(
                f"{100 * gain['mean']:+.1f} {tables.reach(gain)}{beyond}" if gain else tables.ABSENT
            )
        if cost := costs.get(cell["name"]):
            seconds = cost["seconds"]
            row.append(f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s")
            row.append(f"{cost['gib']}" if cost["gib"] else tables.ABSENT)
        else:
            row += [tables.ABSENT, tables.ABSENT]
        body.append(row)
    return [[*head, "time", "GiB"], *body]


def notes(table: Json) -> list[str]:
    """A sentence for each cell that failed: why, and at which command."""
    return [
        f"{cell['name']}: failed, {cell['note'].rstrip('.')} ({cell['command']})."
        for cell in table["cells"]
        if cell["state"] == "failed"
    ]
