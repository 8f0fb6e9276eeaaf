"""Train records -> those and variants made of them: hard negatives, distractors, joined dialogs."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.curation.distractors import add_distractors
from agentlite.data.curation.hard_negatives import hard_negatives
from agentlite.data.curation.join_dialogs import join_dialogs
from agentlite.data.ingest_row import IngestContext, clean, is_dropped, measure


class Augmented(NamedTuple):
    """`made`: how many hard negatives there are by kind, and why others could not be made."""

    records: list[Record]
    made: Mapping[str, Counter[str]]


def augments(settings: PrepSettings) -> bool:
    """Whether these settings make variants of train records."""
    return bool(
        settings.distractors or settings.join > 1 or settings.remove_tool or settings.mask_names
    )


def augment(train: list[Record], context: IngestContext) -> Augmented:
    """Train records with hard negatives made of them, with other records' tools, and several in one
    dialog. A record that would get too long stays as it was.
    """
    settings, made = context.settings, dict[str, Counter[str]]()
    if settings.remove_tool or settings.mask_names:
        negatives = hard_negatives(
            train,
            removed=settings.remove_tool,
            masked=settings.mask_names,
            seed=settings.seed,
            answer=settings.no_call_answer,
            answer_zh=settings.no_call_answer_zh,
        )
        fitting = [record for record in negatives.records if fits(record, context)]
        made |= negatives.counts
        if len(fitting) < len(negatives.records):
            made["left out"] = Counter({"too long": len(negatives.records) - len(fitting)})
        train = [*train, *fitting]
    if settings.distractors:
        wider = add_distractors(train, n=settings.distractors, seed=settings.seed)
        train = [
            new if new.id == old.id or fits(new, context) else old
            for new, old in zip(wider, train, strict=True)
        ]
    if settings.join > 1:
        room = settings.join_tokens or settings.max_length
        tokens = {record.id: measure(record, context).tokens for record in train}
        train = join_dialogs(
            train,
            k=settings.join,
            seed=settings.seed,
            fits=lambda slot: sum(tokens[record.id] for record in slot) <= room,
        )
    return Augmented([replace(record, split="train") for record in train], made)


def fits(record: Record, context: IngestContext) -> bool:
    """Whether a changed record can still be rendered, and is short enough."""
    try:
        return measure(record, context).longest <= context.settings.max_length
    except RowError:
        return False


def learnable(record: Record, context: IngestContext) -> Record | None:
    """An earlier record as it may be learned now; None if it is dropped for its personal data, or
    does not fit any more.
    """
    record, personal, _ = clean(record, context.settings)
    return None if is_dropped(personal, context.settings) or not fits(record, context) else record
