"""A completion with the gold of its step, or a whole dialog: the facts that components look at."""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from msgspec import Struct

from agentlite.core.records import (
    Call,
    CandidateKey,
    Gold,
    GoldCall,
    Message,
    Parsed,
    Tool,
    to_json,
)
from agentlite.core.tool_results import says_error
from agentlite.rendering.foreign_text import ANY_RESULT_LINE, END, IS_OWN, IS_RESULT, START
from agentlite.scoring.metrics.step_metrics import identity
from agentlite.scoring.read_turn import says_something
from agentlite.scoring.rewards.call_matching import CallMatch, CallUse, uses_by_tool

# in the words of a call that failed: TimeoutError, ReadTimeout, timed out
TIMED_OUT = re.compile(r"time[ -]?out|timed[ -]?out", re.IGNORECASE)
RESULT_START = 300  # characters of a result: what failed says so at once
OPTIMAL_STEPS = 5  # of a whole dialog, where the gold has no number
# beside the calls of a step, of an answer, and of a thought; or twice as many as the record has
# there, where those are more
MOST_STEP_WORDS, MOST_ANSWER_WORDS, MOST_THOUGHT_WORDS = 150, 400, 2500
FEW_WORDS = 25  # words beside calls that may be about anything
ECHO_WORDS = 4  # words of the user's that an answer is not made of alone
MOST_REPEATS = 5  # how often a word may stand in them on average


class TraceStep(NamedTuple):
    """One executed call of a whole dialog, and what it returned."""

    call: Call
    ok: bool
    timed_out: bool = False
    result: str = ""


def trace_step(call: Call, result: str, failed: bool) -> TraceStep:
    """Only a call that failed can have run out of time: the words of any other are its result."""
    timed_out = failed and bool(TIMED_OUT.search(result[:RESULT_START]))
    return TraceStep(call, not failed, timed_out, result)


def recorded_steps(
    messages: Sequence[Message], failed_ids: Collection[str] = ()
) -> tuple[TraceStep, ...]:
    """The calls of a recorded dialog that have a result, in the order of the results. `failed_ids`:
    those of calls of which the data says that they failed.
    """
    calls = {call.id: call for message in messages for call in message.calls}
    return tuple(
        trace_step(
            calls[message.call_id],
            message.content,
            message.call_id in failed_ids or says_error(message.content),
        )
        for message in messages
        if message.role == "tool" and message.call_id in calls
    )


