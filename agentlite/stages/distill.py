"""finished prep + a teacher -> an adapter that goes on as the teacher does, by distillation."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from agentlite.config.settings import DistillSettings
from agentlite.core import console
from agentlite.core.errors import MODEL, UserError
from agentlite.data.curation.sample import sample
from agentlite.data.prompt_records import Prompts, find_prompts
from agentlite.engine import distill
from agentlite.engine.decoding import Decoding
from agentlite.engine.planning.suggest_fit import dry_run_memory
from agentlite.engine.refusals import refuse_contradictions
from agentlite.engine.teacher import STORED
from agentlite.rendering import encode_answer, mixture_of
from agentlite.stages.frame import Figures
from agentlite.stages.training import evaluated_on, inherited_from_data, train_stage
from agentlite.stages.training_prompts import fitting_prompts
from agentlite.workspace.lineage import lineage, refuse_circle
from agentlite.workspace.model_source import Source, find_model, load_template
from agentlite.workspace.run_folder import Result, RunTarget


def inherit(settings: DistillSettings, run: Path) -> dict[str, tuple[object, str]]:
    return inherited_from_data("distill", settings, run)


def run(settings: DistillSettings, target: RunTarget) -> Result:
    """Trains, or carries on."""
    refuse_contradictions("distill", settings)
    source, teacher = (
        find_model(name, target.run, target.begun) for name in (settings.model, settings.teacher)
    )
    refuse_circle(settings.teacher, target)
    width = _shared_vocabulary(source, teacher)
    prepared = find_prompts(settings.data, settings.split, settings.model, source, target.run)

    def train(folder: Path) -> Figures:
        prompts, too_long = _read(settings, prepared, source)
        console.notice(f"distill: {len(prompts)} prompts, taught by {teacher.name}")
        decoding = Decoding(
            settings.max_new_tokens, temperature=settings.temperature, top_p=settings.top_p
        ).under(load_template(source.base))
        task = distill.DistillTask(prompts, decoding, width)
        figures = distill.train(source, teacher, settings, folder, task)
        return {
            "prompts": len(prompts),
            **figures,
            "too_long": too_long,
            "taught_by": lineage(settings.teacher, target.run),
        }

    def dry_run() -> Figures:
        """How many steps and answers there would be, and of how long prompts."""
        prompts, too_long = _read(settings, prepared, source)
        planned = distill.schedule(settings, len(prompts))
        longest = max(distill.longest(prompt, settings) for prompt in prompts)
        return {
            "prompts": len(prompts),
            "steps": planned.steps,
            "answers": planned.rows,
            "too_long": too_long,
            "longest_prompt": max(len(prompt.ids) for prompt in prompts),
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


def _read(
    settings: DistillSettings, prepared: Prompts, source: Source
) -> tuple[list[distill.DistillPrompt], int]:
    """The prompts, and how many are too long. Where recorded answers are learned from, only those
    that have one of which all is known, and that is no longer than max_length lets it be. Raises
    UserError 2 if there is none.
    """
    prompted = [record for record in prepared.records() if record.prompted_turns]
    sampled = [prompted[index] for index in sample(prompted, settings.limit, settings.seed)]
    template = load_template(source.base)
    mixture = mixture_of(prepared.protocol, template)
    room = settings.max_length - (settings.max_new_tokens if settings.samples else 1)
    location = prepared.location
    prompts, too_long = fitting_prompts("distill", sampled, mixture, template, room, location)
    taught: list[distill.DistillPrompt] = []
    for prompt in prompts:
        answer: list[int] = []
        if settings.uses_records:
            record, turn = prompt.record, prompt.turn
            if not record.has_gold(turn) or record.unknown_arguments(turn):
                continue
            answer = encode_answer(prompt.answer, prompt.ended, template, prompt.ids)
            if len(prompt.ids) + len(answer) > settings.max_length:
                continue
        stops = mixture.protocols[prompt.protocol].stops
        taught.append(distill.DistillPrompt(prompt.ids, stops, answer))
    if not taught:
        raise UserError(
            f"holds no recorded answer of which all is known, in {settings.max_length} tokens.",
            "Raise --max-length, or add --lmbda 1 or --off-policy teacher.",
            location=location,
        )
    if len(taught) < len(prompts):
        console.notice(
            f"distill: {len(prompts) - len(taught)} prompts have no such answer, and are left out"
        )
    return taught, too_long
