"""What every model was made from, back to the raw files, and the commands that make it again."""

import json
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from agentlite.config import resolve
from agentlite.config.settings import COMMANDS, default, fields
from agentlite.report.read_run import Evaluation, Json, ReportedStage, WorkspaceRun
from agentlite.report.tables import short


class Origin(NamedTuple):
    """An input of a stage: its role there, its name, the digests it had then, and the stage that
    made it, if any.

    `changed`: whether that stage holds something else now. `shown_above`: whether its own origins
    stand further up in the tree.
    """

    role: str
    name: str
    digests: list[str]
    stage: ReportedStage | None = None
    changed: bool = False
    shown_above: bool = False
    origins: tuple["Origin", ...] = ()


def origins(run: WorkspaceRun) -> list[Origin]:
    """A tree for each stage that no other one was made from."""
    read = {origin.name for stage in run.stages for origin in _read_by(stage, run)}
    shown: set[str] = set()
    return [
        _with_origins(Origin("", stage.name, [], stage), run, shown)
        for stage in run.stages
        if stage.name not in read
    ]


def _with_origins(origin: Origin, run: WorkspaceRun, shown: set[str]) -> Origin:
    """The same with the origins of its stage, unless they are shown further up already."""
    if origin.stage is None or origin.name in shown:
        return origin._replace(shown_above=origin.stage is not None)
    shown.add(origin.name)
    earlier = tuple(_with_origins(read, run, shown) for read in _read_by(origin.stage, run))
    return origin._replace(origins=earlier)


def _read_by(stage: ReportedStage, run: WorkspaceRun) -> Iterator[Origin]:
    for key, digest in stage.inputs.items():
        name = (
            stage.settings.get(key)
            or (stage.settings.get("candidates") if key in ("scores", "rollouts") else "")
            or key
        )
        earlier = run.stage(name) if name != stage.name else None
        digests = re.split("[,+]", digest)
        yield Origin(
            key if name != key else "source",
            str(name),
            [short(text) for text in digests],
            earlier,
            bool(earlier and earlier.done) and not _holds(earlier, digests),
        )


def _holds(stage: ReportedStage | None, digests: list[str]) -> bool:
    """Whether one of the stage's outputs has the last digest that was read: an adapter's comes
    after its base model's.
    """
    return stage is not None and any(
        output.startswith(digests[-1]) for output in stage.outputs.values()
    )


def commands(run: WorkspaceRun) -> list[str]:
    """A command line for every stage and evaluation, in order. It always names the settings that a
    profile may choose.
    """
    profiled = _profiled()
    return [
        *(
            _command(
                stage.plan.command,
                stage.settings,
                ["--out", stage.name] if stage.name != stage.plan.command else [],
                profiled,
            )
            for stage in run.stages
        ),
        *(_evaluation(evaluation, profiled) for evaluation in run.evaluations if evaluation.models),
    ]


def _command(name: str, settings: Json, words: list[str], profiled: set[tuple[str, str]]) -> str:
    settings = dict(settings)
    words += settings.pop("sources", [])
    if settings.get("candidates"):  # ranked again: these settings are those of the candidates
        settings = {
            key: value
            for key, value in settings.items()
            if key not in ("model", "protocol", "data", "split")
        }
    for key, value in settings.items():
        if "." in key:  # of a stage that this one runs
            words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
        if key in fields(name) and (value != _default(name, key) or (name, key) in profiled):
            words += _flag(name, key, value)
    return shlex.join(["agentlite", name, *words])


def _evaluation(evaluation: Evaluation, profiled: set[tuple[str, str]]) -> str:
    """One command for all models and files of a data set; the prompts of each stand in its
    figures.
    """
    all_prompts = [model.figures.get("prompt_set", {}) for model in evaluation.models.values()]
    named = [
        word
        for model, prompts in zip(evaluation.models.values(), all_prompts, strict=True)
        for word in (
            ["--predictions", prompts["predictions"]]
            if prompts.get("predictions")
            else ["--model", model.settings.get("model", model.name)]
        )
    ]
    # that of a file of predictions has fewer settings
    first = max(evaluation.models.values(), key=lambda model: len(model.settings))
    data, in_others, _ = evaluation.name.partition("-in-")
    # the plan has the protocols of prep, unless others were asked for
    left_out = {"model"} if in_others else {"model", "protocol"}
    settings = {key: value for key, value in first.settings.items() if key not in left_out}
    settings["data"] = data
    settings |= {key: all_prompts[0][key] for key in ("limit", "seed") if key in all_prompts[0]}
    out = evaluation.folder.parent.name
    return _command(
        "eval",
        settings,
        [*(["--out", out] if out != "eval" else []), *named],
        profiled,
    )


def _flag(command: str, key: str, value: object) -> list[str]:
    if value is None or isinstance(value, list | dict):
        return ["--set", f"{command}.{key}={json.dumps(value, ensure_ascii=False)}"]  # JSON is YAML
    flag = "--from" if key == "candidates" else f"--{key.replace('_', '-')}"
    return [flag, value if isinstance(value, str) else json.dumps(value)]


def _default(command: str, key: str) -> object:
    return msgspec.json.decode(msgspec.json.encode(default(command, key)))


def is_given(stage: ReportedStage, key: str) -> bool:
    """Whether a setting is not the default."""
    command = stage.plan.command
    is_setting = command in COMMANDS and key in fields(command)
    return is_setting and bool(stage.settings[key] != _default(command, key))


def _profiled() -> set[tuple[str, str]]:
    """The settings that a profile sets, by command."""
    profiles = map(resolve.read_sections, resolve.config_folder().glob("*.yaml"))
    return {
        (command, key)
        for profile in profiles
        for command, section in profile.items()
        for key in section
    }
