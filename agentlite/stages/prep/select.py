"""Records -> those that are kept, each with its split, and for every other one the reason.

A step changes the selection. Records are named by their index among all that were read.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.config.settings import PrepSettings
from agentlite.core import console
from agentlite.core.records import Record, from_row, to_row
from agentlite.core.row_files import Row
from agentlite.data.curation.coreset import coreset
from agentlite.data.curation.decontaminate import HeldOut, leaks
from agentlite.data.curation.dedup import (
    Copies,
    borne,
    call_copies,
    contradictions,
    equal_copies,
    near_copies,
    near_text,
)
from agentlite.data.curation.fingerprints import dialog_text
from agentlite.data.curation.keep import parse_keep, surpassed
from agentlite.data.curation.mix import draw, parse_mix, parts, repetitions
from agentlite.data.curation.replay_buffer import BufferState, buffer_rows, replayed
from agentlite.data.curation.split import assign_splits
from agentlite.data.curation.traits import Traits, traits
from agentlite.data.ingest import End, Ingested

LEFT_OUT = "F341"  # the code of what a coreset leaves out


class SelectionContext(NamedTuple):
    """What the steps look at, and never change. `buffer`: the earlier records; `learnable`: one of
    them as it may be learned now, or None.
    """

    settings: PrepSettings
    ingested: Ingested
    held_out: HeldOut
    buffer: BufferState | None
    learnable: Callable[[Record], Record | None]


class Selection:
    """`kept`: the records that are kept, ascending, each with the split that it took over from its
    copies; after the step `split`, with that which it is in. `ends`: of each other record, why not.

    `factors`: how often rows of too small a group are wanted; `times`: how often each such train
    record is learned. `replayed`: rows of the buffer to learn again. `notes`: sentences for the
    user; `figures`: counts for the user.
    """

    def __init__(self, records: Sequence[Traits]):
        self.kept = dict(enumerate(records))
        self.ends: dict[int, End] = {}
        self.factors: Mapping[int, float] = {}
        self.times: Mapping[int, int] = {}
        self.replayed: Sequence[Row] = ()
        self.notes: list[str] = []
        self.figures: dict[str, Any] = {}

    def drop(self, code: str, of: Mapping[int, str]) -> None:
        """Leaves records out. `of`: the id of the record that each copies or contradicts, the
        location of the held-out row that it gives away, or "".
        """
        for index, other in of.items():
            del self.kept[index]
            self.ends[index] = End(code, other)

    def set_splits(self, splits: Mapping[int, str]) -> None:
        for index, split in splits.items():
            self.kept[index] = self.kept[index]._replace(split=split)

    def in_split(self, *names: str) -> list[int]:
        """The records of these splits; only after the step `split`."""
        return [index for index, record in self.kept.items() if record.split in names]


def select(context: SelectionContext) -> Selection:
    """Takes all steps, in their order."""
    selection = Selection(context.ingested.traits)
    for name, step in STEPS.items():
        with console.waiting(f"prep: looking at {len(selection.kept)} records: {name}"):
            step(selection, context)
    return selection


def _keep_best(selection: Selection, context: SelectionContext) -> None:
    """Of the rollouts of a task one, where the user wants the best."""
    if parse_keep(context.settings.keep).best:
        rollouts = ((index, context.ingested.record(index)) for index in selection.kept)
        selection.drop("F315", surpassed(rollouts))


def _near_copies(records: Mapping[int, Traits], context: SelectionContext) -> Copies:
    ingested, settings = context.ingested, context.settings
    return near_copies(
        records,
        ingested.sketches.__getitem__,
        lambda index: near_text(ingested.record(index)),
        seed=settings.seed,
        threshold=settings.near,
    )


COPIES: dict[str, tuple[str, Callable[[Mapping[int, Traits], SelectionContext], Copies]]] = {
    "equal": ("D401", lambda records, context: equal_copies(records, context.ingested.sources)),
    "calls": ("D402", lambda records, context: call_copies(records, seed=context.settings.seed)),
    "near": ("D403", _near_copies),
}


def _drop_copies(selection: Selection, context: SelectionContext) -> None:
    """The record that is kept takes over the split of its copies."""
    for name, (code, find_copies) in COPIES.items():
        if name in context.settings.duplicates:
            kept = selection.kept
            copies = find_copies(kept, context)
            selection.set_splits(borne(kept, copies))
            selection.drop(code, {index: kept[of].id for index, of in copies.items()})


def _drop_contradictions(selection: Selection, context: SelectionContext) -> None:
    """Leaves all records of a contradiction out, or only says how many there are."""
    kept = selection.kept
    groups = contradictions(kept)
    if not groups:
        return

    def contradicting(index: int, group: Iterable[int]) -> str:
        """The id of the first in the group with other calls."""
        return next(kept[at].id for at in group if kept[at].keys.first != kept[index].keys.first)

    contrary = {index: contradicting(index, group) for group in groups for index in group}
    selection.figures["contradictions"] = len(contrary)
    if context.settings.contradictions == "drop":
        selection.drop("F321", contrary)
        return
    first = groups[0][0]
    selection.notes.append(
        f"{len(contrary)} records contradict each other, {kept[first].id} and {contrary[first]} "
        "among them (--set prep.contradictions=drop leaves them out)"
    )


def _drop_leaks(selection: Selection, context: SelectionContext) -> None:
    """Leaves out the records that give away what a held-out file asks."""
    held_out = context.held_out
    if held_out.traits:
        leaking = leaks(selection.kept, held_out.traits, threshold=context.settings.near)
        selection.drop("F331", {index: held_out.locations[of] for index, of in leaking.items()})


def _sample(selection: Selection, context: SelectionContext) -> None:
    """Keeps as many of each group of sources and of each task as the user wants."""
    settings = context.settings
    drawn = draw(
        selection.kept,
        context.ingested.sources,
        mix=parse_mix(settings.mix),
        task_weights=settings.task_weights,
        limit=settings.limit,
        seed=settings.seed,
    )
    selection.drop("F312", {index: "" for index in selection.kept if index not in drawn.indices})
    selection.factors = drawn.factors
    selection.notes += drawn.notes
    if settings.mix:
        selection.figures["mixed"] = drawn.by_group


def _split(selection: Selection, context: SelectionContext) -> None:
    """Gives each record its split, and leaves out what would be in two."""
    settings, sources, kept = context.settings, context.ingested.sources, selection.kept
    of_stages = settings.sources[len(settings.sources) - len(settings.trajectories) :]
    split = assign_splits(
        kept,
        dev=settings.dev,
        test=settings.test,
        seed=settings.seed,
        by=settings.split_by,
        of_stages=[index for index in kept if sources[index] in of_stages],
    )
    selection.set_splits(split.splits)
    selection.drop("F332", {index: kept[of].id for index, of in split.crossing.items()})
    selection.drop("F333", dict.fromkeys(split.torn, ""))
    selection.notes += split.notes
    selection.figures["groups"] = split.groups
    if split.missed:
        selection.figures["split_missed"] = split.missed


def _take_coreset(selection: Selection, context: SelectionContext) -> None:
    """Keeps the train records that the coreset chooses, and all of dev and test."""
    settings, ingested, train = context.settings, context.ingested, selection.in_split("train")
    if not settings.coreset_strategy or not settings.coreset_target_size:
        return
    # The parts keep the shares that the user set: else a coreset by loss is made of the hardest
    # task, whatever its weight.
    part: dict[int, str] = {}
    if settings.mix or settings.task_weights:
        read, mix = dict(enumerate(ingested.traits)), parse_mix(settings.mix)
        for group, tasks in parts(read, ingested.sources, mix, settings.task_weights).items():
            for task, indices in tasks.items():
                part |= dict.fromkeys(indices, f"{group} {task}")
    chosen, counts = coreset(
        {index: selection.kept[index].id for index in train},
        strategy=settings.coreset_strategy,
        target=settings.coreset_target_size,
        seed=settings.seed,
        loss=lambda index: ingested.sizes[index].wording.proxy_loss,
        text=lambda index: dialog_text(ingested.record(index)),
        part=lambda index: part.get(index, ""),
    )
    selection.drop(LEFT_OUT, dict.fromkeys(sorted({*train} - {*chosen}), ""))
    selection.figures["coreset"] = counts
    if settings.coreset_target_size >= len(train):
        selection.notes.append(
            f"coreset: {settings.coreset_target_size} asked for, all {len(train)} there are taken"
        )


def _repeat(selection: Selection, context: SelectionContext) -> None:
    """Says how often train records of a group that is too small are learned. Records of dev and
    test are there once, and none is in train as well.
    """
    train = selection.in_split("train")
    factors = {index: selection.factors[index] for index in train if index in selection.factors}
    if factors:
        selection.times = repetitions(factors, selection.kept, context.settings.seed)
        rows = sum(selection.times.values())
        selection.figures["repeated"] = {"records": len(selection.times), "rows": rows}


def _replay(selection: Selection, context: SelectionContext) -> None:
    """Adds rows of the buffer to learn again: none that was read here, whatever became of it, none
    that gives away what is held out or what dev or test ask, and none that may not be learned now.
    """
    if context.buffer is None:
        return
    settings, count = context.settings, len(selection.in_split("train"))
    earlier = [context.learnable(from_row(row)) for row in buffer_rows(context.buffer)]
    records = dict(enumerate(record for record in earlier if record is not None))
    tested = [selection.kept[index] for index in selection.in_split("dev", "test")]
    leaking = leaks(
        {number: traits(record) for number, record in records.items()},
        [*context.held_out.traits, *tested],
        threshold=settings.near,
    )
    rows = replayed(
        [to_row(record) for number, record in records.items() if number not in leaking],
        {record.id for record in context.ingested.traits},
        count,
        ratio=settings.continual_replay_ratio,
        seed=settings.seed,
        buffer=context.buffer.rows,
    )
    wanted = math.floor(count * settings.continual_replay_ratio)
    if len(rows) < wanted:
        selection.notes.append(
            f"replay: {wanted} rows asked for, the buffer has {len(rows)} that may be learned here"
        )
    selection.replayed = rows
    selection.figures["replayed"] = len(rows)


# The order counts: the best rollout of a task is chosen before copies are left out, a limit applies
# to what the first four steps leave, the coreset is chosen from train alone, and earlier records
# must not give away what dev and test ask.
STEPS: dict[str, Callable[[Selection, SelectionContext], None]] = {
    "best": _keep_best,
    "copies": _drop_copies,
    "contradictions": _drop_contradictions,
    "leaks": _drop_leaks,
    "sample": _sample,
    "split": _split,
    "coreset": _take_coreset,
    "repeat": _repeat,
    "replay": _replay,
}
