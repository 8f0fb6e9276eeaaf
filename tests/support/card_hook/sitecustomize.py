"""Python imports this file when it starts, if its folder is on PYTHONPATH. Once torch is imported,
support.simulated_card makes it see the card that AGENTLITE_SIMULATED_CARD names; a process without
torch pays nothing.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

# what support.simulated_card changes, each right after it was imported
CHANGED = (
    "torch",
    "transformers.modeling_utils",
    "triton.runtime.interpreter",
    "trl.kernels.chunked_logprob",
    "unsloth",
    "unsloth.device_type",
    "unsloth.kernels.utils",
    "unsloth.kernels.rms_layernorm",
    "unsloth.kernels.rope_embedding",
    "unsloth.models.llama",
)


class Finder:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in CHANGED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                from support import simulated_card

                with simulated_card.changing(name):
                    execute(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
if os.environ.get("AGENTLITE_SIMULATED_CARD") and not hidden:
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
