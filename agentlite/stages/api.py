"""Settings as the user gave them -> resolved, checked, and the stage run: what the command line and
Python share.
"""

import importlib
import os
from pathlib import Path
from typing import Any

from agentlite.config.hardware import auto_profile, has_gpu
from agentlite.config.resolve import Given, Resolved, own_files, resolve
from agentlite.core import distributed
from agentlite.core.console import notice
from agentlite.core.errors import UserError
from agentlite.engine import deepspeed
from agentlite.workspace.run_folder import DEFAULT_RUN, Result, RunTarget


def prep(*sources: str, run: str | None = None, **options: Any) -> Result:
    """Raw agent dialogs -> checked, de-duplicated records in train, dev and test."""
    return call("prep", run, {**options, "sources": sources or None})


def retriever(*, run: str | None = None, **options: Any) -> Result:
    """Trains a model to bring the few tools, of many, that a question needs; and makes an index of
    them.
    """
    return call("retriever", run, options)


def sft(*, run: str | None = None, **options: Any) -> Result:
    """Trains an adapter to say what the assistant says in the records of prep."""
    return call("sft", run, options)


def pairs(*, run: str | None = None, **options: Any) -> Result:
    """Samples several answers at every step, scores them, pairs the best with the worst.
    `candidates` is `--from`.
    """
    return call("pairs", run, options)


def dpo(*, run: str | None = None, **options: Any) -> Result:
    """Trains an adapter to prefer the chosen answers of pairs to the rejected ones."""
    return call("dpo", run, options)


def grpo(*, run: str | None = None, **options: Any) -> Result:
    """Trains an adapter on answers it samples itself, each against the others of its group."""
    return call("grpo", run, options)


def evaluate(*, run: str | None = None, **options: Any) -> Result:
    """Asks models at every step of the test records, scores what they say, sets them side by
    side.
    """
    return call("eval", run, options)


def call(command: str, run: str | None, options: dict[str, Any]) -> Result:
    """`options`: settings of the command, and out, force, dry_run, config (files), set
    (assignments), profile.
    """
    run, options = run or os.environ.get("AGENTLITE_RUN") or DEFAULT_RUN, dict(options)
    out, force, dry_run = (
        options.pop("out", None),
        options.pop("force", False),
        options.pop("dry_run", False),
    )
    files, sets, profile = (
        options.pop("config", ()),
        options.pop("set", ()),
        options.pop("profile", "auto"),
    )
    files, sets = ((value,) if isinstance(value, str) else tuple(value) for value in (files, sets))
    given = Given(
        {key: value for key, value in options.items() if value is not None}, sets, files, profile
    )
    settings = settle(command, given, Path(run)).settings
    return execute(command, settings, RunTarget(Path(run), out or command, force, dry_run))


def settle(command: str, given: Given, run: Path) -> Resolved:
    """Resolves the settings; what an earlier stage fixed stands in for the defaults. Says which
    profile a GPU gets, and which file of the current folder is read."""
    for file in own_files():
        notice(f"settings: {file}")
    if given.profile == "auto" and command != "prep" and has_gpu():
        notice("profile {}: {}; --profile chooses another".format(*auto_profile()))
    first = resolve(command, given)
    inherit = getattr(importlib.import_module(f"agentlite.stages.{command}"), "inherit", None)
    return resolve(command, given, inherit(first.settings, run)) if inherit else first


def execute(command: str, settings: Any, target: RunTarget) -> Result:
    """Runs a stage; of several processes the first runs it, and the others join it where all are
    needed.
    """

    def run() -> Result:
        result: Result = importlib.import_module(f"agentlite.stages.{command}").run(
            settings, target
        )
        return result

    if distributed.count() == 1:
        return run()
    if command not in deepspeed.TOGETHER:
        raise UserError(
            f"{command} runs in one process, and this is one of {distributed.count()}.",
            f"Start it without torchrun: agentlite {command}",
            location="WORLD_SIZE",
        )
    from agentlite.engine.coordinate import in_step

    return in_step(run)
