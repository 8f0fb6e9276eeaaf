"""finished prep + a teacher -> an adapter that goes on as the teacher does, by distillation."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from agentlite.config.settings import DistillSettings
from agentlite.core import console
from agentlite.core.errors import MODEL, UserError
from agentlite.data.prompt_records import Prompts, find_prompts
from agentlite.engine import deepspeed, distill
from agentlite.engine.decoding import Decoding
from agentlite.engine.planning.dry_run import dry_run_memory
from agentlite.engine.teacher import STORED
from agentlite.rendering import Prompt, encode_answer, settled
from agentlite.rendering.template import Template
from agentlite.stages.training import evaluated_on, train_stage
from agentlite.stages.training_prompts import Fitting, fitting_prompts, refuse_no_room
from agentlite.workspace.lineage import (
    adapter_shape,
    lineage,
    longer_rows,
    refuse_circle,
    setting_of,
)
from agentlite.workspace.model_source import Source, find_model, load_template
from agentlite.workspace.run_folder import Result, RunTarget


def inherit(settings: DistillSettings, run: Path) -> dict[str, tuple[object, str]]:
    """The model of prep and the length of its rows, and the shape of the adapter that is
    continued.
    """
    model = settings.model or str(setting_of(settings.data, "model", run) or "")
    return {
        **({"model": (model, settings.data)} if model else {}),
        **longer_rows("distill", settings.data, run),
        **adapter_shape(model, run),
        **deepspeed.inherited("distill", settings),
    }


def run(settings: DistillSettings, target: RunTarget) -> Result:
    """Trains, or carries on. Raises UserError 2, 3, 5, 6, 7, 74 or 75; Stopped after a signal."""
    _refuse_settings(settings)
    source, teacher = (
        find_model(name, target.run, target.begun) for name in (settings.model, settings.teacher)
    )
    refuse_circle(settings.teacher, target)
    width = _shared_vocabulary(source, teacher)
    prepared = find_prompts(settings.data, settings.split, settings.model, source, target.run)

    def train(folder: Path) -> dict[str, object]:
        with console.waiting("distill: writing the prompts"):
            fitting = _fitting(settings, prepared, source)
        task = _task(settings, prepared, fitting, source, width)
        console.notice(f"distill: {len(task.prompts)} prompts, taught by {teacher.name}")
        figures = distill.train(source, teacher, settings, folder, task)
        taught_by = lineage(settings.teacher, target.run)
        return {
            "prompts": len(task.prompts),
            **figures,
            "too_long": fitting.too_long,
            "taught_by": taught_by,
        }

    def dry_run() -> dict[str, object]:
        """How many steps and answers there would be, and of how long prompts."""
        fitting = _fitting(settings, prepared, source)
        planned = distill.schedule(settings, len(fitting.prompts))
        task = _task(settings, prepared, fitting, source, width)
        longest = max(distill.longest(one, settings) for one in task.prompts)
        return {
            "prompts": len(fitting.prompts),
            "steps": planned.steps,
            "answers": planned.rows,
            "too_long": fitting.too_long,
            "longest_prompt": fitting.longest,
            "memory_gib": dry_run_memory("distill", settings, source.base, longest, target.run),
        }

    return train_stage(
        "distill",
        settings,
        target,
        source,
        protocol=prepared.protocol,
        inputs={"data": prepared.digest, "teacher": teacher.digest},
        check=lambda: distill.check(settings),
        dry_run=dry_run,
        train=train,
        outputs=(STORED,) if settings.top_k else (),
        evaluate=f" --model {shlex.quote(teacher.name)}{evaluated_on(settings.data)}",
    )


def key_figure(figures: Mapping[str, object]) -> str:
    return f"divergence {figures['first_divergence']:.3f} -> {figures['last_divergence']:.3f}"


def _refuse_settings(settings: DistillSettings) -> None:
    """Raises UserError 2 for settings that do not go together."""
    if settings.samples:
        refuse_no_room("distill", settings)
    if settings.top_k and settings.samples:
        raise UserError(
            "holds the teacher's opinion of recorded answers, and others are sampled.",
            "Add --lmbda 0, without --fade and --off-policy teacher; or leave --top-k out.",
            location="distill.top_k",
        )


def _shared_vocabulary(source: Source, teacher: Source) -> int:
    """How many ids the tokenizers of student and teacher have, which must be the same. Raises
    UserError 5 where they are not, or where both are one model.
    """
    if source.digest == teacher.digest:
        raise UserError(
            f"{teacher.name} is the model that learns: there is nothing to learn from it.",
            "Name another --teacher, or start from another --model.",
            location="--teacher",
            exit_code=MODEL,
        )
    own, other = (
        load_template(base).tokenizer.get_vocab(with_added_tokens=True)
        for base in (source.base, teacher.base)
    )
    if own != other:
        strange = len({token for token, _ in own.items() ^ other.items()})
        raise UserError(
            f"{teacher.name} has another tokenizer than {source.name} ({strange} tokens differ), "
            "and the two are compared token by token.",
            "Name a teacher of the same family. From any other model its answers can be learned: "
            "agentlite pairs --model TEACHER, then agentlite prep --from pairs.",
            location="--teacher",
            exit_code=MODEL,
        )
    return max(own.values()) + 1


def _fitting(settings: DistillSettings, prepared: Prompts, source: Source) -> Fitting:
    """Where recorded answers are learned from, only the steps that have one of which all is known,
    and that is no longer than max_length lets it be. Raises UserError 2 if there is none.
    """
    prompted = [record for record in prepared.records() if record.prompted_turns]
    new_tokens = settings.max_new_tokens if settings.samples else 1
    fitting = fitting_prompts("distill", settings, prepared, source, prompted, new_tokens)
    if not settings.uses_records:
        return fitting
    template = load_template(source.base)
    answered = [
        one
        for one in fitting.prompts
        if one.record.has_gold(one.turn) and not one.record.unknown_arguments(one.turn)
        if len(one.ids) + len(_recorded(one, template)) <= settings.max_length
    ]
    if not answered:
        raise UserError(
            f"holds no recorded answer of which all is known, in {settings.max_length} tokens.",
            "Raise --max-length, or add --lmbda 1 or --off-policy teacher.",
            location=prepared.location,
        )
    if len(answered) < len(fitting.prompts):
        console.notice(
            f"distill: {len(fitting.prompts) - len(answered)} prompts have no such answer, and are "
            "left out"
        )
    return fitting._replace(prompts=answered)


def _recorded(prompt: Prompt, template: Template) -> list[int]:
    return encode_answer(prompt.answer, prompt.ended, template, prompt.ids)


def _task(
    settings: DistillSettings, prepared: Prompts, fitting: Fitting, source: Source, width: int
) -> distill.DistillTask:
    template = load_template(source.base)
    protocols = settled(prepared.protocol, template).protocols
    decoding = Decoding(
        settings.max_new_tokens, temperature=settings.temperature, top_p=settings.top_p
    ).under(template)
    rows = [
        distill.DistillPrompt(
            one.ids,
            protocols[one.protocol].stops,
            _recorded(one, template) if settings.uses_records else (),
        )
        for one in fitting.prompts
    ]
    return distill.DistillTask(rows, decoding, width)
