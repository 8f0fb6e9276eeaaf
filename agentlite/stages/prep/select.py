"""Records -> those that are kept, each with its split, and for every other one the reason.

A step changes the selection. Records are named by their index among all that were read.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentlite.core import console
from agentlite.core.conditions import parse_keep
from agentlite.core.records import from_row, to_row
from agentlite.core.row_files import Row
from agentlite.data.augment import learnable_record
from agentlite.data.curation import duplicates
from agentlite.data.curation.coreset import BufferState, buffer_rows, coreset, replay_rows
from agentlite.data.curation.keep import find_surpassed
from agentlite.data.curation.mix import Draw, draw, repetitions
from agentlite.data.curation.split import assign_splits
from agentlite.data.curation.traits import Traits, dialog_text, normalize, traits
from agentlite.data.ingest import End, IngestContext, IngestedRows

NOT_IN_CORESET = "F341"


class Selection:
    """What becomes of the records that were read. `buffer`: the earlier records, if some of them
    are to be learned again.

    `kept`: the records that are kept, ascending, each with the split that it took over from its
    copies; after the step `split`, with that which it is in. `ends`: of each other record, why not.
    `repeats`: how often each train record of too small a group is learned. `replayed`: rows of the
    buffer to learn again. `notes`: sentences for the user; `figures`: counts for the user.
    """

    sample: Draw  # from the step of that name on

    def __init__(
        self,
        ingested: IngestedRows,
        context: IngestContext,
        held_out: Sequence[Traits],
        buffer: BufferState | None,
    ):
        self.ingested, self.context = ingested, context
        self.settings, self.held_out, self.buffer = context.settings, held_out, buffer
        self.kept = dict(enumerate(ingested.traits))
        self.ends: dict[int, End] = {}
        self.repeats: Mapping[int, int] = {}
        self.replayed: Sequence[Row] = ()
        self.notes: list[str] = []
        self.figures: dict[str, Any] = {}

    def drop(self, code: str, causes: Mapping[int, str]) -> None:
        """Leaves records out. `causes`: the id of the record that each copies or contradicts, the
        location of the held-out row that it gives away, or "".
        """
        for index, cause in causes.items():
            del self.kept[index]
            self.ends[index] = End(code, cause)

    def drop_for(self, code: str, others: Mapping[int, int]) -> None:
        """Leaves records out, each for another one."""
        self.drop(code, {index: self.kept[other].id for index, other in others.items()})

    def set_splits(self, splits: Mapping[int, str]) -> None:
        for index, split in splits.items():
            self.kept[index] = self.kept[index]._replace(split=split)

    def in_split(self, *names: str) -> list[int]:
        """The records of these splits; only after the step `split`."""
        return [index for index, record in self.kept.items() if record.split in names]


def select(selection: Selection) -> Selection:
    """Takes all steps, in their order."""
    for name, step in STEPS.items():
        with console.waiting(f"prep: looking at {len(selection.kept)} records: {name}"):
            step(selection)
    return selection


def _keep_best(selection: Selection) -> None:
    """Keeps one of the rollouts of each task, where the user wants the best."""
    if parse_keep(selection.settings.keep).best:
        rollouts = ((index, selection.ingested.record(index)) for index in selection.kept)
        selection.drop("F315", find_surpassed(rollouts))


def _drop_copies(selection: Selection) -> None:
    """The record that is kept takes over the split of its copies."""
    settings, ingested, kept = selection.settings, selection.ingested, selection.kept

    def text(index: int) -> str:
        return normalize(dialog_text(ingested.record(index)))

    kinds: dict[str, tuple[str, Callable[[], duplicates.Copies]]] = {
        "equal": ("D401", lambda: duplicates.equal_copies(kept, ingested.sources)),
        "calls": ("D402", lambda: duplicates.call_copies(kept, settings.seed)),
        "near": ("D403", lambda: duplicates.near_copies(kept, text, settings.seed, settings.near)),
    }
    for kind, (code, find_copies) in kinds.items():
        if kind in settings.duplicates:
            copies = find_copies()
            selection.set_splits(duplicates.splits_of_copies(kept, copies))
            selection.drop_for(code, copies)


def _drop_contradictions(selection: Selection) -> None:
    """Leaves all records of a contradiction out, or only says how many there are."""
    kept = selection.kept
    contradictions = duplicates.contradictions(kept)
    if not contradictions:
        return
    selection.figures["contradictions"] = len(contradictions)
    if selection.settings.contradictions == "drop":
        selection.drop_for("F321", contradictions)
        return
    first, other = next(iter(contradictions.items()))
    selection.notes.append(
        f"{len(contradictions)} records contradict each other, {kept[first].id} and "
        f"{kept[other].id} among them (--set prep.contradictions=drop leaves them out)"
    )


def _drop_leaks(selection: Selection) -> None:
    """Leaves out the records that give away what a held-out file asks."""
    if held_out := selection.held_out:
        leaks = duplicates.leaks(selection.kept, held_out, threshold=selection.settings.near)
        selection.drop("F331", {index: held_out[row].source for index, row in leaks.items()})


def _sample(selection: Selection) -> None:
    """Keeps as many of each group of sources and of each task as the user wants."""
    sample = draw(selection.kept, selection.ingested.sources, selection.settings)
    selection.drop("F312", {index: "" for index in selection.kept if index not in sample.indices})
    selection.sample = sample
    selection.notes += sample.notes
    if selection.settings.mix:
        selection.figures["mixed"] = sample.by_group


def _split(selection: Selection) -> None:
    """Gives each record its split, and leaves out what would be in two."""
    assignment = assign_splits(selection.kept, selection.settings)
    selection.set_splits(assignment.splits)
    selection.drop_for("F332", assignment.crossing)
    selection.drop("F333", {index: "" for index, split in assignment.splits.items() if not split})
    selection.notes += assignment.notes
    selection.figures["groups"] = assignment.groups


def _take_coreset(selection: Selection) -> None:
    """Keeps the train records that the coreset chooses, and all of dev and test. The strata of the
    sample keep their shares: else a coreset by loss is made of the hardest task, whatever its
    weight.
    """
    settings, ingested, train = selection.settings, selection.ingested, selection.in_split("train")
    if not settings.coreset_strategy or not settings.coreset_target_size:
        return
    chosen, counts = coreset(
        {index: selection.kept[index].id for index in train},
        strategy=settings.coreset_strategy,
        target=settings.coreset_target_size,
        seed=settings.seed,
        loss=lambda index: ingested.sizes[index].wording.proxy_loss,
        text=lambda index: dialog_text(ingested.record(index)),
        stratum_of=selection.sample.strata.__getitem__,
    )
    selection.drop(NOT_IN_CORESET, dict.fromkeys(sorted({*train} - {*chosen}), ""))
    selection.figures["coreset"] = counts
    if settings.coreset_target_size >= len(train):
        selection.notes.append(
            f"coreset: {settings.coreset_target_size} asked for, all {len(train)} there are taken"
        )


def _repeat(selection: Selection) -> None:
    """Says how often train records of a group that is too small are learned. Records of dev and
    test are there once, and none is in train as well.
    """
    factors = selection.sample.factors
    factors = {index: factors[index] for index in selection.in_split("train") if index in factors}
    if factors:
        selection.repeats = repeats = repetitions(factors, selection.kept, selection.settings.seed)
        selection.figures["repeated"] = {"records": len(repeats), "rows": sum(repeats.values())}


def _replay(selection: Selection) -> None:
    """Adds rows of the buffer to learn again: none that was read here, whatever became of it, none
    that gives away what is held out or what dev or test ask, and none that may not be learned now.
    """
    buffer, settings = selection.buffer, selection.settings
    if buffer is None:
        return
    learnable = (learnable_record(from_row(row), selection.context) for row in buffer_rows(buffer))
    records = [record for record in learnable if record is not None]
    dev_and_test = [selection.kept[index] for index in selection.in_split("dev", "test")]
    leaks = duplicates.leaks(
        dict(enumerate(map(traits, records))),
        [*selection.held_out, *dev_and_test],
        threshold=settings.near,
    )
    train_count = len(selection.in_split("train"))
    selection.replayed = replay_rows(
        [to_row(record) for number, record in enumerate(records) if number not in leaks],
        {record.id for record in selection.ingested.traits},
        train_count,
        ratio=settings.continual_replay_ratio,
        seed=settings.seed,
        buffer=buffer.previous_file,
    )
    selection.figures["replayed"] = len(selection.replayed)
    quota = math.floor(train_count * settings.continual_replay_ratio)
    if len(selection.replayed) < quota:
        selection.notes.append(
            f"replay: {quota} rows asked for, the buffer has {len(selection.replayed)} that may "
            "be learned here"
        )


# The order counts: the best rollout of a task is chosen before copies are left out, a limit applies
# to what the first four steps leave, the coreset is chosen from train alone, and earlier records
# must not give away what dev and test ask.
STEPS: dict[str, Callable[[Selection], None]] = {
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
