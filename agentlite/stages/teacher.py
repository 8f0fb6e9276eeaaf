"""A model behind `--endpoint` that makes data: questions -> replies, each asked once."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from agentlite.config.settings import QueriesSettings, TemplatesSettings
from agentlite.core import console
from agentlite.core.errors import REJECTS, UserError, exceeds_share
from agentlite.core.kept_replies import KeptReply, ask_once
from agentlite.core.openai_client import Endpoint, Question, refuse_unanswered
from agentlite.core.row_files import write_json
from agentlite.engine.remote import make_endpoints
from agentlite.rendering.protocol import THINK_END
from agentlite.stages.frame import Figures

REPLIES, STATS = "replies.jsonl", "stats.json"
FENCE = "```"
LONGEST_SHOWN = 500  # characters of a text in a list


def endpoints_of(
    settings: QueriesSettings | TemplatesSettings, command: str
) -> tuple[Endpoint, ...]:
    """The model that writes."""
    if not settings.endpoint:
        raise UserError(
            "needs a model that writes.",
            "Add --endpoint URL --model NAME.",
            location=f"agentlite {command}",
        )
    return make_endpoints(
        settings.endpoint, settings.model, settings.endpoint_key, "--endpoint", settings.requests
    )


def question(settings: QueriesSettings | TemplatesSettings, text: str, seed: int) -> Question:
    options = {"temperature": settings.temperature, "max_tokens": settings.max_new_tokens}
    return Question([{"role": "user", "content": text}], {**options, "seed": seed})


def bullet_list(texts: Iterable[str]) -> str:
    """A line for each text, as a question shows them."""
    return "\n".join(f"- {' '.join(text.split())[:LONGEST_SHOWN]}" for text in texts)


def ask(
    endpoints: Sequence[Endpoint],
    questions: Sequence[Question],
    settings: QueriesSettings | TemplatesSettings,
    file: Path,
    title: str,
) -> list[KeptReply]:
    """A reply to each question, in order; see ask_once. Raises UserError 8 where more than a share
    of `max_failures` stays without an answer.
    """
    with console.progress(title, len(questions)) as advance:
        replies = ask_once(endpoints, questions, file, advance=advance)
    problems = [reply.problem for reply in replies if reply.problem]
    if exceeds_share(len(problems), len(questions), settings.max_failures):
        refuse_unanswered(problems, len(questions), "--endpoint", "")
    return replies


def read_reply(reply: KeptReply) -> tuple[str, str, str]:
    """What a model wrote, without the thoughts before it and the fence of a block of code around
    it; the kind of what is wrong with it, whatever was asked for, and its detail: two "" where
    nothing is.
    """
    text = reply.text.rpartition(THINK_END)[2].strip()
    lines = text.splitlines()
    if len(lines) > 2 and lines[0].startswith(FENCE) and lines[-1].strip() == FENCE:
        text = "\n".join(lines[1:-1]).strip()
    if reply.problem:
        return text, "no answer", reply.problem
    return (text, "cut off", "the limit of tokens ended it") if reply.cut else (text, "", "")


def write_stats(folder: Path, figures: Figures, problem: str, fix: str) -> None:
    """Writes what was made and `dropped`, by the reason. Raises UserError 4 where nothing is
    `kept`.
    """
    write_json(folder / STATS, figures)
    if not figures["kept"]:
        reasons = ", ".join(f"{kind} {count}" for kind, count in figures["dropped"].items())
        raise UserError(
            f"{problem}: {reasons}.",
            f"Read what was dropped in the stage's folder; take {fix}, with --force.",
            location=str(folder),
            exit_code=REJECTS,
        )
