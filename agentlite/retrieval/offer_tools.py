"""A record with its own tools -> the same with those that a retriever brings, and what it did not
bring in its meta.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from agentlite.core.records import ANY_TOOL, Record, Tool, digest
from agentlite.retrieval.index import likeliest, unlikely
from agentlite.retrieval.queries import questions
from agentlite.retrieval.rankers import Ranker
from agentlite.retrieval.tool_pool import ToolPool

META = "retrieved"  # in a record's meta: what is said of it below
Missing = Literal["added", "left out"]


class ToolOffers(NamedTuple):
    """Brings `k` tools of the pool, those that `by` ranks first.

    `missing`: what becomes of a tool that is due and was not brought: "added" in the place of the
    least likely one, so that the record can be learned (and one that was brought is as the record
    has it); or "left out".
    """

    pool: ToolPool
    ranker: Ranker
    k: int
    by: str
    missing: Missing

    def all(self, records: Sequence[Record]) -> list[Record]:
        """Each with the tools it is offered now. One without tools has nothing to choose, and stays
        as it is.
        """
        return [self.one(record) for record in records]

    def one(self, record: Record) -> Record:
        asked = questions(record)
        expected = _expected(record)
        if not record.tools or not asked or ANY_TOOL in expected:
            return record
        scores = self.ranker(asked)
        own = {tool.name: tool for tool in record.tools}
        # what the retriever brings may well be right, so the record's own tools stay, among
        # unlikely ones
        if not expected:
            more = unlikely(scores, self.pool, self.k, seed=record.id)
            tools = [*own.values(), *self._named(more, own)][: max(self.k, len(own))]
            return _offered(record, tools, {"k": self.k, "by": self.by, "expected": 0})
        brought = self._named(likeliest(scores, self.pool, self.k), {})
        names = {tool.name for tool in brought}
        lost = sorted(expected - names)
        other = sorted(
            tool.name
            for tool in brought
            if tool.name in expected and own.get(tool.name, tool) != tool
        )
        if self.missing == "added":
            added = [own[name] for name in lost if name in own]
            brought = [
                own.get(tool.name, tool) if tool.name in expected else tool for tool in brought
            ]
            brought = [
                *_without_last(brought, expected, len(brought) + len(added) - self.k),
                *added,
            ]
        told = {
            "k": self.k,
            "by": self.by,
            "expected": len(expected),
            "missing": lost,
            "other_schema": other,
        }
        return _offered(record, brought, told)

    def _named(self, places: Iterable[int], taken: Iterable[str]) -> list[Tool]:
        tools = (self.pool.entries[place].tool for place in places)
        return [tool for tool in tools if tool.name not in taken]


def counted(record: Record) -> Counter[str]:
    """What was done to a record, to be added up."""
    told = record.meta.get(META)
    if told is None:
        return Counter()
    return Counter(
        {
            "records": 1,
            "without_call": int(not told["expected"]),
            "missing": int(bool(told.get("missing"))),
            "other_schema": int(bool(told.get("other_schema"))),
        }
    )


def _expected(record: Record) -> set[str]:
    return {call.name for turn in record.turns for call in record.expected(turn).calls}


def _without_last(tools: Sequence[Tool], expected: set[str], count: int) -> list[Tool]:
    """Without the `count` least likely ones, of those that are not due."""
    gone = [tool.name for tool in reversed(tools) if tool.name not in expected][: max(0, count)]
    return [tool for tool in tools if tool.name not in gone]


def _offered(record: Record, tools: Sequence[Tool], told: dict[str, Any]) -> Record:
    """In an order that says nothing of which is likely, and is the same each time."""
    text = questions(record)[0]
    listed = tuple(sorted(tools, key=lambda tool: digest(f"{text} {tool.name}")))
    return replace(
        record, tools=listed, parent=record.parent or record.id, meta={**record.meta, META: told}
    )
