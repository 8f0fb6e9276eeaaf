"""BFCL's multi-turn dialogs as tasks: the first question, and the row of `BfclWorld.reset`."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from agentlite.core.records import Call, Message, Tool, digest
from agentlite.core.row_files import read_rows
from agentlite.data.formats.bfcl import data_folder, rows
from agentlite.data.formats.tool_calls import json_schema
from agentlite.environments.bfcl_world import PythonCall, read_call
from agentlite.environments.tasks import EnvironmentTask


def tasks(category: str, extra_tools: int | None = None) -> Iterator[EnvironmentTask]:
    """In BFCL's order. `extra_tools`: how many tools are on offer that the gold does not call; all
    that BFCL offers if None.
    """
    folder, name = data_folder(category), f"BFCL_v4_{category}.json"
    for row in rows([folder / name, folder / "possible_answer" / name]):
        yield _task(row, folder / "multi_turn_func_doc", extra_tools)


def _task(row: dict[str, Any], documents: Path, extra_tools: int | None) -> EnvironmentTask:
    """Functions that are held back come on offer at a turn of the user's."""
    tools = [tool for name in row["involved_classes"] for tool in _class_tools(documents, name)]
    functions = {tool["function"]["name"]: tool for tool in tools}
    gold = tuple(
        tuple(_call(read_call(text), functions) for text in calls) for calls in row["ground_truth"]
    )
    missed = row.get("missed_function", {})
    held_back = {turn: [functions[name] for name in names] for turn, names in missed.items()}
    hidden = {name for names in missed.values() for name in names}
    names = [name for name in functions if name not in hidden]
    if extra_tools is not None:
        called = {call.name for calls in gold for call in calls}
        others = sorted({*names} - called, key=lambda name: digest(f"{row['id']} {name}"))
        names = [name for name in names if name in called.union(others[:extra_tools])]
    offered = [functions[name] for name in names]
    first = tuple(Message("user", message["content"]) for message in row["question"][0])
    more = {"tools": offered, "held_back": held_back, "only_offered": extra_tools is not None}
    # the categories are made from the same 200 dialogs
    number = row["id"].rpartition("_")[2]
    return EnvironmentTask(row["id"], first, {**row, **more}, gold, number)


def _call(call: PythonCall, functions: dict[str, dict[str, Any]]) -> Call:
    """With the positional arguments under their names, which are documented in their order."""
    properties = functions[call.name]["function"]["parameters"]["properties"]
    return Call(
        call.name, {**dict(zip(properties, call.positional, strict=False)), **call.arguments}
    )


@cache
def _class_tools(folder: Path, class_name: str) -> tuple[dict[str, Any], ...]:
    """The functions of a class in OpenAI's shape."""
    from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING

    tools = []
    for function in read_rows(folder / MULTI_TURN_FUNC_DOC_FILE_MAPPING[class_name]):
        name = function["name"]
        parameters = json_schema(function["parameters"], name)
        returns = json_schema(function.get("response") or {}, name)
        tools.append(Tool(name, function["description"], parameters, returns).schema)
    return tuple(tools)
