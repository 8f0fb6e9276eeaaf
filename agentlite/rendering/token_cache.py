"""Text -> token ids where it stands, remembering chunks: most words of a data set repeat.

A chunk ends after an ASCII letter or digit that stands before another ASCII character, and after
ASCII punctuation before a blank. No rule below lets a match run across such a place or look beyond
it, so that the ids of the chunks are those of the whole text. Tokenizers with other rules are left
to themselves.
"""

import json
import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PUNCTUATION = r"!-/:-@\[-`{-~"
BREAK = rf"{PUNCTUATION} \t\n\r"
# "wet in Oslo? x=1, 北京 y" -> "wet", " in", " Oslo", "?", " x", "=1", ",", " 北京 y"
CHUNK = re.compile(
    # what the next line finds as well, faster
    rf" ?[{PUNCTUATION}]*+[A-Za-z0-9]++(?![^{BREAK}])|[{PUNCTUATION}]++(?![^ ])"
    rf"|.+?(?:(?<=[A-Za-z0-9])(?![^{BREAK}])|(?<=[{PUNCTUATION}])(?![^ ])|\Z)",
    re.DOTALL,
)
LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KNOWN_SPLITS = {
    LETTERS + numbers + OTHERS for numbers in (r"\p{N}", r"\p{N}{1,3}")
}  # Qwen's and Llama 3's
LONGEST_CHUNK, MOST_CHUNKS = 32, 50_000
# What a tokenizer puts before a text that does not begin with a blank.
PREFIXES = {
    "Prepend": None,
    "Metaspace": {"prepend_scheme": "never"},
    "ByteLevel": {"add_prefix_space": False},
}


class TokenCache(dict[str, list[int]]):
    """The ids of each chunk; one that is not here is asked of the tokenizer."""

    def __init__(self, tokenizer: "Tokenizer"):
        added_ids = {
            token.content: [number]
            for number, token in tokenizer.get_added_tokens_decoder().items()
        }
        super().__init__(added_ids)
        self.tokenizer = tokenizer
        longest_first = sorted(added_ids, key=len, reverse=True)
        self.added_token = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")

    def __missing__(self, chunk: str) -> list[int]:
        ids = list(self.tokenizer.encode(chunk, add_special_tokens=False).ids)
        if len(chunk) <= LONGEST_CHUNK and len(self) < MOST_CHUNKS:
            self[chunk] = ids
        return ids

    def encode(self, text: str) -> list[int]:
        pieces = self.added_token.split(text)  # every second one is an added token
        chunks = (
            (piece,) if index % 2 else CHUNK.findall(piece) for index, piece in enumerate(pieces)
        )
        return list(chain.from_iterable(map(self.__getitem__, chain.from_iterable(chunks))))


class Encoder:
    """The ids of texts, none added, each in its place: SentencePiece's tokenizers and some others
    put a prefix (`▁`, a blank) before a text, which does not stand behind other text.
    """

    def __init__(self, tokenizer: "Tokenizer"):
        self.added_ids = frozenset(tokenizer.get_added_tokens_decoder())
        self.tokenizer = tokenizer
        self.tokenizer_inside, self.only_first = remove_prefix(tokenizer)
        self.encode_at_start = self.encode_inside = make_encode(tokenizer)
        if self.tokenizer_inside is not tokenizer:
            self.encode_inside = make_encode(self.tokenizer_inside)

    def encode(self, text: str, before: Sequence[int] = ()) -> list[int]:
        """`before`: the ids of what stands before the text, of which only the last one counts."""
        return self.encode_inside(text) if self._is_inside(before) else self.encode_at_start(text)

    def offsets(self, text: str, before: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Where in the text each of its tokens begins and ends."""
        tokenizer = self.tokenizer_inside if self._is_inside(before) else self.tokenizer
        return list(tokenizer.encode(text, add_special_tokens=False).offsets)

    def _is_inside(self, before: Sequence[int]) -> bool:
        """Behind other text, or behind an added token if only the very first text has it."""
        return bool(before) and (self.only_first or before[-1] not in self.added_ids)


def remove_prefix(tokenizer: "Tokenizer") -> tuple["Tokenizer", bool]:
    """The same tokenizer but for its prefix, and whether only the very first text has that."""
    from tokenizers import Tokenizer

    components = {
        "normalizer": describe(tokenizer.normalizer),
        "pre_tokenizer": describe(tokenizer.pre_tokenizer),
    }
    changed = {key: _remove_prefix_of(component) or None for key, component in components.items()}
    if changed == {key: component or None for key, component in components.items()}:
        return tokenizer, False
    only_first = '"prepend_scheme": "first"' in json.dumps(components)
    config = json.loads(tokenizer.to_str()) | changed
    return Tokenizer.from_str(json.dumps(config)), only_first


def _remove_prefix_of(component: Any) -> Any:
    """A normalizer or pre-tokenizer without its prefix; None if nothing is left."""
    for key in ("normalizers", "pretokenizers"):
        if key in component:
            return {**component, key: list(filter(None, map(_remove_prefix_of, component[key])))}
    if component.get("type") not in PREFIXES:
        return component
    change = PREFIXES[component["type"]]
    return None if change is None else {**component, **change}


def make_encode(tokenizer: "Tokenizer") -> Callable[[str], list[int]]:
    """What gives the ids that `tokenizer.encode` gives, without those it would add."""
    if _keeps_chunks_apart(tokenizer):
        return TokenCache(tokenizer).encode
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def _keeps_chunks_apart(tokenizer: "Tokenizer") -> bool:
    # it splits as Qwen's or Llama 3's tokenizer does, and no added token takes blanks beside it
    steps = [describe(tokenizer.pre_tokenizer)]
    if steps[0].get("type") == "Sequence":
        steps = steps[0]["pretokenizers"]
    *before, last = steps
    added = tokenizer.get_added_tokens_decoder().values()
    if any(t.lstrip or t.rstrip or t.single_word or t.normalized for t in added):
        return False
    splits = [step for step in before if step["type"] != "Digits"]
    return (
        describe(tokenizer.normalizer).get("type") in (None, "NFC")
        and last.get("type") == "ByteLevel"
        and not last["add_prefix_space"]
        and all(
            step["type"] == "Split"
            and (step["behavior"], step["invert"]) == ("Isolated", False)
            and step["pattern"].get("Regex") in KNOWN_SPLITS
            for step in splits
        )
        and bool(last["use_regex"] or splits)
    )


def describe(component: Any) -> dict[str, Any]:
    """A normalizer or pre-tokenizer as tokenizer.json describes it; {} for none."""
    return dict(json.loads(component.__getstate__())) if component else {}
