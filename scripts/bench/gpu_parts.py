"""A job of gpu.py, in a process of its own -> its figures as JSON: what the card is, a model built,
a side measured.
"""

import importlib.util
import itertools
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpu import CELLS, Cell, lengths_of, settings_of  # first: it finds a plain checkout

from agentlite.core.errors import OUT_OF_MEMORY
from agentlite.core.row_files import write_json
from agentlite.engine.planning.memory import GIB

ALIAS = "smollm2-135m"  # every model gets its tokenizer, which has fewer tokens than it knows
CONTEXT = 0.55  # GiB of a card that the CUDA context takes beside what torch allocates


def main(job: dict[str, Any]) -> None:
    """Writes what the part found, or the error that ended it."""
    from agentlite.engine.load import is_out_of_memory

    try:
        result = PARTS[job["part"]](job)
    except Exception as error:
        traceback.print_exc()
        out_of_memory = getattr(error, "exit_code", 0) == OUT_OF_MEMORY or is_out_of_memory(error)
        result = {
            "error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            "out_of_memory": out_of_memory,
        }
    write_json(Path(job["result"]), result)


def _look(job: dict[str, Any]) -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available():
        return {}
    card = torch.cuda.get_device_properties(0)
    return {"name": card.name, "gib": card.total_memory / GIB}


def _build(job: dict[str, Any]) -> dict[str, Any]:
    """Every matrix is drawn on the card and kept in host memory: seconds, also on a card smaller
    than the model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from agentlite.workspace.input_files import embedded_folder, load_template

    folder, device = Path(job["folder"]), "cuda" if torch.cuda.is_available() else "cpu"
    partial_folder = folder.with_name(folder.name + ".part")
    with torch.device("meta"):
        marks = {"bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0}
        shape = AutoConfig.for_model(**job["facts"], **marks)
        model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
    model.to_empty(device="cpu")
    model.tie_weights()
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        values = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
        if parameter.dim() > 1:
            parameter.data.copy_(values.normal_(std=0.02))
        else:
            parameter.data.fill_(float(not name.endswith("bias")))
    model.save_pretrained(partial_folder, max_shard_size="4GB")
    load_template(ALIAS)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(embedded_folder(ALIAS) / name, partial_folder / name)
    partial_folder.rename(folder)  # last: its presence means it is whole
    return {}


def _ours(job: dict[str, Any]) -> dict[str, Any]:
    """The command's own engine, from the model in its folder to the adapter."""
    from agentlite.engine import load_libraries
    from agentlite.workspace.lookup import Source

    cell = CELLS[job["name"]]
    settings = settings_of(cell, job["toy"], job["steps"])
    load_libraries(settings.engine)  # first: it tells torch how to allocate
    if job["cap"]:
        _cap_memory(job["cap"])
    clock = _clock()
    with tempfile.TemporaryDirectory() as folder:
        source, run = Source(job["name"], job["folder"], None, ""), Path(folder) / job["name"]
        run.mkdir()
        figures = TRAIN[cell.command](cell, settings, source, run, clock)
    besides = {key: figures[key] for key in ("batch_size",) if key in figures}
    return {**clock.figures(), "besides": besides}


def _sft(cell: Cell, settings: Any, source: Any, folder: Path, clock: Any) -> dict[str, Any]:
    from agentlite.engine import sft
    from agentlite.rendering import Encoded

    rows = [Encoded(ids, ids) for ids in _rows(cell, settings, source.base)]
    return sft.train(source, settings, folder, rows, [])


def _dpo(cell: Cell, settings: Any, source: Any, folder: Path, clock: Any) -> dict[str, Any]:
    """A quarter of a row is the answer."""
    from agentlite.engine import dpo

    rows_of_ids, cut = _rows(cell, settings, source.base), settings.max_length * 3 // 4
    rows = [dpo.Preference(ids[:cut], ids[cut:], ids[cut:][::-1]) for ids in rows_of_ids]
    return dpo.train(source, settings, folder, rows)


