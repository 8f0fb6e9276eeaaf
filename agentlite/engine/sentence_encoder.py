"""Texts -> vectors of length 1, by a sentence-transformers model."""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentlite.core import console
from agentlite.core.errors import need
from agentlite.core.row_files import disk_errors
from agentlite.engine import be_quiet, on_gpu
from agentlite.engine.load import explained, refuse_damaged
from agentlite.workspace import hub
from agentlite.workspace.model_source import STATIC, Source, find_encoder

PACKAGES = ("sentence_transformers", "bm25s", "sklearn")
INSTALL = 'pip install "agentlite[train,retriever]"'
AT_ONCE = 64
DIRECTIONS = 256
TOKENS_AT_ONCE = 1024
# the smaller, the less a common token counts (Arora et al. 2017); how common goes by its place
# (Zipf)
COMMON = 1e-3


def check_libraries() -> None:
    """Asked before anything slow. Raises UserError 5."""
    need("searching tools by their meaning", ("torch", "transformers", *PACKAGES), INSTALL)


def load(source: Source, max_length: int) -> Any:
    """A SentenceTransformer in float32 that reads `max_length` tokens of a text at most. Raises
    UserError 5 or 8.
    """
    check_libraries()
    be_quiet()
    if source.name in STATIC:
        make_static(source)
    if Path(source.base).is_dir():
        refuse_damaged(Path(source.base))
    with console.waiting(f"loading {source.name}"):
        import transformers
        from sentence_transformers import SentenceTransformer

        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        try:
            model = SentenceTransformer(
                hub.hub_id(source.base),
                revision=hub.commit_of(source.base) or None,
                device="cuda" if on_gpu() else "cpu",
                trust_remote_code=False,
                local_files_only=Path(source.base).is_dir(),  # else its card asks the hub
                model_kwargs={"use_safetensors": True},
            )
        except Exception as error:
            raise explained(error, source.name) from error
    if model.max_seq_length != math.inf:  # a static model reads all, and has no setting for it
        model.max_seq_length = min(max_length, model.max_seq_length or max_length)
    return model


def embed(model: Any, texts: Sequence[str]) -> Any:
    """A row for each text, float32."""
    return model.encode(
        list(texts),
        batch_size=AT_ONCE,
        normalize_embeddings=True,
        convert_to_numpy=True,
        show_progress_bar=False,
    )


def make_static(source: Source) -> None:
    """Writes the folder that `source` names, once on a machine: a vector for each token, which is
    the mean of what the model makes of the token alone, in the directions in which they differ
    most; common tokens are shortened.
    """
    folder = Path(source.base)
    if folder.exists():
        return
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    base = load(find_encoder(STATIC[source.name], Path()), 8)
    aside = folder.with_name(f".{folder.name}")
    with console.waiting(f"making {source.name}, once"), disk_errors(folder):
        shutil.rmtree(aside, ignore_errors=True)
        aside.parent.mkdir(parents=True, exist_ok=True)
        tokenizer, vectors = base.tokenizer, list[Any]()
        with torch.no_grad():
            for part in torch.arange(len(tokenizer), device=base.device).split(TOKENS_AT_ONCE):
                first = torch.full_like(part, tokenizer.cls_token_id)
                last = torch.full_like(part, tokenizer.sep_token_id)
                rows = torch.stack([first, part, last], dim=1)
                states = base[0].model(input_ids=rows, attention_mask=torch.ones_like(rows))
                vectors.append(states.last_hidden_state.mean(1).cpu())
        tokens = torch.cat(vectors).double()
        tokens = tokens - tokens.mean(0)
        directions = torch.linalg.eigh(tokens.T @ tokens).eigenvectors.flip(1)[:, :DIRECTIONS]
        share = 1 / torch.arange(1, len(tokens) + 1)
        share = share / share.sum()
        weights = ((tokens @ directions) * (COMMON / (COMMON + share))[:, None]).float()
        module = StaticEmbedding(tokenizer.backend_tokenizer, embedding_weights=weights)
        SentenceTransformer(modules=[module], device="cpu").save_pretrained(
            str(aside), create_model_card=False
        )
        aside.rename(folder)
