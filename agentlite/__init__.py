"""agentlite tunes a language model to use tools, on one GPU, from the shell or from Python.

The stages are functions with the names and settings of the commands; `evaluate` is `eval`, and
`candidates` is `--from`. Each also takes `run` (the workspace) and, as its command does: out,
force, dry_run, config (files), set (assignments) and profile.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agentlite.config.pipeline import STAGES
from agentlite.core import version

if TYPE_CHECKING:
    from agentlite.stages.api import Text
    from agentlite.stages.pairs.score import ResponseScore
    from agentlite.workspace.lookup import Result

__version__ = version.VERSION
__all__ = [
    "ablate",
    "distill",
    "dpo",
    "evaluate",
    "grpo",
    "make",
    "make_queries",
    "make_templates",
    "pairs",
    "prep",
    "retriever",
    "rollout",
    "score",
    "sft",
]


def _stage(command: str) -> "Callable[..., Result]":
    """The function of a stage, with the first line of its help."""

    def run_stage(*, run: "Text | None" = None, **options: object) -> "Result":
        from agentlite.stages.api import call

        return call(command, run, options)

    run_stage.__doc__ = STAGES[command].help
    return run_stage


make = _stage("make")
make_queries = _stage("queries")
make_templates = _stage("templates")
retriever = _stage("retriever")
sft = _stage("sft")
pairs = _stage("pairs")
dpo = _stage("dpo")
grpo = _stage("grpo")
distill = _stage("distill")
rollout = _stage("rollout")
evaluate = _stage("eval")
ablate = _stage("ablate")


def prep(*sources: "Text", run: "Text | None" = None, **options: object) -> "Result":
    """Check dialogs and split them into train, dev and test."""
    if sources and "sources" in options:
        raise TypeError("prep() has sources as arguments and by name: leave out one of the two")
    return _stage("prep")(run=run, **{"sources": sources or None, **options})


def score(
    response: str,
    row: Mapping[str, object],
    *,
    protocol: str = "hermes",
    weights: Mapping[str, float] | None = None,
) -> "ResponseScore":
    """Scores a text as the answer to the last step of a row, as `pairs` and `grpo` do.

    The row is one that `prep` reads: a dialog with tools that ends with the right answer, or a
    prompt with its gold. `weights`: those that differ from the defaults.
    """
    from agentlite.stages.pairs.score import score_response

    return score_response(response, row, protocol, weights or {})
