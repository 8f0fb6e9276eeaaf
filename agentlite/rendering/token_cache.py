"""Text -> token ids, remembering chunks: most words of a data set repeat.

A chunk ends after an ASCII letter or digit that stands before another ASCII character, and after
ASCII punctuation before a blank. No rule below lets a match run across such a place or look beyond
it, so that the ids of the chunks are those of the whole text. Tokenizers with other rules are left
to themselves.
"""

import json
import re
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MARKS = r"!-/:-@\[-`{-~"
BREAK = rf"{MARKS} \t\n\r"
CHUNK = re.compile(
    # what the next line finds as well, faster
    rf" ?[{MARKS}]*+[A-Za-z0-9]++(?![^{BREAK}])|[{MARKS}]++(?![^ ])"
    rf"|.+?(?:(?<=[A-Za-z0-9])(?![^{BREAK}])|(?<=[{MARKS}])(?![^ ])|\Z)",
    re.DOTALL,
)
LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KNOWN = {
    LETTERS + numbers + OTHERS for numbers in (r"\p{N}", r"\p{N}{1,3}")
}  # Qwen's and Llama 3's
LONGEST, MOST = 32, 50_000


class TokenCache(dict[str, list[int]]):
    """The ids of each chunk; one that is not here is asked of the tokenizer."""

    def __init__(self, tokenizer: "Tokenizer"):
        added = {
            token.content: [number]
            for number, token in tokenizer.get_added_tokens_decoder().items()
        }
        super().__init__(added)
        self.tokenizer = tokenizer
        longest_first = sorted(added, key=len, reverse=True)
        self.added = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")

    def __missing__(self, chunk: str) -> list[int]:
        ids = list(self.tokenizer.encode(chunk, add_special_tokens=False).ids)
        if len(chunk) <= LONGEST and len(self) < MOST:
            self[chunk] = ids
        return ids

    def encode(self, text: str) -> list[int]:
        between = self.added.split(text)  # every second one is an added token
        chunks = (
            CHUNK.findall(part) if index % 2 == 0 else (part,) for index, part in enumerate(between)
        )
        return list(chain.from_iterable(map(self.__getitem__, chain.from_iterable(chunks))))


def encoder(tokenizer: "Tokenizer") -> Callable[[str], list[int]]:
    """What gives the ids that `tokenizer.encode` gives, without those it would add."""
    if _keeps_chunks_apart(tokenizer):
        return TokenCache(tokenizer).encode
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def _keeps_chunks_apart(tokenizer: "Tokenizer") -> bool:
    steps = [described(tokenizer.pre_tokenizer)]
    if steps[0].get("type") == "Sequence":
        steps = steps[0]["pretokenizers"]
    *before, last = steps
    added = tokenizer.get_added_tokens_decoder().values()
    if any(
        token.lstrip or token.rstrip or token.single_word or token.normalized for token in added
    ):
        return False
    return (
        described(tokenizer.normalizer).get("type") in (None, "NFC")
        and last.get("type") == "ByteLevel"
        and not last["add_prefix_space"]
        and all(step["type"] == "Digits" or _splits(step) for step in before)
        and (last["use_regex"] or any(map(_splits, before)))
    )


def _splits(step: dict[str, Any]) -> bool:
    return (step["type"], step.get("behavior"), step.get("invert")) == (
        "Split",
        "Isolated",
        False,
    ) and (step["pattern"].get("Regex") in KNOWN)


def described(component: Any) -> dict[str, Any]:
    """As tokenizer.json describes it; components of the user's own, in Python, have no
    description.
    """
    try:
        description: dict[str, Any] = json.loads(component.__getstate__()) if component else {}
    except Exception:  # the tokenizers library raises a bare Exception
        return {"type": "unknown"}
    return description
