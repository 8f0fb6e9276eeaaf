"""finished prep + a teacher -> an adapter that goes on as the teacher does, by distillation."""

import shlex
from collections.abc import Mapping
from functools import partial

from agentlite.config.settings import DistillSettings
from agentlite.core import console
from agentlite.core.errors import MODEL, UserError
from agentlite.data.prompt_records import Prompts, find_prompts
from agentlite.engine import distill, trainer
from agentlite.engine.decoding import decoding_of
from agentlite.engine.distill import DistillPrompt
from agentlite.engine.refusals import refuse, sampling_cases
from agentlite.rendering import encode_answer
from agentlite.rendering.template import Template
from agentlite.stages.training import (
    Training,
    data_option,
    fitting_prompts,
    inherit_settings,
    train_stage,
)
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import (
    Result,
    RunTarget,
    Source,
    find_learner,
    find_model,
    refuse_circle,
)

inherit = partial(inherit_settings, "distill")


def run(settings: DistillSettings, target: RunTarget) -> Result:
    """Trains, or carries on."""
    refuse("distill", sampling_cases(settings))
    source = find_learner("distill", settings, target)
    teacher = find_model(settings.teacher, target.run, target.old_plan)
    refuse_circle(teacher, target)
    template = load_template(source.base)
    vocabulary_size = _vocabulary_size(source, template, teacher)
    prompt_data = find_prompts(settings.data, settings.split, source, target.run)

    def train() -> Training:
        prompts, too_long = read_prompts(settings, prompt_data, template)
        plan = trainer.schedule(settings, len(prompts))
        forecast = {
            "prompts": len(prompts),
            "steps": plan.steps,
            "answers": plan.rows,
            "too_long": too_long,
            "longest_prompt": max(len(prompt.ids) for prompt in prompts),
        }
        folder = yield forecast, max(distill.max_row_length(prompt, settings) for prompt in prompts)
        console.notice(f"distill: {len(prompts)} prompts, taught by {teacher.name}")
        decoding = decoding_of(settings).under(template)
        task = distill.DistillTask(prompts, decoding, vocabulary_size)
        figures = distill.train(source, teacher, settings, folder, task)
        figures = {"prompts": len(prompts), **figures, "too_long": too_long}
        return {**figures, "taught_by": teacher.lineage}

    return train_stage(
        "distill",
        settings,
        target,
        source,
        train(),
        protocol=prompt_data.protocol,
        inputs={"data": prompt_data.digest, "teacher": teacher.digest},
        eval_options=f" --model {shlex.quote(teacher.name)}{data_option(settings.data)}",
    )


def key_figure(figures: Mapping[str, object]) -> str:
    return f"divergence {figures['first_divergence']:.3f} -> {figures['last_divergence']:.3f}"


def _vocabulary_size(source: Source, template: Template, teacher: Source) -> int:
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
    student_ids, teacher_ids = (
        model.tokenizer.get_vocab(with_added_tokens=True)
        for model in (template, load_template(teacher.base))
    )
    if student_ids != teacher_ids:
        differing = len({token for token, _ in student_ids.items() ^ teacher_ids.items()})
        raise UserError(
            f"{teacher.name} has another tokenizer than {source.name} ({differing} tokens differ), "
            "and the two are compared token by token.",
            "Name a teacher of the same family. From any other model its answers can be learned: "
            "agentlite pairs --model TEACHER, then agentlite prep --from pairs.",
            location="--teacher",
            exit_code=MODEL,
        )
    return max(student_ids.values()) + 1


def read_prompts(
    settings: DistillSettings, prompt_data: Prompts, template: Template
) -> tuple[list[DistillPrompt], int]:
    """The prompts, and how many are too long. Where recorded answers are learned from, only those
    that have one of which all is known, and that is no longer than max_length lets it be. Raises
    UserError 2 if there is none.
    """
    room = settings.max_length - (settings.max_new_tokens if settings.uses_samples else 1)
    fitting, too_long, mixture = fitting_prompts("distill", settings, prompt_data, template, room)
    prompts: list[DistillPrompt] = []
    for prompt in fitting:
        answer: list[int] = []
        if settings.uses_records:
            record, turn = prompt.record, prompt.turn
            if not record.has_gold(turn) or record.unknown_arguments(turn):
                continue
            answer = encode_answer(prompt.answer, prompt.ended, template, prompt.ids)
            if len(prompt.ids) + len(answer) > settings.max_length:
                continue
        stops = mixture.protocols[prompt.protocol].stops
        prompts.append(DistillPrompt(prompt.ids, stops, answer))
    if not prompts:
        raise UserError(
            f"holds no recorded answer of which all is known, in {settings.max_length} tokens.",
            "Raise --max-length, or add --lmbda 1.",
            location=prompt_data.location,
        )
    if without_answer := len(fitting) - len(prompts):
        console.notice(f"distill: {without_answer} prompts have no such answer, and are left out")
    return prompts, too_long
