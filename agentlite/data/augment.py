"""Train records -> those and variants of them, with distractors, and joined to dialogs.

A variant is hard: the right tool is removed, or names are masked. Distractors are tools of other
records. A dialog is joined of single-turn records; those in which no call is expected stay as they
are: nobody has checked whether a tool of another record could answer them.
"""

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from msgspec.structs import replace

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import RowError
from agentlite.core.json_schema import schema_at
from agentlite.core.records import Gold, GoldCall, Message, Record, Tool, canonical, digest
from agentlite.data.curation.traits import (
    always_expects_calls,
    expected_tools,
    first_query,
    script_of,
)
from agentlite.data.curation.validate import validate
from agentlite.data.formats.sage import is_id_alone
from agentlite.data.ingest import IngestContext, clean, measure

CHINESE = "现有的工具都无法完成这个请求。"  # the answer to a question in Chinese
# What such a tool cannot do, nobody knows.
DOES_MUCH = re.compile(
    r"search|google|bing|browse|web|wiki|lookup|look_up|python|code|shell|bash|terminal|exec|command|script|sql|query|http"
    r"|request|api|llm|gpt|chat|ask|answer|assistant|agent|搜索|检索|查询|浏览|代码|执行|问答",
    re.IGNORECASE,
)
# words that say nothing about what a tool is for
COMMON = re.compile(
    "get|set|list|find|fetch|retrieve|calculate|compute|calc|create|make|add|update|delete|remove"
    "|check|show|read|write|send|by|for|of|the|a|an|to|in|on|from|with|and|or|is"
)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[\u4e00-\u9fff]")
# the Jaccard index of two descriptions' words from which one tool may stand in for the other
ALIKE = 0.3
# keywords of JSON Schema that name parameters, or hold schemas that do
NAMING = re.compile(
    "allOf|anyOf|oneOf|not|if|then|else|dependencies|dependentRequired|dependentSchemas"
    r"|patternProperties|propertyNames|[$]ref|[$]defs|definitions"
)
SWAPS = 8  # tools of other records that are tried for a record that has no other
KEPT_META = ("protocol", "joined", "cut_from", "bfcl_id")
JOINABLE = (["user", "assistant"], ["system", "user", "assistant"])
AnyCalls = TypeVar("AnyCalls", Message, Gold)

# --- all of them ---


def has_augmentation(settings: PrepSettings) -> bool:
    """Whether the settings change train records or make others of them."""
    variants = settings.no_call_share or settings.mask_names
    return bool(variants or settings.distractors or settings.join > 1)


def augment(
    train: list[Record], context: IngestContext
) -> tuple[list[Record], dict[str, Counter[str]]]:
    """Train records with variants of them, with other records' tools, and several in one dialog;
    and how many variants there are by kind, and why others could not be made. A record that would
    get too long stays as it was.
    """
    settings = context.settings
    room = settings.join_tokens or settings.max_length

    def join(records: list[Record]) -> list[Record]:
        if settings.join == 1:
            return records
        tokens = {record.id: measure(record, context).tokens for record in records}
        return join_dialogs(
            records,
            k=settings.join,
            seed=settings.seed,
            fits=lambda slot: sum(tokens[record.id] for record in slot) <= room,
        )

    # a share of the rows that are written: joined dialogs are fewer than the questions in them
    share = settings.no_call_share
    no_calls = missing_no_calls(join(train), share) if share else 0
    variants, counts = hard_negatives(train, settings, no_calls, lambda new: fits(new, context))
    train = [*train, *variants]
    with_distractors = add_distractors(train, n=settings.distractors, seed=settings.seed)
    train = [
        new if new.id == old.id or fits(new, context) else old
        for new, old in zip(with_distractors, train, strict=True)
    ]
    return [replace(record, split="train") for record in join(train)], counts


def fits(record: Record, context: IngestContext) -> bool:
    """Whether a changed record is valid, can be rendered, and is short enough."""
    try:
        validate(record)
        return measure(record, context).longest <= context.settings.max_length
    except RowError:
        return False


def learnable_record(record: Record, context: IngestContext) -> Record | None:
    """An earlier record as it may be learned now; None if it is dropped for its personal data, or
    does not fit any more.
    """
    record, personal, _ = clean(record, context.settings)
    is_dropped = bool(personal) and context.settings.personal == "drop"
    return None if is_dropped or not fits(record, context) else record


