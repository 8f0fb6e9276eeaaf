"""A model behind `--endpoint` that makes data: questions -> replies, each asked once."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agentlite.config.settings import MakeSettings, QueriesSettings, TemplatesSettings
from agentlite.core import console, endpoint_pool
from agentlite.core.endpoint_pool import refuse_unanswered
from agentlite.core.errors import REJECTS, UserError
from agentlite.engine.remote import Served, behind
from agentlite.environments.simulators import SimulatorQuestion, SimulatorReply, Simulators
from agentlite.workspace import run_folder

REPLIES = "replies.jsonl"


def teacher_of(
    settings: QueriesSettings | TemplatesSettings, command: str, begun: Path | None
) -> Served:
    """`begun`: the folder of the stage that is carried on."""
    if not settings.endpoint:
        raise UserError(
            "needs a model that writes.",
            "Add --endpoint URL --model NAME.",
            location=f"agentlite {command}",
        )
    plan = run_folder.read(begun).plan if begun else None
    servers = plan.inputs.get("model", "") if plan else ""
    return behind(
        settings.endpoint, settings.model, settings.endpoint_key, "--endpoint", settings, servers
    )


def answers(
    teacher: Served,
    questions: Sequence[SimulatorQuestion],
    settings: MakeSettings | QueriesSettings | TemplatesSettings,
    file: Path,
    title: str,
    option: str = "--endpoint",
) -> list[SimulatorReply]:
    """One to each question, in order; those in `file` are not asked again. Raises UserError 8 where
    no server answers any more, or more than a share of `max_failures` stays without an answer.
    `option`: the one that names the servers.
    """
    replies: dict[int, SimulatorReply] = {}
    usage = endpoint_pool.current_usage()
    with (
        Simulators({"teacher": teacher.endpoints}, file) as simulators,
        console.progress(title, len(questions)) as advance,
    ):
        for number, reply in simulators.ask(questions):
            replies[number] = reply
            advance(len(replies), usage.note if usage else "")
    problems = [reply.problem for reply in replies.values() if reply.problem]
    if len(problems) > settings.max_failures * len(questions):
        refuse_unanswered(problems, len(questions), option, "")
    return [replies[number] for number in range(len(questions))]


def reply_fault(reply: SimulatorReply) -> tuple[str, str]:
    """The kind of what is wrong with any reply, whatever was asked for, and its detail; two ""
    where there is nothing.
    """
    if reply.problem:
        return "no answer", reply.problem
    return ("cut off", "the limit of tokens ended it") if reply.cut else ("", "")


def nothing_kept(location: str, problem: str, dropped: Mapping[str, int], fix: str) -> UserError:
    """`dropped`: how many for which reason."""
    reasons = ", ".join(f"{kind} {count}" for kind, count in dropped.items())
    return UserError(f"{problem}: {reasons}.", fix, location=location, exit_code=REJECTS)
