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
UNGROUPED = "the rest"  # the group of the sources that are in no group
UNWEIGHTED = ""  # the tasks without a weight
GROUP = re.compile(r"([^=]+)=(.+):([0-9]+[.]?[0-9]*|[.][0-9]+)([*]?)")
USAGE = "Write NAME=SOURCE+...:RATIO, as in general=chat.jsonl:0.2; 0.2* repeats rows if too few."


class MixGroup(NamedTuple):
    """How many rows of some sources there are for each row of the first group. `repeats`: where
    there are too few, train rows are repeated.
    """

    ratio: float
    repeats: bool = False


class Draw(NamedTuple):
    """The indices that are drawn, how many rows each group is to have, and what a user should know.

    `strata`: group and task of each record, by index: their shares are set. `factors`: how often
    each row of a group with too few is to be there, by index; not those of 1.
    """

    indices: set[int]
    by_group: dict[str, int]
    notes: list[str]
    strata: dict[int, str]
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
    group_of: dict[str, str] = {}
    for text in texts:
        match = GROUP.fullmatch(text)
        if not match:
            raise UserError(f"{text!r} is not a group of sources.", USAGE, location="--mix")
        name, sources_text, ratio, star = match.groups()
        if name in groups:
            raise UserError(
                f"the group '{name}' appears twice.", "Put + between its sources.", location="--mix"
            )
        groups[name] = MixGroup(float(ratio), bool(star))
        for source_name in filter(None, sources_text.split("+")):
            named = [source for source in sources if Path(source).is_relative_to(source_name)]
            if not named:
                problem = f"the group '{name}' names {source_name}, which is not read."
                raise UserError(problem, unread_source_fix(source_name, sources), location="--mix")
            for source in named:
                if group_of.setdefault(source, name) != name:
                    problem = f"{source} is in the groups '{group_of[source]}' and '{name}'."
                    raise UserError(problem, "A source belongs to one group.", location="--mix")
    return groups, group_of


def full_task_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """The weights by the full names of their tasks. A task may be named by a part of its name that
    no other task has: `planning` is multi_step_planning.

    Raises UserError for a name of no task or of several, or a weight below 0.
    """
    full: dict[str, float] = {}
    for name, weight in weights.items():
        tasks = [task for task in TASKS if f"_{name}_" in f"_{task}_"]
        if len(tasks) != 1:
            names = " or ".join(tasks)
            problem = f"'{name}' may be {names}." if tasks else f"no task is called '{name}'."
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


def draw(records: Mapping[int, Traits], sources: Sequence[str], settings: PrepSettings) -> Draw:
    """A draw in which ratios and shares are as asked, no row twice, at most `limit`; `sources`: of
    each record, as given.

    The first group, that of the sources which are in none if there are such, is drawn whole, and as
    many of the others as their ratios say; of one with too few, what there is. Inside a group,
    weighted tasks have their shares of the largest draw that can have them; tasks without a weight
    stay whole. A limit makes all of this smaller in proportion. Chosen by a hash of seed and id:
    the order does not matter, and of the other records only their number.

    Raises UserError for ratios that are none.
    """
    mix, group_of = parse_mix(settings.mix, settings.sources)
    weights, result = settings.task_weights, Draw(set(), {}, [], {}, {})
    groups: dict[str, dict[str, list[int]]] = {name: {} for name in (UNGROUPED, *mix)}
    for index, record in records.items():
        task = record.task if record.task in weights else UNWEIGHTED
        groups[group_of.get(sources[index], UNGROUPED)].setdefault(task, []).append(index)
    if not groups[UNGROUPED] and mix:
        del groups[UNGROUPED]
    drawable = {
        name: _drawable(name, tasks, weights, result.notes) for name, tasks in groups.items()
    }
    available = {name: sum(counts.values()) for name, counts in drawable.items()}
    sizes = _sizes(available, mix, result.notes)
    limit = sum(sizes.values()) if settings.limit is None else settings.limit
    result.by_group.update(scale_counts(sizes, limit))
    for name, tasks in groups.items():
        indices: list[int] = []
        for task, count in scale_counts(drawable[name], result.by_group[name]).items():
            result.strata.update(dict.fromkeys(tasks[task], f"{name} {task}"))
            of_task = [records[index] for index in tasks[task]]
            indices += [tasks[task][at] for at in sample(of_task, count, settings.seed)]
        if len(indices) < result.by_group[name]:  # only of a group whose rows are repeated
            factor = result.by_group[name] / max(1, len(indices))
            result.factors.update(dict.fromkeys(indices, factor))
        result.indices.update(indices)
    return result


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
        quotient, remainder = divmod(round(factor * len(rows)), len(rows))
        times |= {index: quotient + (number < remainder) for number, index in enumerate(rows)}
    return times


def scale_counts(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """The counts, made smaller in proportion so that they sum to `total`, by largest remainders."""
    full = max(1, sum(counts.values()))
    total = min(total, sum(counts.values()))
    # the remainders are whole numbers too, so that no rounding decides
    scaled = {name: count * total // full for name, count in counts.items()}
    missing = total - sum(scaled.values())
    for name in sorted(counts, key=lambda name: (-(counts[name] * total % full), name))[:missing]:
        scaled[name] += 1
    return scaled


def _drawable(
    name: str, tasks: Mapping[str, Sequence[int]], weights: Mapping[str, float], notes: list[str]
) -> dict[str, int]:
    """How many rows of each task a group can give at most, if shares are kept."""
    available = {task: len(indices) for task, indices in tasks.items()}
    weighted = sorted(task for task in available if weights.get(task))
    in_group = "" if name == UNGROUPED else f" in the group '{name}'"
    empty = sorted(task for task, weight in weights.items() if weight and task not in available)
    if empty:
        effect = "the other tasks share its weight" if weighted else "nothing is drawn by task"
        notes.append(f"no row of {', '.join(empty)}{in_group}: {effect}")
    scarcest = min(weighted, key=lambda task: available[task] / weights[task], default=UNWEIGHTED)
    # rows for each unit of weight: as many as the scarcest task has
    per_unit = available[scarcest] / weights[scarcest] if weighted else 0.0
    counts = {
        task: count if task == UNWEIGHTED else round(per_unit * weights[task])
        for task, count in available.items()
    }
    drawn, total = (sum(table[task] for task in weighted) for table in (counts, available))
    if drawn < total:
        notes.append(
            f"task_weights: {drawn} of {total} rows{in_group} have these shares, since there are "
            f"only {available[scarcest]} of {scarcest}; a lower weight for it gives more"
        )
    return counts


def _sizes(
    available: Mapping[str, int], mix: Mapping[str, MixGroup], notes: list[str]
) -> dict[str, int]:
    """How many rows each group gives: the first all it has, the others by their ratios to it, and
    more than they have only where rows are repeated.
    """
    groups = {name: mix.get(name, MixGroup(1.0)) for name in available}
    first = next((name for name in available if groups[name].ratio), None)
    if first is None:
        raise UserError("every ratio is 0: nothing would be drawn.", USAGE, location="--mix")
    sizes: dict[str, int] = {}
    for name, count in available.items():
        wanted = round(available[first] * groups[name].ratio / groups[first].ratio)
        repeats = count > 0 and groups[name].repeats
        if wanted > count:
            effect = "those that are trained are repeated" if repeats else "all of them are taken"
            notes.append(f"the group '{name}' has {count} rows, not {wanted}: {effect}")
        sizes[name] = wanted if repeats else min(wanted, count)
    return sizes