def expected_by_query(records: Iterable[Record]) -> Mapping[str, set[str]]:
    """The tools that are expected for a question in any of the records."""
    expected: dict[str, set[str]] = defaultdict(set)
    for record in records:
        expected[first_query(record)] |= expected_tools(record)
    return expected


# --- hard negatives ---


def hard_negatives(
    train: Sequence[Record],
    settings: PrepSettings,
    no_calls: int = 0,
    fits: Callable[[Record], bool] = lambda record: True,
) -> tuple[list[Record], dict[str, Counter[str]]]:
    """Variants with other names of a share of the records, and `no_calls` without the right tool;
    and by kind, how many of the chosen records became one, or why not. Records are taken in an
    order that depends on seed, kind and id alone.
    """
    expected, seed = expected_by_query(train), settings.seed
    # sorted, so that what is drawn from them does not depend on the order of the files
    ordered = sorted(train, key=lambda record: record.id)
    offers = list({tuple(tool.name for tool in r.tools): r.tools for r in ordered}.values())

    def remove_tool(record: Record) -> Record | str:
        answer = CHINESE if script_of(first_query(record)) == "Han" else settings.no_call_answer
        chance = random.Random(f"{seed} swapped {record.id}")
        swaps = chance.sample(offers, min(SWAPS, len(offers)))
        return without_right_tool(record, expected[first_query(record)], answer, swaps)

    variants: list[tuple[int, Record]] = []  # each with the index of its record
    counts: dict[str, Counter[str]] = {}
    for kind, make, share, wanted in (
        ("removed", remove_tool, 0, no_calls),
        ("masked", lambda record: with_masked_names(record, seed), settings.mask_names, 0),
    ):
        if not share and not wanted:
            continue
        counts[kind] = Counter()
        # numbers below 2**64, so that a share of these is a share of the records
        ranks = [int(digest(f"{seed} {kind} {record.id}"), 16) for record in train]
        for index in sorted(range(len(train)), key=ranks.__getitem__):
            if ranks[index] >= share * 2**64 and counts[kind]["made"] >= wanted:
                break
            outcome = make(train[index])
            if isinstance(outcome, Record):
                if is_fit := fits(outcome):
                    variants.append((index, outcome))
                outcome = "made" if is_fit else "prep would reject it"
            counts[kind][outcome] += 1
    return [record for _, record in sorted(variants, key=itemgetter(0))], counts


def missing_no_calls(train: Sequence[Record], share: float) -> int:
    """How many records without a call to add, so that they are this share of those with tools."""
    with_tools = [record for record in train if record.tools]
    no_call_count = sum(not expected_tools(record) for record in with_tools)
    # (no_call_count + x) / (len(with_tools) + x) = share, solved for x
    return max(0, math.ceil((share * len(with_tools) - no_call_count) / (1 - share)))


def without_right_tool(
    record: Record, expected: Iterable[str], answer: str, swaps: Iterable[tuple[Tool, ...]] = ()
) -> Record | str:
    """The dialog up to its first call, without the expected tools, and the answer in place of the
    call; or why not. Where no tool is left, the first of `swaps`, the tools of another record,
    that cannot do it.

    Not made where another offered tool could do it. That is assumed of a tool that is expected for
    the same question in any record (`expected`), does much (a search, a shell), takes all the
    arguments of an expected call, or shares a telling word of its name or much of its description
    with the right one.
    """
    turn = next((turn for turn in record.prompted_turns if record.gold_at(turn).calls), None)
    if turn is None:
        return "no call is expected"
    if any(message.calls for message in record.messages[:turn]):
        return "a call is given before"
    barred = set(expected) | expected_tools(record)
    right_tools = [tool for tool in record.tools if tool.name in barred]
    others = tuple(tool for tool in record.tools if tool.name not in barred)
    calls = record.gold_at(turn).calls
    for tools in [others] if others else swaps:
        if tools and not any(t.name in barred or _could_do(t, right_tools, calls) for t in tools):
            break
    else:
        return "another tool could do it" if others else "no other tool on offer"
    gold = {at: expected for at, expected in record.gold.items() if at < turn} | {turn: Gold()}
    return variant(
        record,
        "right tool removed",
        tools=tools,
        task="timing_decision",
        gold=gold,
        messages=(*record.messages[:turn], Message("assistant", answer)),
    )


