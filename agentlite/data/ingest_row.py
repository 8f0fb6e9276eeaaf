"""One raw row -> the records in it, checked and measured, or the reason why it has none."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import RowError
from agentlite.core.json_schema import schema_problem
from agentlite.core.records import ANY_TOOL, Message, Record, Tool, to_row
from agentlite.core.row_files import Row, encode
from agentlite.data.curation.coreset import wording
from agentlite.data.curation.dedup import near_text
from agentlite.data.curation.keep import parse_keep, refuse_unmet, scores_of
from agentlite.data.curation.minhash import sketches
from agentlite.data.curation.pii import find, mask
from agentlite.data.curation.stats import Sized, script
from agentlite.data.curation.task_labels import classified
from agentlite.data.curation.traits import Traits, traits
from agentlite.data.curation.truncate import cut
from agentlite.data.curation.validate import validate
from agentlite.data.formats import Raw, RawLine, decoded, samples, to_record
from agentlite.data.formats.by_source import format_of
from agentlite.data.formats.json_decode import REPAIRABLE, repair
from agentlite.data.formats.sage import NO_CATALOGUE, undescribed
from agentlite.data.rejects import Reject
from agentlite.rendering import Mixture, encoding, renderer
from agentlite.rendering.template import Template


class IngestContext(NamedTuple):
    """How raw rows become records, and records become text."""

    settings: PrepSettings
    template: Template
    mixture: Mixture
    # where a retriever says which tools a record offers: the record with them, and what was done,
    # counted
    add_tools: Callable[[Record], tuple[Record, Counter[str]]] | None = None
    # by id: the tools of rows that name theirs by ids alone
    catalogue: Mapping[str, Tool] = NO_CATALOGUE


class IngestedRecord(NamedTuple):
    """A record as it goes to disk, where it is from, what ties it to others, what it measures, what
    was done to it, how it was cut, if it was, and the sketch of its text, if near copies are looked
    for.
    """

    row: bytes
    location: str
    traits: Traits
    sized: Sized
    done: Row
    cut: Row | None
    sketch: bytes


class LeftOut(NamedTuple):
    """`id`: of the record, where it came to be one; `done`: what was found in it."""

    code: str
    location: str
    id: str
    done: Row


class IngestedRow(NamedTuple):
    """What became of one raw row: the format it is of, the methods that repaired it, and its
    samples.
    """

    source: str
    format: str
    repaired: Sequence[str]
    samples: Sequence[IngestedRecord | LeftOut | Reject]


def take(source: str, line: RawLine, context: IngestContext) -> IngestedRow:
    """The samples of a raw row."""
    raw, repaired = readable(line, context.settings.repair)
    try:
        if raw.error:
            raise raw.error
        name, parts = samples(raw.value, format_of(context.settings.format, source))
    except RowError as error:
        return IngestedRow(source, "", repaired, [_reject(raw, error, 0)])
    several = len(parts) > 1
    taken = [
        _sample(source, name, raw, part, number if several else 0, context)
        for number, part in enumerate(parts, 1)
    ]
    return IngestedRow(source, name, repaired, taken)


def _sample(
    source: str, name: str, raw: Raw, part: Row, number: int, context: IngestContext
) -> IngestedRecord | LeftOut | Reject:
    """What became of one sample of a row; `number`: which one, 0 of a row with only one."""
    settings, record_id, done = context.settings, "", Row()
    try:
        record = to_record(part, name, reader_options(settings, context.catalogue))
        validate(record)
        named = record.source or ("stdin" if source == "-" else Path(source).name)
        record = replace(record, source=named)
        if len(context.mixture.protocols) > 1:
            protocol = context.mixture.of(record).name
            record = replace(record, meta={**record.meta, "protocol": protocol})
        keep = parse_keep(settings.keep)
        if keep.conditions and "rollout" in record.meta:
            done["scores"] = scores_of(record)
        refuse_unmet(record, keep)
        if settings.system and not record.is_text and record.messages[0].role != "system":
            record, done["system"] = _with_system(record, settings.system), "added"
        record_id = record.id
        record, personal, rule = clean(record, settings)
        if personal:
            done["masked" if settings.personal == "mask" else "personal"] = dict(personal)
        if is_dropped(personal, settings):
            raise RowError("F311", f"holds {', '.join(personal)}")
        if undeclared := record.meta.get("undeclared"):
            done["undeclared"] = undeclared
        if unchecked := _invalid_schemas(record):
            done["invalid_schemas"] = unchecked
        if rule != "said":
            done["task"] = f"{record.task}: {rule}"
        if context.add_tools:
            record, counts = context.add_tools(record)
            done["retrieved"] = dict(+counts)
        whole = measure(record, context)
        kept, sized = _fitting(record, whole, context)
    except RowError as error:
        if error.code.startswith("F"):
            return LeftOut(error.code, raw.location, record_id, done)
        return _reject(raw, error, number)
    ledger = None
    if kept is not record:
        done["cut"] = f"{len(kept.messages)} of {len(record.messages)} messages left"
        ledger = {
            "location": raw.location,
            "id": kept.id,
            "parent": kept.parent,
            "messages": len(kept.messages),
            "of_messages": len(record.messages),
            "tokens": sized.longest,
            "of_tokens": whole.longest,
        }
    if kept.id != record_id:
        done["was"] = record_id
    if any(call.name == ANY_TOOL for gold in kept.gold.values() for call in gold.calls):
        done["for_tests"] = "any call is right"
    if names := undescribed(kept.tools):
        done["undescribed"] = names
    near = next(sketches([near_text(kept)])) if "near" in settings.duplicates else b""
    row = encode(to_row(kept))
    return IngestedRecord(row, raw.location, traits(kept), sized, done, ledger, near)


def clean(record: Record, settings: PrepSettings) -> tuple[Record, Counter[str], str]:
    """The record with its task, and masked if the settings want it so; the personal values in it,
    by kind; and how it came to its task, "said" if it names one itself.
    """
    personal = Counter[str]()
    if settings.personal == "mask":
        record, personal = mask(record)
    elif settings.personal != "off":
        personal = find(record)
    record, rule = classified(record)
    return record, personal, rule


def is_dropped(personal: Counter[str], settings: PrepSettings) -> bool:
    """Whether a record with these personal values is left out."""
    return bool(personal) and settings.personal == "drop"


def _with_system(record: Record, text: str) -> Record:
    """A chat template would write a system turn of its own otherwise, which may name another
    maker.
    """
    gold = {turn + 1: expected for turn, expected in record.gold.items()}
    return replace(record, messages=(Message("system", text), *record.messages), gold=gold)


def _invalid_schemas(record: Record) -> list[str]:
    """The tools called whose schema is invalid itself: the structure of their arguments is all that
    was checked.
    """
    called = {call.name for message in record.messages for call in message.calls}
    return [
        tool.name
        for tool in record.tools
        if tool.name in called and schema_problem(tool.parameters)
    ]


def _fitting(record: Record, sized: Sized, context: IngestContext) -> tuple[Record, Sized]:
    """The record, or its beginning where it is too long and may be cut; and its size."""
    settings = context.settings
    if sized.longest <= settings.max_length:
        return record, sized
    shorter = None
    if settings.long_rows == "cut":
        shorter = cut(record, lambda part: measure(part, context).longest <= settings.max_length)
    if shorter is None:
        code = "F302" if settings.long_rows == "filter" else "E217"
        reason = f"{sized.longest} tokens, max_length is {settings.max_length}"
        raise RowError(code, reason)
    return shorter, measure(shorter, context)


def measure(record: Record, context: IngestContext) -> Sized:
    """Renders, reads back and masks a record. Raises RowError if any of it fails."""
    protocol, template = context.mixture.of(record), context.template
    try:
        rows = renderer.render(record, protocol, template)
        renderer.check_reading(record, rows, protocol, template)
    except RowError as error:
        if error.code == "E215" and "rollout" in record.meta:  # no fault of the user's data
            raise RowError("F313", f"its dialog cannot be written: {error.reason}") from error
        raise
    encoded = encoding.training_rows(record, protocol, template, rows=rows)
    trained = sum(label != encoding.IGNORED for row in encoded for label in row.labels)
    lengths = [len(row.input_ids) for row in encoded]
    expected = (call.name for turn in record.turns for call in record.expected(turn).calls)
    called = tuple(sys.intern(name) for name in expected if name != ANY_TOOL)
    offered = tuple(sys.intern(tool.name) for tool in record.tools)
    return Sized(
        protocol.name,
        sum(lengths),
        trained,
        max(lengths),
        len(record.turns),
        script(record),
        offered,
        called,
        wording(record),
    )


def reader_options(
    settings: PrepSettings, catalogue: Mapping[str, Tool] = NO_CATALOGUE
) -> dict[str, dict[str, object]]:
    """Settings that readers need in addition to the row, by format."""
    return {
        "sage_sft": {"catalogue": catalogue},
        "sage_benchmark": {"catalogue": catalogue},
        "bfcl": {
            "no_call_answer": settings.no_call_answer,
            "accepted_answer": settings.accepted_answer,
        },
        "prompts": {"accepted_answer": settings.accepted_answer},
        "self_cognition": {"name": settings.model_name, "author": settings.model_author},
    }


def readable(line: RawLine, methods: Sequence[str]) -> tuple[Raw, Sequence[str]]:
    """The row as it was meant, if the user allows these methods to repair it, and those that were
    used. A reject keeps the bytes that were read.
    """
    raw = decoded(line)
    may_help = raw.error is None or raw.error.code in REPAIRABLE
    if not methods or not may_help or (repaired := repair(raw.content, methods)) is None:
        return raw, ()
    value, used = repaired
    return raw._replace(value=value, error=None), used


def _reject(raw: Raw, error: RowError, part: int) -> Reject:
    return Reject(raw.location, raw.content, error.code, error.reason, part, error.hint, error.at)
