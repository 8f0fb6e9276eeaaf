"""Records -> those that are kept, each with its split, and for every other one the reason."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.config.settings import PrepSettings
from agentlite.core import console
from agentlite.core.records import Record, from_row, to_row
from agentlite.core.row_files import Row
from agentlite.data.curation.contradictions import contradictions
from agentlite.data.curation.coreset import coreset
from agentlite.data.curation.decontaminate import HeldOut, leaks
from agentlite.data.curation.dedup import (
    Copies,
    borne,
    call_copies,
    equal_copies,
    near_copies,
    near_text,
)
from agentlite.data.curation.fingerprints import dialog_text
from agentlite.data.curation.keep import parse_keep, surpassed
from agentlite.data.curation.mix import draw, parse_mix, repetitions, shares
from agentlite.data.curation.replay_buffer import BufferState, buffer_rows, replayed
from agentlite.data.curation.split import assign_splits
from agentlite.data.curation.traits import Traits, traits


class End(NamedTuple):
    """Why a record is not kept, as a code. `of`: the id of the record that it copies or
    contradicts, or the location of the held-out row that it gives away.
    """

    code: str
    of: str = ""


class SelectionContext(NamedTuple):
    """What the steps look at, and never change. Of each record, by index: its traits, its source as
    it was named, the sketch of its text (only if near copies are looked for), and `record`, which
    reads it from disk.

    `loss`: how hard a record looks. `buffer`: the earlier records; `learnable`:
    one of them as it may be learned now, or None.
    """

    settings: PrepSettings
    traits: Sequence[Traits]
    sources: Sequence[str]
    sketches: Sequence[bytes]
    record: Callable[[int], Record]
    held_out: HeldOut
    loss: Callable[[int], float]
    buffer: BufferState | None
    learnable: Callable[[Record], Record | None]


class Selection(NamedTuple):
    """Which records are kept, by index and ascending; a step returns a new selection.

    `ends`: of each other record, why not. `splits`: those that records took over from their copies;
    after the step `split`, that of every record that is kept. `factors`: how often rows of too
    small a group are wanted; `times`: how often each such train record is learned. `replayed`: rows
    of the buffer to learn again. `notes`: sentences for the user; `figures`: counts for the user.
    """

    kept: Sequence[int]
    ends: Mapping[int, End] = {}
    splits: Mapping[int, str] = {}
    factors: Mapping[int, float] = {}
    times: Mapping[int, int] = {}
    replayed: Sequence[Row] = ()
    notes: tuple[str, ...] = ()
    figures: Mapping[str, Any] = {}

    def without(self, ends: Mapping[int, End]) -> "Selection":
        """Leaves these records out, by index."""
        return self._replace(
            kept=[index for index in self.kept if index not in ends],
            ends={**self.ends, **ends},
            splits={index: split for index, split in self.splits.items() if index not in ends},
        )

    def noting(self, *notes: str, **figures: object) -> "Selection":
        """With more notes and figures."""
        return self._replace(notes=(*self.notes, *notes), figures={**self.figures, **figures})

    def in_split(self, *names: str) -> list[int]:
        """The records of these splits; only after the step `split`."""
        return [index for index in self.kept if self.splits[index] in names]


LEFT_OUT = "F341"  # the code of what a coreset leaves out
Step = Callable[[Selection, SelectionContext], Selection]


def select(context: SelectionContext) -> Selection:
    """Takes all steps, in their order."""
    selection = Selection(range(len(context.traits)))
    for name, step in STEPS.items():
        with console.waiting(f"prep: looking at {len(selection.kept)} records: {name}"):
            selection = step(selection, context)
    return selection


def _traits(selection: Selection, context: SelectionContext) -> list[Traits]:
    """Of the records that are kept, in their order, each with the split that it took over."""
    splits = selection.splits
    return [
        context.traits[index]._replace(split=splits[index])
        if index in splits
        else context.traits[index]
        for index in selection.kept
    ]


def _keep_best(selection: Selection, context: SelectionContext) -> Selection:
    """Of the rollouts of a task one, where the user wants the best."""
    if not parse_keep(context.settings.keep).best:
        return selection
    better = surpassed((index, context.record(index)) for index in selection.kept)
    return selection.without({index: End("F315", of) for index, of in better.items()})


# --- copies ---


def _equal(selection: Selection, records: Sequence[Traits], context: SelectionContext) -> Copies:
    return equal_copies(records, [context.sources[index] for index in selection.kept])


def _calls(selection: Selection, records: Sequence[Traits], context: SelectionContext) -> Copies:
    return call_copies(records, seed=context.settings.seed)


def _near(selection: Selection, records: Sequence[Traits], context: SelectionContext) -> Copies:
    return near_copies(
        records,
        [context.sketches[index] for index in selection.kept],
        lambda position: near_text(context.record(selection.kept[position])),
        seed=context.settings.seed,
        threshold=context.settings.near,
    )


COPIES: dict[str, tuple[str, Callable[[Selection, Sequence[Traits], SelectionContext], Copies]]] = {
    "equal": ("D401", _equal),
    "calls": ("D402", _calls),
    "near": ("D403", _near),
}


def _drop_copies(selection: Selection, context: SelectionContext) -> Selection:
    """The record that is kept takes over the split of its copies."""
    for name, (code, find_copies) in COPIES.items():
        if name in context.settings.duplicates:
            kept, records = selection.kept, _traits(selection, context)
            copies = find_copies(selection, records, context)
            taken_over = {kept[at]: split for at, split in borne(records, copies).items()}
            selection = selection._replace(splits={**selection.splits, **taken_over}).without(
                {kept[at]: End(code, records[of].id) for at, of in copies.items()}
            )
    return selection


# --- the other steps ---


def _drop_contradictions(selection: Selection, context: SelectionContext) -> Selection:
    """Leaves all records of a contradiction out, or only says how many there are."""
    records = _traits(selection, context)
    groups = contradictions(records)
    if not groups:
        return selection

    def contradicting(position: int, group: Sequence[int]) -> str:
        """The id of the first in the group with other calls."""
        first = records[position].keys.first
        return next(records[at].id for at in group if records[at].keys.first != first)

    count = sum(map(len, groups))
    selection = selection.noting(contradictions=count)
    if context.settings.contradictions == "drop":
        return selection.without(
            {
                selection.kept[at]: End("F321", contradicting(at, group))
                for group in groups
                for at in group
            }
        )
    first = groups[0][0]
    return selection.noting(
        f"{count} records contradict each other, {records[first].id} and "
        f"{contradicting(first, groups[0])} among them (--contradictions drop leaves such out)"
    )


def _drop_leaks(selection: Selection, context: SelectionContext) -> Selection:
    """Leaves out the records that give away what a held-out file asks."""
    held_out = context.held_out
    if not held_out.traits:
        return selection
    leaking = leaks(_traits(selection, context), held_out.traits, threshold=context.settings.near)
    return selection.without(
        {
            selection.kept[at]: End("F331", held_out.locations[leak.of])
            for at, leak in leaking.items()
        }
    )


def _sample(selection: Selection, context: SelectionContext) -> Selection:
    """Keeps as many of each group of sources and of each task as the user wants."""
    settings, kept = context.settings, selection.kept
    mixed = draw(
        _traits(selection, context),
        [context.sources[index] for index in kept],
        mix=parse_mix(settings.mix),
        task_weights=settings.task_weights,
        limit=settings.limit,
        seed=settings.seed,
    )
    chosen = {kept[at] for at in mixed.indices}
    selection = selection.without({index: End("F312") for index in kept if index not in chosen})
    selection = selection._replace(factors={kept[at]: mixed.factors[at] for at in mixed.factors})
    return selection.noting(*mixed.notes, **({"mixed": mixed.by_group} if settings.mix else {}))


def _split(selection: Selection, context: SelectionContext) -> Selection:
    """Gives each record its split, and leaves out what would be in two."""
    settings, kept, records = context.settings, selection.kept, _traits(selection, context)
    of_stages = settings.sources[len(settings.sources) - len(settings.trajectories) :]
    split = assign_splits(
        records,
        dev=settings.dev,
        test=settings.test,
        seed=settings.seed,
        by=settings.split_by,
        of_stages=[at for at, index in enumerate(kept) if context.sources[index] in of_stages],
    )
    selection = selection._replace(splits=dict(zip(kept, split.splits, strict=True)))
    crossing = {kept[at]: End("F332", records[of].id) for at, of in split.crossing.items()}
    torn = {kept[at]: End("F333") for at in split.torn}
    missed = {side: one._asdict() for side, one in split.missed.items()}
    return selection.without(crossing | torn).noting(
        *split.notes, groups=split.groups, **({"split_missed": missed} if missed else {})
    )


def _take_coreset(selection: Selection, context: SelectionContext) -> Selection:
    """Keeps the train records that the coreset chooses, and all of dev and test."""
    settings, train = context.settings, selection.in_split("train")
    if not settings.coreset_strategy:
        return selection
    chosen = coreset(
        [context.traits[index].id for index in train],
        strategy=settings.coreset_strategy,
        target=settings.coreset_target_size,
        seed=settings.seed,
        losses={context.traits[index].id: context.loss(index) for index in train},
        text=lambda at: dialog_text(context.record(train[at])),
        strata=_strata(train, context),
    )
    left_out = {*train} - {train[at] for at in chosen.chosen}
    selection = selection.without({index: End(LEFT_OUT) for index in left_out})
    return selection.noting(*chosen.notes, coreset=chosen.counts)


def _strata(train: Sequence[int], context: SelectionContext) -> list[str]:
    """The parts of the train records whose shares the user set: without them a coreset by loss is
    made of the hardest task, whatever its weight.
    """
    settings = context.settings
    if not settings.mix and not settings.task_weights:
        return []
    parts = shares(
        context.traits,
        context.sources,
        mix=parse_mix(settings.mix),
        task_weights=settings.task_weights,
    )
    return [parts[index] for index in train]


def _repeat(selection: Selection, context: SelectionContext) -> Selection:
    """Says how often train records of a group that is too small are learned. Records of dev and
    test are there once, and none is in train as well.
    """
    factors = {
        index: selection.factors[index]
        for index in selection.in_split("train")
        if index in selection.factors
    }
    if not factors:
        return selection
    ids = [record.id for record in context.traits]
    times = repetitions(factors, ids, context.settings.seed)
    repeated = {"records": len(times), "rows": sum(times.values())}
    return selection._replace(times=times).noting(repeated=repeated)


def _replay(selection: Selection, context: SelectionContext) -> Selection:
    """Adds rows of the buffer to learn again: none that was read here, whatever became of it, none
    that gives away what is held out or what dev or test ask, and none that may not be learned now.
    """
    if context.buffer is None:
        return selection
    settings, count = context.settings, len(selection.in_split("train"))
    records = [
        record
        for row in buffer_rows(context.buffer)
        if (record := context.learnable(from_row(row))) is not None
    ]
    leaking = leaks(
        [traits(record) for record in records],
        [
            *context.held_out.traits,
            *(context.traits[index] for index in selection.in_split("dev", "test")),
        ],
        threshold=settings.near,
    )
    rows = replayed(
        [to_row(record) for at, record in enumerate(records) if at not in leaking],
        {record.id for record in context.traits},
        count,
        ratio=settings.continual_replay_ratio,
        seed=settings.seed,
        buffer=context.buffer.rows,
    )
    wanted = math.floor(count * settings.continual_replay_ratio)
    notes = (
        [f"replay: {wanted} rows asked for, the buffer has {len(rows)} that may be learned here"]
        if len(rows) < wanted
        else []
    )
    return selection._replace(replayed=rows).noting(*notes, replayed=len(rows))


# The order counts: the best rollout of a task is chosen before copies are left out, a limit applies
# to what the first four steps leave, the coreset is chosen from train alone, and earlier records
# must not give away what dev and test ask.
STEPS: dict[str, Step] = {
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
