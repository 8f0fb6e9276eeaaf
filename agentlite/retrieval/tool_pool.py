"""Records and files of tools -> the pool of tools, each once; its index; and the queries for it.

Tools of one name that differ in anything are tools of their own; a prompt holds the likeliest of
them.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins

from agentlite.core.errors import RowError, UserError
from agentlite.core.json_schema import schema_at
from agentlite.core.records import ANY_TOOL, Record, Step, Tool, canonical, to_json
from agentlite.core.row_files import Row, read_rows, replacing, write_rows
from agentlite.data.formats import sage
from agentlite.data.formats.sage import is_id_alone
from agentlite.data.tool_catalogue import SHAPE, declared_tools

TOOLS, VECTORS = "index/tools.jsonl", "index/vectors.npy"
SHORTEST = 16  # bytes: "yes, please" asks nothing by itself


class ToolPool:
    """`names`: each once, in the order they came; `name_indices`: the index of each tool's name
    there. Two versions of `rain`, one `train`: names {rain: 0, train: 1}, name_indices [0, 0, 1].
    """

    def __init__(self) -> None:
        self.tools: list[Tool] = []
        self.names: dict[str, int] = {}
        self.name_indices: list[int] = []
        self._indices: dict[str, int] = {}

    def add(self, tool: Tool) -> int:
        """The index of the tool; one that is there already is not added again."""
        index = self._indices.setdefault(canonical(to_builtins(tool)), len(self.tools))
        if index == len(self.tools):
            self.tools.append(tool)
            self.name_indices.append(self.names.setdefault(tool.name, len(self.names)))
        return index

    def index_of(self, tool: Tool) -> int | None:
        """The index of a tool; of one that is an id alone, that of the first tool of this name."""
        if is_id_alone(tool) and tool.name in self.names:
            return self.name_indices.index(self.names[tool.name])
        return self._indices.get(canonical(to_builtins(tool)))

    @property
    def texts(self) -> list[str]:
        return list(map(text_of, self.tools))


class PoolReading(NamedTuple):
    """A pool, the examples of use in files of tools, and what was wrong in them, a row each."""

    pool: ToolPool
    examples: list[Record]
    problems: list[Row]


def text_of(tool: Tool) -> str:
    """The text by which a tool is found: its name, its description and its parameters."""
    parameters = []
    for name, schema in schema_at(tool.parameters, "properties").items():
        description = schema.get("description") if isinstance(schema, dict) else None
        is_described = isinstance(description, str) and description
        parameters.append(f"{name} ({description})" if is_described else name)
    texts = (f"{tool.name}:", tool.description.strip(), "; ".join(parameters))
    return " ".join(filter(None, texts))


def read_pool(records: Iterable[Record], files: Sequence[str]) -> PoolReading:
    """All tools that the records offer, then those of the files, rows of SAGE's agent_tools or of
    OpenAI's shape. A tool that is an id alone is an entry only where nothing describes it.
    """
    reading = PoolReading(ToolPool(), [], [])

    def report(location: str, code: str, problem: str) -> None:
        reading.problems.append({"location": location, "code": code, "problem": problem})

    def add(tool: Tool, location: str) -> None:
        count = len(reading.pool.tools)
        if reading.pool.add(tool) == count and not tool.description.strip():
            problem = f"{tool.name} has no description: it is found only by its name and parameters"
            report(location, "no description", problem)

    # kept back until all files are read: any of them may describe the tool
    ids_alone: dict[str, tuple[Tool, str]] = {}
    for record in records:
        for tool in record.tools:
            if is_id_alone(tool):
                ids_alone.setdefault(tool.name, (tool, f"record {record.id}"))
            else:
                add(tool, f"record {record.id}")
    for location, row, declared, error in chain.from_iterable(map(declared_tools, files)):
        if declared is None:
            assert error
            report(location, error.code, error.reason)
            continue
        add(declared, location)
        is_sage = isinstance(row, dict) and sage.TOOLS.fits(row)
        for example in sage.examples_of(row) if is_sage and row.get(sage.EXAMPLES) else ():
            try:
                reading.examples.append(sage.read_tool_row(example))
            except RowError as problem:
                report(location, problem.code, f"an example of it: {problem.reason}")
    for name, (tool, location) in ids_alone.items():
        if name not in reading.pool.names:
            add(tool, location)
    if not reading.pool.tools:
        raise UserError(
            "there is no tool to search.",
            "Name a finished prep whose records have tools, or files of "
            f"tools: --tools FILE, with rows such as {SHAPE}.",
            location="retriever.data",
        )
    return reading


# --- The index on disk: the pool and its vectors ---


def write_index(pool: ToolPool, vectors: Any, folder: Path) -> list[str]:
    """The files that were written. `vectors`: a row of length 1 for each tool of the pool."""
    import numpy

    (folder / TOOLS).parent.mkdir(exist_ok=True)
    rows = (
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": to_json(tool.parameters),
            "returns": to_json(tool.returns),
        }
        for tool in pool.tools
    )
    write_rows(folder / TOOLS, rows)
    with replacing(folder / VECTORS) as file:
        numpy.save(file, vectors.astype("float32"), allow_pickle=False)
    return [TOOLS, VECTORS]


def read_index(folder: Path) -> tuple[ToolPool, Any]:
    """The pool and its vectors."""
    import numpy

    pool = ToolPool()
    for row in read_rows(folder / TOOLS):
        parameters, returns = json.loads(row["parameters"]), json.loads(row["returns"])
        pool.add(Tool(row["name"], row["description"], parameters, returns))
    return pool, numpy.load(folder / VECTORS, allow_pickle=False)


# --- Queries ---


class Query(NamedTuple):
    """A question of a user, the step at which it is first answered, and the tools expected until
    the next question.

    `tool_indices`: these in `tools` of the pool, as the record offers them; a tool may be
    expected that it does not offer.
    """

    step: Step
    text: str
    names: tuple[str, ...]
    tool_indices: tuple[int, ...]


def questions(record: Record) -> list[str]:
    """Everything that the user asks, in order; a short word comes with the question before it."""
    texts: list[str] = []
    for message in record.messages:
        if message.role == "user" and message.content.strip():
            text = message.content.strip()
            is_short = len(text.encode("utf-8", "surrogatepass")) < SHORTEST
            texts.append(f"{texts[-1]}\n{text}" if is_short and texts else text)
    return texts


def queries(records: Iterable[Record], pool: ToolPool) -> list[Query]:
    """Those that expect some tool. Where any call is right, there is no right tool to find."""
    tool_queries = []
    for record in records:
        expected: list[dict[str, int]] = []  # by question: its tools, each with its first turn
        for turn, message in enumerate(record.messages):
            if message.role == "user" and message.content.strip():  # as `questions` counts them
                expected.append({})
            elif message.role == "assistant" and expected:
                for call in record.gold_at(turn).calls:
                    if call.name != ANY_TOOL:
                        expected[-1].setdefault(call.name, turn)
        tools = {tool.name: tool for tool in record.tools}
        for text, turns in zip(questions(record), expected, strict=True):
            indices = (pool.index_of(tools[name]) for name in turns if name in tools)
            in_pool = tuple(index for index in indices if index is not None)
            if turns:
                step = Step(record.id, min(turns.values()))
                tool_queries.append(Query(step, text, tuple(turns), in_pool))
    return tool_queries
