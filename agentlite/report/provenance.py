"""What every model was made from, back to the raw files, and the commands that make it again."""

import json
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from agentlite.config import resolve
from agentlite.config.settings import COMMANDS, default, fields, option_words
from agentlite.report.read_run import Json, ReportedEvaluation, ReportedStage, WorkspaceRun
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
    shown: set[str] = set()

    def tree(origin: Origin) -> Origin:
        """The same with the origins of its stage, unless they are shown further up already."""
        if origin.stage is None or origin.name in shown:
            return origin._replace(shown_above=origin.stage is not None)
        shown.add(origin.name)
        return origin._replace(origins=tuple(map(tree, _read_by(origin.stage, run))))

    read = {origin.name for stage in run.stages for origin in _read_by(stage, run)}
    roots = [stage for stage in run.stages if stage.name not in read]
    return [tree(Origin("", stage.name, [], stage)) for stage in roots]


def _read_by(stage: ReportedStage, run: WorkspaceRun) -> Iterator[Origin]:
    for key, digest in stage.inputs.items():
        candidates = stage.settings.get("candidates") if key in ("scores", "rollouts") else ""
        name = str(stage.settings.get(key) or candidates or key)
        earlier = run.stage(name) if name != stage.name else None
        digests = re.split("[,+]", digest)
        # an adapter's digest comes after that of its base model
        is_held = earlier and any(one.startswith(digests[-1]) for one in earlier.outputs.values())
        yield Origin(
            key if name != key else "source",
            name,
            [short(text) for text in digests],
            earlier,
            bool(earlier and earlier.done and not is_held),
        )


def commands(run: WorkspaceRun) -> list[str]:
    """A command line for every stage and evaluation, in order. It always names the settings that a
    profile may choose.
    """
    profiles = map(resolve.read_sections, resolve.config_folder().glob("*.yaml"))
    profiled = {
        (command, key)
        for profile in profiles
        for command, section in profile.items()
        for key in section
    }
    lines = []
    for stage in run.stages:
        command = stage.plan.command
        words = ["--out", stage.name] if stage.name != command else []
        lines.append(_command(command, stage.settings, words, profiled))
    for evaluation in run.evaluations:
        if evaluation.models:
            settings, words = _evaluated(evaluation)
            lines.append(_command("eval", settings, words, profiled))
    return lines


def _command(name: str, settings: Json, words: list[str], profiled: set[tuple[str, str]]) -> str:
    """With `words` first, and then a flag for each setting that is not the default."""
    words = [*words, *settings.get("sources", [])]
    left_out = ["sources"]
    if settings.get("candidates"):  # ranked again: these settings are those of the candidates
        left_out += ["model", "protocol", "data", "split"]
    for key, value in settings.items():
        if "." in key:  # of a stage that this one runs
            words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
            continue
        is_option = key in fields(name) and key not in left_out
        if is_option and (value != _default(name, key) or (name, key) in profiled):
            words += option_words(name, key, value)
    return shlex.join(["agentlite", name, *words])


def _evaluated(evaluation: ReportedEvaluation) -> tuple[Json, list[str]]:
    """The settings and the first words of one command for all models and files of a data set; the
    prompts of each stand in its figures.
    """
    out = evaluation.folder.parent.name
    words = ["--out", out] if out != "eval" else []
    prompts = [model.figures.get("prompt_set", {}) for model in evaluation.models.values()]
    for model, of_model in zip(evaluation.models.values(), prompts, strict=True):
        if file := of_model.get("predictions"):
            words += ["--predictions", file]
        else:
            words += ["--model", model.settings.get("model", model.name)]
    # that of a file of predictions has fewer settings
    first = max(evaluation.models.values(), key=lambda model: len(model.settings))
    data, in_others, _ = evaluation.name.partition("-in-")
    # the plan has the protocols of prep, unless others were asked for
    left_out = {"model"} if in_others else {"model", "protocol"}
    settings = {key: value for key, value in first.settings.items() if key not in left_out}
    asked = {key: prompts[0][key] for key in ("limit", "seed") if key in prompts[0]}
    return {**settings, "data": data, **asked}, words


def is_given(stage: ReportedStage, key: str) -> bool:
    """Whether a setting is not the default."""
    command = stage.plan.command
    is_setting = command in COMMANDS and key in fields(command)
    return is_setting and bool(stage.settings[key] != _default(command, key))


def _default(command: str, key: str) -> object:
    return msgspec.json.decode(msgspec.json.encode(default(command, key)))
