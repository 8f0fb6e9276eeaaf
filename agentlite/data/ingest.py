"""Raw rows -> records, checked and measured, on disk; and what is known of all of them, counted."""

import json
import sys
import tempfile
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import IO, NamedTuple

from msgspec.structs import replace

from agentlite.config.settings import PrepSettings
from agentlite.core.conditions import parse_keep
from agentlite.core.errors import RowError
from agentlite.core.json_schema import schema_problem
from agentlite.core.records import ANY_TOOL, Message, Record, Tool, from_row, to_row
from agentlite.core.row_files import Row, disk_errors, json_line
from agentlite.data.curation.coreset import Wording, wording
from agentlite.data.curation.doubts import SECRETS, doubts
from agentlite.data.curation.keep import refuse_unmet
from agentlite.data.curation.pii import find_personal, mask_personal
from agentlite.data.curation.task_labels import classify
from agentlite.data.curation.traits import Traits, traits
from agentlite.data.curation.validate import validate
from agentlite.data.formats import find_samples, to_record
from agentlite.data.formats.format import format_of, omit
from agentlite.data.formats.json_decode import REPAIRABLE, repair
from agentlite.data.formats.raw_rows import Raw, decode, source_name
from agentlite.data.formats.sage import NO_CATALOGUE, is_id_alone
from agentlite.data.rejects import Reject, reject_of
from agentlite.rendering import Mixture, encoding, renderer
from agentlite.rendering.foreign_text import unknown_blocks
from agentlite.rendering.protocol import without_thoughts
from agentlite.rendering.template import Template

# how a row ends, by the first letter of its code
ENDS = {"K": "kept", "E": "rejected", "D": "duplicates", "F": "filtered"}
KEPT = "K"
MANY_TURNS = 32
# keys of `done` that are counted over all rows
COUNTED_KEYS = {
    *("personal", "masked", "retrieved", "scores", "cut", "in_tags", "for_tests"),
    *("invalid_schemas", "undescribed"),
}


class RecordSize(NamedTuple):
    """The measures of a record: the tokens of its training rows, all, trained, of the longest row
    and of the longest answer; its assistant turns; the names of the tools on offer, and of those
    expected, call by call; the figures of its words.
    """

    tokens: int
    trained: int
    longest: int
    longest_answer: int
    turns: int
    offered: tuple[str, ...]
    called: tuple[str, ...]
    wording: Wording


class IngestContext(NamedTuple):
    """How raw rows become records, and records become text."""

    settings: PrepSettings
    template: Template
    mixture: Mixture
    # where a retriever says which tools a record offers: the record with them, and its counts
    add_tools: Callable[[Record], tuple[Record, Counter[str]]] | None = None
    # by id: the tools of rows that name theirs by ids alone
    catalogue: Mapping[str, Tool] = NO_CATALOGUE


# --- one row ---


def decode_row(line: Raw, fix: bool) -> tuple[Raw, Sequence[str]]:
    """The row, repaired if the user wants it, and by what. A reject keeps the bytes read."""
    raw = decode(line)
    may_help = raw.error is None or raw.error.code in REPAIRABLE
    if not fix or not may_help or (repaired := repair(raw.content)) is None:
        return raw, ()
    value, methods = repaired
    return raw._replace(value=value, error=None), methods


