"""A grammar of llguidance -> the tokens that may come next in one answer."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import llguidance


class GuidedChoice:
    """A logits processor of transformers for one row, which `follow` tells each token that was
    chosen. Where no token is allowed the answer ends.
    """

    def __init__(self, tokenizer: Any, grammar: str, ends: set[int]):
        import llguidance

        self.ends = sorted(ends)
        self.matcher = llguidance.LLMatcher(_guided(tokenizer), grammar, log_level=0)

    @property
    def is_over(self) -> bool:
        """Whether nothing may follow what was chosen."""
        return self.matcher.is_stopped()

    def follow(self, token: int) -> None:
        if token not in self.ends:
            self.matcher.consume_token(token)

    def __call__(self, _: Any, logits: Any) -> Any:
        import numpy
        import torch

        # one bit a token of the tokenizer; a model may have more columns than that
        bits = numpy.frombuffer(self.matcher.compute_bitmask(), numpy.uint8)
        allowed = numpy.unpackbits(bits, count=logits.shape[-1], bitorder="little").astype(bool)
        if self.matcher.is_accepting() or not allowed.any():
            allowed[self.ends] = True
        refused = torch.from_numpy(~allowed).to(logits.device)
        return logits.masked_fill(refused, -torch.inf)


@lru_cache(maxsize=1)
def _guided(tokenizer: Any) -> "llguidance.LLTokenizer":
    """Made once: about a second for 100,000 tokens."""
    from llguidance.hf import from_tokenizer

    return from_tokenizer(tokenizer)
