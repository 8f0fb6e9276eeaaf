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
from agentlite.core.row_files import replacing
from agentlite.engine import adapter, local_sampler, trainer, watch
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loaded, Loading, free_memory, load, loading_of, prepare
from agentlite.engine.planning.estimate import kept_in_training
from agentlite.engine.weighted_loss import (
    CHUNK,
    SummedLoss,
    check_head,
    collate,
    head_of,
    in_chunks,
    make_step_trainer,
    step_trainer,
    trained_states,
)
from agentlite.workspace.model_source import Source

STORED = "teacher.safetensors"
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


class AnswerRow(NamedTuple):
    """The ids of prompt number `prompt` and of an answer to it."""

    prompt: int
    ids: Sequence[int]
    answer: Sequence[int]


class LiveTeacher:
    """A model in memory. `width`: the number of ids that its tokenizer and the student's have;
    logits beyond them are padding of the matrices."""

    def __init__(self, loaded: Loaded, width: int):
        self.loaded, self.width = loaded, width
        loaded.model.eval()

    def guide(self, prompts: Sequence[int], inputs: Any, labels: Any) -> tuple[Any, ...]:
        """What `compare` needs of the teacher, for every trained token of a micro-batch, in the
        order of rows: its hidden states, (tokens, hidden)."""
        import torch

        with torch.no_grad():
            states, _, _ = trained_states(self.loaded.model, inputs, labels)
            return (states,)

    def compare(self, logits: Any, states: Any) -> tuple[Any, Any]:
        """The log-probabilities of student and teacher, both (tokens, width). `logits`: the
        student's, (tokens, vocabulary)."""
        import torch

        with torch.no_grad():
            own = head_of(self.loaded.model)(states)[:, : self.width]
            teacher = own.float().log_softmax(-1)
        return logits[:, : self.width].log_softmax(-1), teacher


class StoredTeacher:
    """The k likeliest tokens of a model that is not in memory, at every token of the recorded
    answers, and the probability of the rest."""

    def __init__(self, path: Path, width: int):
        from safetensors.torch import load_file

        self.tensors, self.width = load_file(path), width

    def guide(self, prompts: Sequence[int], inputs: Any, labels: Any) -> tuple[Any, ...]:
        """Ids, (tokens, k), and log-probabilities, (tokens, k + 1)."""
        import torch

        ids, likely = (
            torch.cat([self.tensors[f"{prompt}.{name}"] for prompt in prompts])
            for name in ("ids", "log_probabilities")
        )
        return ids.to(labels.device).long(), likely.to(labels.device)

    def compare(self, logits: Any, ids: Any, teacher: Any) -> tuple[Any, Any]:
        """Both (tokens, k + 1)."""
        student = logits[:, : self.width].log_softmax(-1)
        return with_rest(student, ids), teacher

    @property
    def mass(self) -> float:
        """The mean share of probability that the k tokens have."""
        names = [name for name in self.tensors if name.endswith(".log_probabilities")]
        rest = [self.tensors[name][:, -1].exp() for name in names]
        return 1 - float(sum(part.sum() for part in rest) / sum(map(len, rest)))


Teacher = LiveTeacher | StoredTeacher


