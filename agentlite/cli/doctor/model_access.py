"""Whether models can be had: the embedded model and the hub."""

from collections.abc import Iterator

from agentlite.cli.doctor.finding import Finding
from agentlite.cli.doctor.probe import ProbedFacts, endpoint
from agentlite.config.settings import CPU_MODEL
from agentlite.core.errors import UserError
from agentlite.workspace.digests import cache_folder
from agentlite.workspace.model_source import embedded_file

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
    if facts.unreached is None:
        yield Finding("hub", "ok", "not asked: offline (HF_HUB_OFFLINE)")
    elif not facts.unreached:
        yield Finding("hub", "ok", f"{endpoint()} answers")
    else:
        yield Finding(
            "hub",
            "warning",
            f"no answer from {endpoint()} ({facts.unreached})",
            f"Behind a proxy, set HTTPS_PROXY; HF_ENDPOINT names a mirror. {ELSE}",
        )
