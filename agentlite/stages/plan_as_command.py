"""The plan of a stage -> the command line that carries it on."""

import json
import shlex
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from agentlite.config.gpu_profiles import has_gpu
from agentlite.config.pipeline import TRAINED, typed
from agentlite.config.resolve import Given, plain_settings, resolve
from agentlite.config.settings import option_words
from agentlite.stages.api import inherited_by
from agentlite.workspace import stage_folder
from agentlite.workspace.stage_folder import Plan, RunTarget


def as_command(plan: Plan, run: Path, folder: Path) -> str:
    """`agentlite sft --out long --max-steps 500`, which has the same plan in this folder: with the
    settings that are not what a run without options would have.

    What a plan does not hold is not in it: where the rows of stdin came from, say. Raises UserError
    for a mistake in agentlite.yaml, or in an earlier stage.
    """
    out, *inner = folder.relative_to(run).parts
    settings = dict(plan.settings)
    if inner:  # eval/<data>/<model>
        settings |= _of_evaluation(plan, run, inner[0])
    servers = [word for word in plan.inputs.get("model", "").split() if "://" in word]
    if servers:
        name = plan.settings["model"].partition("@")[0]
        settings |= {"endpoint": servers, "model": [name] if inner else name}
    judges = [url for name, url in plan.inputs.items() if name.startswith("judge_")]
    if {*judges} - {*servers[:1]}:  # others than the one that is asked if nobody names any
        settings["judge_endpoint"] = judges
    command = plan.command
    if stages := settings.get("trajectories"):  # their files stand behind those that were named
        settings["sources"] = settings["sources"][: -len(stages)]
    words = ["agentlite", *typed(command).split(), *settings.get("sources", ())]
    words += [settings["what"]] if "what" in settings else []
    words += ["--out", out] if out != command else []
    for key in _to_set(command, settings, run):
        words += option_words(command, key, settings[key])
    for key in (key for key in settings if "." in key):  # of the stages that this one runs
        words += ["--set", f"{key}={json.dumps(settings[key], ensure_ascii=False)}"]
    return RunTarget(run, out).next(shlex.join(words))


def _of_evaluation(plan: Plan, run: Path, data: str) -> dict[str, Any]:
    """Its plan covers the answers of one model. The data and the other models are not in it."""
    usual, model = _settled("eval", {}, run)["model"], plan.settings.get("model", "")
    return {
        "model": usual if model in (usual or [TRAINED]) else [model],
        **({"data": data} if stage_folder.is_stage(run / data) else {}),
        # the plan has the protocols of prep, unless others were asked for
        **({} if "-in-" in data else {"protocol": ""}),
    }


def _to_set(command: str, settings: Mapping[str, Any], run: Path) -> list[str]:
    """The settings without which the others would not be as they are. What one sets changes what
    another inherits: --full the learning rate, --model the shape of the adapter."""

    def wrong(keys: Set[str]) -> set[str]:
        settled = _settled(command, {key: settings[key] for key in keys}, run)
        return {key for key in settings if key in settled and settled[key] != settings[key]}

    keys: Set[str] = {"sources"} & settings.keys()
    while more := wrong(keys) - keys:
        keys |= more
    for key in sorted(keys - {"sources"}):
        keys = keys if wrong(keys - {key}) else keys - {key}
    return [key for key in settings if key in keys and key != "sources"]


def _settled(command: str, flags: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """The settings of a run with these, as a plan holds them; without those that, on a GPU, are
    taken from the plan of what was begun."""
    given = Given(flags)
    settled = resolve(command, given)
    settled = resolve(command, given, inherited_by(command, settled.settings, run))
    settings = plain_settings(settled.settings)
    if has_gpu() and hasattr(settled.settings, "load_in_4bit"):
        from agentlite.engine.planning.choose import keys_to_choose

        return {key: settings[key] for key in settings.keys() - keys_to_choose(settled)}
    return settings
