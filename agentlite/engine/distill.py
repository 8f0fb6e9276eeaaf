"""Prompts and a teacher -> an adapter that goes on as the teacher would, by distillation.

Where the answers of an optimizer step come from: the student samples a share of them
(`sampled_share`), and the others are recorded or sampled by the teacher. At every token of an
answer the loss is the divergence of the two models' distributions over the next token, and that of
a step is its mean over all answer tokens of the step, however it is cut into micro-batches.

Every choice follows from the seed, the step and the place in the step: a step that is taken again
has the same answers. The gradient is that of the divergence; how likely an answer was to be sampled
has no part in it (arXiv 2306.13649).
"""

import math
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import DistillSettings
from agentlite.core import console
from agentlite.engine import adapter, local_sampler, step_rows, trainer, training_log
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loaded, free_memory, load, loading_of, prepare
from agentlite.engine.planning.estimate import kept_in_training
from agentlite.engine.teacher import (
    STORED,
    AnswerRow,
    LiveTeacher,
    StoredTeacher,
    collate_answers,
    store_top,
)
from agentlite.engine.watch import Watch
from agentlite.engine.weighted_loss import check_head, head_of, in_chunks, trained_states
from agentlite.workspace.model_source import Source

MEASURES = {
    "agreement": "agreement",
    "unlikely_starts": "unlikely_starts",
    "sampled_share": "sampled_share",
    "completions/mean_length": "new_tokens",
}
FIXED = dict.fromkeys(
    (
        "packing",
        "padding_free",
        "loss_type",
        "completion_only_loss",
        "assistant_only_loss",
        "dataset_kwargs",
        "remove_unused_columns",
    ),
    "A step's rows are sampled, and its loss is the divergence from the teacher.",
)
LAST = 5  # steps that the figures are the mean of
UNLIKELY = 1e-4  # times the teacher's probability: so low, the reverse KL has next to no gradient


class DistillPrompt(NamedTuple):
    """A prompt's ids, the strings that end an answer to it, and the ids of the recorded answer:
    none where only sampled ones are learned from.
    """

    ids: Sequence[int]
    stops: tuple[str, ...]
    recorded: Sequence[int] = ()


class DistillTask(NamedTuple):
    """What is learned from: the prompts, how answers are sampled, and the number of ids that the
    tokenizer of student and teacher has.
    """

    prompts: Sequence[DistillPrompt]
    decoding: Decoding
    width: int


Teacher = LiveTeacher | StoredTeacher


