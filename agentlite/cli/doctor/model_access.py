"""Whether models can be had: the embedded model, the hub, environment variables."""

import os
from collections.abc import Iterator

from agentlite.cli.doctor.finding import Finding
from agentlite.cli.doctor.probe import HUB, MIRROR, ProbedFacts, endpoint
from agentlite.config.settings import CPU_MODEL
from agentlite.core.errors import UserError
from agentlite.workspace.digests import cache_folder
from agentlite.workspace.model_source import embedded_file

NAMED = (
    "CUDA_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "HF_ENDPOINT",
    "AGENTLITE_CACHE",
    "AGENTLITE_RUN",
    "CC",
)
ELSE = "Without it: smollm2-135m, or the folder of a model."


def embedded(facts: ProbedFacts) -> Iterator[Finding]:
    try:
        embedded_file(CPU_MODEL)
    except UserError as error:
        yield Finding("embedded model", "warning", error.problem, error.fix)
        return
    there = any((cache_folder() / "models").glob(f"{CPU_MODEL}-*/model.safetensors"))
    yield Finding(
        "embedded model",
        "ok",
        f"{CPU_MODEL}, {'ready' if there else 'made ready when it is first used'}",
    )


def hub(facts: ProbedFacts) -> Iterator[Finding]:
    if not facts.unreached:
        yield Finding("hub", "ok", "not asked: offline (HF_HUB_OFFLINE)")
        return
    here = endpoint()
    why, others = facts.unreached[here], {HUB, MIRROR} - {here}
    reached = [url for url in sorted(others) if not facts.unreached[url]]
    also = f"; {reached[0]} too" if reached else ""
    if not why:
        yield Finding("hub", "ok", f"{here} answers{also}")
    elif reached:
        variable = "unset HF_ENDPOINT" if reached[0] == HUB else f"export HF_ENDPOINT={reached[0]}"
        yield Finding(
            "hub", "warning", f"{here} does not answer ({why}); {reached[0]} does", variable
        )
    else:
        yield Finding(
            "hub",
            "warning",
            f"no answer from {here} or {' or '.join(sorted(others))} ({why})",
            f"Behind a proxy, set HTTPS_PROXY; HF_ENDPOINT names another mirror. {ELSE}",
        )


def variables(facts: ProbedFacts) -> Iterator[Finding]:
    found = [f"{name}={os.environ[name]}" for name in NAMED if name in os.environ]
    yield Finding(
        "environment", "ok", ", ".join(found) or "none of the variables that matter is set"
    )
