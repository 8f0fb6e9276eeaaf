"""A model behind `--endpoint` that makes data: questions -> replies, each asked once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from agentlite.core import console, server_usage
from agentlite.core.endpoint_pool import refuse_unanswered
from agentlite.core.errors import UserError
from agentlite.engine.remote import ClientSettings, Served, behind
from agentlite.environments.simulators import SimulatorQuestion, SimulatorReply, Simulators
from agentlite.workspace import run_folder

REPLIES = "replies.jsonl"


class TeacherSettings(ClientSettings, Protocol):
    """The settings by which a teacher is found."""

    @property
    def endpoint(self) -> tuple[str, ...]: ...

    @property
    def endpoint_key(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def max_failures(self) -> float: ...


def teacher_of(settings: TeacherSettings, command: str, begun: Path | None) -> Served:
    """`begun`: the folder of the stage that is carried on. Raises UserError 2."""
    if not settings.endpoint:
        raise UserError(
            "needs a model that writes.",
            "Add --endpoint URL --model NAME.",
            location=f"agentlite {command}",
        )
    if not settings.model:
        raise UserError(
            "which of its models?",
            "Add --model NAME, as the server calls it.",
            location="--endpoint",
        )
    plan = run_folder.read(begun).plan if begun else None
    servers = plan.inputs.get("model", "") if plan else ""
    return behind(
        settings.endpoint, settings.model, settings.endpoint_key, "--endpoint", settings, servers
    )


def question(text: str, **sampling: float) -> SimulatorQuestion:
    return SimulatorQuestion(
        "teacher", ({"role": "user", "content": text},), tuple(sampling.items())
    )


def answers(
    teacher: Served,
    questions: Sequence[SimulatorQuestion],
    settings: TeacherSettings,
    file: Path,
    title: str,
    option: str = "--endpoint",
) -> list[SimulatorReply]:
    """One to each question, in order; those in `file` are not asked again. Raises UserError 8 where
    no server answers any more, or more than a share of `max_failures` stays without an answer.
    `option`: the one that names the servers.
    """
    found: dict[int, SimulatorReply] = {}
    usage = server_usage.current()
    with (
        Simulators({"teacher": teacher.endpoints}, file) as simulators,
        console.progress(title, len(questions)) as advance,
    ):
        for number, reply in simulators.ask(questions):
            found[number] = reply
            advance(len(found), usage.note if usage else "")
    problems = [reply.problem for reply in found.values() if reply.problem]
    if len(problems) > settings.max_failures * len(questions):
        refuse_unanswered(problems, len(questions), option, "")
    return [found[number] for number in range(len(questions))]
