"""ROUGE-L as KAgentBench counts it: nltk's tokens, or characters in texts with Chinese."""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from agentlite.scoring.metrics.punkt_tokens import tokens

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
