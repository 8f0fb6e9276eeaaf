"""An environment by its name, `KIND:TARGET` or `file.py:Class`: the class of its worlds; tasks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError, UserError, suggest
from agentlite.core.records import Call, Message, Tool, digest
from agentlite.core.row_files import read_rows
from agentlite.core.user_code import UserFunction
from agentlite.data.formats.bfcl import data_folder, rows
from agentlite.data.formats.tool_calls import json_schema, read_call
from agentlite.environments import bfcl_world, mcp_world
from agentlite.environments.mcp_world import is_url
from agentlite.environments.tasks import EnvironmentTask, read_tasks
from agentlite.environments.world import World
from agentlite.scoring.metrics.bfcl import MULTI_TURN

NO_TASK = EnvironmentTask("")  # nothing is asked


class Environment(NamedTuple):
    """`world_class`: makes its worlds. `tasks`: in their own order; raises UserError with the
    location of one that cannot be read. `files`: what a run in it depends on, by what it is.
    """

    world_class: UserFunction
    tasks: Callable[[], Iterator[EnvironmentTask]]
    files: Mapping[str, Path]


def environment(
    name: str,
    tasks_file: Path | None = None,
    extra_tools: int | None = None,
    needs_tasks: bool = True,
    env_keep: Sequence[str] = (),
) -> Environment:
    """`extra_tools`: how many tools BFCL's tasks offer that their gold does not call; all if None.
    `needs_tasks`: if not, a world without a file of tasks has one, which is empty.
    `env_keep`: variables that an MCP server gets.
    """
    kind, _, target = name.partition(":")  # mcp:http://localhost:8000/mcp -> mcp
    file, _, class_name = name.rpartition(":")  # worlds/shop.py:Shop -> worlds/shop.py, Shop
    is_class = file.endswith(".py") and class_name.isidentifier()
    if not target.strip() or (kind not in ("bfcl", "mcp") and not is_class):
        raise UserError(
            f"'{name}' names no environment.",
            "Name `bfcl:multi_turn_base`, a class in a file, as `shop.py:Shop`, or an MCP server, "
            "`mcp:COMMAND` or `mcp:URL`.",
            location="--env",
        )
    if kind == "bfcl":
        return _bfcl_environment(name, target, tasks_file, extra_tools)
    if extra_tools is not None:
        raise UserError(
            f"{name} offers the tools that it has.",
            "Leave extra_tools out: it is for BFCL's. A class may have a method `tools` that "
            "returns those on offer.",
            location="extra_tools",
        )
    files = {"tasks": tasks_file} if tasks_file else {}
    complete: Callable[[EnvironmentTask], EnvironmentTask]
    if kind == "mcp":
        if is_url(target) and "@" in target.split("/")[2]:
            raise UserError(
                "the address holds a name or a password, and it is written to the plan.",
                "Leave them out: --env mcp:http://localhost:8000/mcp.",
                location="--env",
            )
        world_class = UserFunction(mcp_world.__file__, mcp_world.McpWorld.__name__)
        complete = partial(_mcp_task, target, env_keep)
    elif Path(file).is_file():
        world_class, complete = UserFunction(file, class_name), lambda task: task
        World(world_class).check_class()  # before a model is loaded and a folder is opened
        files = {"env": Path(file), **files}
    else:
        raise UserError("there is no such file.", f"--env {name}", location=file)
    if needs_tasks and not tasks_file:
        raise UserError(
            f"{name} needs tasks.",
            'Write them as JSON lines, each {"prompt": "...", ...}, and name the file: --tasks '
            "tasks.jsonl",
            location="--env",
        )
    if tasks_file:
        return Environment(world_class, partial(read_tasks, tasks_file, complete), files)
    return Environment(world_class, lambda: iter([complete(NO_TASK)]), files)


def _mcp_task(server: str, env_keep: Sequence[str], task: EnvironmentTask) -> EnvironmentTask:
    """With the row that `McpWorld.reset` takes. Raises RowError."""
    reset_calls = task.row.get("reset_calls", [])
    if not isinstance(reset_calls, list):
        raise RowError("E201", "reset_calls is not a list of calls")
    user_turns = task.row.get("user_turns", [])
    if not isinstance(user_turns, list) or not all(isinstance(turn, str) for turn in user_turns):
        raise RowError("E201", "user_turns is not a list of texts")
    row = {
        "server": server,
        "reset_calls": _plain_calls(map(read_call, reset_calls)),
        "env_keep": list(env_keep),
        "user_turns": user_turns,
        "gold": None if task.gold is None else _plain_calls(chain.from_iterable(task.gold)),
    }
    return replace(task, row=row)


def _plain_calls(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """As a world gets them."""
    return [{"name": call.name, "arguments": call.arguments} for call in calls]


def _bfcl_environment(
    name: str, category: str, tasks_file: Path | None, extra_tools: int | None
) -> Environment:
    if tasks_file is not None:
        raise UserError(
            f"{name} has its own tasks.", "Leave --tasks out.", location=f"--tasks {tasks_file}"
        )
    if category not in MULTI_TURN:
        fix = suggest(category, MULTI_TURN, prefix="bfcl:")
        raise UserError(f"BFCL has no dialogs '{category}'.", fix, location=f"--env {name}")
    return Environment(
        UserFunction(bfcl_world.__file__, bfcl_world.BfclWorld.__name__),
        partial(bfcl_tasks, category, extra_tools),
        {},  # the tasks come with a package, and the category, which is a setting, says which
    )


def bfcl_tasks(category: str, extra_tools: int | None = None) -> Iterator[EnvironmentTask]:
    """BFCL's dialogs, in its order, with the rows that `BfclWorld.reset` takes. Functions that are
    held back come on offer at a turn of the user's. `extra_tools`: how many tools are on offer that
    the gold does not call; all that BFCL offers if None.
    """
    folder, file = data_folder(category), f"BFCL_v4_{category}.json"
    documents = folder / "multi_turn_func_doc"
    for row in rows([folder / file, folder / "possible_answer" / file]):
        tools = [tool for name in row["involved_classes"] for tool in _class_tools(documents, name)]
        functions = {tool["function"]["name"]: tool for tool in tools}
        gold = tuple(
            tuple(_bfcl_call(bfcl_world.read_call(text), functions) for text in calls)
            for calls in row["ground_truth"]
        )
        names_by_turn = row.get("missed_function", {})
        held_back = {turn: [functions[n] for n in names] for turn, names in names_by_turn.items()}
        missed_names = {name for names in names_by_turn.values() for name in names}
        names = [name for name in functions if name not in missed_names]
        if extra_tools is not None:
            called_names = {call.name for calls in gold for call in calls}
            # in an order that looks like chance, and is the same in each run
            other_names = sorted({*names} - called_names, key=lambda n: digest(f"{row['id']} {n}"))
            names = [n for n in names if n in called_names.union(other_names[:extra_tools])]
        yield EnvironmentTask(
            row["id"],
            tuple(Message("user", message["content"]) for message in row["question"][0]),
            {
                **row,
                "tools": [functions[name] for name in names],
                "held_back": held_back,
                "only_offered": extra_tools is not None,
            },
            gold,
            # the categories are made from the same 200 dialogs: "multi_turn_base_7" is in group "7"
            group=row["id"].rpartition("_")[2],
        )


def _bfcl_call(call: bfcl_world.PythonCall, functions: dict[str, dict[str, Any]]) -> Call:
    """With the positional arguments under their names, which are documented in their order."""
    properties = functions[call.name]["function"]["parameters"]["properties"]
    return Call(
        call.name, {**dict(zip(properties, call.positional, strict=False)), **call.arguments}
    )


@cache
def _class_tools(folder: Path, class_name: str) -> tuple[dict[str, Any], ...]:
    """The functions of a class in OpenAI's shape."""
    from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING

    return tuple(
        Tool(
            function["name"],
            function["description"],
            parameters=json_schema(function["parameters"], function["name"]),
            returns=json_schema(function.get("response") or {}, function["name"]),
        ).schema
        for function in read_rows(folder / MULTI_TURN_FUNC_DOC_FILE_MAPPING[class_name])
    )
