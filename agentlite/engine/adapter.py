"""The adapter that is trained, and the frozen reference that dpo and grpo compare it with."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from agentlite.config.pipeline import TRAINERS
from agentlite.config.settings import TrainerSettings
from agentlite.core import console
from agentlite.core.errors import MODEL, UserError
from agentlite.engine import checkpoints, load_dtype, peft, torch, transformers, unsloth
from agentlite.engine.load import Loaded, unsloth_checkpointing

# How far a row of the embeddings is from another that it is like, in norms of a usual row: at most
# .0004 in SmolLM2, whose trained marks are .12 away; Llama 3.1 and Qwen2.5 have rows near zero
ALIKE_DISTANCE = 0.05


def add_adapter(loaded: Loaded, settings: TrainerSettings, used_tokens: Iterable[int] = ()) -> Any:
    """The model with the adapter it came with, or with a new one as the settings say, random by
    their seed; with none if all is trained. `used_tokens`: those it is trained on; a new adapter
    holds the rows of those marks among them that were never trained.
    """
    model = loaded.model
    if settings.full or isinstance(model, peft.PeftModel):
        return model
    modules = _target_modules(model, settings.lora_target_modules)
    mark_rows = {} if settings.deepspeed else _untrained_marks(loaded, used_tokens)
    if mark_rows.keys() & {*modules, *(settings.peft.get("modules_to_save") or [])}:
        mark_rows = {}  # they are trained as they are
    if mark_rows and "trainable_token_indices" not in settings.peft:
        names = loaded.tokenizer.convert_ids_to_tokens(next(iter(mark_rows.values())))
        console.notice(
            f"the base model was never trained on {', '.join(names)}: their rows of the embeddings "
            "are trained with the adapter (sft.peft.trainable_token_indices: null leaves them out)"
        )
    lora: dict[str, Any] = {
        "trainable_token_indices": mark_rows or None,
        "r": settings.lora_r,
        "lora_alpha": settings.lora_alpha,
        "lora_dropout": settings.lora_dropout,
        **settings.peft,
    }
    transformers.set_seed(settings.seed)
    if settings.engine == "unsloth":
        return unsloth.FastLanguageModel.get_peft_model(
            model,
            target_modules=modules,
            random_state=settings.seed,
            use_gradient_checkpointing=unsloth_checkpointing(),
            **lora,
        )
    config = peft.LoraConfig(target_modules=modules, task_type="CAUSAL_LM", **lora)
    return peft.get_peft_model(model, config)


def _target_modules(model: Any, targets: Sequence[str]) -> list[str]:
    """`all-linear`: every linear layer but the output head; `all`: the embeddings as well; else
    names, checked.
    """
    modules = {name.rpartition(".")[2]: module for name, module in model.named_modules()}
    linear = {name for name, module in modules.items() if isinstance(module, torch.nn.Linear)}
    linear.discard("lm_head")
    groups = {"all-linear": linear, "all": linear | {"embed_tokens"}}
    for target in targets:
        if target not in groups and target not in modules:
            raise UserError(
                f"the model has no layer '{target}'.",
                f"Its linear layers: {', '.join(sorted(linear))}.",
                location="lora_target_modules",
            )
    return sorted(set[str]().union(*(groups.get(target, {target}) for target in targets)))


def _untrained_marks(loaded: Loaded, used_tokens: Iterable[int]) -> dict[str, list[int]]:
    """Added tokens in `used_tokens` whose embedding is zero, the mean, or that of another added
    token or of no token at all; for the embeddings and for the output head, by their names.

    Rows that were drawn at random, each for itself, cannot be told from trained ones.
    """
    model, added_ids = loaded.model, sorted(loaded.tokenizer.added_tokens_decoder)
    layers = [model.get_input_embeddings(), model.get_output_embeddings()]
    weight, marks = layers[0].weight.detach(), sorted({*used_tokens}.intersection(added_ids))
    if not marks or getattr(layers[1], "bias", None) is not None:  # PEFT would leave a bias out
        return {}
    # rows past the tokenizer's last id only pad the matrix: what is like one was never trained
    compared_ids = [*added_ids, *range(len(loaded.tokenizer), len(weight))]
    mean = weight.mean(0, keepdim=True, dtype=torch.float32)
    compared_rows = torch.cat([weight[compared_ids].float(), mean, torch.zeros_like(mean)])
    distances = torch.cdist(weight[marks].float(), compared_rows)
    # (marks, compared rows), where each mark is among the compared as well: at 0 from itself
    distances[range(len(marks)), [compared_ids.index(mark) for mark in marks]] = torch.inf
    usual_norm = weight[::16].float().norm(dim=1).median()  # one row of 16 is enough for a median
    is_alike = (distances.amin(dim=1) < ALIKE_DISTANCE * usual_norm).tolist()
    untrained_ids = [mark for mark, alike in zip(marks, is_alike, strict=True) if alike]
    # as PEFT takes them: {"embed_tokens": [1, 2], "lm_head": [1, 2]}
    layer_names = {id(module): name.rpartition(".")[2] for name, module in model.named_modules()}
    return {layer_names[id(layer)]: untrained_ids for layer in layers} if untrained_ids else {}


def reference_arguments(settings: TrainerSettings) -> dict[str, object]:
    """How TRL is to load the frozen copy of a whole model: as the model itself, not in its
    float32.
    """
    if not settings.full:
        return {}
    for name in TRAINERS:  # TRL warns that the model itself is not loaded so: it is, by us
        logger = logging.getLogger(f"trl.trainer.{name}_trainer")
        logger.addFilter(lambda record: "model_init_kwargs" not in record.getMessage())
    return {"model_init_kwargs": {"dtype": str(load_dtype()).removeprefix("torch.")}}


def keep_reference(model: Any) -> None:
    """Sees to it that an adapter has a frozen copy, without dropout. TRL makes one, as of a whole
    model, but without the adapter on embeddings; Unsloth leaves it out of its GRPO on CUDA, and TRL
    then measures against the base model.
    """
    if not hasattr(model, "peft_config"):
        return
    if checkpoints.REFERENCE not in model.peft_config:
        model.add_adapter(checkpoints.REFERENCE, model.peft_config["default"])
    model.set_adapter("default")
    for name, parameter in model.named_parameters():
        parts = name.split(".")  # ...lora_A.ref.weight; of embeddings ...lora_embedding_A.ref
        if checkpoints.REFERENCE in parts:
            trained_parts = ["default" if part == checkpoints.REFERENCE else part for part in parts]
            parameter.data.copy_(model.get_parameter(".".join(trained_parts)).data)
            parameter.requires_grad_(False)
    for name, module in model.named_modules():
        # an adapter that is added to a model in training has its dropout switched on
        if checkpoints.REFERENCE in name.split(".") and hasattr(module, "p"):
            module.p = 0.0


def drop_reference(trl_trainer: Any) -> None:
    """Frees the copy that TRL makes in any case, of an adapter or of a whole model."""
    model, prepared_models = trl_trainer.model, trl_trainer.accelerator._models
    # accelerate's own list holds the copy too, and would keep it in memory
    prepared_models[:] = [m for m in prepared_models if m is not trl_trainer.ref_model]
    trl_trainer.ref_model = None
    if checkpoints.REFERENCE in getattr(model, "peft_config", {}):
        model.delete_adapter(checkpoints.REFERENCE)
        model.set_adapter("default")


def refuse_other_start(value: float, tolerance: float, figure: str) -> None:
    """Before its first step a policy is its own reference. Raises UserError 5 if what was measured
    says otherwise.
    """
    if not abs(value) <= tolerance:  # a NaN does not agree either
        raise UserError(
            f"policy and reference differ before the first step: {figure} is {value:.4g}, not 0.",
            "The libraries compare with something other than the adapter it started from: try "
            "--engine hf, and please report it.",
            exit_code=MODEL,
        )