def train(
    source: Source, teacher: Source, settings: DistillSettings, folder: Path, task: DistillTask
) -> dict[str, object]:
    """Returns the key figures. Raises what engine.trainer.train raises, and UserError 5 for a model
    whose logits are more than the head of its hidden states.
    """
    loading = loading_of(settings)
    prepare(loading)

    def load_model(source: Source, loading: Loading, trainable: bool) -> Loaded:
        loaded = load(source, loading, trainable=trainable)
        check_head(
            loaded.model,
            "it cannot teach, or be taught, token by token",
            "Choose another model; or learn from answers: agentlite pairs, then prep --from pairs.",
        )
        return loaded

    def live() -> LiveTeacher:
        # as the student, but for what a student of whole weights needs
        return LiveTeacher(load_model(teacher, loading._replace(full=False), False), task.width)

    stored = None
    if settings.top_k:  # the teacher is asked once, before the student is in memory
        path = folder / STORED
        if not path.exists():
            store_top(live(), task.prompts, settings.top_k, settings.batch_size, path)
            free_memory()
        stored = StoredTeacher(path, task.width)
        console.notice(
            f"{folder.name}: the {settings.top_k} likeliest tokens hold {stored.mass:.2%} of the "
            "teacher's probability"
        )

    def make(micro: trainer.Schedule) -> Any:
        of_run = stored or live()
        return make_trainer(
            load_model(source, loading, True), of_run, settings, folder, task, micro
        )

    plan = trainer.schedule(settings, len(task.prompts))
    figures = trainer.train(make, folder, plan, watch.Watch(MEASURES))
    logged = watch.read_metrics(folder)
    few = max(1, min(LAST, len(logged) // 2))
    for name, column in (("divergence", "loss"), ("agreement", "agreement")):
        figures[f"first_{name}"] = watch.mean(logged[:few], column)
        figures[f"last_{name}"] = watch.mean(logged[-few:], column)
    figures["unlikely_starts"] = watch.mean(logged[-few:], "unlikely_starts")
    if stored:
        figures["teacher_mass"] = round(stored.mass, 4)
    return figures


def check(settings: DistillSettings) -> None:
    """See trainer.check."""
    trainer.check("distill", settings, "SFTConfig", fixed=FIXED)


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
    """TRL's SFTTrainer over the numbers of prompts, whose rows are the answers of a step. An epoch
    takes every prompt once.
    """
    from trl import SFTTrainer

    plan = trainer.schedule(settings, len(task.prompts))
    lengths = [longest(prompt, settings) for prompt in task.prompts]
    return make_step_trainer(
        step_trainer(
            SFTTrainer,
            partial(sample_answers, teacher, settings, task, plan.steps),
            collate_answers,
            partial(summed_divergence, teacher, settings.beta),
        ),
        adapter.add_adapter(student, settings),
        student.tokenizer,
        settings,
        folder,
        micro,
        trainer.row_order(lengths, plan, settings.seed),
    )


def sample_answers(
    teacher: Teacher,
    settings: DistillSettings,
    task: DistillTask,
    steps: int,
    trl_trainer: Any,
    numbers: Sequence[int],
) -> list[AnswerRow]:
    """The answers of a step to the prompts `numbers`: sampled by the student, recorded, or sampled
    by the teacher.
    """
    step = trl_trainer.state.global_step
    model = trl_trainer.accelerator.unwrap_model(trl_trainer.model)
    live = teacher.loaded if isinstance(teacher, LiveTeacher) else None
    beside = live.model.num_parameters() if live else 0
    fixed = partial(kept_in_training, settings, model, beside)
    share = sampled_share(settings, step, steps)
    seeds = [f"{settings.seed} {step} {place}" for place in range(len(numbers))]
    by_student = [random.Random(f"{seed} whose").random() < share for seed in seeds]
    prompts = [task.prompts[number] for number in numbers]
    answers = [prompt.recorded for prompt in prompts]

    def sample(loaded: Loaded, places: Sequence[int]) -> None:
        requests = [
            local_sampler.SampleRequest(prompts[place].ids, (seeds[place],), prompts[place].stops)
            for place in places
        ]
        if requests:
            for answer in local_sampler.sample(loaded, requests, task.decoding):
                answers[places[answer.prompt]] = answer.ids

    student = Loaded(model, trl_trainer.processing_class, fixed)
    sample(student, [place for place, own in enumerate(by_student) if own])
    if settings.off_policy == "teacher" and live:
        sample(live, [place for place, own in enumerate(by_student) if not own])
        local_sampler.free_decoding(live.model)
    measured = trl_trainer._metrics["train"]
    measured["completions/mean_length"].append(sum(map(len, answers)) / len(answers))
    measured["sampled_share"].append(sum(by_student) / len(numbers))
    return [
        AnswerRow(number, prompt.ids, answer)
        for number, prompt, answer in zip(numbers, prompts, answers, strict=True)
    ]


def collate_answers(rows: Sequence[AnswerRow], pad: int) -> dict[str, Any]:
    """The columns of `collate`, in which the answers' tokens alone are trained, and the numbers of
    the prompts.
    """
    import torch

    columns = [
        {"input_ids": [*row.ids, *row.answer], "labels": [-100] * len(row.ids) + [*row.answer]}
        for row in rows
    ]
    return {**collate(columns, pad), "prompt": torch.tensor([row.prompt for row in rows])}


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
) -> SummedLoss:
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
    return SummedLoss(total, {"agreement": agreed.detach()}, {"unlikely_starts": starts.detach()})


def sampled_share(settings: DistillSettings, step: int, steps: int) -> float:
    """Of the answers of a step, numbered from 0, the share that the student samples: `lmbda`, or
    with `fade` from there to 1, in a line over that share of the steps.
    """
    others = 1 - settings.lmbda
    if settings.fade:
        others *= max(0.0, 1 - step / (settings.fade * steps))
    return 1 - others


def with_rest(log_probabilities: Any, ids: Any) -> Any:
    """The log-probabilities of some tokens, and behind them that of all others together.

    log_probabilities: (tokens, vocabulary); ids: (tokens, k), k below the vocabulary, each once.
    Returns (tokens, k + 1). Between two of these the divergence is at most that of the whole
    vocabulary.
    """
    import torch

    kept = log_probabilities.gather(-1, ids)
    # not log(1 - sum of the kept): where they hold nearly everything, rounding would be the result
    rest = log_probabilities.scatter(-1, ids, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.cat([kept, rest], dim=-1)


def store_top(
    teacher: LiveTeacher, prompts: Sequence[DistillPrompt], top_k: int, batch_size: int, path: Path
) -> None:
    """Writes the `top_k` likeliest tokens at each token of every recorded answer, by the number of
    its prompt; the file is there once it is whole.
    """
    import torch
    from safetensors.torch import save

    loaded, tensors = teacher.loaded, dict[str, Any]()
    head = head_of(loaded.model)

    def likeliest(states: Any) -> tuple[Any, Any]:
        likely = head(states)[:, : teacher.width].float().log_softmax(-1)
        ids = likely.topk(min(top_k, likely.shape[-1] - 1), dim=-1).indices
        return ids, with_rest(likely, ids)

    rows = [AnswerRow(number, one.ids, one.recorded) for number, one in enumerate(prompts)]
    lengths = [len(row.ids) + len(row.answer) for row in rows]
    batches = local_sampler.plan_batches(lengths, batch_size)
    with torch.no_grad(), console.progress("the teacher reads", len(batches)) as advance:
        for done, batch in enumerate(batches, 1):
            part = [rows[index] for index in batch]
            columns = collate_answers(part, loaded.tokenizer.pad_token_id)
            inputs = {name: tensor.to(loaded.model.device) for name, tensor in columns.items()}
            numbers, labels = inputs.pop("prompt").tolist(), inputs.pop("labels")
            (states,) = teacher.guide(numbers, inputs, labels)
            counts = [len(row.answer) for row in part]
            ids, likely = (
                torch.cat(list(chunks)).split(counts)
                for chunks in zip(*map(likeliest, states.split(CHUNK)), strict=True)
            )
            for number, row_ids, row_likely in zip(numbers, ids, likely, strict=True):
                tensors[f"{number}.ids"] = row_ids.int().cpu().contiguous()
                tensors[f"{number}.log_probabilities"] = row_likely.cpu().contiguous()
            advance(done)
    with replacing(path) as file:
        file.write(save(tensors))
