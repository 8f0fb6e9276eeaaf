"""agentlite tunes a language model to use tools, on one GPU, from the shell or from Python.

The stages are functions with the names and settings of the commands: prep, retriever, sft, pairs,
dpo, grpo, evaluate.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["dpo", "evaluate", "grpo", "pairs", "prep", "retriever", "sft"]

if TYPE_CHECKING:
    from agentlite.stages.api import dpo, evaluate, grpo, pairs, prep, retriever, sft


def __getattr__(name: str) -> Any:
    if name in __all__:
        from agentlite.stages import api

        return getattr(api, name)
    raise AttributeError(f"module 'agentlite' has no attribute '{name}'")
