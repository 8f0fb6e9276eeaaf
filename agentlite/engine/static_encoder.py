"""A sentence-transformers model -> one that has a vector for each token and no layers: hundreds of times as fast.

As model2vec makes them (Tulkens and van Dongen 2024): each token is read by itself, the vectors are turned to their
main directions, and a common token counts less. By itself it ranks worse than BM25; trained on records, better.
"""

import shutil
from pathlib import Path
from typing import Any

from agentlite.core import console
from agentlite.core.row_files import disk_errors
from agentlite.engine import sentence_encoder as embedding
from agentlite.workspace.encoder_source import STATIC, find_encoder
from agentlite.workspace.model_source import Source

DIRECTIONS = 256
AT_ONCE = 1024
COMMON = 1e-3  # the smaller, the less a common token counts (Arora et al. 2017); how common goes by its place (Zipf)


def make(source: Source) -> None:
    """Writes the folder that `source` names, once on a machine."""
    folder = Path(source.base)
    if folder.exists():
        return
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    base = embedding.load(find_encoder(STATIC[source.name], Path()), 8)
    aside = folder.with_name(f".{folder.name}")
    with console.waiting(f"making {source.name}, once"), disk_errors(folder):
        shutil.rmtree(aside, ignore_errors=True)
        aside.parent.mkdir(parents=True, exist_ok=True)
        module = StaticEmbedding(base.tokenizer.backend_tokenizer, embedding_weights=_weights(base))
        SentenceTransformer(modules=[module], device="cpu").save_pretrained(str(aside), create_model_card=False)
        aside.rename(folder)


def _weights(base: Any) -> Any:
    import torch

    tokenizer, model = base.tokenizer, base[0].model
    vectors = []
    with torch.no_grad():
        for start in range(0, len(tokenizer), AT_ONCE):
            ids = torch.arange(start, min(start + AT_ONCE, len(tokenizer)), device=base.device)
            ends = (torch.full_like(ids, end) for end in (tokenizer.cls_token_id, tokenizer.sep_token_id))
            first, last = ends
            rows = torch.stack([first, ids, last], dim=1)
            vectors.append(model(input_ids=rows, attention_mask=torch.ones_like(rows)).last_hidden_state.mean(1).cpu())
    found = torch.cat(vectors).double()
    found = found - found.mean(0)
    directions = torch.linalg.eigh(found.T @ found).eigenvectors.flip(1)[:, :DIRECTIONS]
    share = 1 / torch.arange(1, len(found) + 1)
    share = share / share.sum()
    return ((found @ directions) * (COMMON / (COMMON + share))[:, None]).float()
