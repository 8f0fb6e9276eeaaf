"""Evaluated models + the records they are asked -> how many of these they were trained on."""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from agentlite.core import console
from agentlite.core.records import Record, from_row
from agentlite.core.row_files import find_rows, read_rows
from agentlite.data.curation.traits import parents, queries
from agentlite.scoring.metrics.figures import LearnedBefore
from agentlite.stages.eval.subjects import EvalSubject
from agentlite.workspace import stage_folder

RECORDS = "records.jsonl"  # what a stage was given, where it keeps that itself


def learned_before(
    subjects: Iterable[EvalSubject], records: Sequence[Record], run: Path
) -> dict[str, LearnedBefore]:
    """Of each model that was trained here, if it or a stage it was made from was trained on some of
    the records, or on rows that are not there any more.
    """
    asked, found = [_ties(record) for record in records], dict[str, LearnedBefore]()

    @cache  # models are often made from the same stages
    def learned(folder: Path) -> int | None:
        """How many of the records a stage was trained on; None where its rows are not known."""
        if (path := _rows_of(folder)) is None:
            return None
        ties = set(chain.from_iterable(_ties(from_row(row)) for row in read_rows(path)))
        return sum(not ties.isdisjoint(one) for one in asked)

    with console.waiting("eval: comparing the questions with those that were learned"):
        for subject in subjects:
            if subject.is_local:
                counts = {one.name: learned(one) for one in _trained_stages(subject.name, run)}
                by_stage = {name: count for name, count in counts.items() if count != 0}
                if by_stage:
                    found[subject.name] = LearnedBefore(len(records), by_stage)
    return found


def _trained_stages(name: str, run: Path) -> list[Path]:
    """The stages with rows to learn that the model comes from, itself the first."""
    if not name or not stage_folder.is_stage(folder := stage_folder.find_stage(name, run)):
        return []
    stage = stage_folder.read(folder)
    earlier = str(stage.settings.get("model") or "")
    before = _trained_stages(earlier, folder.parent) if earlier != name else []
    return [folder, *before] if "data" in stage.inputs else before


def _rows_of(folder: Path) -> Path | None:
    """The records that a stage was trained on, as long as its data is that of its plan."""
    stage = stage_folder.read(folder)
    if stage.is_unchanged(RECORDS):
        return folder / RECORDS
    name = str(stage.settings.get("data") or "")
    data = stage_folder.read(stage_folder.find_stage(name, folder.parent))
    digests = stage.inputs["data"].split(",")  # some stages note the first letters of each
    if not all(any(whole.startswith(one) for whole in data.outputs.values()) for one in digests):
        return None
    split = str(stage.settings.get("split") or "train")
    paths = (find_rows(data.folder, name) for name in (split, Path(RECORDS).stem))
    return next((path for path in paths if data.is_unchanged(path.name)), None)


def _ties(record: Record) -> set[str]:
    """Keys that two records share if they are the same, or ask the same."""
    return {*parents(record), *filter(None, queries(record))}
