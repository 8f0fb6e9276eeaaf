"""Record -> nothing, or the first reason why it cannot be learned from."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Parsed, Record, to_row
from agentlite.data.formats.check_call import check_arguments, gold_problem, tool_of

NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")  # `\u0000`; in `\\u0000` the text has the backslash
TOO_EARLY = (
    "the assistant speaks before a user",
    "Add the question before it, or take the turn out.",
)
# what is wrong with a role after another one, "" before the first, and what helps
MISPLACED = {
    ("user", "user"): ("two user turns in a row", "Join them into one turn."),
    ("tool", "user"): (
        "the user speaks where the assistant should go on from a result",
        "Add what the assistant said to the result, or take the user's turn out.",
    ),
    ("", "assistant"): TOO_EARLY,
    ("system", "assistant"): TOO_EARLY,
    ("assistant", "assistant"): (
        "two assistant turns in a row",
        "Join them into one turn, or add what the user said between them.",
    ),
    **dict.fromkeys(
        ((before, "system") for before in ("system", "user", "assistant", "tool")),
        ("a system turn that is not the first", "Join its text to the first system turn."),
    ),
}
EARLY_RESULT = ("a result before its call", "Put it behind its call, which follows.")
NO_END = "Add the answer; --unanswered cut leaves out what follows the last one."


def validate(record: Record, *, answered: bool = True) -> None:
    """Raises RowError with the code of what is wrong. `answered`: no turn may be a stand-in for an
    answer that nobody knows.

    E201 no assistant turn, gold at another one, or a turn without an answer; E203 order of roles;
    E204 call without result or result without call; E205 a result whose call is not clear; E209
    unknown tool; E210 arguments that do not fit its schema, or gold that accepts none that do; E212
    one tool name twice; E216 a turn that says nothing; E112 a NUL character; E113 half
    a surrogate pair.
    """
    check_dialog(record)
    if answered and not all(map(record.has_gold, record.turns)):
        raise RowError("E201", "a prompt without an answer: pairs and grpo take it, by own rewards")
    tools = {tool.name: tool for tool in record.tools}
    for turn in record.turns:
        unknown = record.unknown_arguments(turn)
        # BFCL's own gold accepts values that break the schema, and then it is right
        is_typed = turn not in record.gold or "bfcl_id" not in record.meta
        for expected in record.gold[turn].calls if turn in record.gold and is_typed else ():
            tool = tools.get(expected.name)
            if tool and (problem := gold_problem(expected, tool.parameters)):
                raise RowError("E210", f"the gold of {expected.name} is wrong: {problem}")
        if "rollout" in record.meta and not record.messages[turn].loss:
            continue  # a call that failed, shown with its error and not learned
        for index, call in enumerate(record.messages[turn].calls):
            tool = tool_of(call, tools)
            if index not in unknown:
                check_arguments(call, tool, is_typed)


def end_with(
    record: Record, before: Sequence[Message], answer: Parsed, **changes: object
) -> Record | None:
    """A train record: the messages before an answer, and that answer; None for one that cannot be
    learned. `changes`: what else is new in it.
    """
    messages = (*before, Message("assistant", answer.content, answer.calls))
    parent = record.parent or record.id
    new_record = replace(record, messages=messages, split="train", parent=parent, **changes)
    try:
        validate(new_record)
    except RowError:
        return None
    return new_record


def check_dialog(record: Record) -> None:
    """Raises RowError for what is no dialog, whatever it calls: validate() without E209, E210."""
    _check_turns(record)
    if len({tool.name for tool in record.tools}) < len(record.tools):
        name, count = Counter(tool.name for tool in record.tools).most_common(1)[0]
        raise RowError("E212", f"{count} tools are named {name}", at=name)
    if not record.is_text:
        _check_order(record)
    # rows joined to one dialog ask on without waiting for results
    _check_results(record.messages, asks_on="joined" in record.meta)
    try:
        # a row that is JSON has no surrogates, but JSON inside one of its texts may: an answer's
        encoded = msgspec.json.encode(to_row(record))
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise RowError("E113", f"{half} is half a surrogate pair", at=half) from error
    if rb"\u0000" in encoded and NUL.search(msgspec.json.encode((record.tools, record.messages))):
        raise RowError("E112", "a NUL character in a text", at="\0")


def _check_turns(record: Record) -> None:
    if not record.turns:
        hint = (
            "Add the answer that is to be learned, as a turn of the assistant; "
            "`agentlite pairs --data` and grpo take prompts without one."
        )
        raise RowError("E201", "no assistant turn" if record.messages else "no messages", hint)
    for turn in record.gold:
        if turn not in record.turns:
            raise RowError("E201", f"gold for message {turn}, which is not an assistant turn")
    for number, message in enumerate(record.messages, 1):
        says_nothing = not message.content.strip() and not message.calls
        if says_nothing and message.role in ("user", "assistant"):
            raise RowError("E216", f"the {message.role} message is empty (message {number})")


def _check_order(record: Record) -> None:
    roles = ["", *(message.role for message in record.messages)]
    for number, (before, role) in enumerate(pairwise(roles), 1):
        problem, hint = MISPLACED.get((before, role), ("", ""))
        if (before, role) == ("user", "tool"):
            result, *later = record.messages[number - 1 :]
            if any(call.id == result.call_id for message in later for call in message.calls):
                problem, hint = EARLY_RESULT
        if problem:
            raise RowError("E203", f"{problem} (message {number})", hint)
    if roles[-1] != "assistant":
        raise RowError("E203", f"the last turn is a {roles[-1]} turn, not the assistant's", NO_END)


def _check_results(messages: Sequence[Message], asks_on: bool) -> None:
    """Every result answers a call of the turn before it, and every call but those of the last turn
    has a result.
    """
    # ids of the calls that wait for a result: 2 where two calls have one id
    waiting: Counter[str] = Counter()
    calls: Sequence[Call] = ()
    for number, message in enumerate(messages, 1):
        if message.role == "tool":
            if not calls:
                raise RowError(
                    "E204",
                    f"a result without a call (message {number})",
                    "Add the call before it, or take the result out.",
                )
            if waiting[message.call_id] != 1:
                ids = ", ".join(waiting) or "none"
                raise RowError(
                    "E205",
                    f"no single call has the id {message.call_id!r} (message {number}); calls "
                    f"that wait for a result: {ids}",
                    at=message.call_id,
                )
            del waiting[message.call_id]
            continue
        if waiting and not (asks_on and message.role == "user"):
            call = next(call for call in calls if call.id in waiting)
            raise RowError(
                "E204",
                f"{call.name} (id {call.id!r}) is called, and no result follows before message "
                f"{number}",
                f'Add {{"role": "tool", "tool_call_id": "{call.id}", "content": "..."}} before '
                "that message, or take the call out.",
                call.id,
            )
        calls = message.calls
        waiting = Counter(call.id for call in calls)
