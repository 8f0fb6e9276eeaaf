"""The words of a step: how many they are, and what shows that they are not meant."""

import re
from collections.abc import Sequence

from agentlite.core.records import Message, Tool
from agentlite.rendering.foreign_text import ANY_RESULT_LINE, END, START

# a Chinese character, a syllable of Japanese or Korean, or letters and digits side by side
WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)
# an answer that has no other words says nothing of a result
EMPTY = frozenset(
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
    r"\{\s*[\"'][^\"'\n]*[\"']\s*:|```\w*|<(?=([A-Za-z][\w-]*)\b[^<>]*>[\s\S]{0,2000}?</\1>)[^<>]*>"
)
# a call that is announced, without a condition, and one that is refused
ANNOUNCED = re.compile(
    r"\b(?:let me|i['’]ll|i (?:will|shall|am going to)|i['’]m going to)\s+(?:\w+\s+){0,2}?"
    r"(?:call|use|invoke|run|query|consult)\b(?![^.\n]{0,200}\b(?:if|once|when|after|unless)\b)"
    r"[^.\n]{0,80}",
    re.IGNORECASE,
)
REFUSED = re.compile(
    r"\bi\s+(?:will\s+(?:not|never)|won['’]t|cannot|can['’]t|refuse\s+to)\s+(?:ever\s+)?call\b"
    r"(?![^.\n]{0,200}\b(?:yet|again|until|before)\b)",
    re.IGNORECASE,
)


def fault_beside_calls(words: str, before: Sequence[Message]) -> str:
    """A refusal, a result, another call or a turn of the user's; "" if there is none. Structures
    that the dialog has are the speakers' own, and what a tool returned before may be told.
    """
    if REFUSED.search(words):
        return "refuses the call that it makes"
    own = [message.content for message in before if message.role != "tool"]
    told = any(message.role == "tool" for message in before)
    lines = (ANY_RESULT_LINE, USER_LINE) if told else (ANY_RESULT_LINE, USER_LINE, REPORT)
    marks = [mark[0].strip() for line in lines if (mark := line.search(words))]
    structures = (mark[0] for mark in STRUCTURE.finditer(words))
    marks += [mark for mark in structures if not any(mark in text for text in own)]
    return f"writes {marks[0]!r} beside a call" if marks else ""


def fault_of_answer(words: str, tools: Sequence[Tool]) -> str:
    """A call that is only announced, or turns behind the answer; "" if there is none."""
    names = [*(tool.name for tool in tools), "tool", "function", "API"]
    announced = ANNOUNCED.search(words)
    if announced and any(name in announced[0] for name in names):
        return "announces a call and makes none"
    turns = OTHER_TURNS.search(words)
    return f"invents a turn behind {turns[0].strip()!r}" if turns else ""


def words_of(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def is_empty(words: Sequence[str]) -> bool:
    """Whether none of them says anything by itself."""
    return all(
        word in EMPTY or (len(word) == 1 and word.isascii() and word.isalpha()) for word in words
    )


def word_count(text: str) -> int:
    """The number of words. Marks and letters without blanks between them do not get around it: ten
    characters are a word at least.
    """
    return max(len(WORD.findall(text)), len("".join(text.split())) // 10)