def with_masked_names(record: Record, seed: int) -> Record | str:
    """The dialog with other names for tools and their parameters, in tools, calls and gold alike;
    or why not.

    What stands in a text stays: a dialog that speaks of a tool by its name is left alone. So a
    model has to read the descriptions: where a tool has no more than an id, none could know it.
    Parameters inside of parameters keep their names.
    """
    if obstacle := _obstacle_to_masks(record):
        return obstacle
    names = [tool.name for tool in record.tools]
    chance = random.Random(digest(f"{seed} masked {record.id}"))

    def number_names(word: str, names: Iterable[str]) -> dict[str, str]:
        ordered = sorted(names)
        # out of ten times as many, so that the numbers do not count the names
        numbers = chance.sample(range(10 * len(ordered)), len(ordered))
        return {name: f"{word}_{number}" for name, number in zip(ordered, numbers, strict=True)}

    new_names = number_names("tool", names)
    new_keys = {
        tool.name: number_names("parameter", schema_at(tool.parameters, "properties"))
        for tool in record.tools
    }

    def rename_keys(values: Mapping[str, Any], tool: str) -> dict[str, Any]:
        return {new_keys.get(tool, {}).get(key, key): value for key, value in values.items()}

    def rename_calls(turn: AnyCalls) -> AnyCalls:
        """Gold may name a tool that is not on offer: that stays as it is."""
        calls = (
            replace(
                call,
                name=new_names.get(call.name, call.name),
                arguments=call.arguments and rename_keys(call.arguments, call.name),
            )
            for call in turn.calls
        )
        return replace(turn, calls=tuple(calls))

    def rename_tool(tool: Tool) -> Tool:
        parameters = dict(tool.parameters)
        if "properties" in parameters:
            parameters["properties"] = rename_keys(parameters["properties"], tool.name)
        if "required" in parameters:
            required = dict.fromkeys(parameters["required"])
            parameters["required"] = [*rename_keys(required, tool.name)]
        return replace(tool, name=new_names[tool.name], parameters=parameters)

    return variant(
        record,
        "names masked",
        tools=tuple(map(rename_tool, record.tools)),
        messages=tuple(map(rename_calls, record.messages)),
        gold={turn: rename_calls(gold) for turn, gold in record.gold.items()},
    )


def _obstacle_to_masks(record: Record) -> str:
    # a name that is also a word, such as `weather`, does not tell that the tool is meant
    telling = [tool.name for tool in record.tools if not re.fullmatch("[a-z]+", tool.name)]
    texts = [message.content for message in record.messages]
    keywords = (keyword for tool in record.tools for keyword in tool.parameters)
    obstacles = {
        "no call is expected": not expected_tools(record),
        "a tool has a name only": any(map(is_id_alone, record.tools)),
        "a text names a tool": any(name in text for name in telling for text in texts),
        "a schema names parameters elsewhere": any(map(NAMING.fullmatch, keywords)),
    }
    return next((obstacle for obstacle, holds in obstacles.items() if holds), "")


def variant(record: Record, kind: str, **changes: object) -> Record:
    """The record with these changes. The entries of meta about the messages or the tools no longer
    hold for it; those about how it is written still do, and `bfcl_id`: gold of BFCL may break its
    schema.
    """
    meta = {key: record.meta[key] for key in KEPT_META if key in record.meta}
    return replace(record, parent=record.id, meta={**meta, "made": kind}, **changes)


def _could_do(tool: Tool, right_tools: Sequence[Tool], calls: Sequence[GoldCall]) -> bool:
    parameters = schema_at(tool.parameters, "properties").keys()
    words = _words(tool.description)
    right_words = [_words(right.description) for right in right_tools]
    return bool(
        DOES_MUCH.search(tool.name)
        or any(call.arguments and call.arguments.keys() <= parameters for call in calls)
        or any(_words(tool.name) & _words(right.name) for right in right_tools)
        or any(len(words & w) >= ALIKE * max(1, len(words | w)) for w in right_words)
    )


def _words(text: str) -> set[str]:
    """The telling ones: of a name in snake or camel case too, without the s of a plural; of
    Chinese, its characters.
    """
    words = map(str.lower, WORD.findall(text))
    return {word.removesuffix("s") for word in words if not COMMON.fullmatch(word)}


