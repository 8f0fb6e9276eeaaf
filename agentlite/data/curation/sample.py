"""Records -> a seeded sample of N of them, spread evenly over their sources."""

from collections import defaultdict
from collections.abc import Sequence

from agentlite.core.records import Record, digest
from agentlite.data.curation.traits import Traits


def sample(records: Sequence[Record] | Sequence[Traits], limit: int | None, seed: int) -> list[int]:
    """Indices of the chosen records, in their own order. A source with fewer than its part gives
    what it has.

    Chosen by a hash of seed and id: a record's chance does not depend on the order of the files.
    """
    if limit is None or limit >= len(records):
        return list(range(len(records)))
    by_source: dict[str, list[int]] = defaultdict(list)
    for index in sorted(
        range(len(records)), key=lambda index: digest(f"{seed} {records[index].id}")
    ):
        by_source[records[index].source].append(index)
    queues = [by_source[source] for source in sorted(by_source)]
    chosen: list[int] = []
    while len(chosen) < limit:
        for queue in queues:
            if queue and len(chosen) < limit:
                chosen.append(queue.pop(0))
    return sorted(chosen)
