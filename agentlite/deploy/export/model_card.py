"""The README.md of an export: what it is, what it was made of and how it scored."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agentlite.deploy.export.exported_model import ORIGINS, ExportedModel
from agentlite.deploy.export.proof import Proof, dialogs
from agentlite.rendering import Protocol, render
from agentlite.rendering.protocols import hermes
from agentlite.rendering.renderer import span_text
from agentlite.report import tables
from agentlite.report.read_run import ReportedEvaluation, ReportedStage
from agentlite.workspace.stage_folder import package_versions

TEMPLATE = Path(__file__).with_name("model_card.jinja")
LIBRARIES = {"merged": "transformers", "adapter": "peft", "gguf": "gguf", "ollama": "gguf"}
RELATIONS = {"merged": "finetune", "adapter": "adapter", "gguf": "quantized", "ollama": "quantized"}


def card(title: str, kind: str, weights: str, subject: ExportedModel, proof: Proof) -> str:
    """`weights`: what they are, in words."""
    from jinja2 import Environment, StrictUndefined

    base, protocols = subject.source.base, list(subject.mixture.protocols.values())
    # a base that is a folder has no name on the hub
    on_hub = base in ORIGINS or not Path(base).is_dir()
    # the one of vLLM that reads calls; only a template that prints the tools is given them
    parsers: dict[object, str] = {hermes.parse: "hermes", hermes.parse_json: "llama3_json"}
    native = subject.takes_tools
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    environment.filters["bare"] = _bare
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        head={
            "base_model": subject.origin if on_hub else "",
            "base_model_relation": RELATIONS[kind] if on_hub else "",
            "library_name": LIBRARIES[kind],
            "pipeline_tag": "text-generation",
        },
        title=title,
        kind=kind,
        weights=weights,
        subject=subject,
        base=base,
        origins=ORIGINS,
        versions=package_versions(),
        parser=parsers.get(protocols[0].parse, "") if native else "",
        native=native,
        examples=[_example(protocol, subject) for protocol in protocols],
        uses_bfcl=any("bfcl:" in str(stage.plan.settings) for stage in subject.stages),
        proof=proof,
        evaluations=[_figures(evaluation) for evaluation in subject.evaluations],
        stages=[block for stage in subject.stages for block in _provenance(stage)],
    )


def _bare(value: object) -> Any:
    """Without the folders of the machine it ran on."""
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _example(protocol: Protocol, subject: ExportedModel) -> dict[str, str]:
    """A dialog that shows the format. It is not the model's: its training rows may be private."""
    row = render(dialogs()["the same under a system turn"], protocol, subject.template)[0]
    span = next(span for span in row.spans if span.prompted)
    return {
        "protocol": protocol.name,
        "prompt": row.text[: span.start],
        "answer": span_text(row, span, subject.template),
    }


def _figures(evaluation: ReportedEvaluation) -> dict[str, Any]:
    metrics = {
        _bare(evaluation.models[name].plan.settings.get("model", name)): figures
        for name, figures in evaluation.metrics.items()
    }
    metric_tables = tables.models(metrics), tables.groups(metrics).get("dialogs")
    out = evaluation.folder.parent.name
    return {
        "name": evaluation.name,
        "out": f" ({out})" if out != "eval" else "",
        "tables": [_as_table(table.cells) for table in metric_tables if table],
    }


def _provenance(stage: ReportedStage) -> Iterator[str]:
    """A stage in a few lines: settings, digests of its inputs (its lineage), versions and single
    figures; of the data, the digest of each file.
    """
    values: dict[str, dict[str, Any]] = {
        "settings": {
            key: [_bare(item) for item in value] if isinstance(value, list) else _bare(value)
            for key, value in stage.plan.settings.items()
        },
        "inputs": {_bare(key): value for key, value in stage.plan.inputs.items()},
        "versions": stage.plan.versions,
        "figures": {k: v for k, v in stage.figures.items() if not isinstance(v, dict | list)},
    }
    lines = [f"- {key}: {_escape(tables.list_values(v))}" for key, v in values.items() if v]
    if stage.done:
        lines.append(f"- seconds: {stage.done.seconds:.0f}")
    yield "\n".join([f"**{_escape(stage.name)}**", "", *lines])
    if files := digests([stage]).get(stage.name):
        yield _as_table([["file", "sha256"], *map(list, files.items())])


def digests(stages: list[ReportedStage]) -> dict[str, dict[str, str]]:
    """Of every file of the data, by stage."""
    return {
        stage.name: stage.outputs for stage in stages if stage.plan.command in ("prep", "pairs")
    }


def _as_table(rows: Iterable[list[str]]) -> str:
    head, *body = ([_escape(text) for text in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def _escape(text: str) -> str:
    """Text on one line, escaped, so that a table shows it as it is."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
