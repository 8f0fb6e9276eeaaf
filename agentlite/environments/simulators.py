"""Models behind servers that stand for tools, users and teachers: questions -> cached replies.

The requests are made here, in the process that has the model, and not in the process of a world: a
call that waits for a server holds up no other rollout, several servers share the questions, and a
dead one ends the run as one of `--endpoint` does.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from agentlite.core.endpoint_pool import Question, ask_all
from agentlite.core.openai_client import Endpoint
from agentlite.core.records import canonical, digest
from agentlite.core.row_files import Appender, read_rows

Role = Literal["tool", "user", "teacher"]
THOUGHT_END = "</think>"
FENCE = "```"
# a simulated world is to be the same each time
PARAMETERS: Mapping[Role, Mapping[str, Any]] = {
    "tool": {"temperature": 0, "max_tokens": 2048},
    "user": {"temperature": 0, "max_tokens": 512},
    "teacher": {"temperature": 0, "max_tokens": 2048},
}


class SimulatorQuestion(NamedTuple):
    """The request to a model that plays a role. `sampling`: parameters other than the role's."""

    role: Role
    messages: tuple[Mapping[str, str], ...]
    sampling: tuple[tuple[str, float], ...] = ()

    @property
    def parameters(self) -> dict[str, Any]:
        return {**PARAMETERS[self.role], **dict(self.sampling)}

    def again(self, text: str, fault: str) -> "SimulatorQuestion":
        """The same, after a reply that cannot be used."""
        first = {"role": "assistant", "content": text or "(nothing)"}
        more = {"role": "user", "content": f"This cannot be used: {fault}. Answer again."}
        return self._replace(messages=(*self.messages, first, more))


def question(role: Role, text: str, system: str = "", **sampling: float) -> SimulatorQuestion:
    first = [{"role": "system", "content": system}] if system else []
    messages = (*first, {"role": "user", "content": text})
    return SimulatorQuestion(role, messages, tuple(sampling.items()))


class SimulatorReply(Struct, frozen=True, forbid_unknown_fields=True):
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
        text = self.text.rpartition(THOUGHT_END)[2].strip()
        lines = text.splitlines()
        if len(lines) > 2 and lines[0].startswith(FENCE) and lines[-1].strip() == FENCE:
            return "\n".join(lines[1:-1]).strip()
        return text


class Simulators:
    """Both models, each behind its servers, and the file with the replies of this stage. Equal
    questions have the same reply, whichever rollout asks.
    """

    def __init__(self, endpoints: Mapping[Role, Sequence[Endpoint]], cache: Path):
        self.endpoints = endpoints
        self.file = Appender(cache)
        self.replies = {
            reply.key: reply
            for reply in (msgspec.convert(row, SimulatorReply) for row in read_rows(cache))
        }

    def __enter__(self) -> "Simulators":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.__exit__(*error)

    def ask(self, questions: Sequence[SimulatorQuestion]) -> Iterator[tuple[int, SimulatorReply]]:
        """The number of each question and its reply, as they come; each is on disk before it is
        given. Raises UserError 8 when no server of a model answers any more.
        """
        numbers: dict[str, list[int]] = {}
        for number, question in enumerate(questions):
            numbers.setdefault(self.key(question), []).append(number)
        missing = {
            key: questions[first] for key, [first, *_] in numbers.items() if key not in self.replies
        }
        for role, endpoints in self.endpoints.items():
            keys = [key for key, question in missing.items() if question.role == role]
            asked = [Question(missing[key].messages, missing[key].parameters) for key in keys]
            for place, answer in ask_all(endpoints, asked):
                if answer.problem:
                    problem = f"the {role} model {answer.why}"
                    reply = SimulatorReply(keys[place], "", problem=problem)
                else:
                    # half a character becomes U+FFFD, as on disk: a resumed run has the same text
                    code_units = answer.text.encode("utf-16-le", "surrogatepass")
                    reply = SimulatorReply(
                        keys[place],
                        code_units.decode("utf-16-le", "replace"),
                        bool(answer.calls),
                        answer.finish == "length",
                    )
                    self.file.append(msgspec.to_builtins(reply))
                    self.replies[reply.key] = reply
                yield from ((number, reply) for number in numbers.pop(reply.key))
        for key, left in numbers.items():
            yield from ((number, self.replies[key]) for number in left)

    def key(self, question: SimulatorQuestion) -> str:
        """Equal for equal questions to one model."""
        role = question.role
        model = self.endpoints[role][0].model
        return digest(canonical([role, model, question.parameters, question.messages]))
