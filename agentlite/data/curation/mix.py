"""Records -> a seeded sample: by ratios of source groups (--mix), task weights and a limit."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import UserError, suggest
from agentlite.core.records import Record, Task, digest
from agentlite.data.curation.traits import Traits
from agentlite.data.formats.format import unread_source_fix

TASKS: tuple[str, ...] = get_args(Task)
REST = "the rest"  # the group of the sources that are in no group
OTHERS = ""  # the tasks without a weight
GROUP = re.compile(r"([^=]+)=(.+):([0-9]+[.]?[0-9]*|[.][0-9]+)([*]?)")
HOW = "Write NAME=SOURCE+...:RATIO, as in general=chat.jsonl:0.2; 0.2* repeats rows if too few."


class MixGroup(NamedTuple):
    """How many rows of some sources there are for each row of the first group. `repeats`: where
    there are too few, train rows are repeated.
    """

    ratio: float
    repeats: bool = False


class Mixed(NamedTuple):
    """The indices that are drawn, how many rows each group is to have, and what a user should know.

    `part`: group and task of each record, by index: their shares are set. `factors`: how often each
    row of a group with too few is to be there, by index; not those of 1.
    """

    indices: set[int]
    by_group: dict[str, int]
    notes: list[str]
    part: dict[int, str]
    factors: dict[int, float]


def parse_mix(
    texts: Sequence[str], sources: Sequence[str]
) -> tuple[dict[str, MixGroup], dict[str, str]]:
    """`general=B:0.2` -> its group by name: a row of B for five of the sources that are in no
    group; and the name of the group of each source that is in one.

    `a=A:1` and `b=B:2` give 1:2, and so do `a=A:30000` and `b=B:60000`. With `2*` rows of B are
    repeated where they are too few. Raises UserError, also for a group of a source that is not
    read, or is in another group.
    """
    groups: dict[str, MixGroup] = {}
    homes: dict[str, str] = {}
    for text in texts:
        match = GROUP.fullmatch(text)
        if not match:
            raise UserError(f"{text!r} is not a group of sources.", HOW, location="--mix")
        name, named, ratio, star = match.groups()
        if name in groups:
            raise UserError(
                f"the group '{name}' appears twice.", "Put + between its sources.", location="--mix"
            )
        groups[name] = MixGroup(float(ratio), bool(star))
        for given in filter(None, named.split("+")):
            of_group = [source for source in sources if Path(source).is_relative_to(given)]
            if not of_group:
                problem = f"the group '{name}' names {given}, which is not read."
                raise UserError(problem, unread_source_fix(given, sources), location="--mix")
            for source in of_group:
                if homes.setdefault(source, name) != name:
                    problem = f"{source} is in the groups '{homes[source]}' and '{name}'."
                    raise UserError(problem, "A source belongs to one group.", location="--mix")
    return groups, homes


def full_task_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """The weights by the full names of their tasks. A task may be named by a part of its name that
    no other task has: `planning` is multi_step_planning.

    Raises UserError for a name of no task or of several, or a weight below 0.
    """
    full: dict[str, float] = {}
    for name, weight in weights.items():
        tasks = [task for task in TASKS if f"_{name}_" in f"_{task}_"]
        if len(tasks) != 1:
            known = " or ".join(tasks)
            problem = f"'{name}' may be {known}." if tasks else f"no task is called '{name}'."
            raise UserError(problem, suggest(name, TASKS), location="prep.task_weights")
        if not 0 <= weight < math.inf:
            problem = f"{weight} is not a weight for {name}."
            raise UserError(problem, f"Write 0 or more: {name}=1.", location="prep.task_weights")
        full[tasks[0]] = weight
    return full


def sample(records: Sequence[Record] | Sequence[Traits], limit: int | None, seed: int) -> list[int]:
    """Indices of the chosen records, in their own order: spread evenly over their sources, of which
    one with fewer than its part gives what it has.

    Chosen by a hash of seed and id: a record's chance does not depend on the order of the files.
    """
    counts: Counter[str] = Counter()
    ranks: list[tuple[int, str, int]] = []  # the first of every source, then the second of every
    for index in sorted(
        range(len(records)), key=lambda index: digest(f"{seed} {records[index].id}")
    ):
        source = records[index].source
        ranks.append((counts[source], source, index))
        counts[source] += 1
    return sorted(index for _, _, index in sorted(ranks)[:limit])


def draw(records: Mapping[int, Traits], sources: Sequence[str], settings: PrepSettings) -> Mixed:
    """A draw in which ratios and shares are as asked, no row twice, at most `limit`; `sources`: of
    each record, as given.

    The first group, that of the sources which are in none if there are such, is drawn whole, and as
    many of the others as their ratios say; of one with too few, what there is. Inside a group,
    weighted tasks have their shares of the largest draw that can have them; tasks without a weight
    stay whole. A limit makes all of this smaller in proportion. Chosen by a hash of seed and id:
    the order does not matter, and of the other records only their number.

    Raises UserError for ratios that are none.
    """
    mix, homes = parse_mix(settings.mix, settings.sources)
    weights, mixed = settings.task_weights, Mixed(set(), {}, [], {}, {})
    groups: dict[str, dict[str, list[int]]] = {name: {} for name in (REST, *mix)}
    for index, record in records.items():
        task = record.task if record.task in weights else OTHERS
        groups[homes.get(sources[index], REST)].setdefault(task, []).append(index)
    if not groups[REST] and mix:
        del groups[REST]
    drawable = {
        name: _drawable(name, tasks, weights, mixed.notes) for name, tasks in groups.items()
    }
    there = {name: sum(counts.values()) for name, counts in drawable.items()}
    sizes = _sizes(there, mix, mixed.notes)
    limit = sum(sizes.values()) if settings.limit is None else settings.limit
    mixed.by_group.update(scale_counts(sizes, limit))
    for name, tasks in groups.items():
        of_group: list[int] = []
        for task, count in scale_counts(drawable[name], mixed.by_group[name]).items():
            mixed.part.update(dict.fromkeys(tasks[task], f"{name} {task}"))
            of_task = [records[index] for index in tasks[task]]
            of_group += [tasks[task][place] for place in sample(of_task, count, settings.seed)]
        if len(of_group) < mixed.by_group[name]:  # only of a group whose rows are repeated
            factor = mixed.by_group[name] / max(1, len(of_group))
            mixed.factors.update(dict.fromkeys(of_group, factor))
        mixed.indices.update(of_group)
    return mixed


def repetitions(
    factors: Mapping[int, float], records: Mapping[int, Traits], seed: int
) -> dict[int, int]:
    """How often each row is there, by index: rows of one factor as evenly as can be, those that are
    there once more chosen by a hash of seed and id.
    """
    times: dict[int, int] = {}
    for factor in sorted(set(factors.values())):
        rows = [index for index in factors if factors[index] == factor]
        rows.sort(key=lambda index: digest(f"{seed} repeat {records[index].id}"))
        whole, more = divmod(round(factor * len(rows)), len(rows))
        times |= {index: whole + (number < more) for number, index in enumerate(rows)}
    return times


def scale_counts(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """The counts, made smaller in proportion so that they sum to `total`, by largest remainders."""
    whole = max(1, sum(counts.values()))
    total = min(total, sum(counts.values()))
    # the remainders are whole numbers too, so that no rounding decides
    smaller = {name: count * total // whole for name, count in counts.items()}
    left = total - sum(smaller.values())
    for name in sorted(counts, key=lambda name: (-(counts[name] * total % whole), name))[:left]:
        smaller[name] += 1
    return smaller


def _drawable(
    name: str, tasks: Mapping[str, Sequence[int]], weights: Mapping[str, float], notes: list[str]
) -> dict[str, int]:
    """How many rows of each task a group can give at most, if shares are kept."""
    there = {task: len(indices) for task, indices in tasks.items()}
    weighted = sorted(task for task in there if weights.get(task))
    place = "" if name == REST else f" in the group '{name}'"
    empty = sorted(task for task, weight in weights.items() if weight and task not in there)
    if empty:
        rest = "the other tasks share its weight" if weighted else "nothing is drawn by task"
        notes.append(f"no row of {', '.join(empty)}{place}: {rest}")
    scarcest = min(weighted, key=lambda task: there[task] / weights[task], default=OTHERS)
    # rows for each unit of weight: as many as the scarcest task has
    most = there[scarcest] / weights[scarcest] if weighted else 0.0
    counts = {
        task: count if task == OTHERS else round(most * weights[task])
        for task, count in there.items()
    }
    given, of = sum(counts[task] for task in weighted), sum(there[task] for task in weighted)
    if given < of:
        notes.append(
            f"task_weights: {given} of {of} rows{place} have these shares, since there are only "
            f"{there[scarcest]} of {scarcest}; a lower weight for it gives more"
        )
    return counts


def _sizes(
    there: Mapping[str, int], mix: Mapping[str, MixGroup], notes: list[str]
) -> dict[str, int]:
    """How many rows each group gives: the first all it has, the others by their ratios to it, and
    more than they have only where rows are repeated.
    """
    groups = {name: mix.get(name, MixGroup(1.0)) for name in there}
    first = next((name for name in there if groups[name].ratio), None)
    if first is None:
        raise UserError("every ratio is 0: nothing would be drawn.", HOW, location="--mix")
    sizes: dict[str, int] = {}
    for name, count in there.items():
        wanted = round(there[first] * groups[name].ratio / groups[first].ratio)
        repeats = count > 0 and groups[name].repeats
        if wanted > count:
            taken = "those that are trained are repeated" if repeats else "all of them are taken"
            notes.append(f"the group '{name}' has {count} rows, not {wanted}: {taken}")
        sizes[name] = wanted if repeats else min(wanted, count)
    return sizes