def _grpo(cell: Cell, settings: Any, source: Any, folder: Path, clock: Any) -> dict[str, Any]:
    """What an answer earns is chance. The tokens of prompts and answers are counted where they are
    judged.
    """
    from agentlite.engine import grpo
    from agentlite.engine.decoding import Decoding
    from agentlite.engine.local_sampler import SampleRequest

    chance = random.Random(0)
    prompts = [ids[settings.max_new_tokens :] for ids in _rows(cell, settings, source.base)]

    def task() -> Any:
        decoding = Decoding(settings.max_new_tokens, temperature=1.0)

        def sample(draw: Any, indices: Sequence[int], step: int) -> list[Any]:
            requests = [
                SampleRequest(
                    prompts[index],
                    tuple(f"{step} {position} {number}" for number in range(settings.group_size)),
                )
                for position, index in enumerate(indices)
            ]
            rows = [
                grpo.answer_row(requests[answer.prompt].prompt, answer, {"chance": chance.random()})
                for answer in sorted(draw(requests, decoding))
            ]
            clock.seen_tokens += sum(len(row.prompt) + len(row.ids) for row in rows)
            return rows

        return grpo.GrpoTask(len(prompts), sample, {"chance": 1.0}, [])

    return grpo.train(source, settings, folder, task)


def _plain(job: dict[str, Any]) -> dict[str, Any]:
    """`trl sft --use_peft` with the same rows in the same order, and adapters on the same
    layers.
    """
    from agentlite.engine import load_dtype, load_libraries, on_gpu

    load_libraries("hf")  # without a GPU this brings Unsloth, as TRL's fused loss is a CUDA kernel
    from datasets import Dataset
    from transformers.utils import is_flash_attn_2_available
    from trl import ModelConfig, SFTConfig, SFTTrainer, get_peft_config, get_quantization_config

    cell = CELLS[job["name"]]
    settings = settings_of(cell, job["toy"], job["steps"])
    dtype = str(load_dtype()).removeprefix("torch.")
    model_settings, best_settings, extras, attention = {}, {}, [], "sdpa"
    if cell.beside == "best":
        attention = "flash_attention_2" if is_flash_attn_2_available() else "sdpa"
        model_settings = {"dtype": dtype, "lora_dropout": 0.0, "use_bnb_nested_quant": True}
        best_settings = {
            "packing": True,
            "per_device_train_batch_size": settings.packed_rows,
            "optim": "adamw_8bit" if on_gpu() else "adamw_torch",
            "use_liger_kernel": on_gpu() and importlib.util.find_spec("liger_kernel") is not None,
        }
        extras = [attention, *(["liger"] if best_settings["use_liger_kernel"] else [])]
    in_4_bit = settings.load_in_4bit
    config = ModelConfig(
        use_peft=True, load_in_4bit=in_4_bit, lora_target_modules=["all-linear"], **model_settings
    )
    clock = _clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(
            **{
                "output_dir": folder,
                "max_steps": job["steps"],
                "max_length": settings.max_length,
                "per_device_train_batch_size": settings.batch_size,
                "train_sampling_strategy": "sequential",
                "model_init_kwargs": {"dtype": config.dtype, "attn_implementation": attention},
                "bf16": dtype == "bfloat16",
                "fp16": dtype == "float16",
                "use_cpu": not on_gpu(),
                "include_num_input_tokens_seen": "non_padding",
                "logging_steps": 1,
                "save_strategy": "no",
                "disable_tqdm": True,
                "report_to": "none",
                "seed": 0,
                **best_settings,
            }
        )
        rows = Dataset.from_dict({"input_ids": _rows(cell, settings, job["folder"])})
        SFTTrainer(
            model=job["folder"],
            args=arguments,
            train_dataset=rows,
            peft_config=get_peft_config(config),
            quantization_config=get_quantization_config(config),
        ).train()
    return {**clock.figures(), "besides": {"with": extras}}