# --- distractors ---


def add_distractors(records: Sequence[Record], *, n: int, seed: int) -> list[Record]:
    """The records in their own order; each that has one tool gets 0 to `n` tools of the others, in
    a seeded order.

    0 is among them, so that a single tool does not show that no call is expected. A foreign tool
    has another name than its own, and is expected in no record with the same first query.
    """
    tools = {
        canonical(tool.schema): tool
        for record in records
        if "made" not in record.meta
        for tool in record.tools
    }
    # one of each name: of several, the one whose schema sorts first
    pool = {tools[schema].name: tools[schema] for schema in sorted(tools, reverse=True)}
    names, expected = sorted(pool), expected_by_query(records)

    def add_foreign(record: Record) -> Record:
        # the pool has the tool of a variant by its own name
        if len(record.tools) != 1 or not always_expects_calls(record) or "made" in record.meta:
            return record
        chance = random.Random(digest(f"{seed} foreign {record.id}"))
        barred = expected[first_query(record)] | {record.tools[0].name}
        # more than `n`, since some of them may be barred
        sampled = chance.sample(names, min(len(names), n + len(barred)))
        foreign = [pool[name] for name in sampled if name not in barred][: chance.randint(0, n)]
        offered = [*record.tools, *foreign]
        chance.shuffle(offered)
        if not foreign:
            return record
        return replace(record, tools=tuple(offered), parent=record.parent or record.id)

    return [add_foreign(record) for record in records]


# --- joined dialogs ---


def join_dialogs(
    records: Sequence[Record], *, k: int, seed: int, fits: Callable[[Sequence[Record]], bool]
) -> list[Record]:
    """Dialogs of up to `k` exchanges made of single-turn records, each used once, and the other
    records unchanged.

    No two of a dialog have a tool of one name or the same query; together they satisfy `fits`.
    meta["joined"] has the ids of the records that were read, `parent` is the first of them. Ordered
    by seed and id, whatever the order given.
    """
    dialogs: list[Record] = []
    open_slots: dict[tuple[str, str, str], list[list[Record]]] = defaultdict(list)
    for record in sorted(records, key=lambda record: digest(f"{seed} join {record.id}")):
        roles = [message.role for message in record.messages]
        system = record.messages[0].content if roles[0] == "system" else ""
        if roles not in JOINABLE or not record.tools or not always_expects_calls(record):
            dialogs.append(record)
            continue
        slots = open_slots[system, record.split, str(record.meta.get("protocol"))]
        for slot in slots:
            names = {tool.name for other in slot for tool in other.tools}
            is_asked = any(first_query(other) == first_query(record) for other in slot)
            is_new = not is_asked and names.isdisjoint(tool.name for tool in record.tools)
            if is_new and fits([*slot, record]):
                break
        else:
            slot = []
            slots.append(slot)
        slot.append(record)
        if len(slot) >= k:
            slots.remove(slot)
            dialogs.append(_join(slot, seed))
    return dialogs + [_join(slot, seed) for slots in open_slots.values() for slot in slots]


def _join(slot: list[Record], seed: int) -> Record:
    first = slot[0]
    if len(slot) == 1:
        return first
    messages = [message for message in first.messages if message.role == "system"]
    gold: dict[int, Gold] = {}
    count = 0  # of calls: they are numbered on, since an id names one call of a dialog
    for record in slot:
        question, answer = record.messages[-2:]
        (turn,) = record.turns
        if turn in record.gold:
            # the answer comes behind the question, which is the next message
            gold[len(messages) + 1] = record.gold[turn]
        calls = [replace(call, id=f"call_{at}") for at, call in enumerate(answer.calls, count)]
        messages += [question, replace(answer, calls=tuple(calls))]
        count += len(calls)
    ids = [record.parent or record.id for record in slot]  # a variant has no row of its own
    tools = [tool for record in slot for tool in record.tools]
    random.Random(digest(f"{seed} tools {[record.id for record in slot]}")).shuffle(tools)
    return replace(
        first,
        messages=tuple(messages),
        tools=tuple(tools),
        gold=gold,
        parent=ids[0],
        meta={**first.meta, "joined": ids},
    )
