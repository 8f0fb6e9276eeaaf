"""An ablation's table.json -> rows for a screen and both reports, and the differences to draw."""

from collections.abc import Sequence
from typing import NamedTuple

from agentlite.report import charts, tables
from agentlite.report.read_run import Json, ReportedStage, WorkspaceRun
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


def ablations(run: WorkspaceRun) -> list[ReportedAblation]:
    """Those whose files are as they were left."""
    return [
        ReportedAblation(stage.name, table, stage.json("costs.json"))
        for stage in run.stages
        if (table := _table(stage))
    ]


def _table(stage: ReportedStage) -> Json:
    return stage.json("table.json") if stage.plan.command == "ablate" else {}


def rows(table: Json, costs: Json, *, differs: bool = True) -> list[list[str]]:
    """A head, the model that all cells start from, and a row for each cell, in the order of the
    grid.
    """
    metrics = table["metrics"]
    first = table["cells"][0]["name"]
    head = ["cell", *(["what differs"] if differs else [])]
    head += [words(metric) for metric in metrics]
    head += [f"{words(metric)}, points over {first}" for metric in metrics]
    body = [
        [
            cell["name"],
            *([cell["differs"] or "the first"] if differs else []),
            *_figures(cell, metrics),
            *(_gain(cell, metric, first) for metric in metrics),
            *_costs(costs.get(cell["name"])),
        ]
        for cell in [*([table["start"]] if table["start"] else []), *table["cells"]]
    ]
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


def state(cell: Json) -> str:
    """What stands in the place of figures: `as default`, `failed`."""
    return f"as {cell['note']}" if cell["state"] == "same" else str(cell["state"])


def _figures(cell: Json, metrics: Sequence[str]) -> list[str]:
    if cell["figures"]:
        return [tables.share(cell["figures"].get(metric)) for metric in metrics]
    return [state(cell), *[tables.ABSENT for _ in metrics[1:]]]


def _gain(cell: Json, metric: str, first: str) -> str:
    found = cell["differences"].get(metric)
    if not found:
        return tables.ABSENT
    beyond = ", beyond noise" if found["beyond_noise"] else ""
    return f"{100 * found['mean']:+.1f} {tables.reach(found)}{beyond}"


def _costs(cost: Json | None) -> list[str]:
    if not cost:
        return [tables.ABSENT, tables.ABSENT]
    minutes = cost["seconds"] / 60
    return [f"{minutes:.0f} min" if minutes >= 2 else f"{cost['seconds']:.0f} s", f"{cost['gib']}"]


class MetricGains(NamedTuple):
    """The differences of all cells over the first in one metric, on one scale around zero."""

    metric: str
    first: str
    rows: list[tuple[str, Json | None]]
    scale: tuple[float, float]


def gains(table: Json) -> list[MetricGains]:
    """For each metric, a row per cell but the first; None where it was not measured."""
    first, *others = table["cells"]
    cells = [*([table["start"]] if table["start"] else []), *others]
    every = []
    for metric in table["metrics"]:
        found = [(cell["name"], cell["differences"].get(metric)) for cell in cells]
        measured = [difference for _, difference in found if difference]
        if measured:
            scale = charts.scale(measured, around_zero=True)
            every.append(MetricGains(metric, first["name"], found, scale))
    return every