def _check_sample(
    source: str, format_name: str, sample: Row, origin: Row, context: IngestContext
) -> tuple[Record, RecordSize]:
    """The record of one sample of a row, as it may be learned. `origin` gets its id, and what was
    found in it and done to it. Raises RowError for one that is rejected or left out.
    """
    settings, done = context.settings, origin["done"]
    options = reader_options(settings, context.catalogue)
    record = to_record(sample, format_name, options)
    if (silent := without_thoughts(record)) != record:
        if settings.thoughts == "drop":
            record, done["thoughts"] = silent, "left out"
        elif not context.template.holds_thoughts:
            done["in_tags"] = "thoughts"
    end = max(record.turns, default=len(record.messages)) + 1
    if settings.unanswered == "cut" and end < len(record.messages):
        done["unanswered"] = f"{len(record.messages) - end} messages cut"
        record = replace(record, messages=record.messages[:end])
    validate(record)
    record = replace(record, source=record.source or source_name(source))
    if len(context.mixture.protocols) > 1:
        name = context.mixture.protocol_of(record).name
        record = replace(record, meta={**record.meta, "protocol": name})
    keep = parse_keep(settings.keep)
    if keep.conditions and "rollout" in record.meta:
        done["scores"] = record.meta["rollout"]["scores"]
    refuse_unmet(record, keep)
    if settings.system and not record.is_text and record.messages[0].role != "system":
        # a chat template would otherwise write one of its own, which may name another maker
        messages = (Message("system", settings.system), *record.messages)
        gold = {turn + 1: expected for turn, expected in record.gold.items()}
        record, done["system"] = replace(record, messages=messages, gold=gold), "added"
    origin["id"] = record.id
    record, personal, rule = clean(record, settings)
    if personal:
        done["masked" if settings.personal == "mask" else "personal"] = dict(personal)
        if settings.personal == "drop":
            raise RowError("F311", f"holds {', '.join(personal)}")
    secrets = () if settings.personal == "mask" else sorted(SECRETS & personal.keys())
    done |= _find_doubtful(record, secrets)
    if rule != "said":
        done["task"] = f"{record.task}: {rule}"
    if context.add_tools:
        record, counts = context.add_tools(record)
        done["retrieved"] = dict(+counts)
    full_size, full_count = measure(record, context), len(record.messages)
    record, size = _cut_to_fit(record, full_size, context)
    if len(record.messages) < full_count:
        done["cut"] = (
            f"{len(record.messages)} of {full_count} messages, "
            f"{size.longest} of {full_size.longest} tokens left"
        )
    if record.id != origin["id"]:
        done["was"], origin["id"] = origin["id"], record.id
    if any(call.name == ANY_TOOL for gold in record.gold.values() for call in gold.calls):
        done["for_tests"] = "any call is right"
    if names := [tool.name for tool in record.tools if is_id_alone(tool)]:
        done["undescribed"] = names
    return record, size


def _find_doubtful(record: Record, secrets: Sequence[str]) -> Row:
    called = {call.name for message in record.messages for call in message.calls}
    called_tools = (tool for tool in record.tools if tool.name in called)
    findings = {
        "doubts": doubts(record) | ({"secret": ", ".join(secrets)} if secrets else {}),
        # of calls of a tool with such a schema, only the structure was checked
        "invalid_schemas": [tool.name for tool in called_tools if schema_problem(tool.parameters)],
        "blocks": unknown_blocks(record),
    }
    return {kind: finding for kind, finding in findings.items() if finding}


def reader_options(
    settings: PrepSettings, catalogue: Mapping[str, Tool] = NO_CATALOGUE
) -> dict[str, dict[str, object]]:
    """Settings that readers need in addition to the row, by format."""
    return {
        "sage_sft": {"catalogue": catalogue},
        "sage_benchmark": {"catalogue": catalogue},
        "bfcl": {"no_call_answer": settings.no_call_answer},
        "names": {"name": settings.model_name, "author": settings.model_author},
    }


def clean(record: Record, settings: PrepSettings) -> tuple[Record, Counter[str], str]:
    """The record with its task, and masked if the settings want it so; the personal values in it,
    by kind; and how it came to its task, "said" if it names one itself.
    """
    personal = Counter[str]()
    if settings.personal == "mask":
        record, personal = mask_personal(record)
    elif settings.personal != "off":
        personal = find_personal(record)
    record, rule = classify(record)
    return record, personal, rule


def measure(record: Record, context: IngestContext) -> RecordSize:
    """Renders, reads back and masks a record. Raises RowError if any of it fails."""
    lengths, answers = _token_lengths(record, context)
    called = (call.name for turn in record.turns for call in record.gold_at(turn).calls)
    return RecordSize(
        tokens=sum(lengths),
        trained=sum(answers),
        longest=max(lengths),
        longest_answer=max(answers, default=0),
        turns=len(record.turns),
        offered=tuple(sys.intern(tool.name) for tool in record.tools),
        called=tuple(sys.intern(name) for name in called if name != ANY_TOOL),
        wording=wording(record),
    )


