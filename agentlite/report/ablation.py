"""An ablation's table.json -> rows for a screen and both reports, and the differences to draw."""

from typing import NamedTuple

from agentlite.report import charts, tables
from agentlite.report.read_run import Json, WorkspaceRun
from agentlite.scoring.metrics.model_metrics import HEADLINE


class ReportedAblation(NamedTuple):
    """A finished ablation: its name, its table, and its seconds and GiB by cell."""

    name: str
    table: Json
    costs: Json

    @property
    def title(self) -> str:
        cells = len(self.table["cells"])
        return f"{self.name}: {cells} cells by {self.table['by']} on {self.table['split']}"


class MetricGains(NamedTuple):
    """The differences of all cells over the first in one metric, on one scale around zero."""

    metric: str
    first: str
    rows: list[tuple[str, Json | None]]
    scale: tuple[float, float]


def ablations(run: WorkspaceRun) -> list[ReportedAblation]:
    """Those whose files are as they were left."""
    stages = [stage for stage in run.stages if stage.plan.command == "ablate"]
    return [
        ReportedAblation(stage.name, table, stage.json("costs.json"))
        for stage in stages
        if (table := stage.json("table.json"))
    ]


def rows(table: Json, costs: Json, *, differs: bool = True) -> list[list[str]]:
    """A head, the model that all cells start from, and a row for each cell, in the order of the
    grid.
    """
    metrics = table["metrics"]
    first = table["cells"][0]["name"]
    head = ["cell", *(["what differs"] if differs else [])]
    head += [words(metric) for metric in metrics]
    head += [f"{words(metric)}, points over {first}" for metric in metrics]
    body = []
    for cell in [*([table["start"]] if table["start"] else []), *table["cells"]]:
        row = [cell["name"], *([cell["differs"] or "the first"] if differs else [])]
        if cell["figures"]:
            row += [tables.share(cell["figures"].get(metric)) for metric in metrics]
        else:
            same = f"as {cell['note']}" if cell["state"] == "same" else cell["state"]
            row += [same, *[tables.ABSENT for _ in metrics[1:]]]
        for metric in metrics:
            gain = cell["differences"].get(metric)
            beyond = ", beyond noise" if gain and gain["beyond_noise"] else ""
            row.append(
                f"{100 * gain['mean']:+.1f} {tables.reach(gain)}{beyond}" if gain else tables.ABSENT
            )
        if cost := costs.get(cell["name"]):
            seconds = cost["seconds"]
            row.append(f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s")
            row.append(f"{cost['gib']}")
        else:
            row += [tables.ABSENT, tables.ABSENT]
        body.append(row)
    return [[*head, "time", "GiB"], *body]


def words(metric: str) -> str:
    return HEADLINE.get(metric, metric)


def notes(table: Json) -> list[str]:
    """A sentence for the cells that have no figures of their own: what they are the same as, or
    why they have none, with the command of one that failed.
    """
    alike: dict[str, list[str]] = {}
    for cell in table["cells"]:
        if cell["state"] != "done":
            command = f" ({cell['command']})" if cell["command"] else ""
            reason = f"{cell['state']}, {cell['note'].rstrip('.')}{command}"
            same = f"the same as {cell['note']}, so not run twice"
            alike.setdefault(same if cell["state"] == "same" else reason, []).append(cell["name"])
    return [f"{'; '.join(names)}: {reason}." for reason, names in alike.items()]


def gains(table: Json) -> list[MetricGains]:
    """For each metric, a row per cell but the first; None where it was not measured."""
    first, *others = table["cells"]
    cells = [*([table["start"]] if table["start"] else []), *others]
    every = []
    for metric in table["metrics"]:
        differences = [(cell["name"], cell["differences"].get(metric)) for cell in cells]
        if measured := [difference for _, difference in differences if difference]:
            scale = charts.scale(measured, around_zero=True)
            every.append(MetricGains(metric, first["name"], differences, scale))
    return every
