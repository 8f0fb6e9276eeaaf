"""Train records -> those and variants of them; with distractors, and joined to dialogs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.curation.distractors import add_distractors
from agentlite.data.curation.hard_negatives import (
    expected_by_query,
    make_variants,
    with_masked_names,
    without_right_tool,
)
from agentlite.data.curation.join_dialogs import join_dialogs
from agentlite.data.curation.stats import script
from agentlite.data.curation.traits import first_query
from agentlite.data.ingest_row import IngestContext, clean, is_dropped, measure


class Augmented(NamedTuple):
    """`made`: how many variants there are by kind, and why others could not be made."""

    records: list[Record]
    made: Mapping[str, Counter[str]]


def augments(settings: PrepSettings) -> bool:
    """Whether these settings change train records or make others of them."""
    return bool(
        settings.remove_tool or settings.mask_names or settings.distractors or settings.join > 1
    )


def augment(train: list[Record], context: IngestContext) -> Augmented:
    """Train records with variants of them, with other records' tools, and several in one dialog. A
    record that would get too long stays as it was.
    """
    settings, made = context.settings, dict[str, Counter[str]]()
    if settings.remove_tool or settings.mask_names:
        variants, made = hard_negatives(train, settings)
        fitting = [record for record in variants if fits(record, context)]
        if len(fitting) < len(variants):
            made["left out"] = Counter({"too long": len(variants) - len(fitting)})
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


def hard_negatives(
    train: Sequence[Record], settings: PrepSettings
) -> tuple[list[Record], dict[str, Counter[str]]]:
    """The variants of both kinds, and how many there are of each, or why others are not."""
    expected, seed = expected_by_query(train), settings.seed

    def removed(record: Record) -> Record | str:
        is_chinese = script(record) == "Han"
        answer = settings.no_call_answer_zh if is_chinese else settings.no_call_answer
        return without_right_tool(record, expected[first_query(record)], answer)

    kinds = {
        "removed": (settings.remove_tool, removed),
        "masked": (settings.mask_names, lambda record: with_masked_names(record, seed)),
    }
    return make_variants(train, kinds, seed)


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
