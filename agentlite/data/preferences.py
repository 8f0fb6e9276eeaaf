"""Preference rows -> a record with the chosen answer as its last turn, and the rejected answer."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.plain_words import kind_of
from agentlite.core.records import Message, Record
from agentlite.core.row_files import Row
from agentlite.data.curation.validate import check_dialog, validate
from agentlite.data.formats import find_samples, reshape, to_record
from agentlite.data.formats.format import omit
from agentlite.data.formats.raw_rows import Raw

# how OpenAI's rows and When2Call's name what TRL's have
LAYOUTS = {
    ("preferred_output", "non_preferred_output", "input.messages"): {
        **{"chosen": "preferred_output", "rejected": "non_preferred_output"},
        **{"messages": "input.messages", "tools": "input.tools"},
    },
    ("chosen_response",): {"chosen": "chosen_response", "rejected": "rejected_response"},
}
SCORES = (("chosen_score", "rejected_score"), ("score_chosen", "score_rejected"))
ANSWERS = ("chosen", "rejected", "rejected_response", "rejected_messages")
# a text that is not a whole chain, or holds a result or a call in another model's form
UNSPLIT = ("E206", "E208", "E214", "E218", "E222")
HINT = 'A row: {"prompt": "Is it wet in Oslo?", "chosen": "Let me look.", "rejected": "No."}.'


class RecordedPreference(NamedTuple):
    """A dialog that ends with the chosen answer, and the answer that was rejected in its place.
    `scores`: of both, as the row has them, or 1 and 0.
    """

    record: Record
    rejected: Message
    scores: tuple[float, float] = (1.0, 0.0)

    @property
    def turn(self) -> int:
        return len(self.record.messages) - 1

    @property
    def rejected_record(self) -> Record:
        """The dialog that ends with the rejected answer."""
        return replace(self.record, messages=(*self.record.messages[:-1], self.rejected), gold={})


def split_preferences(raw: Raw) -> list[Raw]:
    """A row, or where several texts are rejected in it, one for each of them."""
    texts = raw.value.get("rejected_response") if isinstance(raw.value, Mapping) else None
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        return [raw]
    return [raw._replace(value={**raw.value, "rejected_response": text}) for text in texts]


def read_preference(row: Row, source: str = "") -> RecordedPreference:
    """The preference of a row with one rejected answer. `source`: the file it is from.

    Read are TRL's rows (`prompt`, `chosen`, `rejected`, as texts or as messages; `chosen` and
    `rejected` may repeat the prompt), ms-swift's (`rejected_response` or `rejected_messages` beside
    `messages`, or beside `query` and `response`), LLaMA-Factory's (`chosen` and `rejected`
    beside `conversations`, or beside `instruction`), each with `system` and `tools`, and OpenAI's
    (`preferred_output` and `non_preferred_output` beside `input`). Both sides are read by the
    format of the dialog, so calls in either are calls.

    Raises RowError: E202 for another shape, E219 for sides that are the same, that differ before
    the last turn or whose scores say the opposite, and what the format refuses a side for.
    """
    scores: list[list[Any]] = [[row.get(key) for key in keys] for keys in SCORES]
    numbers = (pair for pair in scores if all(isinstance(score, int | float) for score in pair))
    chosen_score, rejected_score = map(float, next(numbers, (1.0, 0.0)))
    if chosen_score < rejected_score:
        reason = f"chosen scores {chosen_score:g}, less than rejected: {rejected_score:g}"
        raise RowError("E219", reason)
    chosen_row, rejected_row = _answer_rows(row)
    chosen = _read_side(chosen_row, "chosen")
    chosen = replace(chosen, source=chosen.source or source)
    validate(chosen)
    rejected = _rejected_answer(rejected_row, chosen_row, chosen)
    if rejected == chosen.messages[-1]:
        raise RowError("E219", "chosen and rejected are the same")
    preference = RecordedPreference(chosen, rejected, (chosen_score, rejected_score))
    # a rejected call may be wrong: that is what it teaches
    check_dialog(preference.rejected_record)
    return preference


def _rejected_answer(row: Row, chosen_row: Row, chosen: Record) -> Message:
    """The turn that is rejected. One that holds a chain, such as a call with an invented result, is
    rejected as it stands. Raises RowError, E219 where the dialogs before it differ.
    """
    try:
        rejected = _read_side(row, "rejected")
    except RowError as error:
        if error.code not in UNSPLIT:
            raise
    else:
        if (rejected.messages[:-1], rejected.tools) == (chosen.messages[:-1], chosen.tools):
            return rejected.messages[-1]
    # as they stand: a chain that is not split on one side must not be split on the other
    rejected, unsplit = (_read_side(side, "rejected", split=False) for side in (row, chosen_row))
    is_same = (rejected.messages[:-1], rejected.tools) == (unsplit.messages[:-1], unsplit.tools)
    if not is_same or len(unsplit.turns) != len(chosen.turns):
        raise RowError("E219", "chosen and rejected differ before their last turn")
    return rejected.messages[-1]


def _read_side(row: Row, side: str, *, split: bool = True) -> Record:
    try:
        name, row_samples = find_samples(row)
        if len(row_samples) != 1:
            raise RowError("E201", f"a row of {name} that holds several samples")
        record = to_record(row_samples[0], name, {"names": {}}, split=split)
    except RowError as error:
        raise RowError(error.code, f"{side}: {error.reason}", error.hint, error.at) from error
    if not record.messages or record.messages[-1].role != "assistant":
        raise RowError("E203", f"{side}: does not end with a turn of the assistant")
    return record


def _answer_rows(row: Row) -> tuple[Row, Row]:
    """The row with the chosen answer, and with the rejected one, as rows of other formats."""
    row = reshape(row, LAYOUTS)
    common = omit(row, *ANSWERS)
    if (answers := row.get("rejected_messages")) is not None:
        return common, {**common, "messages": answers}
    if (answer := row.get("rejected_response")) is not None:
        return common, _replace_answer(common, answer)
    if row.get("chosen") is None or row.get("rejected") is None:
        keys = ", ".join(map(str, row)) or "none"
        raise RowError("E202", f"is not a preference: keys {keys}", HINT)
    return _with_prompt(common, row["chosen"]), _with_prompt(common, row["rejected"])


def _replace_answer(row: Row, answer: Any) -> Row:
    """ms-swift's row with another answer in place of its last one."""
    if "response" in row and "messages" not in row:
        return {**row, "response": answer}
    messages = row.get("messages")
    if not isinstance(messages, list):
        raise RowError("E202", "rejected_response needs messages, or query and response", HINT)
    # the answer may be several turns: ms-swift writes calls as turns of their own
    asking_roles = ("user", "tool", "tool_response")
    roles = [turn.get("role") if isinstance(turn, Mapping) else None for turn in messages]
    end = max((count for count, role in enumerate(roles, 1) if role in asking_roles), default=0)
    return {**row, "messages": [*messages[:end], *_turns(answer)]}