def _token_lengths(record: Record, context: IngestContext) -> tuple[list[int], list[int]]:
    """The tokens of each training row, and of each piece that is trained: an answer. Of a dialog of
    many turns that is too long, the last row alone is rendered: all of them take the square of its
    turns.
    """
    protocol, template = context.mixture.protocol_of(record), context.template
    turns = record.turns
    if len(turns) > MANY_TURNS and record.messages[turns[-1]].loss:
        length = len(template.encode(renderer.render_last(record, protocol, template).text))
        if length > context.settings.max_length:
            return [length], []
    try:
        rows = renderer.render(record, protocol, template)
        renderer.check_reading(record, rows, protocol, template)
    except RowError as error:
        if error.code == "E215" and "rollout" in record.meta:  # no fault of the user's data
            raise RowError("F313", f"its dialog cannot be written: {error.reason}") from error
        raise
    encoded = encoding.training_rows(record, protocol, template, rows=rows)
    # labels of -100, -100, 5, 7, -100, 9 are two answers: of two tokens, and of one
    answers = [
        len([*labels])
        for row in encoded
        for is_trained, labels in groupby(row.labels, encoding.IGNORED.__ne__)
        if is_trained
    ]
    return [len(row.input_ids) for row in encoded], answers


def _cut_to_fit(
    record: Record, size: RecordSize, context: IngestContext
) -> tuple[Record, RecordSize]:
    """The record, or its beginning where it is too long and may be cut; and its size."""
    settings = context.settings
    if size.longest <= settings.max_length:
        return record, size
    shorter = None
    if settings.long_rows == "cut":
        shorter = cut(record, lambda start: measure(start, context).longest <= settings.max_length)
    if shorter is None:
        code = "F302" if settings.long_rows == "filter" else "E217"
        raise RowError(code, f"{size.longest} tokens, max_length is {settings.max_length}")
    return shorter, measure(shorter, context)


def cut(record: Record, fits: Callable[[Record], bool]) -> Record | None:
    """The longest beginning that ends with an assistant turn, trains something and fits; None if
    none does.

    The end is cut, not the beginning: so every step that is left has the prompt it has when the
    model is used. `fits` is asked less than log2(turns) + 1 times: a shorter beginning is never
    longer in tokens.
    """

    def until(turn: int) -> Record:
        return replace(
            record,
            messages=record.messages[: turn + 1],
            gold={at: expected for at, expected in record.gold.items() if at <= turn},
            meta={**record.meta, "cut_from": len(record.messages)},
            parent=record.parent or record.id,
        )

    learned_turns = [turn for turn in record.turns if record.messages[turn].loss]
    ends = [turn for turn in record.turns if learned_turns and turn >= learned_turns[0]][:-1]
    # the first end that is too long; the one before it is the last that fits
    fitting = bisect_left(ends, True, key=lambda turn: not fits(until(turn)))
    return until(ends[fitting - 1]) if fitting else None


# --- all rows ---


class End(NamedTuple):
    """Why a record is not kept, as a code. `of`: the id of the record that it copies or
    contradicts, or the location of the held-out row that it gives away.
    """

    code: str
    of: str = ""


class Spool:
    """Rows on disk, by index, until it is decided what becomes of them: in a file without a name.
    None: in the system's folder for temporary files.
    """

    def __init__(self, folder: Path | None):
        self.folder = folder or Path(tempfile.gettempdir())
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (see IngestedRows)
        # where each row begins, and the end of the last
        self.starts = array("Q", [0])

    def add(self, row: bytes) -> None:
        with disk_errors(self.folder):
            self.file.write(row)
        self.starts.append(self.starts[-1] + len(row))

    def read(self, indices: Iterable[int]) -> Iterator[Row]:
        for index in indices:
            self.file.seek(self.starts[index])
            yield json.loads(self.file.read(self.starts[index + 1] - self.starts[index]))

    def __len__(self) -> int:
        return len(self.starts) - 1


