"""Tools of a chat, and where their results come from: a person, recorded dialogs, functions."""

import io
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agentlite.core import console
from agentlite.core.call_results import as_text
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Call, Tool, canonical, plain
from agentlite.core.user_code import MEMORY, Named, UserCode, awaited
from agentlite.data.formats import read_raw, samples, to_record
from agentlite.data.formats.tool_calls import read_tools
from agentlite.data.tool_catalogue import SHAPE

Observe = Callable[[Call], str]


def read_toolbox(path: str) -> tuple[Tool, ...]:
    """A JSON list of tools, an object that has one under "tools", or rows whose first one has.
    Raises UserError 2.
    """
    values: list[object] = []
    try:
        for raw in read_raw(path, io.BytesIO()):
            if raw.error:
                raise raw.error
            if isinstance(raw.value, dict) and "tools" in raw.value:
                values = raw.value["tools"]
                break
            values.append(raw.value)
        if tools := read_tools(values):
            return tools
        problem = "holds no tool."
    except RowError as error:
        problem = f"{error.reason} ({error.code})."
    raise UserError(problem, f"Write a list of tools: [{SHAPE}].", location=path)


def recorded(path: str) -> Callable[[Call], str | None]:
    """The results of dialogs of any format that prep reads, by call: each as often as it was
    recorded, then the last again. A result whose call has unknown arguments is that of any call of
    its tool. Rows that cannot be read are counted. Raises UserError 2 for a file that cannot."""
    found: dict[str, list[str]] = defaultdict(list)
    bad = 0
    for raw in read_raw(path, io.BytesIO()):
        try:
            if raw.error:
                raise raw.error
            name, parts = samples(raw.value)
            records = [to_record(part, name) for part in parts]
        except RowError:
            bad += 1
            continue
        for record in records:
            keys: dict[str, str] = {}
            for turn, message in enumerate(record.messages):
                unknown = record.unknown_arguments(turn)
                for index, call in enumerate(message.calls):
                    keys[call.id] = call.name if index in unknown else _key(call)
                if message.role == "tool" and message.call_id in keys:
                    found[keys[message.call_id]].append(message.content)

    if bad:
        console.notice(
            f"{path}: {bad} rows cannot be read; `agentlite prep {shlex.quote(str(path))}` says why"
        )

    def result(call: Call) -> str | None:
        results = found.get(_key(call)) or found.get(call.name)
        if not results:
            return None
        return results.pop(0) if len(results) > 1 else results[0]

    return result


def _key(call: Call) -> str:
    return canonical([call.name, call.arguments])


@contextmanager
def executed(
    path: str, tools: Sequence[Tool], seconds: float, memory: float = MEMORY
) -> Iterator[Observe]:
    """Results of the user's functions, which have the names of the tools; run in a child process
    with limits of time (s) and memory (GiB).

    An error in one is its result. Raises UserError 2 where the file has no such function.
    """
    if not Path(path).is_file():
        raise UserError(
            "no such file.",
            "Name a file of functions with the names of the tools.",
            location=path,
        )
    code = UserCode([Named(path, tool.name) for tool in tools], _call, seconds, memory)
    known = {tool.name for tool in tools}

    def observe(call: Call) -> str:
        if call.name not in known:
            return plain({"error": f"no tool {call.name}"})
        text, problem = code.ask(call.name, call.arguments)
        return plain({"error": problem}) if problem else str(text)

    code.start()
    try:
        yield observe
    finally:
        code.stop()


def _call(function: Callable[..., object], arguments: dict[str, object]) -> tuple[str, str]:
    """Done by the child: the result as text, as a model is shown it."""
    return as_text(awaited(function(**arguments))), ""
