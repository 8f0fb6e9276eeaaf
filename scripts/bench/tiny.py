"""A folder -> a model or an encoder of two random layers under the real tokenizer: where weights do
not matter.
"""

import shutil
from pathlib import Path
from typing import Literal


def make_model(folder: Path, engine: Literal["unsloth", "hf"] = "unsloth") -> None:
    """Of SmolLM2's kind, 1.6 M weights, nearly all of them the vocabulary's."""
    from agentlite.engine import load_libraries
    from agentlite.workspace.input_files import embedded_folder, load_template

    load_libraries(engine)  # unsloth before transformers, which it patches
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=2,
        pad_token_id=0,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    load_template("smollm2-135m")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(embedded_folder("smollm2-135m") / name, folder / name)


def make_encoder(folder: Path) -> None:
    """Of all-MiniLM-L6-v2's kind, 1 M weights, nearly all of them the vocabulary's."""
    from agentlite.engine import load_libraries
    from agentlite.workspace.lookup import find_encoder

    load_libraries("unsloth")
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    real = Path(find_encoder("all-minilm-l6-v2", Path()).base)
    bare = folder.with_name(f"{folder.name}-bare")
    torch.manual_seed(0)
    BertModel(
        BertConfig(
            vocab_size=30522,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=128,
        )
    ).save_pretrained(bare)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copyfile(real / name, bare / name)
    words = Transformer(str(bare), max_seq_length=64)
    SentenceTransformer(modules=[words, Pooling(32)], device="cpu").save_pretrained(str(folder))
    shutil.rmtree(bare)
