"""Texts -> vectors of length 1, by a sentence-transformers model."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentlite.core import console
from agentlite.core.errors import require
from agentlite.engine import be_quiet, on_gpu, sentence_transformers, transformers
from agentlite.engine.load import loading_error
from agentlite.workspace import hub
from agentlite.workspace.lookup import Source

PACKAGES = ("sentence_transformers", "bm25s", "sklearn")
INSTALL = 'pip install "agentlite[train,retriever]"'
BATCH_SIZE = 64


def check_libraries() -> None:
    """Asked before anything slow. Raises UserError 5."""
    require("searching tools by their meaning", ("torch", "transformers", *PACKAGES), INSTALL)


def load(source: Source, max_length: int) -> Any:
    """A SentenceTransformer in float32 that reads `max_length` tokens of a text at most. Raises
    UserError 5 or 8.
    """
    check_libraries()
    be_quiet()
    with console.waiting(f"loading {source.name}"):
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        try:
            model = sentence_transformers.SentenceTransformer(
                hub.hub_id(source.base),
                revision=hub.commit_of(source.base) or None,
                device="cuda" if on_gpu() else "cpu",
                trust_remote_code=False,
                local_files_only=Path(source.base).is_dir(),  # else its card asks the hub
                model_kwargs={"use_safetensors": True},
            )
        except Exception as error:
            raise loading_error(error, source.name) from error
    if model.max_seq_length != math.inf:  # a static model reads all, and has no setting for it
        model.max_seq_length = min(max_length, model.max_seq_length or max_length)
    return model


def embed(model: Any, texts: Sequence[str]) -> Any:
    """A row for each text, float32."""
    return model.encode(
        list(texts),
        batch_size=BATCH_SIZE,
        normalize_embeddings=True,
        convert_to_numpy=True,
        show_progress_bar=False,
    )
