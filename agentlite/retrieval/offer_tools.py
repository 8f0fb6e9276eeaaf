"""A record with its own tools -> the same record with the top tools of a retriever."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from agentlite.core.records import ANY_TOOL, Record, Tool, digest
from agentlite.retrieval.index import likeliest, unlikely
from agentlite.retrieval.queries import questions
from agentlite.retrieval.rankers import Ranker
from agentlite.retrieval.tool_pool import ToolPool

META = "retrieved"  # in a record's meta: what was retrieved for it, see ToolOffers.offer
Missing = Literal["added", "left out"]


class ToolOffers(NamedTuple):
    """Offers the top `k` tools of the pool, ranked by the method `by`.

    `missing`: what to do with an expected tool that was not retrieved: it is "added" in place of
    the least likely one, so that the record can be trained on (and an expected tool has the schema
    of the record); or "left out".
    """

    pool: ToolPool
    ranker: Ranker
    k: int
    by: str
    missing: Missing

    def all(self, records: Sequence[Record]) -> list[Record]:
        """Each with its new tools. A record without tools has nothing to choose, and stays as it
        is.
        """
        return [self.offer(record) for record in records]

    def offer(self, record: Record) -> Record:
        texts = questions(record)
        expected = {call.name for turn in record.turns for call in record.expected(turn).calls}
        if not record.tools or not texts or ANY_TOOL in expected:
            return record
        scores = self.ranker(texts)
        declared = {tool.name: self._described(tool) for tool in record.tools}
        # Where no call is expected, a retrieved tool may well be right: the record keeps its tools,
        # among unlikely ones.
        if not expected:
            more = unlikely(scores, self.pool, self.k, seed=record.id)
            tools = [*declared.values(), *self._tools(more, except_for=declared)]
            tools = tools[: max(self.k, len(declared))]
            return _offered(record, tools, {"k": self.k, "by": self.by, "expected": 0})
        retrieved = self._tools(likeliest(scores, self.pool, self.k))
        missing = sorted(expected - {tool.name for tool in retrieved})
        redeclared = sorted(
            tool.name
            for tool in retrieved
            if tool.name in expected and declared.get(tool.name, tool) != tool
        )
        if self.missing == "added":
            added = [declared[name] for name in missing if name in declared]
            retrieved = [
                declared.get(tool.name, tool) if tool.name in expected else tool
                for tool in retrieved
            ]
            surplus = len(retrieved) + len(added) - self.k
            retrieved = [*_without_last(retrieved, expected, surplus), *added]
        meta = {
            "k": self.k,
            "by": self.by,
            "expected": len(expected),
            "missing": missing,
            "other_schema": redeclared,
        }
        return _offered(record, retrieved, meta)

    def _described(self, tool: Tool) -> Tool:
        """The tool; where the record knows its id alone, the one of the pool: else the only tool
        without a description would be the expected one.
        """
        place = self.pool.place_of(tool)
        return tool if place is None else self.pool.entries[place].tool

    def _tools(self, entries: Iterable[int], except_for: Container[str] = ()) -> list[Tool]:
        tools = (self.pool.entries[entry].tool for entry in entries)
        return [tool for tool in tools if tool.name not in except_for]


def counted(record: Record) -> Counter[str]:
    """Counts of one record, to be summed over all."""
    meta = record.meta.get(META)
    if meta is None:
        return Counter()
    return Counter(
        {
            "records": 1,
            "without_call": int(not meta["expected"]),
            "missing": int(bool(meta.get("missing"))),
            "other_schema": int(bool(meta.get("other_schema"))),
        }
    )


def _without_last(tools: Sequence[Tool], expected: set[str], count: int) -> list[Tool]:
    """Without the `count` least likely ones of those that are not expected."""
    dropped = [tool.name for tool in reversed(tools) if tool.name not in expected][: max(0, count)]
    return [tool for tool in tools if tool.name not in dropped]


def _offered(record: Record, tools: Sequence[Tool], retrieved: dict[str, object]) -> Record:
    """The tools are sorted by a hash: their order does not say which one is likely."""
    text = questions(record)[0]
    hashed = tuple(sorted(tools, key=lambda tool: digest(f"{text} {tool.name}")))
    return replace(
        record,
        tools=hashed,
        parent=record.parent or record.id,
        meta={**record.meta, META: retrieved},
    )
