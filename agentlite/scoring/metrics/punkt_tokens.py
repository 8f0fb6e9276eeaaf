"""Text -> tokens: Punkt's sentences and the words of nltk's `word_tokenize`, without its data.

Punkt was trained on English newspapers. Its list of words that are written small is left out
here; its abbreviations and the words that begin a sentence are those below.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

ABBREVIATIONS = {
    "a.m",
    "adm",
    "aug",
    "ave",
    "bros",
    "c",
    "calif",
    "co",
    "col",
    "colo",
    "conn",
    "corp",
    "ct",
    "d",
    "d.c",
    "dec",
    "dr",
    "e",
    "f",
    "feb",
    "fla",
    "fri",
    "ft",
    "g",
    "ga",
    "gen",
    "h",
    "ill",
    "inc",
    "jan",
    "jr",
    "k",
    "l",
    "lt",
    "ltd",
    "m",
    "maj",
    "messrs",
    "mich",
    "minn",
    "mr",
    "mrs",
    "ms",
    "n",
    "n.y",
    "nov",
    "oct",
    "okla",
    "p",
    "p.m",
    "pa",
    "ph.d",
    "prof",
    "r",
    "rep",
    "s",
    "sen",
    "sep",
    "sept",
    "sr",
    "st",
    "t",
    "tenn",
    "tues",
    "u.k",
    "u.n",
    "u.s",
    "u.s.a",
    "v",
    "va",
    "vs",
    "vt",
    "w",
    "wash",
    "wed",
    "wis",
    "yr",
}
STARTERS = {
    "according",
    "although",
    "among",
    "both",
    "but",
    "despite",
    "even",
    "he",
    "however",
    "i",
    "if",
    "in",
    "indeed",
    "instead",
    "it",
    "many",
    "meanwhile",
    "moreover",
    "most",
    "nevertheless",
    "nor",
    "separately",
    "similarly",
    "since",
    "so",
    "some",
    "the",
    "there",
    "these",
    "they",
    "this",
    "though",
    "thus",
    "under",
    "when",
    "while",
    "yet",
}
BLANKS = " \t\n\r\x0b\x0c"
NO_WORD = r"[)\";}\]*:@'({\[‘’“”«»?!]"
RUN = r"-{2,}|\.{2,}|(?:\.\s){2,}\."
END = re.compile(rf"[.?!](?=(?P<after>{NO_WORD}|\s+(?P<next>\S+)))")
PIECE = re.compile(
    rf"{RUN}|(?=[^(\"`{{\[:;&#*@)}}\]\-,])\S+?(?=\s|$|{NO_WORD}|{RUN}|,(?=$|\s|{NO_WORD}|{RUN}))|\S"
)
CLOSING = re.compile(r"[\"')\]}‘’“”«»]+?(?:\s+|(?=--)|$)", re.MULTILINE)
INITIAL = re.compile(r"[^\W\d]")
NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*")
WORDS = [
    (re.compile(pattern), becomes)
    for pattern, becomes in (
        (r"[«“‘„]|``|`", r" \g<0> "),
        (r'^"', " `` "),
        (r"([ ([{<])(?:\"|'')", r"\1 `` "),
        (r"(?i)(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", "' "),
        (r"([^.])(\.)([\])}>\"'»”’ ]*+)\s*$", r"\1 \2 \3 "),
        (r"([:,])(\D)", r" \1 \2"),
        (r"([:,])$", r" \1 "),
        (r"\.{2,}|[;@#$%&?!‒–—―]", r" \g<0> "),
        (r"([^'])' ", r"\1 ' "),
        (r"[*\][(){}<>]|--", r" \g<0> "),
        (r"^|$", " "),
        (r"[»”’]", r" \g<0> "),
        (r"''|\"", " '' "),
        (r"\s+", " "),
        (r"([^' ])('[sSmMdD]?) ", r"\1 \2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
        (r"(?i)\b(can)(not)\b|\b(d)('ye)\b|\b(gim|lem)(me)\b|\b(gon)(na)\b|\b(got)(ta)\b", None),
        (r"(?i)\b(more)('n)\b|\b(wan)(na)(?=\s)| ('t)(is)\b| ('t)(was)\b", None),
    )
]


def tokens(text: str) -> list[str]:
    """As `nltk.word_tokenize` has them: quotes, brackets, clitics and the full stop of a sentence
    stand alone.
    """
    return [token for sentence in sentences(text) for token in words(sentence)]


def words(sentence: str) -> list[str]:
    for pattern, becomes in WORDS:
        sentence = pattern.sub(becomes if becomes is not None else _parted, sentence)
    return sentence.split()


def _parted(match: re.Match[str]) -> str:
    first, second = filter(None, match.groups())
    return f" {first} {second} "


def sentences(text: str) -> Iterator[str]:
    """Cut where the last stop of a word ends a sentence; quotes and brackets that close stay with
    what they close.
    """
    start = 0
    for end, following in _cuts(text):
        closing = CLOSING.match(text, following)
        if closing and start < following:
            end, following = following + len(closing[0].rstrip()), closing.end()
        if text[start:end]:
            yield text[start:end]
        start = max(start, following)
    if rest := text[start:].rstrip():
        yield rest


def _cuts(text: str) -> Iterator[tuple[int, int]]:
    """Where a sentence ends, and where the next one begins: judged at the last stop of each word
    between blanks.
    """
    word = 0
    last: re.Match[str] | None = None
    for stop in END.finditer(text):
        looked = last.start() if last else 0
        blank = max(text.rfind(blank, looked + 1, stop.start()) for blank in BLANKS)
        begins = blank + 1 or word
        if last and looked <= begins:
            yield from _cut(text, word, last)
        word, last = begins, stop
    if last:
        yield from _cut(text, word, last)


def _cut(text: str, word: int, stop: re.Match[str]) -> Iterator[tuple[int, int]]:
    if _breaks(text[word : stop.end()] + stop["after"]):
        yield stop.end(), stop.start("next") if stop["next"] else stop.end()


def _breaks(context: str) -> bool:
    """Whether a sentence ends before the last piece of a word and what follows it."""
    pieces = PIECE.findall(context)
    return any(_ends(piece, after) for piece, after in pairwise(pieces))


def _ends(piece: str, after: str) -> bool:
    core = piece[:-1]
    if piece in (".", "?", "!"):
        return True
    if not piece.endswith("."):
        return False
    known = core.lower() in ABBREVIATIONS or core.lower().rpartition("-")[2] in ABBREVIATIONS
    initial = INITIAL.fullmatch(core)
    if not initial and (known or piece.endswith("..")):
        return after[0].isupper() and after.lower().removesuffix(".") in STARTERS
    if initial or NUMBER.fullmatch(core):
        return not (
            known or after in ";:,.!?" or after[0].islower() or (initial and after[0].isupper())
        )
    return True
