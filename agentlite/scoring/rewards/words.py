"""The words of a step: how many they are, and what shows that they are not meant."""

import re
from collections.abc import Sequence

from agentlite.core.records import Message, Tool
from agentlite.rendering.foreign_text import ANY_RESULT_LINE, END, IS_OWN, IS_RESULT, START

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
    r"\{\s*[\"'][^\"'\n]*[\"']\s*:|```(?P<fence>\w*)[^`]*```"
    r"|<(?=(?P<tag>[A-Za-z][\w-]*)\b[^<>]*>[\s\S]{0,2000}?</(?P=tag)>)[^<>]*>"
)
PROSE = ("code", "strong", "em")  # tags of texts, beside those of one or two letters
SENTENCE = re.compile(r"[^.!?。！？\n]+")
# what makes of a sentence about a call none that announces or reports it
CONDITION = re.compile(r"\b(?:if|once|when|after|until|unless|before|yet|no|not|never)\b", re.I)
ANNOUNCED = (
    r"\b(?:let me|i['’]ll|i (?:will|shall|am going to)|i['’]m going to)\s+(?:now\s+)?"
    r"(?:call|use|invoke|run|query|consult)\s+(?:the\s+)?(?:{}|(?:\w+\s+)?(?:tool|API))\b"
)
REFUSED = (
    r"\bi\s+(?:will\s+(?:not|never)|won['’]t|cannot|can['’]t|refuse\s+to)\s+(?:ever\s+)?call\s+"
    r"(?:it|this|that|an?y? tool|{})\b(?!.*\b(?:yet|again|until|before)\b)"
)
HELPLESS = re.compile(r"\b(?:sorry|cannot|can['’]t|unable)\b|抱歉|无法", re.IGNORECASE)


def fault_beside_calls(words: str, called: Sequence[str], before: Sequence[Message]) -> str:
    """A refusal, a result, another call or a turn of the user's; "" if there is none. Structures
    that the dialog has are the speakers' own, and what a tool returned before may be told.
    `called`: the tools that are called.
    """
    if _sentence_with(REFUSED, called, words):
        return "refuses the call that it makes"
    own = [message.content for message in before if message.role != "tool"]
    told = any(message.role == "tool" for message in before)
    marks = [mark[0].strip() for mark in USER_LINE.finditer(words)]
    if not told:
        marks += [mark[0].strip() for mark in ANY_RESULT_LINE.finditer(words)]
        reports = filter(REPORT.search, SENTENCE.findall(words))
        marks += [report.strip() for report in reports if not CONDITION.search(report)]
    for mark in STRUCTURE.finditer(words):
        fence, tag = mark["fence"], mark["tag"]
        if fence and not IS_RESULT.fullmatch(fence):
            continue  # code that is shown
        if tag and (IS_OWN.fullmatch(tag) or len(tag) < 3 or tag in PROSE):
            continue
        if not any(mark[0] in text for text in own):
            marks.append(mark[0])
    return f"writes {marks[0]!r} beside a call" if marks else ""


def fault_of_answer(words: str, tools: Sequence[Tool]) -> str:
    """A call that is only announced, or turns behind the answer; "" if there is none."""
    announced = _sentence_with(ANNOUNCED, [tool.name for tool in tools], words)
    if tools and "?" not in words and announced and not CONDITION.search(announced):
        return "announces a call and makes none"
    turns = OTHER_TURNS.search(words)
    return f"invents a turn behind {turns[0].strip()!r}" if turns else ""


def _sentence_with(pattern: str, names: Sequence[str], text: str) -> str:
    """The first sentence that the pattern finds something in, names filled in; "" for none."""
    either = "|".join(map(re.escape, names)) or "(?!)"
    search = re.compile(pattern.format(either), re.IGNORECASE).search
    return next(filter(search, SENTENCE.findall(text)), "")


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
