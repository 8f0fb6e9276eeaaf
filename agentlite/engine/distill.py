"""Prompts and a teacher -> an adapter that goes on as the teacher would, by distillation.

Where the answers of an optimizer step come from: the student samples a share of them
(`sampled_share`), and the others are recorded. At every token of an
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
from agentlite.engine import adapter, local_sampler, summed_loss, torch, trainer, trl, watch
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import load, loading_of, prepare_libraries
from agentlite.engine.summed_loss import (
    Row,
    SummedLoss,
    check_head,
    head_of,
    in_chunks,
    trained_states,
    training_row,
)
from agentlite.workspace.lookup import Source

MEASURES = {
    "agreement": "agreement",
    "unlikely_starts": "unlikely_starts",
    "sampled_share": "sampled_share",
    "completions/mean_length": "new_tokens",
}
LAST_STEPS = 5  # steps that the figures are the mean of
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
    vocabulary_size: int


def train(
    source: Source, teacher: Source, settings: DistillSettings, folder: Path, task: DistillTask
) -> dict[str, object]:
    """Returns the key figures. Raises what engine.trainer.train raises, and UserError 5 for a model
    whose logits are more than the head of its hidden states.
    """
    prepare_libraries(loading_of(settings))
    make = partial(make_trainer, source, teacher, settings, folder, task)
    plan = trainer.schedule(settings, len(task.prompts))
    figures = trainer.train(make, folder, plan, watch.Watch(MEASURES))
    rows = watch.read_metrics(folder)
    count = max(1, min(LAST_STEPS, len(rows) // 2))
    first_rows, last_rows = rows[:count], rows[-count:]
    return figures | {
        "first_divergence": watch.mean(first_rows, "loss"),
        "last_divergence": watch.mean(last_rows, "loss"),
        "first_agreement": watch.mean(first_rows, "agreement"),
        "last_agreement": watch.mean(last_rows, "agreement"),
        "unlikely_starts": watch.mean(last_rows, "unlikely_starts"),
    }


def max_row_length(prompt: DistillPrompt, settings: DistillSettings) -> int:
    """The most tokens that a prompt and an answer to it may have."""
    sampled_tokens = settings.max_new_tokens if settings.uses_samples else 0
    return len(prompt.ids) + max(len(prompt.recorded), sampled_tokens)


def make_trainer(
    source: Source,
    teacher: Source,
    settings: DistillSettings,
    folder: Path,
    task: DistillTask,
    micro: trainer.Schedule,
) -> Any:
    """TRL's SFTTrainer over the numbers of prompts, whose rows are the answers of a step. An epoch
    takes every prompt once.
    """
    loading = loading_of(settings)
    # the teacher as the student, but for what a student of whole weights needs
    teacher_model = load(teacher, loading._replace(full=False), trainable=False).model.eval()
    student = load(source, loading, trainable=True)
    for model in (teacher_model, student.model):
        check_head(
            model,
            "it cannot teach, or be taught, token by token",
            "Choose another model; or learn from answers: agentlite pairs, then prep --from pairs.",
        )
    plan = trainer.schedule(settings, len(task.prompts))
    lengths = [max_row_length(prompt, settings) for prompt in task.prompts]
    return summed_loss.make_trainer(
        trl.SFTTrainer,
        partial(sample_answers, teacher_model.num_parameters(), settings, task, plan.steps),
        partial(summed_divergence, teacher_model, task.vocabulary_size, settings.beta),
        adapter.add_adapter(student, settings),
        student.tokenizer,
        settings,
        folder,
        micro,
        trainer.row_order(lengths, plan, settings.seed),
    )


def sample_answers(
    teacher_parameters: int,
    settings: DistillSettings,
    task: DistillTask,
    steps: int,
    trl_trainer: Any,
    numbers: Sequence[int],
) -> list[Row]:
    """The answers of a step to the prompts `numbers`: sampled by the student, or recorded.
    `teacher_parameters`: how many are in memory as well.
    """
    step = trl_trainer.state.global_step
    share = sampled_share(settings, step, steps)
    seeds = [f"{settings.seed} {step} {index}" for index in range(len(numbers))]
    is_sampled = [random.Random(f"{seed} whose").random() < share for seed in seeds]
    prompts = [task.prompts[number] for number in numbers]
    answers = [prompt.recorded for prompt in prompts]
    sampled_indices = [index for index, sampled in enumerate(is_sampled) if sampled]
    if requests := [
        local_sampler.SampleRequest(prompts[index].ids, (seeds[index],), prompts[index].stops)
        for index in sampled_indices
    ]:
        student = local_sampler.learner(settings, trl_trainer, teacher_parameters)
        for answer in local_sampler.sample(student, requests, task.decoding):
            answers[sampled_indices[answer.prompt]] = answer.ids
    metrics = trl_trainer._metrics["train"]
    metrics["completions/mean_length"].append(sum(map(len, answers)) / len(answers))
    metrics["sampled_share"].append(sum(is_sampled) / len(numbers))
    return [
        training_row(prompt.ids, answer) for prompt, answer in zip(prompts, answers, strict=True)
    ]


def divergence(student: Any, teacher: Any, beta: float) -> Any:
    """The generalised Jensen-Shannon divergence of each token, in nats (arXiv 2306.13649, eq. 1).

    With P for the teacher and Q for the student: at 0 KL(P || Q), at 1 KL(Q || P), and between
    beta KL(P || M) + (1 - beta) KL(Q || M), where M = beta P + (1 - beta) Q.

    student, teacher: (tokens, outcomes), finite logarithms of probabilities that add up to 1.
    """
    if beta in (0.0, 1.0):
        left, right = (teacher, student) if beta == 0 else (student, teacher)
        return (left.exp() * (left - right)).sum(-1)
    # log(beta P + (1 - beta) Q), from logarithms
    mixture = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
    teacher_kl = (teacher.exp() * (teacher - mixture)).sum(-1)
    student_kl = (student.exp() * (student - mixture)).sum(-1)
    return beta * teacher_kl + (1 - beta) * student_kl


def summed_divergence(
    teacher: Any, vocabulary_size: int, beta: float, student: Any, inputs: dict[str, Any]
) -> SummedLoss:
    """Beside the divergence: at how many tokens both models hold the same one for likeliest, and
    how many answers begin with a likeliest token of the teacher that is UNLIKELY to the student.
    `vocabulary_size`: see DistillTask; logits beyond it are padding of the matrices.
    """
    labels = inputs.pop("labels")
    with torch.no_grad():
        teacher_states, _, _ = trained_states(teacher, inputs, labels)
    states, _, is_trained = trained_states(student, inputs, labels)
    heads = head_of(student), head_of(teacher)
    # Whether a token is the first of its answer: (tokens,), as states. An answer is one stretch, so
    # its first token is where the count of trained ones is 1: 0 0 1 1 1 -> 0 0 1 2 3.
    is_first = (is_trained.cumsum(1) == 1)[is_trained]

    def chunk_sums(states: Any, is_first: Any, teacher_states: Any) -> Any:
        log_q = heads[0](states).float()[:, :vocabulary_size].log_softmax(-1)
        with torch.no_grad():
            log_p = heads[1](teacher_states)[:, :vocabulary_size].float().log_softmax(-1)
        highest, likeliest = log_p.max(-1, keepdim=True)
        matches = log_q.argmax(-1, keepdim=True) == likeliest
        # log q < log p + log UNLIKELY, of the token that is the teacher's likeliest
        is_unlikely = log_q.gather(-1, likeliest) < highest + math.log(UNLIKELY)
        starts = is_unlikely.squeeze(-1) & is_first
        return torch.stack(
            [divergence(log_q, log_p, beta).sum(), matches.float().sum(), starts.float().sum()]
        )

    # a zero that hangs on the model: without answer tokens there is still a gradient, of zeros
    zeros = torch.stack([states.sum(dtype=torch.float32) * 0.0] * 3)
    total, matches, starts = sum(in_chunks(chunk_sums, states, is_first, teacher_states), zeros)
    return SummedLoss(total, {"agreement": matches.detach()}, {"unlikely_starts": starts.detach()})


def sampled_share(settings: DistillSettings, step: int, steps: int) -> float:
    """Of the answers of a step, numbered from 0, the share that the student samples: `lmbda`, or
    with `fade` from there to 1, in a line over that share of the steps: with lmbda .5 and fade .5
    of 100 steps .5 at step 0, .75 at step 25, and 1 from step 50 on.
    """
    recorded_share = 1 - settings.lmbda
    if settings.fade:
        recorded_share *= max(0.0, 1 - step / (settings.fade * steps))
    return 1 - recorded_share
