"""Whether models can be had: the embedded model and the hub."""

from collections.abc import Iterator

from agentlite.cli.doctor.finding import Facts, Finding, why_unreached
from agentlite.config.settings import CPU_MODEL
from agentlite.core.errors import UserError
from agentlite.workspace.digests import cache_folder
from agentlite.workspace.model_source import embedded_file


def embedded(facts: Facts) -> Iterator[Finding]:
    try:
        embedded_file(CPU_MODEL)
    except UserError as error:
        yield Finding("embedded model", "warning", error.problem, error.fix)
        return
    there = any((cache_folder() / "models").glob(f"{CPU_MODEL}-*/model.safetensors"))
    ready = "ready" if there else "made ready when it is first used"
    yield Finding("embedded model", "ok", f"{CPU_MODEL}, {ready}")


def hub(facts: Facts) -> Iterator[Finding]:
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        yield Finding("hub", "ok", "not asked: offline (HF_HUB_OFFLINE)")
    elif why := why_unreached(ENDPOINT):
        yield Finding(
            "hub",
            "warning",
            f"no answer from {ENDPOINT} ({why})",
            "Behind a proxy, set HTTPS_PROXY; HF_ENDPOINT names a mirror. Without it: "
            "smollm2-135m, or the folder of a model.",
        )
    else:
        yield Finding("hub", "ok", f"{ENDPOINT} answers")
