"""The GGUF file of an embedded model -> safetensors in the cache, once."""

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.row_files import disk_errors
from agentlite.workspace.embedded_files import EMBEDDED, embedded_file, embedded_tokenizer

END_OF_TURN, PADDING = 2, 0


def convert(alias: str) -> Path:
    """The folder of the whole model. Its weights are renamed into place last: their presence means
    it is whole.
    """
    folder, gguf_file = embedded_tokenizer(alias), embedded_file(alias)
    if (folder / "model.safetensors").exists():
        return folder
    console.notice(f"{alias}: converting {gguf_file.name}, once (about half a minute)")
    import torch
    from transformers import AutoModelForCausalLM

    with contextlib.redirect_stderr(io.StringIO()):  # tqdm's bar, which heeds no setting
        model = AutoModelForCausalLM.from_pretrained(
            gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.float32
        )
    del model.config.quantization_config  # the saved weights are plain
    model.hf_quantizer = None
    for config in (model.config, model.generation_config):
        config.bos_token_id, config.eos_token_id, config.pad_token_id = None, END_OF_TURN, PADDING
    with disk_errors(folder), tempfile.TemporaryDirectory(dir=folder) as aside:
        model.save_pretrained(aside)
        file = Path(aside) / "config.json"
        saved = json.loads(file.read_bytes())
        saved.pop("_model_name_or_path", None)
        file.write_text(json.dumps(saved, indent=2), encoding="utf-8")
        for name in ("config.json", "generation_config.json", "model.safetensors"):
            os.replace(Path(aside) / name, folder / name)
    return folder


if __name__ == "__main__":
    try:
        for name in sys.argv[1:] or EMBEDDED:
            print(f"{name}: {convert(name)}")
    except UserError as problem:
        sys.exit(f"Error: {problem}")
