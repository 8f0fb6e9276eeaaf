"""A model's name -> what its export needs: weights, template, protocols, stages, figures."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core.errors import MODEL, UserError
from agentlite.deploy.export.proof import first_difference, goldens, trained_rows
from agentlite.rendering import Mixture, mixture_of
from agentlite.rendering.template import Template
from agentlite.report.read_run import ReportedEvaluation, ReportedStage, read_run
from agentlite.workspace import hub
from agentlite.workspace.input_files import EMBEDDED, load_template
from agentlite.workspace.lookup import Source, find_model, find_stage, is_stage, read_stage

ORIGINS = {"smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct"}  # on the hub
CONTEXT = 4096  # where no stage says for how many tokens it was trained


class ExportedModel(NamedTuple):
    """`stages`: those it was made from, its own last; `evaluations`: those of these very weights.
    `mention`: a comment before the exported template, for Ollama.
    """

    name: str
    source: Source
    template: Template
    mixture: Mixture
    lineage: list[str]
    max_length: int | None = None
    stages: list[ReportedStage] = []  # noqa: RUF012  (never changed)
    evaluations: list[ReportedEvaluation] = []  # noqa: RUF012
    mention: str = ""

    @property
    def training_settings(self) -> dict[str, Any]:
        """The settings of its training; {} for a model as it was found."""
        return self.stages[-1].plan.settings if self.stages else {}

    @property
    def origin(self) -> str:
        """The base as others know it: a hub id, or a folder."""
        return ORIGINS.get(self.source.base, hub.hub_id(self.source.base))

    @property
    def tools_template(self) -> Template | None:
        """Where the model's own template prints no tools and its protocol has lines for this: the
        template that takes tools, calls and results from a server, as in training.
        """
        template, protocols = self.template, [*self.mixture.protocols.values()]
        lines = protocols[0].template_prefix if len(protocols) == 1 else ""
        served = _with_chat_template(template, lines + template.chat_template)
        is_own = template.prints_tools or any(template.thought_keys)
        rows = [] if is_own else trained_rows(template, goldens(self.mixture))
        return None if is_own or first_difference(rows, served, as_tools=True) else served

    @property
    def exported_template(self) -> Template:
        """The template that is exported."""
        template = self.tools_template or self.template
        if not self.mention:
            return template
        return _with_chat_template(template, self.mention + template.chat_template)

    @property
    def takes_tools(self) -> bool:
        """Whether a server may give the exported template tools and calls."""
        protocols = self.mixture.protocols.values()
        return all(protocol.native for protocol in protocols) or self.tools_template is not None

    @property
    def stops(self) -> list[str]:
        """Where an answer ends: with its turn, or at what a protocol ends it with."""
        stops = [stop for protocol in self.mixture.protocols.values() for stop in protocol.stops]
        return list(dict.fromkeys([self.template.turn_end, *stops]))


def _with_chat_template(template: Template, chat_template: str) -> Template:
    return Template(template.name, template.tokenizer, chat_template, template.special)


def find_subject(name: str, run: Path) -> ExportedModel:
    """Raises UserError 2, 5 or 8 where there is no model, it is not finished, or its base is
    missing, and 3 where the plan of a stage that it was made from cannot be trusted."""
    source = find_model(name, run)
    template = load_template(source.base)
    mixture = mixture_of(str(source.settings.get("protocol") or ""), template)
    length, folder = source.settings.get("max_length"), find_stage(name, run)
    if not is_stage(folder):
        return ExportedModel(name, source, template, mixture, [name], length)
    workspace, models = read_run(folder.parent), [*source.made_from, folder.name]

    # the stages that it was made from, and itself, in the order they were run in
    stage_names, queue = set[str](), [folder.name]
    while queue:
        stage_name = queue.pop()
        stage = workspace.stage(stage_name)
        if stage is None:
            read_stage(workspace.folder / stage_name).trusted()
        elif stage.name not in stage_names:
            stage_names.add(stage.name)
            queue += [str(stage.plan.settings.get(key)) for key in ("model", "data", "candidates")]
    stages = [stage for stage in workspace.stages if stage.name in stage_names]
    stages.sort(key=lambda stage: stage.name == folder.name)

    evaluations = [
        evaluation
        for evaluation in workspace.evaluations
        if source.digest in [model.plan.inputs.get("model") for model in evaluation.models.values()]
    ]
    return ExportedModel(
        folder.name, source, template, mixture, models, length, stages, evaluations
    )


def refuse_quantized(source: Source) -> None:
    """Raises UserError 5: what is rounded to 4 bits has no place for an adapter."""
    if source.base in EMBEDDED:  # it is converted to plain weights
        return
    local_file = Path(source.base) / hub.CONFIG
    file = local_file if local_file.parent.is_dir() else hub.hub_file(source.base, hub.CONFIG)
    if json.loads(file.read_bytes()).get("quantization_config"):
        raise UserError(
            "its weights are quantized: an adapter cannot be merged into them.",
            "Export only the adapter: --adapter FOLDER; or train on the plain weights (with "
            "load_in_4bit).",
            location=source.base,
            exit_code=MODEL,
        )
