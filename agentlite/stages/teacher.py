"""A model behind `--endpoint` that makes data: questions -> replies, each asked once."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from agentlite.config.settings import QueriesSettings, TemplatesSettings
from agentlite.core import console, endpoint_pool
from agentlite.core.endpoint_pool import Question, ask_all, refuse_unanswered
from agentlite.core.errors import REJECTS, UserError
from agentlite.core.openai_client import Endpoint
from agentlite.core.records import canonical, digest
from agentlite.core.row_files import Appender, read_rows
from agentlite.engine.remote import Served, behind
from agentlite.rendering.protocol import THINK_END

REPLIES = "replies.jsonl"
FENCE = "```"


def question(text: str, system: str = "", **parameters: object) -> Question:
    """Asked for the likeliest reply, unless `parameters` say otherwise."""
    first = [{"role": "system", "content": system}] if system else []
    usual = {"temperature": 0, "max_tokens": 2048}
    return Question([*first, {"role": "user", "content": text}], {**usual, **parameters})


class TeacherReply(Struct, frozen=True, forbid_unknown_fields=True):
    """`key` names the question. `calls`: whether tools were called in it. `cut`: whether the limit
    of tokens ended it. `problem`: why there is none; such a reply is not cached.
    """

    key: str
    text: str
    calls: bool = False
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


class Teacher:
    """A model behind its servers, and the file with its replies. Equal questions have the same
    reply, whoever asks.
    """

    def __init__(self, endpoints: Sequence[Endpoint], cache: Path):
        self.endpoints = endpoints
        self.file = Appender(cache)
        self.replies = {
            reply.key: reply
            for reply in (msgspec.convert(row, TeacherReply) for row in read_rows(cache))
        }

    def __enter__(self) -> "Teacher":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.__exit__(*error)

    def ask(self, questions: Sequence[Question]) -> Iterator[tuple[int, TeacherReply]]:
        """The number of each question and its reply, as they come; each is on disk before it is
        given. Raises UserError 8 when no server answers any more.
        """
        model = self.endpoints[0].model
        numbers: dict[str, list[int]] = {}
        for number, (messages, parameters) in enumerate(questions):
            key = digest(canonical([model, parameters, messages]))
            numbers.setdefault(key, []).append(number)
        missing = [key for key in numbers if key not in self.replies]
        asked = [questions[numbers[key][0]] for key in missing]
        for place, answer in ask_all(self.endpoints, asked):
            key = missing[place]
            if answer.problem:
                reply = TeacherReply(key, "", problem=f"the model {answer.why}")
            else:
                # half a character becomes U+FFFD, as on disk: a resumed run has the same text
                code_units = answer.text.encode("utf-16-le", "surrogatepass")
                text = code_units.decode("utf-16-le", "replace")
                reply = TeacherReply(key, text, bool(answer.calls), answer.finish == "length")
                self.file.append(msgspec.to_builtins(reply))
                self.replies[key] = reply
            yield from ((number, reply) for number in numbers.pop(key))
        for key, left in numbers.items():
            yield from ((number, self.replies[key]) for number in left)


def teacher_of(settings: QueriesSettings | TemplatesSettings, command: str) -> Served:
    """The model that writes."""
    if not settings.endpoint:
        raise UserError(
            "needs a model that writes.",
            "Add --endpoint URL --model NAME.",
            location=f"agentlite {command}",
        )
    return behind(settings.endpoint, settings.model, settings.endpoint_key, "--endpoint", settings)


def answers(
    served: Served,
    questions: Sequence[Question],
    settings: QueriesSettings | TemplatesSettings,
    file: Path,
    title: str,
) -> list[TeacherReply]:
    """One to each question, in order; those in `file` are not asked again. Raises UserError 8 where
    no server answers any more, or more than a share of `max_failures` stays without an answer.
    """
    replies: dict[int, TeacherReply] = {}
    usage = endpoint_pool.current_usage()
    with (
        Teacher(served.endpoints, file) as teacher,
        console.progress(title, len(questions)) as advance,
    ):
        for number, reply in teacher.ask(questions):
            replies[number] = reply
            advance(len(replies), usage.note if usage else "")
    problems = [reply.problem for reply in replies.values() if reply.problem]
    if len(problems) > settings.max_failures * len(questions):
        refuse_unanswered(problems, len(questions), "--endpoint", "")
    return [replies[number] for number in range(len(questions))]


def reply_fault(reply: TeacherReply) -> tuple[str, str]:
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
