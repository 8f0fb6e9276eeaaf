"""Unsloth's CUDA path on a CPU: a named card is simulated, and a test's function runs under it.

Simulated, not run on a GPU. What holds here: which configuration, trainer, patches, masks and calls
come about on CUDA; losses and gradients too, to the precision of bfloat16. What does not: memory,
speed, and what a kernel does in its own way on a card, since Triton's interpreter runs the kernels
and every tensor lies on the CPU. Rows are to be short: it takes milliseconds a token.

`simulated(case, ...)` calls a function of a test file in a process of its own, because Unsloth
patches torch, transformers and TRL when it is imported, once and for good. bitsandbytes and triton
come from a folder beside the packages: installed, they would change what a CPU run imports.
"""

import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from support.processes import TIMEOUT, environment
from support.samples import ROOT

from agentlite.config.gpu_profiles import has_gpu

# scripts/setup.sh fills it where there is no CUDA device
FOLDER = Path(os.environ.get("AGENTLITE_SIMULATION", ROOT / ".venv/simulation"))
PACKAGES = ("bitsandbytes", "triton")


class SimulatedCard(NamedTuple):
    """A card as nvidia-smi and torch describe it; memory in GiB."""

    name: str
    gib: float
    capability: tuple[int, int]

    @property
    def bf16(self) -> bool:
        return self.capability >= (8, 0)


CARDS = {
    "rtx3060": SimulatedCard("NVIDIA GeForce RTX 3060", 12, (8, 6)),
    "rtx4090": SimulatedCard("NVIDIA GeForce RTX 4090", 24, (8, 9)),
    "t4": SimulatedCard("Tesla T4", 15, (7, 5)),
}


