"""A base model and its adapter -> merged weights; a folder's tokenizer as transformers reads it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentlite.config.settings import Engine
from agentlite.engine import load_libraries, peft, torch, transformers
from agentlite.engine.checkpoints import disk_full_error
from agentlite.engine.load import loading_error, quantization, weights_folder
from agentlite.rendering.template import Messages, today
from agentlite.workspace.lookup import Source


def merge(source: Source, folder: Path, rounded_by: Engine | None = None) -> str:
    """Writes config.json, generation_config.json and the weights, in shards where they are large.
    On the CPU: it has the memory, and the sums are exact to the base's own precision. `rounded_by`:
    the engine that trained the adapter on weights in NF4; the base's are rounded alike before.

    Returns the precision's name. Raises UserError 5, 7, 8 or 74.
    """
    load_libraries("hf")

    base, rounding = weights_folder(source.base), dict[str, Any]()
    if rounded_by == "hf":
        rounding = quantization(in_4bit=True)
    elif rounded_by:
        from unsloth_zoo.peft_utils import SKIP_QUANTIZATION_MODULES

        rounding = quantization(in_4bit=True, skipped_modules=SKIP_QUANTIZATION_MODULES)
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(base),
            dtype="auto",
            device_map="cpu",
            use_safetensors=True,
            trust_remote_code=False,
            **rounding,
        )
        if rounded_by:
            model = model.dequantize()
        if source.adapter:
            model = _merge_adapter(model, source.adapter)
    except Exception as error:
        raise loading_error(error, source.name) from error
    try:
        model.save_pretrained(folder)
    except Exception as error:  # safetensors has its own for a full disk
        if disk_error := disk_full_error(error, folder, then=""):
            raise disk_error from error
        raise
    return str(model.dtype).removeprefix("torch.")


def _merge_adapter(model: Any, adapter: Path) -> Any:
    config = peft.PeftConfig.from_pretrained(str(adapter))
    targets = str([config.target_modules, config.modules_to_save])  # names, or a pattern
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    if ("embed_tokens" in targets or "lm_head" in targets) and head.weight is embeddings.weight:
        # one matrix becomes two: the adapter changes one of them only
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
        model.config.tie_word_embeddings = False
    return peft.PeftModel.from_pretrained(model, str(adapter)).merge_and_unload(safe_merge=True)


class TransformersWriter:
    """A folder's tokenizer in transformers: how it writes a dialog and cuts a text into tokens."""

    def __init__(self, folder: Path):
        load_libraries("hf")

        self.tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))

    def __call__(self, messages: Messages, tools: Sequence[Mapping[str, Any]], prompt: bool) -> str:
        """Dates are those of training."""
        return str(
            self.tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                add_generation_prompt=prompt,
                tokenize=False,
                strftime_now=today,
            )
        )

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
