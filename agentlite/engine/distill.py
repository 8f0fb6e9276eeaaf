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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import DistillSettings
from agentlite.core import console
from agentlite.engine import adapter, local_sampler, trainer, training_log
from agentlite.engine.decoding import Decoding
from agentlite.engine.divergence import divergence
from agentlite.engine.load import Loaded, free_memory, load, loading_of, prepare
from agentlite.engine.planning.estimate import kept_in_training
from agentlite.engine.teacher import (
    STORED,
    AnswerRow,
    LiveTeacher,
    StoredTeacher,
    store_top,
)
from agentlite.engine.watch import Watch
from agentlite.engine.weighted_loss import CHUNK, check_head, collate, head_of, trained_states
from agentlite.workspace.model_source import Source

MEASURES = {
    "agreement": "agreement",
    "unlikely_starts": "unlikely_starts",
    "sampled_share": "sampled_share",
    "answer_tokens": "new_tokens",
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

    stored = _stored(settings, folder, task, live) if settings.top_k else None

    def make(micro: trainer.Schedule) -> Any:
        of_run = stored or live()
        student = load(source, loading_of(settings), trainable=True)
        _check(student)
        return make_trainer(student, of_run, settings, folder, task, micro)

    plan = schedule(settings, len(task.prompts))
    figures = trainer.train(make, folder, plan, Watch(MEASURES))
    rows = training_log.logged(folder)
    few = max(1, min(LAST, len(rows) // 2))
    return {
        **figures,
        "first_divergence": training_log.mean(rows[:few], "loss"),
        "last_divergence": training_log.mean(rows[-few:], "loss"),
        "first_agreement": training_log.mean(rows[:few], "agreement"),
        "last_agreement": training_log.mean(rows[-few:], "agreement"),
        "unlikely_starts": training_log.mean(rows[-few:], "unlikely_starts"),
        **({"teacher_mass": round(stored.mass, 4)} if stored else {}),
    }


def _stored(
    settings: DistillSettings, folder: Path, task: DistillTask, live: Callable[[], LiveTeacher]
) -> StoredTeacher:
    """What a teacher, which `live` loads, says of the recorded answers: asked once, before the
    student is in memory.
    """
    path, top_k = folder / STORED, settings.top_k or 0
    if not path.exists():
        rows = [AnswerRow(n, one.ids, one.recorded) for n, one in enumerate(task.prompts)]
        store_top(live(), rows, top_k, settings.batch_size, path)
        free_memory()
    stored = StoredTeacher(path, task.width)
    console.notice(
        f"{folder.name}: the {top_k} likeliest tokens hold {stored.mass:.2%} of the teacher's "
        "probability"
    )
    return stored


def check(settings: DistillSettings) -> None:
    """Needs no prompts and no model. Raises UserError 2 for settings that this machine, TRL or PEFT
    cannot use; 5 where a library is missing.
    """
    prepare(loading_of(settings))
    from trl import SFTConfig

    trainer.check_passed_through("distill", settings, SFTConfig, {}, FIXED)


def schedule(settings: DistillSettings, prompts: int) -> trainer.Schedule:
    """A row is an answer; an epoch takes every prompt once."""
    return trainer.schedule_of(settings, prompts)


def longest(prompt: DistillPrompt, settings: DistillSettings) -> int:
    """The most tokens that a prompt and an answer to it may have."""
    sampled = settings.max_new_tokens if settings.samples else 0
    return len(prompt.ids) + max(len(prompt.recorded), sampled)


def arguments(settings: DistillSettings, folder: Path, micro: trainer.Schedule) -> Any:
    """The configuration of TRL's trainer: an SFTConfig."""
    from trl import SFTConfig

    shared = trainer.arguments(settings, folder, micro, with_dev=False)
    own = {
        "max_length": settings.max_length,
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "remove_unused_columns": False,
    }
    return trainer.configuration(SFTConfig, {**own, **shared})


def make_trainer(
    student: Loaded,
    teacher: Teacher,
    settings: DistillSettings,
    folder: Path,
    task: DistillTask,
    micro: trainer.Schedule,
) -> Any:
    """TRL's SFTTrainer over the numbers of prompts, in the order of the run, with rows and a loss
    of its own.
    """
    from datasets import Dataset
    from trl import SFTTrainer

    plan = schedule(settings, len(task.prompts))
    lengths = [longest(one, settings) for one in task.prompts]
    order = trainer.row_order(lengths, plan, settings.seed)
    answers = _Answers(student.tokenizer, teacher, settings, task, plan.steps)
    trainer_class = _distilling(SFTTrainer, teacher, settings.beta, answers)
    return trainer.warming_up(adapter.uncast(trainer_class))(
        model=adapter.adapted(student, settings),
        args=arguments(settings, folder, micro),
        train_dataset=Dataset.from_dict({"prompt_number": order}),
        data_collator=_numbers,
        processing_class=student.tokenizer,
    )


def _numbers(rows: Sequence[dict[str, int]]) -> dict[str, Any]:
    import torch

    return {"prompt_number": torch.tensor([row["prompt_number"] for row in rows])}


def _distilling(
    trl_class: Any,
    teacher: Teacher,
    beta: float,
    answers: "_Answers",
) -> Any:
    """TRL's trainer, whose steps are answers made for them, and whose loss is the divergence."""

    class Distilling(trl_class):  # type: ignore[misc]  # trl is untyped here
        def get_batch_samples(self, *request: Any) -> Any:
            """The micro-batches of an optimizer step, and how many tokens they train: of numbers of
            prompts it makes rows.
            """
            batches, _ = super().get_batch_samples(*request)
            numbers = [batch["prompt_number"].tolist() for batch in batches]
            model = self.accelerator.unwrap_model(self.model)
            # a share of the loss for each token: no division by the number of micro-batches
            self.model_accepts_loss_kwargs = True
            made = iter(
                answers(model, [one for some in numbers for one in some], self.state.global_step)
            )
            rows = [[next(made) for _ in some] for some in numbers]
            counts = [len(row.answer) for some in rows for row in some]
            measured = self._metrics["train"]
            measured["answer_tokens"].append(sum(counts) / len(counts))
            measured["sampled_share"].append(answers.share)
            self.micro_batches, self.step_answers = len(batches), sum(map(len, rows))
            pad = self.processing_class.pad_token_id
            return [_micro_batch(some, pad) for some in rows], sum(counts)

        def compute_loss(
            self,
            model: Any,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            numbers, labels = inputs.pop("prompt_number").tolist(), inputs.pop("labels")
            guide = teacher.guide(numbers, inputs, labels)
            student = self.accelerator.unwrap_model(model)
            found = distance(student, inputs, labels, teacher, guide, beta)
            tokens = num_items_in_batch or found.tokens
            # TRL logs the mean over micro-batches: so it is that over the whole step
            measured = self._metrics["train"]
            measured["agreement"].append(float(found.agreed) * self.micro_batches / tokens)
            starts = float(found.unlikely_starts) * self.micro_batches / self.step_answers
            measured["unlikely_starts"].append(starts)
            loss = found.total / tokens
            return (loss, {}) if return_outputs else loss

    return Distilling


def _micro_batch(rows: Sequence[AnswerRow], pad: int) -> dict[str, Any]:
    import torch

    numbers = torch.tensor([row.prompt for row in rows])
    return {**collate([row.columns() for row in rows], pad), "prompt_number": numbers}


class Distance(NamedTuple):
    """Of a micro-batch, over its answer tokens: the sum of their divergences; at how many both
    models hold the same token for likeliest; how many begin an answer and have a likeliest token
    of the teacher that is UNLIKELY to the student; and how many they are.
    """

    total: Any
    agreed: Any
    unlikely_starts: Any
    tokens: int


def distance(
    student: Any,
    inputs: dict[str, Any],
    labels: Any,
    teacher: Teacher,
    guide: Sequence[Any],
    beta: float,
) -> Distance:
    """A few hundred tokens' logits of either model are in memory at once, and are made again on the
    way back.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    states, targets, trained = trained_states(student, inputs, labels)
    head, count = head_of(student), len(targets)
    first = (trained.cumsum(1) == 1)[trained]  # (tokens,), as states and targets

    def of_chunk(some: Any, first: Any, *of_teacher: Any) -> Any:
        own, other = teacher.compare(head(some).float(), *of_teacher)
        highest, likeliest = other.max(-1, keepdim=True)
        agreed = own.argmax(-1, keepdim=True) == likeliest
        unlikely = own.gather(-1, likeliest) < highest + math.log(UNLIKELY)
        starts = unlikely.squeeze(-1) & first
        return torch.stack(
            [divergence(own, other, beta).sum(), agreed.float().sum(), starts.float().sum()]
        )

    # a zero that hangs on the model: without answer tokens there is still a gradient, of zeros
    sums = torch.stack([states.sum() * 0.0] * 3).float()
    for start in range(0, count, CHUNK):
        part = slice(start, start + CHUNK)
        sums = sums + checkpoint(
            of_chunk, states[part], first[part], *(one[part] for one in guide), use_reentrant=False
        )
    total, agreed, unlikely_starts = sums
    return Distance(total, agreed.detach(), unlikely_starts.detach(), count)


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
        self.share = 0.0  # of the last step's answers that the student sampled
        self.parameters = 0  # of a teacher in memory
        if isinstance(teacher, LiveTeacher):
            self.parameters = teacher.loaded.model.num_parameters()

    def __call__(self, student: Any, numbers: Sequence[int], step: int) -> list[AnswerRow]:
        wanted = sampled_share(self.settings, step, self.steps)
        seeds = [f"{self.settings.seed} {step} {place}" for place in range(len(numbers))]
        by_student = [random.Random(f"{seed} whose").random() < wanted for seed in seeds]
        self.share = sum(by_student) / len(numbers)
        answers: list[Sequence[int]] = [self.task.prompts[number].recorded for number in numbers]
        fixed = partial(kept_in_training, "distill", self.settings, student, self.parameters)
        sampler = Loaded(student, self.tokenizer, fixed)
        self._sample(sampler, numbers, seeds, by_student, answers)
        if self.settings.off_policy == "teacher" and isinstance(self.teacher, LiveTeacher):
            others = [not one for one in by_student]
            self._sample(self.teacher.loaded, numbers, seeds, others, answers)
            local_sampler.free_decoding(self.teacher.loaded.model)
        prompts = (self.task.prompts[number] for number in numbers)
        return [
            AnswerRow(number, prompt.ids, answer)
            for number, prompt, answer in zip(numbers, prompts, answers, strict=True)
        ]

    def _sample(
        self,
        loaded: Loaded,
        numbers: Sequence[int],
        seeds: Sequence[str],
        wanted: Sequence[bool],
        answers: list[Sequence[int]],
    ) -> None:
        """Puts an answer in every place that is `wanted`."""
        places = [place for place, one in enumerate(wanted) if one]
        if not places:
            return
        prompts = [self.task.prompts[numbers[place]] for place in places]
        requests = [
            local_sampler.SampleRequest(prompt.ids, (seeds[place],), prompt.stops)
            for prompt, place in zip(prompts, places, strict=True)
        ]
        for one in local_sampler.sample(loaded, requests, self.task.decoding):
            answers[places[one.prompt]] = one.ids


def _check(loaded: Loaded) -> None:
    check_head(
        loaded.model,
        "it cannot teach, or be taught, token by token",
        "Choose another model; or learn from answers: agentlite pairs, then prep --from pairs.",
    )