def _rows(cell: Cell, settings: Any, folder: str) -> list[list[int]]:
    """Random ids of exact lengths, enough for every step; none is a special token of the
    tokenizer.
    """
    vocab = json.loads((Path(folder) / "config.json").read_bytes())["vocab_size"]
    lengths, chance = lengths_of(cell, settings), random.Random(0)
    blocks = settings.max_steps * max(1, settings.batch_size // len(lengths))
    return [chance.choices(range(100, vocab), k=length) for length in blocks * lengths]


def _cap_memory(gib: float) -> None:
    """Torch gets what a card of `gib` leaves it beside the context; who asks how much is free,
    hears of that card.

    Unsloth cuts its losses into chunks by what is free: it would take more than such a card has.
    """
    import torch

    def free_and_total(device: Any = None) -> tuple[int, int]:
        """By what this process holds alone: what others hold would be on another card."""
        free = torch.cuda.memory.mem_get_info(device)[0]  # the same, where nothing replaces it
        held_bytes = int(CONTEXT * GIB) + torch.cuda.memory_reserved(device)
        return max(0, min(free, int(gib * GIB) - held_bytes)), int(gib * GIB)

    total = torch.cuda.memory.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(min(1.0, (gib - CONTEXT) * GIB / total))
    torch.cuda.mem_get_info = free_and_total


def _clock() -> Any:
    """A callback that every trainer made from now on gets: times, tokens, losses, and the peak from
    its first step.
    """
    import torch
    from transformers import TrainerCallback, trainer

    on_gpu = torch.cuda.is_available()

    class Clock(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        seen_tokens = 0  # that a judge has seen, where the trainer counts none

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.began: list[float] = []
            self.tokens: list[int] = []
            self.losses: list[float] = []
            self.loading = _peaks()["allocated_gib"]
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if on_gpu:
                torch.cuda.synchronize()
            self.began.append(time.perf_counter())

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.tokens.append(int(state.num_input_tokens_seen) or self.seen_tokens)

        def on_log(self, *_: Any, logs: dict[str, Any], **__: Any) -> None:
            self.losses += [float(logs["loss"])] if "loss" in logs else []

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.peaks = _peaks()

        def figures(self) -> dict[str, Any]:
            return {
                **steady_steps(self.began, self.tokens),
                "losses": self.losses,
                "steps": len(self.began),
                "gib": {**self.peaks, "loading_gib": self.loading},
            }

    clock = Clock()
    trainer.DEFAULT_CALLBACKS.append(clock)
    return clock


def steady_steps(began: Sequence[float], tokens: Sequence[int]) -> dict[str, Any]:
    """The seconds of each step of the second half but the last, and the tokens of these steps
    together.

    `tokens`: how many had been seen at the end of each step.
    """
    seconds = [after - before for before, after in itertools.pairwise(began)]
    first = len(seconds) // 2
    before = tokens[first - 1] if first else 0
    return {"seconds": seconds[first:], "tokens": tokens[len(seconds) - 1] - before}


def _peaks() -> dict[str, float]:
    """GiB that torch gave out, that it held, and that the card had in use; of the whole process
    without a GPU.
    """
    import torch

    if torch.cuda.is_available():
        free, total = torch.cuda.memory.mem_get_info()
        sizes = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), total - free)
    else:
        sizes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,) * 3
    names = ("allocated_gib", "reserved_gib", "used_gib")
    return {name: round(value / GIB, 3) for name, value in zip(names, sizes, strict=True)}


TRAIN: dict[str, Callable[..., dict[str, Any]]] = {"sft": _sft, "dpo": _dpo, "grpo": _grpo}
PARTS = {"look": _look, "build": _build, "ours": _ours, "plain": _plain}

if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