def train(
    source: Source, teacher: Source, settings: DistillSettings, folder: Path, task: DistillTask
) -> dict[str, object]:
    """Returns the key figures. Raises what engine.trainer.train raises, and UserError 5 for a model
    whose logits are more than the head of its hidden states.
    """
    prepare(loading_of(settings))
    # a teacher is loaded as the student is, but for what a student of whole weights needs
    loading = loading_of(settings)._replace(full=False)

    def live() -> LiveTeacher:
        loaded = load(teacher, loading, trainable=False)
        _check(loaded)
        return LiveTeacher(loaded, task.width)

    stored = None
    if settings.top_k:  # the teacher is asked once, before the student is in memory
        path = folder / STORED
        if not path.exists():
            rows = [
                AnswerRow(number, prompt.ids, prompt.recorded)
                for number, prompt in enumerate(task.prompts)
            ]
            store_top(live(), rows, settings.top_k, settings.batch_size, path)
            free_memory()
        stored = StoredTeacher(path, task.width)
        console.notice(
            f"{folder.name}: the {settings.top_k} likeliest tokens hold {stored.mass:.2%} of the "
            "teacher's probability"
        )

    def make(micro: trainer.Schedule) -> Any:
        of_run = stored or live()
        student = load(source, loading_of(settings), trainable=True)
        _check(student)
        return make_trainer(student, of_run, settings, folder, task, micro)

    figures = trainer.train(make, folder, schedule(settings, len(task.prompts)), Watch(MEASURES))
    logged = training_log.logged(folder)
    few = max(1, min(LAST, len(logged) // 2))
    for name, column in (("divergence", "loss"), ("agreement", "agreement")):
        figures[f"first_{name}"] = training_log.mean(logged[:few], column)
        figures[f"last_{name}"] = training_log.mean(logged[-few:], column)
    figures["unlikely_starts"] = training_log.mean(logged[-few:], "unlikely_starts")
    if stored:
        figures["teacher_mass"] = round(stored.mass, 4)
    return figures


def check(settings: DistillSettings) -> None:
    """See trainer.check."""
    trainer.check("distill", settings, "SFTConfig", {}, FIXED)


def schedule(settings: DistillSettings, prompts: int) -> trainer.Schedule:
    """A row is an answer; an epoch takes every prompt once."""
    return trainer.schedule_of(settings, prompts)


def longest(prompt: DistillPrompt, settings: DistillSettings) -> int:
    """The most tokens that a prompt and an answer to it may have."""
    sampled = settings.max_new_tokens if settings.samples else 0
    return len(prompt.ids) + max(len(prompt.recorded), sampled)


def make_trainer(
    student: Loaded,
    teacher: Teacher,
    settings: DistillSettings,
    folder: Path,
    task: DistillTask,
    micro: trainer.Schedule,
) -> Any:
    """TRL's SFTTrainer over the numbers of prompts, whose rows are the answers of a step."""
    from trl import SFTTrainer

    plan = schedule(settings, len(task.prompts))
    lengths = [longest(prompt, settings) for prompt in task.prompts]
    return step_rows.make_trainer(
        step_rows.step_trainer(
            SFTTrainer,
            _Answers(student.tokenizer, teacher, settings, task, plan.steps),
            collate_answers,
            partial(summed_divergence, teacher, settings.beta),
        ),
        adapter.adapted(student, settings),
        student.tokenizer,
        settings,
        folder,
        micro,
        trainer.row_order(lengths, plan, settings.seed),
    )


def divergence(student: Any, teacher: Any, beta: float) -> Any:
    """The generalised Jensen-Shannon divergence of each token, in nats (arXiv 2306.13649, eq. 1).

    With P for the teacher and Q for the student: at 0 KL(P || Q), at 1 KL(Q || P), and between
    beta KL(P || M) + (1 - beta) KL(Q || M), where M = beta P + (1 - beta) Q.

    student, teacher: (tokens, outcomes), finite logarithms of probabilities that add up to 1.
    """
    import torch

    if beta in (0.0, 1.0):
        left, right = (teacher, student) if beta == 0 else (student, teacher)
        return (left.exp() * (left - right)).sum(-1)
    mixed = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
    of_teacher = (teacher.exp() * (teacher - mixed)).sum(-1)
    of_student = (student.exp() * (student - mixed)).sum(-1)
    return beta * of_teacher + (1 - beta) * of_student


def summed_divergence(
    teacher: Teacher, beta: float, student: Any, inputs: dict[str, Any]
) -> step_rows.SummedLoss:
    """Beside the divergence: at how many tokens both models hold the same one for likeliest, and
    how many answers begin with a likeliest token of the teacher that is UNLIKELY to the student.
    """
    import torch

    numbers, labels = inputs.pop("prompt").tolist(), inputs.pop("labels")
    guide = teacher.guide(numbers, inputs, labels)
    states, _, trained = trained_states(student, inputs, labels)
    head = head_of(student)
    first = (trained.cumsum(1) == 1)[trained]  # (tokens,), as states

    def of_chunk(states: Any, first: Any, *of_teacher: Any) -> Any:
        own, other = teacher.compare(head(states).float(), *of_teacher)
        highest, likeliest = other.max(-1, keepdim=True)
        agreed = own.argmax(-1, keepdim=True) == likeliest
        unlikely = own.gather(-1, likeliest) < highest + math.log(UNLIKELY)
        starts = unlikely.squeeze(-1) & first
        return torch.stack(
            [divergence(own, other, beta).sum(), agreed.float().sum(), starts.float().sum()]
        )

    # a zero that hangs on the model: without answer tokens there is still a gradient, of zeros
    zeros = torch.stack([states.sum() * 0.0] * 3).float()
    total, agreed, starts = sum(in_chunks(of_chunk, states, first, *guide), zeros)
    return step_rows.SummedLoss(
        total, {"agreement": agreed.detach()}, {"unlikely_starts": starts.detach()}
    )


def sampled_share(settings: DistillSettings, step: int, steps: int) -> float:
    """Of the answers of a step, numbered from 0, the share that the student samples: `lmbda`, or
    with `fade` from there to 1, in a line over that share of the steps.
    """
    others = 1 - settings.lmbda
    if settings.fade:
        others *= max(0.0, 1 - step / (settings.fade * steps))
    return 1 - others


class _Answers:
    """Makes the answers of a step: sampled by the student, recorded, or sampled by the teacher."""

    def __init__(
        self,
        tokenizer: Any,
        teacher: Teacher,
        settings: DistillSettings,
        task: DistillTask,
        steps: int,
    ):
        self.tokenizer, self.teacher, self.task = tokenizer, teacher, task
        self.settings, self.steps = settings, steps

    def __call__(self, trl_trainer: Any, numbers: Sequence[int]) -> list[AnswerRow]:
        settings, step = self.settings, trl_trainer.state.global_step
        student = trl_trainer.accelerator.unwrap_model(trl_trainer.model)
        live = self.teacher.loaded if isinstance(self.teacher, LiveTeacher) else None
        wanted = sampled_share(settings, step, self.steps)
        seeds = [f"{settings.seed} {step} {place}" for place in range(len(numbers))]
        by_student = [random.Random(f"{seed} whose").random() < wanted for seed in seeds]
        answers: list[Sequence[int]] = [self.task.prompts[number].recorded for number in numbers]

        def sample(loaded: Loaded, is_wanted: Sequence[bool]) -> None:
            places = [place for place, wanted in enumerate(is_wanted) if wanted]
            prompts = [self.task.prompts[numbers[place]] for place in places]
            requests = [
                local_sampler.SampleRequest(prompt.ids, (seeds[place],), prompt.stops)
                for prompt, place in zip(prompts, places, strict=True)
            ]
            if requests:
                for one in local_sampler.sample(loaded, requests, self.task.decoding):
                    answers[places[one.prompt]] = one.ids

        beside = live.model.num_parameters() if live else 0
        fixed = partial(kept_in_training, settings, student, beside)
        sample(Loaded(student, self.tokenizer, fixed), by_student)
        if settings.off_policy == "teacher" and live:
            sample(live, [not sampled for sampled in by_student])
            local_sampler.free_decoding(live.model)
        measured = trl_trainer._metrics["train"]
        measured["completions/mean_length"].append(sum(map(len, answers)) / len(answers))
        measured["sampled_share"].append(sum(by_student) / len(numbers))
        return [
            AnswerRow(number, self.task.prompts[number].ids, answer)
            for number, answer in zip(numbers, answers, strict=True)
        ]


def _check(loaded: Loaded) -> None:
    check_head(
        loaded.model,
        "it cannot teach, or be taught, token by token",
        "Choose another model; or learn from answers: agentlite pairs, then prep --from pairs.",
    )