class IngestedRows:
    """What was read, and what is known of it in memory: it grows by `add` alone, row by row. Lists
    are by the index of a record.

    `rows`: of the records; `origins`: of each row that is not a reject, as they were read: where it
    came from, and what was done to it. Both are on disk until the context ends.
    """

    def __init__(self, folder: Path | None):
        self.rows, self.origins = Spool(folder), Spool(folder)
        self.traits: list[Traits] = []
        self.sizes: list[RecordSize] = []
        self.sources: list[str] = []
        self.rejects: list[Reject] = []
        self.formats: dict[str, Counter[str]] = defaultdict(Counter)  # by source
        self.repairs: dict[str, list[str]] = defaultdict(list)  # locations of rows, by method
        # of rows that are no rejects: what was found or done, counted, by its name
        self.done: dict[str, Counter[str]] = defaultdict(Counter)
        # of records that a person should look at: the location and what is doubtful, by index
        self.doubts: dict[int, tuple[str, dict[str, str]]] = {}
        self.blocks: dict[str, Counter[str]] = defaultdict(Counter)  # records, by source and block
        # codes of rows that were rejected or filtered while they were read, by source
        self._codes: dict[str, Counter[str]] = defaultdict(Counter)

    def __enter__(self) -> "IngestedRows":
        return self

    def __exit__(self, *_: object) -> None:
        self.rows.file.close()
        self.origins.file.close()

    def add(self, source: str, line: Raw, context: IngestContext) -> None:
        """Adds the samples of a raw row, or says why not, and counts them."""
        raw, methods = decode_row(line, context.settings.fix)
        for method in methods:
            self.repairs[method].append(raw.location)
        codes = self._codes[source]
        try:
            name, row_samples = find_samples(raw.row, format_of(context.settings.format, source))
        except RowError as error:
            codes[error.code] += 1
            self.rejects.append(reject_of(raw, error))
            return
        self.formats[source][name] += 1
        for number, sample in enumerate(row_samples, 1):
            done = Row(repaired=[*methods]) if methods else Row()
            origin: Row = {"id": "", "location": raw.location, "format": name, "done": done}
            try:
                record, size = _check_sample(source, name, sample, origin, context)
            except RowError as error:
                codes[error.code] += 1
                if not error.code.startswith("F"):
                    part = number if len(row_samples) > 1 else 0
                    self.rejects.append(reject_of(raw, error, part))
                    continue
                origin["code"] = error.code
            else:
                if "doubts" in done:
                    self.doubts[len(self.traits)] = raw.location, done["doubts"]
                self.blocks[source].update(done.get("blocks", ()))
                self.sources.append(source)
                self.rows.add(json_line(to_row(record)))
                self.traits.append(traits(record))
                self.sizes.append(size)
            for kind in COUNTED_KEYS & done.keys():
                events = done[kind]
                self.done[kind].update([events] if isinstance(events, str) else events)
            self.origins.add(json_line(origin if done else omit(origin, "done")))

    def record(self, index: int) -> Record:
        """Reads a record from disk."""
        (row,) = self.rows.read([index])
        return from_row(row)

    @property
    def rows_read(self) -> int:
        """How many rows were read, counting each sample of a row with several."""
        return len(self.traits) + sum(codes.total() for codes in self._codes.values())

    def left_out(self, ends: Mapping[int, End]) -> Counter[str]:
        """How many rows are neither kept nor rejected, by code."""
        codes = sum(self._codes.values(), Counter[str]())
        codes += Counter(ends[index].code for index in sorted(ends))
        return Counter({code: codes[code] for code in codes if not code.startswith("E")})

    def by_file(self, ends: Mapping[int, End]) -> dict[str, dict[str, int]]:
        """The rows of each source by how they ended: records as `ends` says, or else kept."""
        letters = {
            source: Counter(code[0] for code in codes.elements())
            for source, codes in self._codes.items()
        }
        for index, source in enumerate(self.sources):
            letters[source][ends[index].code[0] if index in ends else KEPT] += 1
        return {
            source: {"read": counts.total(), **{ENDS[letter]: counts[letter] for letter in ENDS}}
            for source, counts in letters.items()
        }

    def provenance(
        self, ends: Mapping[int, End], splits: Mapping[int, str], times: Mapping[int, int]
    ) -> Iterator[Row]:
        """A row for each that was read and is not a reject: where it is from, what was done to it,
        where it ended, and how many `times` it is there, if that is not once.
        """
        index = 0  # of the next record: only rows that were filtered have a code already
        for row in self.origins.read(range(len(self.origins))):
            if "code" in row:
                yield {**row, "end": ENDS[row["code"][0]]}
                continue
            if (end := ends.get(index)) is not None:
                of = {"of": end.of} if end.of else {}
                yield {**row, "end": ENDS[end.code[0]], "code": end.code, **of}
            else:
                repeats = {"times": times[index]} if times.get(index, 1) > 1 else {}
                yield {**row, "end": "kept", "split": splits[index], **repeats}
            index += 1
