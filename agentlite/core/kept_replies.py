"""Questions to a model -> its replies, each kept in a file as it comes: none is asked twice."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from agentlite.core.openai_client import Endpoint, Question, ask_all
from agentlite.core.records import canonical, digest
from agentlite.core.row_files import Appender, read_structs


class KeptReply(Struct, frozen=True):
    """`key` names all that it depends on. `cut`: whether the limit of tokens ended it. `problem`:
    why there is none.
    """

    key: str
    text: str
    cut: bool = False
    problem: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


def ask_once(
    endpoints: Sequence[Endpoint],
    questions: Sequence[Question],
    file: Path,
    *,
    keep_all: bool = False,
    begin: Callable[[int], None] = lambda rows: None,
    advance: Callable[[int], None] = lambda done: None,
) -> list[KeptReply]:
    """A reply to each question, in order. Equal questions have the same reply; those in `file` are
    not asked again, and each is there before the next one is read. One without a text is asked
    again next time, unless `keep_all`. `begin` is called before the first question, with the number
    of replies that there will be. Raises UserError 8 where no server answers any more.
    """
    address, model = endpoints[0].address, endpoints[0].model
    keys = [digest(canonical([address, model, *question])) for question in questions]
    with Appender(file) as appender:
        stored = read_structs(file, KeptReply)
        replies = {reply.key: reply for reply in stored if keep_all or reply.text}
        question_of = dict(zip(keys, questions, strict=True))
        missing = [key for key in question_of if key not in replies]
        if missing:
            begin(len(replies) + len(missing))
        outcomes = ask_all(endpoints, [question_of[key] for key in missing])
        for done, (number, reply) in enumerate(outcomes, len(question_of) - len(missing) + 1):
            # half a character becomes U+FFFD, as any file has it
            text = reply.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            tokens = reply.prompt_tokens, reply.completion_tokens
            kept = KeptReply(missing[number], text, reply.finish == "length", reply.reason, *tokens)
            replies[kept.key] = kept
            if keep_all or kept.text:
                appender.append(msgspec.to_builtins(kept))
            advance(done)
    return [replies[key] for key in keys]