def _with_prompt(common: Row, answer: Any) -> Row:
    """TRL's and LLaMA-Factory's rows with one of their answers, as a dialog."""
    if isinstance(common.get("instruction"), str):
        return {**common, "output": answer}
    if isinstance(common.get("conversations"), list):
        turn = answer if isinstance(answer, Mapping) else {"from": "gpt", "value": answer}
        return {**common, "conversations": [*common["conversations"], turn]}
    turns, prompt = _turns(answer), common.get("prompt", common.get("question"))
    if turns[0].get("role") == "assistant":  # otherwise the answer repeats the prompt
        before = common["messages"] if isinstance(common.get("messages"), list) else prompt
        if isinstance(before, str):
            before = [{"role": "user", "content": before}]
        if not isinstance(before, list):
            reason = "is not a preference: no prompt or messages come before its answers"
            raise RowError("E202", reason, HINT)
        turns = [*before, *turns]
    system = common.get("system")
    has_system = any(isinstance(turn, Mapping) and turn.get("role") == "system" for turn in turns)
    if isinstance(system, str) and system and not has_system:
        turns = [{"role": "system", "content": system}, *turns]
    return {**omit(common, "prompt", "question", "system", "messages"), "messages": turns}


def _turns(answer: Any) -> list[Any]:
    if isinstance(answer, str):
        return [{"role": "assistant", "content": answer}]
    turns = [answer] if isinstance(answer, Mapping) else answer
    if isinstance(turns, list) and turns and all(isinstance(turn, Mapping) for turn in turns):
        return turns
    raise RowError("E202", f"an answer is {kind_of(answer)}, not text or messages", HINT)
