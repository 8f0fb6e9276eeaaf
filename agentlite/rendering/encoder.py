"""Text -> token ids where it stands: at the start of a row, or behind other text."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# What a tokenizer puts before a text that does not begin with a blank.
PREFIXES = {
    "Prepend": None,
    "Metaspace": {"prepend_scheme": "never"},
    "ByteLevel": {"add_prefix_space": False},
}


class Encoder:
    """The ids of texts, none added, each in its place: SentencePiece's tokenizers and some others
    put a prefix (`▁`, a blank) before a text, which does not stand behind other text.
    """

    def __init__(self, tokenizer: "Tokenizer"):
        self.added = frozenset(tokenizer.get_added_tokens_decoder())
        self.tokenizer = tokenizer
        self.without_prefix, self.only_first = without_prefix(tokenizer)

    def encode(self, text: str, before: Sequence[int] = ()) -> list[int]:
        """`before`: the ids of what stands before the text, of which only the last one counts."""
        return list(self._encoded(text, before).ids)

    def offsets(self, text: str, before: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Where in the text each of its tokens begins and ends."""
        return list(self._encoded(text, before).offsets)

    def _encoded(self, text: str, before: Sequence[int]) -> Any:
        # behind other text, or behind an added token if only the very first text has a prefix
        is_inside = bool(before) and (self.only_first or before[-1] not in self.added)
        tokenizer = self.without_prefix if is_inside else self.tokenizer
        return tokenizer.encode(text, add_special_tokens=False)


def without_prefix(tokenizer: "Tokenizer") -> tuple["Tokenizer", bool]:
    """The same tokenizer but for its prefix, and whether only the very first text has that."""
    from tokenizers import Tokenizer

    parts = {
        "normalizer": described(tokenizer.normalizer),
        "pre_tokenizer": described(tokenizer.pre_tokenizer),
    }
    changed = {key: _part_without_prefix(part) or None for key, part in parts.items()}
    if changed == {key: part or None for key, part in parts.items()}:
        return tokenizer, False
    only_first = '"prepend_scheme": "first"' in json.dumps(parts)
    other = json.loads(tokenizer.to_str()) | changed
    return Tokenizer.from_str(json.dumps(other)), only_first


def _part_without_prefix(part: Any) -> Any:
    """A normalizer or pre-tokenizer as tokenizer.json describes it; None if nothing is left."""
    for key in ("normalizers", "pretokenizers"):
        if key in part:
            return {**part, key: list(filter(None, map(_part_without_prefix, part[key])))}
    if part.get("type") not in PREFIXES:
        return part
    change = PREFIXES[part["type"]]
    return None if change is None else {**part, **change}


def described(component: Any) -> dict[str, Any]:
    """As tokenizer.json describes it."""
    description: dict[str, Any] = json.loads(component.__getstate__()) if component else {}
    return description
