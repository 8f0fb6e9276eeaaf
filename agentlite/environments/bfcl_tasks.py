"""BFCL's multi-turn dialogs as tasks: the first question, and the row of `BfclWorld.reset`."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from agentlite.core.records import Message, Tool
from agentlite.core.row_files import read_rows
from agentlite.data.formats.bfcl import data_folder
from agentlite.data.formats.tool_calls import json_schema
from agentlite.environments.bfcl_world import MODULES
from agentlite.environments.tasks import EnvironmentTask

CATEGORIES = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)


def tasks(category: str) -> Iterator[EnvironmentTask]:
    """In BFCL's order. Raises UserError 2 where the package is not installed."""
    folder, name = data_folder(category), f"BFCL_v4_{category}.json"
    answers = {
        row["id"]: row["ground_truth"] for row in read_rows(folder / "possible_answer" / name)
    }
    for row in read_rows(folder / name):
        yield _task(row, answers[row["id"]], folder / "multi_turn_func_doc")


def _task(row: dict[str, Any], gold: list[list[str]], documents: Path) -> EnvironmentTask:
    """Functions that are held back come on offer at a turn of the user's."""
    offered = [one for name in row["involved_classes"] for one in _documented(documents, name)]
    held_back: dict[str, list[dict[str, Any]]] = {}
    for turn, names in row.get("missed_function", {}).items():
        for name in names:
            function = next(one for one in offered if one["function"]["name"] == name)
            offered.remove(function)
            held_back.setdefault(turn, []).append(function)
    first = tuple(Message("user", message["content"]) for message in row["question"][0])
    tools = {"tools": offered, "held_back": held_back}
    return EnvironmentTask(row["id"], first, {**row, "ground_truth": gold, **tools})


@cache
def _documented(folder: Path, name: str) -> tuple[dict[str, Any], ...]:
    """The functions of a class in OpenAI's shape."""
    lines = (folder / f"{MODULES[name]}.json").read_text(encoding="utf-8").splitlines()
    return tuple(_tool(json.loads(line)).schema for line in lines)


def _tool(function: dict[str, Any]) -> Tool:
    name, returned = function["name"], function.get("response") or {}
    parameters = json_schema(function["parameters"], name)
    return Tool(name, function["description"], parameters, json_schema(returned, name))