def simulated(
    case: Callable[..., Any],
    *arguments: object,
    card: str | None = "rtx3060",
    vllm: bool = False,
    env: Mapping[str, str] | None = None,
) -> Any:
    """What `case(*arguments)` returns in a new process that sees the card `card` of CARDS. None:
    the machine as it is, with the packages of the folder, as bitsandbytes also works on a CPU.

    `case` is a function of a file's top level. Its arguments reach it as JSON has them (paths as
    strings), and so does its result. `vllm`: with that of support.simulated_vllm. `env`: variables
    of the process, beside ours.
    """
    if not sys.platform.startswith("linux"):
        pytest.skip("triton is for Linux")
    if card and has_gpu():
        pytest.skip("here is a real card, which tests/gpu use")
    folder = [str(FOLDER)] if FOLDER.is_dir() else []
    missing = [name for name in PACKAGES if not folder and not importlib.util.find_spec(name)]
    assert not missing, f"{FOLDER} is missing: run scripts/setup.sh"
    file, request = case.__code__.co_filename, [case.__name__, *arguments]
    with tempfile.TemporaryDirectory(prefix="agentlite-simulated-") as scratch:
        variables = environment() | {"UNSLOTH_COMPILE_LOCATION": f"{scratch}/compiled"}
        variables["PYTHONPATH"] = os.pathsep.join([*folder, variables["PYTHONPATH"]])
        if card:
            variables["PATH"] = os.pathsep.join([_driver(Path(scratch), card), os.environ["PATH"]])
        if vllm:
            variables["SIMULATED_VLLM"] = "1"
        variables |= env or {}
        result = Path(scratch, "result.json")
        words = [file, json.dumps(request, default=os.fspath), card or "", str(result)]
        done = subprocess.run(
            [sys.executable, "-m", "support.simulated_cuda", *words],
            env=variables,
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert result.exists(), f"{done.stdout}\n{done.stderr}"
        return json.loads(result.read_text(encoding="utf-8"))


def _driver(scratch: Path, card: str) -> str:
    """A folder with an nvidia-smi that answers agentlite's query, as the card's driver would."""
    (scratch / "bin").mkdir()
    path, gpu = scratch / "bin/nvidia-smi", CARDS[card]
    mib, capability = int(gpu.gib * 1024), ".".join(map(str, gpu.capability))
    answer = f"{gpu.name}, {mib}, {mib - 512}, {capability}"
    path.write_text(f"#!/bin/sh\necho '{answer}'\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path.parent)


def start(card: SimulatedCard) -> None:
    """Makes torch see `card`, and imports Unsloth so that it takes its CUDA path. Before anything
    else imports torch.
    """
    os.environ |= {
        "TRITON_INTERPRET": "1",
        "UNSLOTH_ALLOW_CPU": "1",  # Unsloth's own: it takes its CUDA path without a device
        "TORCHDYNAMO_DISABLE": "1",
        "UNSLOTH_COMPILE_DISABLE": "1",
        "UNSLOTH_GRPO_PREFIX_GROUPER": "0",  # by FlexAttention, whose backward pass needs a card
    }
    import bitsandbytes  # noqa: F401  (while no card is seen: its CUDA library is not loaded)
    import torch

    _describe(card, torch)
    from agentlite.engine import be_quiet

    be_quiet()
    user, os.geteuid = os.geteuid, lambda: 1  # as root, Unsloth would run ldconfig on this machine
    import unsloth  # noqa: F401

    os.geteuid = user
    _describe(card, torch)  # Unsloth has wrapped some of it
    # It reads the variable again where it would rewrite TRL's trainers, and leaves them alone
    # under it. On CUDA it rewrites them, so they are rewritten here.
    del os.environ["UNSLOTH_ALLOW_CPU"]
    from unsloth.context_parallel import patch_sft_trainer
    from unsloth.models.llama import FastLlamaModel
    from unsloth.models.rl import PatchFastRL
    from unsloth.trainer import _patch_trl_trainer

    PatchFastRL(FastLanguageModel=FastLlamaModel)
    _patch_trl_trainer()
    patch_sft_trainer()
    _keep_on_cpu(torch)
    _compute_in_bfloat16()


def _compute_in_bfloat16() -> None:
    """Triton's interpreter keeps bfloat16 as its bits, in uint16, and calculates with those: a
    product of two is no product. Here such numbers are calculated with in float32.
    """
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def wide(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle.data
        return (handle.data.astype(np.uint32) << 16).view(np.float32)

    def narrow(data: Any) -> Any:
        if data.dtype == bool:  # a comparison
            return TensorHandle(data, tl.int1)
        bits = np.asarray(data, np.float32).view(np.uint32)
        nearest = bits + 0x7FFF + ((bits >> 16) & 1)  # a tie goes to the even one
        whole = np.where(np.isnan(data), np.uint32(0x7FC00000), nearest)
        return TensorHandle((whole >> 16).astype(np.uint16), tl.bfloat16)

    def corrected(name: str, operands: int) -> None:
        plain = getattr(InterpreterBuilder, name)

        def method(self: Any, *rest: Any) -> Any:
            handles, operation = rest[:operands], rest[operands:]
            if all(handle.dtype.scalar != tl.bfloat16 for handle in handles):
                return plain(self, *rest)
            return narrow(plain(self, *[_float32(wide(one)) for one in handles], *operation).data)

        setattr(InterpreterBuilder, name, method)

    def _float32(data: Any) -> Any:
        return TensorHandle(data, tl.float32)

    for name, operands in (("binary_op", 2), ("unary_op", 1), ("create_fma", 3)):
        corrected(name, operands)
    cast = InterpreterBuilder.cast_impl

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if source.dtype.scalar == tl.bfloat16:
            source = _float32(wide(source))
        if target.scalar == tl.bfloat16:
            return narrow(source.data)
        return source if target.scalar == source.dtype.scalar else cast(self, source, target)

    InterpreterBuilder.cast_impl = cast_impl
    for name in ("create_si_to_fp", "create_ui_to_fp", "create_fp_to_si", "create_fp_to_ui"):
        setattr(InterpreterBuilder, name, cast_impl)
    InterpreterBuilder.create_fp_ext = InterpreterBuilder.create_fp_trunc = cast_impl
    InterpreterBuilder.create_fp_to_fp = lambda self, source, target, _: cast_impl(
        self, source, target
    )


def _describe(card: SimulatedCard, torch: Any) -> None:
    """torch.cuda as it answers with `card` in the machine; what would reach a driver does
    nothing.
    """
    cuda = torch.cuda
    free, total = int((card.gib - 0.5) * 2**30), int(card.gib * 2**30)
    state = torch.zeros(16, dtype=torch.uint8)

    class Properties:
        name, total_memory = card.name, total
        major, minor = card.capability
        multi_processor_count, warp_size, max_threads_per_multi_processor = 28, 32, 1536
        regs_per_multiprocessor, shared_memory_per_multiprocessor = 65536, 102400
        shared_memory_per_block_optin, L2_cache_size, is_integrated = 101376, 3 * 2**20, 0

    class Event:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __getattr__(self, name: str) -> Callable[..., Any]:
            return lambda *_, **__: 1.0 if name == "elapsed_time" else True

    class Stream(Event):
        device, cuda_stream = torch.device("cuda", 0), 0

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

    class Device(Stream):
        idx = 0

    def always(value: Any) -> Callable[..., Any]:
        return lambda *_, **__: value

    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": card.name,
        "get_device_capability": card.capability,
        "get_device_properties": Properties(),
        "is_bf16_supported": card.bf16,
        "mem_get_info": (free, total),
        "current_stream": Stream(),
        "default_stream": Stream(),
        "get_rng_state": state,
        "get_rng_state_all": [state],
    }
    zero = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    nothing = ("set_device", "empty_cache", "synchronize", "reset_peak_memory_stats", "init")
    nothing += ("ipc_collect", "manual_seed", "manual_seed_all", "_lazy_init")
    nothing += ("set_rng_state", "set_rng_state_all")
    answers |= dict.fromkeys(zero, 0) | dict.fromkeys(nothing)
    for name, value in answers.items():
        setattr(cuda, name, always(value))
        if hasattr(cuda.random, name):
            setattr(cuda.random, name, always(value))
    cuda.Stream, cuda.Event = Stream, Event
    cuda.stream, cuda.device, cuda.device_of = Stream, Device, Device
    cuda.amp.common.amp_definitely_not_available = always(False)
    torch._C._cuda_getCurrentRawStream = always(0)
    torch.version.cuda = "13.0"


def _keep_on_cpu(torch: Any) -> None:
    """What is sent to a CUDA device stays on the CPU, from here to the end of the process."""
    from torch.overrides import TorchFunctionMode

    cpu = torch.device("cpu")

    def here(device: Any) -> Any:
        if isinstance(device, int) and not isinstance(device, bool):
            return cpu  # the number of a card
        return cpu if str(device).startswith("cuda") else device

    class OnCpu(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
            if func is torch.device:
                return func(here(args[0])) if args and isinstance(args[0], int) else func(*args)
            if name in ("cuda", "pin_memory"):
                return args[0]
            if name == "record_stream":
                return None
            if name == "to" and len(args) > 1:
                args = (args[0], here(args[1]), *args[2:])
            elif name != "to":
                args = tuple(here(a) if isinstance(a, (str, torch.device)) else a for a in args)
            if "device" in kwargs:
                kwargs["device"] = here(kwargs["device"])
            if kwargs.get("pin_memory"):
                kwargs["pin_memory"] = False
            return func(*args, **kwargs)

    OnCpu().__enter__()

    autocast, begin = torch.amp.autocast_mode.autocast, torch.amp.autocast_mode.autocast.__init__

    def autocast_on_cpu(self: Any, device_type: str, *rest: Any, **named: Any) -> None:
        begin(self, "cpu" if device_type == "cuda" else device_type, *rest, **named)

    autocast.__init__ = autocast_on_cpu

    import transformers
    from unsloth.models import llama

    model = transformers.PreTrainedModel
    read = model.from_pretrained.__func__

    def read_to_cpu(cls: Any, *rest: Any, **named: Any) -> Any:
        if "device_map" in named:
            named["device_map"] = {"": "cpu"}
        return read(cls, *rest, **named)

    model.from_pretrained = classmethod(read_to_cpu)

    # Unsloth keeps one table of rotary angles for each card, by the index of a tensor's device,
    # which is None on the CPU
    class ByCard(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index or 0)

        def __setitem__(self, index: Any, value: Any) -> None:
            super().__setitem__(index or 0, value)

    rotary, fill = llama.LlamaRotaryEmbedding, llama.LlamaRotaryEmbedding._set_cos_sin_cache

    def fill_by_card(self: Any, *rest: Any, **named: Any) -> Any:
        for name, value in vars(self).items():
            if type(value) is list and name.startswith("multi_gpu"):
                setattr(self, name, ByCard(value))
        return fill(self, *rest, **named)

    rotary._set_cos_sin_cache = fill_by_card


def _main(file: str, request: str, card: str, result: str) -> NoReturn:
    if os.environ.get("SIMULATED_VLLM"):
        from support import simulated_vllm

        simulated_vllm.install()
    if card:
        start(CARDS[card])
    case, *arguments = json.loads(request)
    spec = importlib.util.spec_from_file_location("simulated_case", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    gc.freeze()  # Unsloth's loader collects garbage often: not among what was imported
    returned = getattr(module, case)(*arguments)
    Path(result).write_text(json.dumps(returned), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # taking every module of torch apart takes a second


if __name__ == "__main__":
    _main(*sys.argv[1:])
