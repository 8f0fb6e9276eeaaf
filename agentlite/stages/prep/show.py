"""A finished prep -> its records for `--rows -` and `--show N`."""

from collections.abc import Iterator
from pathlib import Path

from agentlite.core.records import SPLITS, from_row
from agentlite.core.row_files import Row, find_rows, read_rows
from agentlite.rendering import encoding, mixture_of, renderer
from agentlite.workspace import stage_folder
from agentlite.workspace.model_source import find_model, load_template


def written_rows(folder: Path) -> Iterator[Row]:
    """The rows of all splits."""
    for split in SPLITS:
        yield from read_rows(find_rows(folder, split))


def rendered(folder: Path, count: int) -> Iterator[str]:
    """The first records as text, with trained tokens between ⟦ and ⟧; a heading before each."""
    plan = stage_folder.read_plan(folder)
    template = load_template(find_model(plan.settings["model"], folder.parent, folder).base)
    mixture = mixture_of(plan.settings["protocol"], template)
    for _, row in zip(range(count), written_rows(folder), strict=False):
        record = from_row(row)
        protocol = mixture.of(record)
        yield f"── {record.id}  {record.source}  {record.task}  {record.split}  {protocol.name}"
        for text in renderer.render(record, protocol, template):
            yield encoding.show(text, lambda piece: f"⟦{piece}⟧")
