"""Records -> the queries that a retriever learns from: a question and its expected tools."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agentlite.core.records import ANY_TOOL, Record, Step
from agentlite.retrieval.tool_pool import ToolPool

SHORTEST = 16  # bytes: "yes, please" asks nothing by itself


class Query(NamedTuple):
    """A question of a user, the step at which it is first answered, and the tools expected until
    the next question.

    `tool_indices`: these tools in `entries` of the pool, as the record offers them; a tool may be
    expected that it does not offer.
    """

    step: Step
    text: str
    names: tuple[str, ...]
    tool_indices: tuple[int, ...]
    task: str


def questions(record: Record) -> list[str]:
    """Everything that the user asks, in order; a short word comes with the question before it."""
    found: list[str] = []
    for message in record.messages:
        if message.role == "user" and message.content.strip():
            text = message.content.strip()
            short = len(text.encode("utf-8", "surrogatepass")) < SHORTEST
            found.append(f"{found[-1]}\n{text}" if short and found else text)
    return found


def queries(records: Iterable[Record], pool: ToolPool) -> list[Query]:
    """Those for which some tool is expected. Where any call is right, there is no right tool to
    find."""
    return [query for record in records for query in _queries(record, pool)]


def _queries(record: Record, pool: ToolPool) -> Iterator[Query]:
    texts = iter(questions(record))
    asked: list[tuple[str, dict[str, int]]] = []  # the expected tools, each with its first turn
    for turn, message in enumerate(record.messages):
        if message.role == "user" and message.content.strip():
            asked.append((next(texts), {}))
        elif message.role == "assistant" and asked:
            for call in record.expected(turn).calls:
                if call.name != ANY_TOOL:
                    asked[-1][1].setdefault(call.name, turn)
    for text, expected in asked:
        if expected:
            tools = {tool.name: tool for tool in record.tools}
            places = (pool.place_of(tools[name]) for name in expected if name in tools)
            yield Query(
                Step(record.id, min(expected.values())),
                text,
                tuple(expected),
                tuple(place for place in places if place is not None),
                record.task,
            )
