"""agentlite tunes a language model to use tools, on one GPU, from the shell or from Python.

The stages are functions with the names and settings of the commands; `evaluate` is `eval`. Each
also takes `run` (the workspace) and, as its command does: out, force, dry_run, config (files), set
(assignments) and profile.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentlite.core import version

if TYPE_CHECKING:
    from agentlite.stages.api import Text
    from agentlite.stages.pairs.score import ResponseScore
    from agentlite.workspace.stage_folder import Result

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


def make(*, run: "Text | None" = None, **options: object) -> "Result":
    """Makes training dialogs from tools alone: calls that were carried out, with words for them."""
    return _call("make", run, options)


def make_queries(*, run: "Text | None" = None, **options: object) -> "Result":
    """Lets a model write new queries like those that there are, without copies and leaks."""
    return _call("queries", run, options)


def make_templates(*, run: "Text | None" = None, **options: object) -> "Result":
    """Lets a model write prompt templates, and keeps those that are better than known protocols."""
    return _call("templates", run, options)


def prep(*sources: "Text", run: "Text | None" = None, **options: object) -> "Result":
    """Checks dialogs, leaves out duplicates, and splits the rest into train, dev and test."""
    if sources and "sources" in options:
        raise TypeError("prep() has sources as arguments and by name: leave out one of the two")
    return _call("prep", run, {"sources": sources or None, **options})


def retriever(*, run: "Text | None" = None, **options: object) -> "Result":
    """Trains a model that finds the right tools among many, and builds its index."""
    return _call("retriever", run, options)


def sft(*, run: "Text | None" = None, **options: object) -> "Result":
    """Trains an adapter on the assistant's answers and calls in the records of prep."""
    return _call("sft", run, options)


def pairs(*, run: "Text | None" = None, **options: object) -> "Result":
    """Samples several answers at every step, scores them, and pairs the best with the worst.
    `candidates` is `--from`."""
    return _call("pairs", run, options)


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


def dpo(*, run: "Text | None" = None, **options: object) -> "Result":
    """Trains an adapter to prefer the chosen answers of pairs to the rejected ones."""
    return _call("dpo", run, options)


def grpo(*, run: "Text | None" = None, **options: object) -> "Result":
    """Trains an adapter on its own answers, each scored against the others of its group."""
    return _call("grpo", run, options)


def distill(*, run: "Text | None" = None, **options: object) -> "Result":
    """Trains an adapter to go on as a teacher does, at every token of its own answers."""
    return _call("distill", run, options)


def rollout(*, run: "Text | None" = None, **options: object) -> "Result":
    """Lets a model act in an environment, and keeps what it did: its trajectories."""
    return _call("rollout", run, options)


def evaluate(*, run: "Text | None" = None, **options: object) -> "Result":
    """Asks models at every step of the test records, scores their answers, and compares them."""
    return _call("eval", run, options)


def ablate(*, run: "Text | None" = None, **options: object) -> "Result":
    """Trains and evaluates every cell of a grid, and compares each with the first.
    `candidates` is `--from`."""
    return _call("ablate", run, options)


def _call(command: str, run: "Text | None", options: dict[str, object]) -> "Result":
    from agentlite.stages.api import call

    return call(command, run, options)
