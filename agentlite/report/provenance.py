"""The plans of a run -> what every model was made from, back to the raw files; and the commands
that make it again.
"""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from agentlite.config import resolve
from agentlite.config import settings as config
from agentlite.report.read_run import Evaluation, Json, ReportedStage, WorkspaceRun
from agentlite.report.tables import short


class Origin(NamedTuple):
    """Something a stage read: its part in it, its name, the digests it had then, and the stage that
    made it, if any.

    `changed`: whether that stage holds something else by now. `told`: whether its own origins stand
    further up.
    """

    part: str
    name: str
    digests: list[str]
    stage: ReportedStage | None = None
    changed: bool = False
    told: bool = False
    origins: tuple["Origin", ...] = ()


def origins(run: WorkspaceRun) -> list[Origin]:
    """A tree for each stage that no other one was made from."""
    read = {origin.name for stage in run.stages for origin in _read_by(stage, run)}
    told: set[str] = set()
    return [
        _grown(Origin("", stage.name, [], stage), run, told)
        for stage in run.stages
        if stage.name not in read
    ]


def _grown(origin: Origin, run: WorkspaceRun, told: set[str]) -> Origin:
    """With the origins of its stage, unless they were told before."""
    if origin.stage is None or origin.name in told:
        return origin._replace(told=origin.stage is not None)
    told.add(origin.name)
    return origin._replace(
        origins=tuple(_grown(earlier, run, told) for earlier in _read_by(origin.stage, run))
    )


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
    """Whether the last digest that was read (an adapter's comes after its base model's) is of what
    the stage wrote.
    """
    return stage is not None and any(
        found.startswith(digests[-1]) for found in stage.outputs.values()
    )


def commands(run: WorkspaceRun) -> list[str]:
    """A line for every stage and evaluation, in order. Settings that a profile may choose are
    always named.
    """
    profiled = _profiled()
    return [
        *(
            _command(stage.plan.command, stage.settings, _out(stage), profiled)
            for stage in run.stages
        ),
        *(_evaluation(evaluation, profiled) for evaluation in run.evaluations if evaluation.models),
    ]


def _command(name: str, settings: Json, words: list[str], profiled: set[tuple[str, str]]) -> str:
    settings = dict(settings)
    words += settings.pop("sources", [])
    if settings.get("candidates"):  # ranked again: the rest is the candidates' own
        settings = {
            key: value
            for key, value in settings.items()
            if key not in ("model", "protocol", "data", "split")
        }
    for key, value in settings.items():
        if key in config.fields(name) and (value != _default(name, key) or (name, key) in profiled):
            words += _flag(name, key, value)
    return shlex.join(["agentlite", name, *words])


def _evaluation(evaluation: Evaluation, profiled: set[tuple[str, str]]) -> str:
    """The models and files of a data set in one go; what every model was asked stands in its
    figures.
    """
    all_asked = [model.figures.get("asked", {}) for model in evaluation.models.values()]
    named = [
        word
        for model, asked in zip(evaluation.models.values(), all_asked, strict=True)
        for word in (
            ["--predictions", asked["predictions"]]
            if asked.get("predictions")
            else ["--model", model.settings.get("model", model.name)]
        )
    ]
    first = max(
        evaluation.models.values(), key=lambda model: len(model.settings)
    )  # a file has fewer settings
    settings = {key: value for key, value in first.settings.items() if key != "model"} | {
        "data": evaluation.name
    }
    settings |= {key: all_asked[0][key] for key in ("limit", "seed") if key in all_asked[0]}
    out = evaluation.folder.parent.name
    return _command(
        "eval",
        settings,
        [*(["--out", out] if out != "eval" else []), *named],
        profiled,
    )


def _out(stage: ReportedStage) -> list[str]:
    return ["--out", stage.name] if stage.name != stage.plan.command else []


def _flag(command: str, key: str, value: Any) -> list[str]:
    if value is None or isinstance(value, list | dict):
        return ["--set", f"{command}.{key}={json.dumps(value, ensure_ascii=False)}"]  # JSON is YAML
    flag = "--from" if key == "candidates" else f"--{key.replace('_', '-')}"
    return [flag, value if isinstance(value, str) else json.dumps(value)]


def _default(command: str, key: str) -> Any:
    return msgspec.json.decode(msgspec.json.encode(config.default(command, key)))


def is_given(stage: ReportedStage, key: str) -> bool:
    """Whether a setting is not the default."""
    command = stage.plan.command
    known = command in config.COMMANDS and key in config.fields(command)
    return known and bool(stage.settings[key] != _default(command, key))


def _profiled() -> set[tuple[str, str]]:
    """The settings that a profile sets, by command."""
    import yaml

    profiles = [
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in resolve.config_folder().glob("*.yaml")
    ]
    return {
        (command, key) for profile in profiles for command, part in profile.items() for key in part
    }
