"""ROUGE-L as KAgentBench counts it: nltk's tokens, or characters in texts with Chinese."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, lru_cache

# What Punkt's English model knows, so that nltk needs none of its data: abbreviations, and words
# that begin a sentence behind one. Its words that are written small are left out.
ABBREVIATIONS = """
a.m adm aug ave bros c calif co col colo conn corp ct d d.c dec dr e f feb fla fri ft g ga gen h
ill inc jan jr k l lt ltd m maj messrs mich minn mr mrs ms n n.y nov oct okla p p.m pa ph.d prof r
rep s sen sep sept sr st t tenn tues u.k u.n u.s u.s.a v va vs vt w wash wed wis yr
"""
STARTERS = """
according although among both but despite even he however i if in indeed instead it many meanwhile
moreover most nevertheless nor separately similarly since so some the there these they this though
thus under when while yet
"""
# rouge_chinese cuts sentences here and puts them together again: what stays is a cut inside a token
CUTS = [
    re.compile(pattern)
    for pattern in (r"([。！？?])(?=[^”’])", r"(\.{6})(?=[^”’])", r"(…{2})(?=[^”’])")
]


def rouge_l(gold: object, text: object) -> float:
    """The F measure of their longest common subsequence of tokens; 0 where one has none."""
    expected, given = mixed_tokens(str(gold)), mixed_tokens(str(text))
    if not expected or not given:
        return 0.0
    common = common_length(expected, given)
    precision, recall = common / len(given), common / len(expected)
    return 2 * precision * recall / (precision + recall + 1e-8)


@lru_cache(maxsize=4096)
def mixed_tokens(text: str) -> tuple[str, ...]:
    """A token with a letter that has no case (`Lo`: Chinese, say) is taken apart."""
    parted = (
        list(token) if any(unicodedata.category(c) == "Lo" for c in token) else [token]
        for token in tokens(text)
    )
    joined = " ".join(piece for token in parted for piece in token)
    for cut in CUTS:
        joined = cut.sub(r"\1 ", joined)
    return tuple(joined.split())


def tokens(text: str) -> list[str]:
    """As `nltk.word_tokenize` has them: the words of each of Punkt's sentences."""
    split_sentences, split_words = _nltk()
    return [word for sentence in split_sentences(text) for word in split_words(sentence)]


@cache
def _nltk() -> tuple[Callable[[str], list[str]], Callable[[str], list[str]]]:
    from nltk.tokenize.destructive import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    english = PunktParameters()
    english.abbrev_types = set(ABBREVIATIONS.split())
    english.sent_starters = set(STARTERS.split())
    return PunktSentenceTokenizer(english).tokenize, NLTKWordTokenizer().tokenize


def common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence, a bit for each token of the first (Hyyro
    2004).
    """
    places: dict[str, int] = {}
    for index, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << index
    whole = (1 << len(first)) - 1
    unmatched = whole
    for token in second:
        matched = unmatched & places.get(token, 0)
        unmatched = (unmatched + matched | unmatched - matched) & whole
    return len(first) - unmatched.bit_count()