class Attempt(Struct, frozen=True, dict=True):
    """All that a component may look at; what several of them need is computed once.

    `messages`: the dialog before the step; `reference`: the words that the record has at it. An
    answer is compared with them where they are there. `meta`: what else the row holds; the keys
    that its format does not know are under "extra". Where `gold.known` is False, nobody knows what
    is right: there is no gold and no reference. `history`: the calls that were carried out
    before the step, with their results; `candidate`: whose answer it is.

    With a `trace` the whole dialog is scored: its calls are those of the trace, and `messages` are
    all of it; `parsed`, `text` and `finished` are of the last text. Of a rollout, `ended` says what
    ended it, `scores` is what its world gives, and `row` is its task.
    """

    parsed: Parsed
    gold: Gold
    tools: Sequence[Tool]
    finished: bool = True
    text: str = ""
    thought: str = ""
    recorded_thought: str = ""
    trace: tuple[TraceStep, ...] | None = None
    messages: Sequence[Message] = ()
    reference: str = ""
    meta: Mapping[str, Any] = {}
    history: tuple[TraceStep, ...] = ()
    candidate: CandidateKey = CandidateKey("", 0, "", "", 0)
    ended: str = ""
    scores: Mapping[str, float] = {}
    row: Mapping[str, Any] = {}

    @property
    def is_readable(self) -> bool:
        return self.finished and not self.parsed.problem

    @property
    def is_sound(self) -> bool:
        """Whether a step does its task and nothing else. One that was cut off pays for that."""
        return not self.finished or not (self.parsed.problem or self.fault)

    @property
    def is_recorded(self) -> bool:
        """Whether the words are those of the record."""
        return self.parsed.content.strip() == self.reference.strip()

    @property
    def is_answer(self) -> bool:
        """Whether it says something of its own and makes no call."""
        content = self.parsed.content.strip()
        words = says_something(content) or (bool(content) and self.is_recorded)
        return not self.calls and self.is_readable and words and not self.fault

    @cached_property
    def is_related(self) -> bool:
        """Whether it has a word of the dialog or the recorded answer: random letters have none."""
        texts = [self.reference, *(message.content for message in self.messages)]
        if not any(texts) or self.is_recorded:
            return True
        words = {*words_of(self.parsed.content)}
        return any(not words.isdisjoint(words_of(text)) for text in texts)

    @cached_property
    def fault(self) -> str:
        """Why a step does not do its task though its text can be read; "" if it may."""
        if self.trace is not None or self.is_recorded or not self.gold.known:
            return ""
        content = self.parsed.content
        if self.calls:
            return fault_beside_calls(content, [call.name for call in self.calls], self.messages)
        if fault := fault_of_answer(content, self.tools):
            return fault
        words, reference = words_of(content), words_of(self.reference)
        questions = [message.content for message in self.messages if message.role == "user"][-1:]
        if len(words) >= ECHO_WORDS and words != reference and words in map(words_of, questions):
            return "repeats the question"
        # "Sorry, I cannot help you with that" behind a result that came: it has no word of its own
        last = self.messages[-1] if self.messages else None
        is_result = last and last.role == "tool" and not says_error(last.content)
        is_helpless = HELPLESS.search(content) and not HELPLESS.search(self.reference)
        return "says nothing of the result" if is_result and is_helpless and is_empty(words) else ""

    @cached_property
    def excess_words(self) -> int:
        """How many words a step has in its thoughts, beside its calls or as an answer, where they
        are more than it needs, or stand there to fill it; else 0.
        """
        if self.trace is not None:
            return 0
        count = word_count(self.thought)
        if count > max(MOST_THOUGHT_WORDS, 2 * word_count(self.recorded_thought)):
            return count
        if self.is_recorded or not (self.calls or self.gold.known):
            return 0
        count, words = word_count(self.parsed.content), words_of(self.parsed.content)
        reference_limit = 2 * word_count(self.reference)
        if not self.calls:
            return count if count > max(MOST_ANSWER_WORDS, reference_limit) else 0
        if count > max(MOST_STEP_WORDS, reference_limit):
            return count
        texts = (
            *(message.content for message in self.messages),
            *(to_json(tool.function) for tool in self.tools),
            self.reference,
        )
        # Words beside a call fill it where they repeat themselves, or where none is one of the
        # dialog's or the tools'. Those in another alphabet than the tools' may be about anything.
        latin_words = {word for word in words if word.isascii()}
        is_related = len(latin_words) <= FEW_WORDS or not latin_words.isdisjoint(
            chain.from_iterable(map(words_of, texts))
        )
        is_filled = count > MOST_REPEATS * len({*words}) or not is_related
        return count if count > max(FEW_WORDS, reference_limit) and is_filled else 0

    @cached_property
    def calls(self) -> Sequence[Call]:
        """The calls, sorted: the order in which they were made changes no component."""
        calls = self.parsed.calls if self.trace is None else [step.call for step in self.trace]
        return sorted(calls, key=identity)

    @cached_property
    def uses(self) -> Mapping[str, CallUse]:
        """The expected calls and those made, by tool."""
        return uses_by_tool(self.gold.calls, self.calls, self.tools)

    @cached_property
    def assignments(self) -> list[tuple[GoldCall, CallMatch | None]]:
        """Every expected call with the call that is assigned to it, if there is one."""
        return [assignment for use in self.uses.values() for assignment in use.assignments]

    @cached_property
    def carried_out_calls(self) -> int:
        """How many expected calls of a whole dialog succeeded, each at another step."""
        calls = [step.call for step in self.trace or () if step.ok]
        uses = uses_by_tool(self.gold.calls, calls, self.tools)
        return sum(use.count_satisfied() for use in uses.values())

    @property
    def failed_steps(self) -> int:
        return sum(not step.ok for step in self.trace or ())

    @property
    def optimal_steps(self) -> int:
        return self.gold.optimal_steps or OPTIMAL_STEPS


# --- The words of a step: how many they are, and what shows that they are not meant ---

