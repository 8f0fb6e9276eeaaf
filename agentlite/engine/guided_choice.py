"""The next token of an answer that a guide allows: the likeliest of these, or one by its seed."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from agentlite.core.json_guide import Guide
from agentlite.engine.decoding import Decoding

SHORTLIST = 256  # tokens that are tried first, before all are put in order


class GuidedChoice:
    """A logits processor of transformers for one row: leaves one token possible, the chosen one.

    The tokens are tried in an order drawn by their probabilities, so that the first allowed one is
    drawn from the allowed ones by their probabilities. Where no token is allowed the answer ends.
    """

    def __init__(self, tokenizer: Any, guide: Guide, ends: set[int], decoding: Decoding):
        import torch

        self.guide: Guide | None = guide
        self.pieces, self.ends, self.decoding = pieces(tokenizer), ends, decoding
        self.random = torch.Generator().manual_seed(decoding.seed)

    @property
    def is_over(self) -> bool:
        """Whether nothing may follow what was chosen."""
        return self.guide is None or self.guide.is_over

    def __call__(self, _: Any, logits: Any) -> Any:
        import torch

        chosen = min(self.ends)
        for token in self._in_order(logits[0].float().cpu()):
            if token in self.ends:
                if self.guide is not None and self.guide.may_end:
                    chosen = token
                    break
                continue
            piece = self.pieces[token] if token < len(self.pieces) else ""
            after = self.guide.after(piece) if self.guide is not None and piece else None
            if after is not None:
                chosen, self.guide = token, after
                break
        else:
            self.guide = None
        return torch.full_like(logits, -torch.inf).index_fill_(
            1, torch.tensor([chosen], device=logits.device), 0.0
        )

    def _in_order(self, logits: Any) -> Iterator[int]:
        """logits: (vocabulary,)."""
        import torch

        if self.decoding.temperature > 0:
            scores = (logits / self.decoding.temperature).log_softmax(-1)
            if self.decoding.top_p < 1:  # the others come after those
                sorted_scores, tokens = scores.sort(descending=True)
                probabilities = sorted_scores.exp()
                outside = probabilities.cumsum(-1) - probabilities >= self.decoding.top_p
                scores[tokens[outside]] -= 1e6
            # Gumbel noise: the order is that of drawing one after another, none put back
            uniform = torch.rand(scores.shape, generator=self.random).clamp(min=1e-20)
            logits = scores - (-uniform.log()).clamp(min=1e-20).log()
        first = logits.topk(min(SHORTLIST, len(logits))).indices.tolist()
        yield from first
        tried = set(first)
        yield from (t for t in logits.argsort(descending=True).tolist() if t not in tried)


@lru_cache(maxsize=1)
def pieces(tokenizer: Any) -> list[str]:
    """The text that each token adds behind a letter; "" for a special one. Made once: about a
    second for 100,000 tokens.
    """
    before = tokenizer.encode("a", add_special_tokens=False)[-1:]
    special = set(tokenizer.all_special_ids)
    rows = [[*before, token] for token in range(len(tokenizer))]
    letter = tokenizer.decode(before)
    texts = tokenizer.batch_decode(
        rows, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return [
        "" if token in special else text.removeprefix(letter) for token, text in enumerate(texts)
    ]
