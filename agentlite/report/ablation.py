"""An ablation's table.json -> rows for a screen and the page."""

from agentlite.report import tables
from agentlite.report.read_run import Json, WorkspaceRun
from agentlite.scoring.metrics.figures import TITLES


def ablations(run: WorkspaceRun) -> list[tuple[str, Json]]:
    """The name and the table of each whose file is as it was left."""
    return [
        (stage.name, table)
        for stage in run.stages
        if stage.plan.command == "ablate" and (table := stage.json("table.json"))
    ]


def rows(table: Json, *, differs: bool = True) -> list[list[str]]:
    """A head, the model that all cells start from, and a row for each cell, in the order of the
    grid.
    """
    metrics, first = table["metrics"], table["cells"][0]["name"]
    titles = [TITLES.get(metric, metric) for metric in metrics]
    head = ["cell", *(["what differs"] if differs else []), *titles]
    head += [f"{title}, points over {first}" for title in titles]
    body = []
    for cell in [table["start"], *table["cells"]]:
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
        seconds, gib = cell.get("seconds", 0), cell.get("gib", 0)
        took = f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
        row += [took if seconds else tables.ABSENT, f"{gib or tables.ABSENT}"]
        body.append(row)
    return [[*head, "time", "GiB"], *body]


def notes(table: Json) -> list[str]:
    """A sentence for each cell that failed: why, and at which command."""
    return [
        f"{cell['name']}: failed, {cell['note'].rstrip('.')} ({cell['command']})."
        for cell in table["cells"]
        if cell["state"] == "failed"
    ]
