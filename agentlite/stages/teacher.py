"""A model behind `--endpoint` that makes data: questions -> replies, each asked once."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from agentlite.config.settings import QueriesSettings, TemplatesSettings
from agentlite.core import console
from agentlite.core.errors import REJECTS, UserError
from agentlite.core.openai_client import Endpoint, Question, ask_all, refuse_unanswered
from agentlite.core.records import canonical, digest
from agentlite.core.row_files import Appender, read_rows
from agentlite.engine.remote import behind
from agentlite.rendering.protocol import THINK_END

REPLIES = "replies.jsonl"
FENCE = "```"


def question(text: str, **parameters: object) -> Question:
    return Question([{"role": "user", "content": text}], parameters)


class TeacherReply(Struct, frozen=True):
    """`key` names the question. `cut`: whether the limit of tokens ended it. `problem`: why there
    is none; such a reply is not cached.
    """

    key: str
    text: str
    cut: bool = False
    problem: str = ""

    @property
    def words(self) -> str:
        """Without the thoughts before it, and without the fence of a block of code around it."""
        text = self.text.rpartition(THINK_END)[2].strip()
        lines = text.splitlines()
        if len(lines) > 2 and lines[0].startswith(FENCE) and lines[-1].strip() == FENCE:
            return "\n".join(lines[1:-1]).strip()
        return text


def teacher_of(settings: QueriesSettings | TemplatesSettings, command: str) -> tuple[Endpoint, ...]:
    """The model that writes."""
    if not settings.endpoint:
        raise UserError(
            "needs a model that writes.",
            "Add --endpoint URL --model NAME.",
            location=f"agentlite {command}",
        )
    key = settings.endpoint_key
    return behind(settings.endpoint, settings.model, key, "--endpoint", settings.requests)


def answers(
    endpoints: Sequence[Endpoint],
    questions: Sequence[Question],
    settings: QueriesSettings | TemplatesSettings,
    file: Path,
    title: str,
) -> list[TeacherReply]:
    """One to each question, in order. Equal questions have the same reply; those in `file` are not
    asked again, and each is there before the next one is read. Raises UserError 8 where no server
    answers any more, or more than a share of `max_failures` stays without an answer.
    """
    model = endpoints[0].model
    keys = [digest(canonical([model, one.parameters, one.messages])) for one in questions]
    asked = dict(zip(keys, questions, strict=True))
    with Appender(file) as kept, console.progress(title, len(asked)) as advance:
        stored = (msgspec.convert(row, TeacherReply) for row in read_rows(file))
        replies = {reply.key: reply for reply in stored}
        missing = [key for key in asked if key not in replies]
        for done, (place, answer) in enumerate(
            ask_all(endpoints, [asked[key] for key in missing]), 1
        ):
            key = missing[place]
            if answer.problem:
                replies[key] = TeacherReply(key, "", problem=f"the model {answer.why}")
            else:
                # half a character becomes U+FFFD, as on disk: a resumed run has the same text
                code_units = answer.text.encode("utf-16-le", "surrogatepass")
                text = code_units.decode("utf-16-le", "replace")
                reply = TeacherReply(key, text, answer.finish == "length")
                kept.append(msgspec.to_builtins(reply))
                replies[key] = reply
            advance(len(asked) - len(missing) + done)
    found = [replies[key] for key in keys]
    problems = [reply.problem for reply in found if reply.problem]
    if len(problems) > settings.max_failures * len(questions):
        refuse_unanswered(problems, len(questions), "--endpoint", "")
    return found


def reply_fault(reply: TeacherReply) -> tuple[str, str]:
    """The kind of what is wrong with any reply, whatever was asked for, and its detail; two ""
    where there is nothing.
    """
    if reply.problem:
        return "no answer", reply.problem
    return ("cut off", "the limit of tokens ended it") if reply.cut else ("", "")


def no_rows_error(location: str, problem: str, dropped: Mapping[str, int], fix: str) -> UserError:
    """`dropped`: how many for which reason."""
    reasons = ", ".join(f"{kind} {count}" for kind, count in dropped.items())
    return UserError(f"{problem}: {reasons}.", fix, location=location, exit_code=REJECTS)
