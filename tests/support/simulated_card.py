"""An NVIDIA card, simulated on a CPU for every Python process that a command starts.

    PYTHONPATH=tests python -m support.simulated_card rtx3060 agentlite sft --run runs/try

Simulated, not run on a GPU. What holds here: which configuration, trainer, patches, masks and calls
come about on CUDA; losses and gradients too, to the precision of bfloat16. What does not: memory,
speed, and what a kernel does in its own way on a card, since Triton's interpreter runs the kernels
and every tensor lies on the CPU. It takes milliseconds a token, so torch does what the three
slowest do for more than KERNEL_TOKENS of them.

support/card_hook changes each library when a process has imported it. bitsandbytes and triton come
from a folder beside the packages: installed, they would change what a CPU run imports.
"""

import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

HERE = Path(__file__).parent
# scripts/setup.sh fills it where there is no CUDA device
FOLDER = Path(os.environ.get("AGENTLITE_SIMULATION", HERE.parents[1] / ".venv/simulation"))
DRIVER = "580.95.05"
KERNEL_TOKENS = 4


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
    "t4": SimulatedCard("Tesla T4", 15, (7, 5)),
}


def environment_with(
    card: str | None, scratch: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """`environment` for a process that sees the card `card` of CARDS, as do those it starts.

    None: no card, but the packages of the folder. An nvidia-smi is written into `scratch`.
    """
    added = {"UNSLOTH_COMPILE_LOCATION": str(scratch / "compiled")}
    folders = [FOLDER] if FOLDER.is_dir() else []
    if card:
        added |= {
            "AGENTLITE_SIMULATED_CARD": card,
            "PATH": os.pathsep.join([_driver(scratch, CARDS[card]), environment["PATH"]]),
            "TRITON_INTERPRET": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "UNSLOTH_COMPILE_DISABLE": "1",
            # by FlexAttention, whose backward pass needs a card
            "UNSLOTH_GRPO_PREFIX_GROUPER": "0",
        }
        folders.append(HERE / "card_hook")
    path = [*map(str, folders), environment.get("PYTHONPATH", ""), str(HERE.parent)]
    return {**environment, **added, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def _driver(scratch: Path, card: SimulatedCard) -> str:
    """A folder with an nvidia-smi that answers what agentlite asks of the card's driver."""
    path = scratch / "bin/nvidia-smi"
    path.parent.mkdir()
    mib, capability = int(card.gib * 1024), ".".join(map(str, card.capability))
    path.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        f"*driver_version*) echo '{DRIVER}' ;;\n"
        f"-L) echo 'GPU 0: {card.name} (UUID: simulated)' ;;\n"
        f"*) echo '0, GPU-simulated, {card.name}, {mib}, {mib - 512}, {capability}' ;;\n"
        "esac\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return str(path.parent)


@contextmanager
def changing(module: str) -> Iterator[None]:
    """Around the import of a module that support/card_hook names."""
    if module == "unsloth":
        # as root, Unsloth would run ldconfig on this machine
        user, os.geteuid = os.geteuid, lambda: 1
        yield
        os.geteuid = user
        import torch

        _describe(_card(), torch)  # Unsloth has wrapped some of it
        return
    yield
    CHANGES[module](sys.modules[module])


def _card() -> SimulatedCard:
    return CARDS[os.environ["AGENTLITE_SIMULATED_CARD"]]


def _change_torch(torch: Any) -> None:
    # while no card is seen: its CUDA library is not loaded
    import bitsandbytes  # noqa: F401

    _describe(_card(), torch)
    _keep_on_cpu(torch)


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
    memory = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    nothing = ("set_device", "empty_cache", "synchronize", "reset_peak_memory_stats", "init")
    nothing += ("set_per_process_memory_fraction",)
    nothing += ("ipc_collect", "manual_seed", "manual_seed_all", "_lazy_init")
    nothing += ("set_rng_state", "set_rng_state_all")
    # of the whole process, so that something has been taken
    taken = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answers |= dict.fromkeys(memory, taken) | dict.fromkeys(nothing)
    for name, value in answers.items():
        for module in (cuda, cuda.random, cuda.memory):
            if module is cuda or hasattr(module, name):
                setattr(module, name, always(value))
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
    run = threading.Thread.run

    def run_on_cpu(self: threading.Thread) -> None:
        with OnCpu():  # such a mode is a thread's own
            run(self)

    threading.Thread.run = run_on_cpu  # type: ignore[method-assign]

    autocast, begin = torch.amp.autocast_mode.autocast, torch.amp.autocast_mode.autocast.__init__

    def autocast_on_cpu(self: Any, device_type: str, *rest: Any, **named: Any) -> None:
        begin(self, "cpu" if device_type == "cuda" else device_type, *rest, **named)

    autocast.__init__ = autocast_on_cpu


def _load_to_cpu(modeling: Any) -> None:
    model = modeling.PreTrainedModel
    read = model.from_pretrained.__func__

    def read_to_cpu(cls: Any, *rest: Any, **named: Any) -> Any:
        if "device_map" in named:
            named["device_map"] = {"": "cpu"}
        return read(cls, *rest, **named)

    model.from_pretrained = classmethod(read_to_cpu)


def _keep_angles_by_card(llama: Any) -> None:
    """Unsloth keeps one table of rotary angles for each card, by the index of a tensor's device,
    which is None on the CPU.
    """

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


def _allow_bitsandbytes(device_type: Any) -> None:
    """Unsloth has looked for the CUDA library, whose part the CPU's takes here."""
    device_type.ALLOW_BITSANDBYTES = device_type.ALLOW_PREQUANTIZED_MODELS = True


def _dequantize_on_cpu(utils: Any) -> None:
    from bitsandbytes.functional import QuantState, dequantize_4bit

    plain, plain_product = utils._fast_dequantize_bnb, utils._fast_gemv_bnb

    def dequantize(weight: Any, state: Any = None, out: Any = None, **rest: Any) -> Any:
        if not isinstance(state, QuantState):
            return plain(weight, state, out, **rest)
        whole = dequantize_4bit(weight, state)
        return whole if out is None else out.copy_(whole)

    def product(x: Any, weight: Any, state: Any, out: Any = None) -> Any:
        if not isinstance(state, QuantState):
            return plain_product(x, weight, state, out)
        found = x @ dequantize_4bit(weight, state).t()
        return found if out is None else out.copy_(found)

    utils._fast_dequantize_bnb, utils._fast_gemv_bnb = dequantize, product


def _norm_many_rows(rms_layernorm: Any) -> None:
    """A program of this kernel takes one row, or many where their sums come out alike to the bit,
    which they do not here. A row takes Triton's interpreter 30 ms: torch does more than a few.
    """
    import torch

    rms_layernorm._multirow_self_check = lambda *_: True
    plain_forward, plain_backward = rms_layernorm._rms_forward, rms_layernorm._rms_backward

    def forward(x: Any, weight: Any, eps: float, gemma: bool, *rest: Any) -> Any:
        if gemma or len(x) <= KERNEL_TOKENS:
            return plain_forward(x, weight, eps, gemma, *rest)
        scale = torch.rsqrt(x.float().square().mean(1) + eps)
        normed = (x.float() * scale[:, None]).to(weight.dtype)
        return (normed * weight).to(x.dtype), scale

    def backward(*given: Any, **how: Any) -> Any:
        dy, dx, x, weight, scale, _, gemma, *_ = given
        if gemma or how.get("from_y") or len(dy) <= KERNEL_TOKENS:
            return plain_backward(*given, **how)
        size, normed = x.shape[1], x.float() * scale[:, None]
        weighted = dy.float() * weight.float()
        along = normed * (weighted * normed).sum(1, keepdim=True)
        of_weight = (dy.float() * normed.to(weight.dtype).float()).sum(0).to(weight.dtype)
        dx.copy_(scale[:, None] / size * (size * weighted - along))  # it may be dy
        return of_weight if how.get("train_w") else None

    rms_layernorm._rms_forward, rms_layernorm._rms_backward = forward, backward


def _turn_long_rows(rope_embedding: Any) -> None:
    """A token takes Triton's interpreter 60 ms to rotate: torch does it for more than a few."""
    launch = rope_embedding._rope_launch

    def launch_short(
        q: Any, q_out: Any, k: Any, k_out: Any, cos: Any, sin: Any, places: Any, *rest: Any
    ) -> None:
        has_places, backward, *_ = rest
        rows, _, length, size = q.shape
        if rows * length <= KERNEL_TOKENS:
            return launch(q, q_out, k, k_out, cos, sin, places, *rest)
        place = places.long().view(rows, length) if has_places else slice(length)
        c, s = (one[place, ..., : size // 2].float().unsqueeze(-3) for one in (cos, sin))
        s = -s if backward else s
        for before, after in ((q, q_out), (k, k_out)):
            if before is not None:
                first, second = before.float().chunk(2, -1)
                after[..., : size // 2] = first * c - second * s
                after[..., size // 2 :] = second * c + first * s

    rope_embedding._rope_launch = launch_short


def _sum_many_logits(chunked_logprob: Any) -> None:
    """TRL's loss, one program a token (and block of the vocabulary): torch does many at once."""
    import torch

    plain_forward, plain_backward = (
        chunked_logprob._forward_kernel,
        chunked_logprob._backward_kernel,
    )

    def scaled(tile: Any, flags: Mapping[str, Any]) -> tuple[Any, Any]:
        """The logits, and by how much of them the cap lets a gradient through."""
        z = tile.float() * flags["logit_scale"]
        if not flags["HAS_SOFTCAP"]:
            return z * flags["inv_t"], 1.0
        bent = torch.tanh(z / flags["softcap"])
        return flags["softcap"] * bent * flags["inv_t"], 1 - bent * bent

    def forward(*given: Any, BLOCK_SIZE: int, **flags: Any) -> None:
        tile, _, targets, top, total, x_total, squares, sums, before, chosen, start, _ = given
        z, _ = scaled(tile, flags)
        local = targets - start
        rows = torch.nonzero((local >= 0) & (local < z.shape[1])).squeeze(1)
        chosen[rows] = z[rows, local[rows]]
        if flags["HAS_MEAN_LOGITS"]:
            sums += z.sum(1)
        if flags["HAS_IS_TOP1"]:
            earlier = torch.arange(z.shape[1]) < local[:, None]
            before.copy_(torch.maximum(before, z.masked_fill(~earlier, -torch.inf).amax(1)))
        new = torch.maximum(top, z.amax(1))
        shrink, e = torch.exp(top - new), torch.exp(z - new[:, None])
        total.mul_(shrink).add_(e.sum(1))
        if flags["HAS_ENTROPY"]:
            x_total.mul_(shrink).add_((e * z).sum(1))
        if flags["HAS_LOG_SUM_SQ_PROBS"]:
            squares.mul_(shrink * shrink).add_((e * e).sum(1))
        top.copy_(new)

    def backward(*given: Any, BLOCK_SIZE: int, **flags: Any) -> None:
        tile, _, targets, log_z, entropy, by_logprob, by_entropy, start, _ = given
        z, passed = scaled(tile, flags)
        log_p = z - log_z[:, None]
        p, gradient = torch.exp(log_p), torch.zeros_like(log_p)
        if flags["HAS_LOGPROB_GRAD"]:
            hit = torch.arange(z.shape[1]) + start == targets[:, None]
            gradient += by_logprob[:, None] * (hit.float() - p)
        if flags["HAS_ENTROPY_GRAD"]:
            gradient -= by_entropy[:, None] * p * (log_p + entropy[:, None])
        tile.copy_(gradient * flags["logit_scale"] * flags["inv_t"] * passed)

    class Kernel:
        def __init__(self, plain: Any, many: Callable[..., None]) -> None:
            self.plain, self.many = plain, many

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
            return self.many if grid[0] > KERNEL_TOKENS else self.plain[grid]

    chunked_logprob._forward_kernel = Kernel(plain_forward, forward)
    chunked_logprob._backward_kernel = Kernel(plain_backward, backward)


def _change_interpreter(interpreter: Any) -> None:
    _compute_in_bfloat16(interpreter)
    changed: set[frozenset[int]] = set()

    def call(self: Any, *given: Any, **named: Any) -> Any:
        """A kernel calls this function. Its modules of triton.language are changed when the first
        such call is made, and stay so; doing it again for each call takes most of the time.
        """
        modules = [one for one in self.fn.__globals__.values() if isinstance(one, ModuleType)]
        if (key := frozenset(map(id, modules))) not in changed:
            interpreter._patch_lang(self.fn)
            changed.add(key)
        return self.rewrite()(*given, **named)

    interpreter.InterpretedFunction.__call__ = call


def _compute_in_bfloat16(interpreter: Any) -> None:
    """Triton's interpreter keeps bfloat16 as its bits, in uint16, and calculates with those: a
    product of two is no product. Here such numbers are calculated with in float32.
    """
    import numpy as np
    import triton.language as tl

    InterpreterBuilder, TensorHandle = interpreter.InterpreterBuilder, interpreter.TensorHandle

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


CHANGES: dict[str, Callable[[Any], None]] = {
    "torch": _change_torch,
    "transformers.modeling_utils": _load_to_cpu,
    "triton.runtime.interpreter": _change_interpreter,
    "trl.kernels.chunked_logprob": _sum_many_logits,
    "unsloth.device_type": _allow_bitsandbytes,
    "unsloth.kernels.utils": _dequantize_on_cpu,
    "unsloth.kernels.rms_layernorm": _norm_many_rows,
    "unsloth.kernels.rope_embedding": _turn_long_rows,
    "unsloth.models.llama": _keep_angles_by_card,
}


def main() -> int:
    """Runs a command, all of whose Python processes see a card; its exit code."""
    card, *command = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="agentlite-simulated-") as scratch:
        environment = environment_with(card, Path(scratch), os.environ)
        return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
