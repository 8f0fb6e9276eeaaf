"""train records -> those and more: hard ones made of them, foreign tools, several in a dialog;
earlier ones anew.
"""

from collections import Counter

from msgspec.structs import replace

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.curation.hard_negatives import hard_negatives
from agentlite.data.curation.join_dialogs import add_distractors, join_dialogs
from agentlite.data.ingest_row import IngestContext, changed, measure


def augments(settings: PrepSettings) -> bool:
    return bool(
        settings.distractors or settings.join > 1 or settings.remove_tool or settings.mask_names
    )


def augmented(
    train: list[Record], way: IngestContext, told_made: dict[str, Counter[str]]
) -> list[Record]:
    """Train rows with hard ones made of them, with foreign tools, and several in a dialog; one that
    would get too long stays as it was. `told_made` is told how many hard ones were made, and why
    others were not.
    """
    settings = way.settings
    if settings.remove_tool or settings.mask_names:
        made = hard_negatives(
            train,
            removed=settings.remove_tool,
            masked=settings.mask_names,
            seed=settings.seed,
            answer=settings.no_call_answer,
            answer_zh=settings.no_call_answer_zh,
        )
        fitting = [record for record in made.records if fits(record, way)]
        told_made |= made.counts
        if len(fitting) < len(made.records):
            told_made["left out"] = Counter({"too long": len(made.records) - len(fitting)})
        train = [*train, *fitting]
    if settings.distractors:
        wider = add_distractors(train, n=settings.distractors, seed=settings.seed)
        train = [
            new if new.id == old.id or fits(new, way) else old
            for new, old in zip(wider, train, strict=True)
        ]
    if settings.join > 1:
        room = settings.join_tokens or settings.max_length
        tokens = {record.id: measure(record, way).tokens for record in train}
        train = join_dialogs(
            train,
            k=settings.join,
            seed=settings.seed,
            fits=lambda slot: sum(tokens[one.id] for one in slot) <= room,
        )
    return [replace(record, split="train") for record in train]


def fits(record: Record, way: IngestContext) -> bool:
    """Whether a changed record is still one that can be rendered, and short enough."""
    try:
        return measure(record, way).longest <= way.settings.max_length
    except RowError:
        return False


def learnable(record: Record, way: IngestContext) -> Record | None:
    """An earlier record as it may be learned now: without personal data, and short enough; None if
    it is not.
    """
    try:
        record = changed(record, way.settings, {})
    except RowError:
        return None
    return record if fits(record, way) else None