# a Chinese character, a syllable of Japanese or Korean, or letters and digits side by side
WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)
# an answer that has no other words says nothing of a result
EMPTY_WORDS = frozenset(
    WORD.findall(
        "a about all also am an and any are as assist at be been but by can cannot could did do "
        "does for from had has have he help here how i if in into is it its just may me might must "
        "my of on or our please shall she should so some sorry than that the them then there these "
        "they this those to too unable very was way we were what when where which who why will "
        "with would you your"
    )
)
USER, MODEL = (START + rf"(?:{names})" + END for names in ("User|Human|用户", "Assistant|AI|助手"))
USER_LINE = re.compile(USER, re.IGNORECASE | re.MULTILINE)
OTHER_TURNS = re.compile(rf"{USER}(?=[\s\S]{{0,2000}}?{MODEL})", re.IGNORECASE | re.MULTILINE)
REPORT = re.compile(
    r"\b(?:tool|function|API|call)s? (?:has |have )?(?:returned|responded|answered|said|gave)\b",
    re.IGNORECASE,
)
# an object, a fence, a pair of tags
STRUCTURE = re.compile(
    r"\{\s*[\"'][^\"'\n]*[\"']\s*:|```(?P<fence>\w*)[^`]*```"
    r"|<(?=(?P<tag>[A-Za-z][\w-]*)\b[^<>]*>[\s\S]{0,2000}?</(?P=tag)>)[^<>]*>"
)
PROSE_TAGS = ("code", "strong", "em")  # tags of texts, beside those of one or two letters
SENTENCE = re.compile(r"[^.!?。！？\n]+")
# what makes of a sentence about a call none that announces or reports it
CONDITION = re.compile(r"\b(?:if|once|when|after|until|unless|before|yet|no|not|never)\b", re.I)
ANNOUNCEMENT = (
    r"\b(?:let me|i['’]ll|i (?:will|shall|am going to)|i['’]m going to)\s+(?:now\s+)?"
    r"(?:call|use|invoke|run|query|consult)\s+(?:the\s+)?(?:{}|(?:\w+\s+)?(?:tool|API))\b"
)
REFUSAL = (
    r"\bi\s+(?:will\s+(?:not|never)|won['’]t|cannot|can['’]t|refuse\s+to)\s+(?:ever\s+)?call\s+"
    r"(?:it|this|that|an?y? tool|{})\b(?!.*\b(?:yet|again|until|before)\b)"
)
HELPLESS = re.compile(r"\b(?:sorry|cannot|can['’]t|unable)\b|抱歉|无法", re.IGNORECASE)


def fault_beside_calls(words: str, tool_names: Sequence[str], messages: Sequence[Message]) -> str:
    """A refusal, a result, another call or a turn of the user's; "" if there is none. Structures
    that the dialog has are the speakers' own, and what a tool returned before may be told.
    `tool_names`: the tools that are called.
    """
    if _sentence_with(REFUSAL, tool_names, words):
        return "refuses the call that it makes"
    dialog_texts = [message.content for message in messages if message.role != "tool"]
    has_result = any(message.role == "tool" for message in messages)
    marks = [match[0].strip() for match in USER_LINE.finditer(words)]
    if not has_result:
        marks += [match[0].strip() for match in ANY_RESULT_LINE.finditer(words)]
        reports = filter(REPORT.search, SENTENCE.findall(words))
        marks += [report.strip() for report in reports if not CONDITION.search(report)]
    for match in STRUCTURE.finditer(words):
        fence, tag = match["fence"], match["tag"]
        is_code = fence and not IS_RESULT.fullmatch(fence)
        is_own_tag = tag and (IS_OWN.fullmatch(tag) or len(tag) < 3 or tag in PROSE_TAGS)
        if not (is_code or is_own_tag or any(match[0] in text for text in dialog_texts)):
            marks.append(match[0])
    return f"writes {marks[0]!r} beside a call" if marks else ""


def fault_of_answer(words: str, tools: Sequence[Tool]) -> str:
    """A call that is only announced, or turns behind the answer; "" if there is none."""
    promise = _sentence_with(ANNOUNCEMENT, [tool.name for tool in tools], words)
    if tools and "?" not in words and promise and not CONDITION.search(promise):
        return "announces a call and makes none"
    invented_turn = OTHER_TURNS.search(words)
    return f"invents a turn behind {invented_turn[0].strip()!r}" if invented_turn else ""


def _sentence_with(pattern: str, names: Sequence[str], text: str) -> str:
    """The first sentence that the pattern finds something in, names filled in; "" for none."""
    alternatives = "|".join(map(re.escape, names)) or "(?!)"
    search = re.compile(pattern.format(alternatives), re.IGNORECASE).search
    return next(filter(search, SENTENCE.findall(text)), "")


def words_of(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def is_empty(words: Sequence[str]) -> bool:
    """Whether none of them says anything by itself."""
    return all(w in EMPTY_WORDS or (len(w) == 1 and w.isascii() and w.isalpha()) for w in words)


def word_count(text: str) -> int:
    """The number of words. Marks and letters without blanks between them do not get around it: ten
    characters are a word at least.
    """
    return max(len(WORD.findall(text)), len("".join(text.split())) // 10)
