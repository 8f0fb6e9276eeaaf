"""Texts -> vectors of length 1, by a sentence-transformers model."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentlite.core import console
from agentlite.core.optional_deps import need
from agentlite.engine import be_quiet, on_gpu
from agentlite.engine.load import explained
from agentlite.workspace.encoder_source import STATIC
from agentlite.workspace.model_source import Source

PACKAGES = ("sentence_transformers", "bm25s", "sklearn")
INSTALL = 'pip install "agentlite[train,retriever]"'
AT_ONCE = 64


def check_libraries() -> None:
    """Asked before anything slow. Raises UserError 5."""
    need("searching tools by their meaning", ("torch", "transformers", *PACKAGES), INSTALL)


def load(source: Source, max_length: int) -> Any:
    """A SentenceTransformer in float32 that reads `max_length` tokens of a text at most. Raises UserError 5 or 8."""
    check_libraries()
    be_quiet()
    if source.name in STATIC:
        from agentlite.engine import static_encoder as static

        static.make(source)
    with console.waiting(f"loading {source.name}"):
        import transformers
        from sentence_transformers import SentenceTransformer

        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        try:
            model = SentenceTransformer(source.base, device="cuda" if on_gpu() else "cpu", trust_remote_code=False,
                                        local_files_only=Path(source.base).is_dir(),  # else its card asks the hub
                                        model_kwargs={"use_safetensors": True})  # fmt: skip
        except Exception as error:
            raise explained(error, source.name) from error
    if model.max_seq_length != math.inf:  # a static model reads all, and cannot be told otherwise
        model.max_seq_length = min(max_length, model.max_seq_length or max_length)
    return model


def embed(model: Any, texts: Sequence[str], told: Callable[[int], None] = lambda done: None) -> Any:
    """A row a text, float32. `told`: how many there are so far."""
    import numpy

    found = []
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))  # of like length together: less padding
    for start in range(0, len(order), AT_ONCE):
        part = [texts[place] for place in order[start : start + AT_ONCE]]
        found.append(model.encode(part, batch_size=AT_ONCE, normalize_embeddings=True, convert_to_numpy=True,
                                  show_progress_bar=False).astype("float32"))  # fmt: skip
        told(start + len(part))
    if not found:
        return numpy.zeros((0, 0), numpy.float32)
    vectors = numpy.concatenate(found)
    back = numpy.empty_like(vectors)
    back[order] = vectors
    return back
