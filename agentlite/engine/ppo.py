"""Prompts and rewards -> an adapter that says more of what earned more than was expected, by PPO.

A round: `rollouts` answers are sampled and scored, and learned from in `ppo_epochs` passes, each
cut into optimizer steps. Within a round the policy moves away from the one that sampled: the ratio
of the two is clipped. What an answer is expected to earn, at each of its tokens, is said by a value
head: a linear layer on the hidden states that the logits are made of, trained along.

A round is kept in experience.jsonl, of which each checkpoint has a copy, and its order follows from
the seed: a run that is carried on within a round goes on with the same rows.
"""

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import pvariance
from typing import Any, NamedTuple

from msgspec import Struct, structs

from agentlite.config.settings import GrpoSettings
from agentlite.core.row_files import read_rows, write_rows
from agentlite.engine import (
    adapter,
    checkpoints,
    grpo,
    local_sampler,
    summed_loss,
    torch,
    trainer,
    trl,
)
from agentlite.engine.load import Loaded
from agentlite.engine.summed_loss import (
    Row,
    SummedLoss,
    check_head,
    collate,
    head_of,
    in_chunks,
    trained_states,
    training_row,
)

EXPERIENCE = "experience.jsonl"
HEAD = "value_head"  # of the model, and its folder in a checkpoint
WEIGHTS = "value_head.safetensors"


class Experience(Struct, frozen=True):
    """An answer of a round: ids of prompt and answer, and for each token of the answer its
    log-probability under the policy that sampled it and under the reference, what it earns, and
    the value before it. `reward`: None where a reward function failed; it is not learned from.
    """

    prompt: list[int]
    ids: list[int]
    reward: float | None
    parts: dict[str, float]
    old: list[float]
    reference: list[float]
    values: list[float]


class LearnedAnswer(NamedTuple):
    """An answer of a round, with what each of its tokens is learned by: how much more was earned
    than expected, and the return that its value should have been.
    """

    answer: Experience
    advantages: Sequence[float]
    returns: Sequence[float]

    @property
    def is_learned(self) -> bool:
        return self.answer.reward is not None

    def row(self) -> Row:
        """As `collate` takes it: without trained tokens where it is not learned."""
        row: dict[str, Sequence[float]] = {**training_row(self.answer.prompt, self.answer.ids)}
        numbers = {
            "old": self.answer.old,
            "advantages": self.advantages,
            "returns": self.returns,
            "values": self.answer.values,
        }
        if self.is_learned:
            return {**row, **numbers}
        return {**row, "labels": [-100] * len(row["labels"]), **dict.fromkeys(numbers, ())}


def estimate_advantages(
    rewards: Sequence[float], values: Sequence[float], lam: float
) -> tuple[list[float], list[float]]:
    """Generalised advantage estimation (arXiv 1506.02438) without a discount: with the value 0
    behind the last token, d_t = r_t + V_{t+1} - V_t and A_t = d_t + lam A_{t+1}; the return is
    A_t + V_t. Advantages and returns of each token of an answer.
    """
    advantages = [0.0] * len(values)
    next_advantage, next_value = 0.0, 0.0
    for index in reversed(range(len(values))):
        next_advantage = rewards[index] + next_value - values[index] + lam * next_advantage
        advantages[index], next_value = next_advantage, values[index]
    returns = [advantage + value for advantage, value in zip(advantages, values, strict=True)]
    return advantages, returns


def token_rewards(answer: Experience, beta: float) -> list[float]:
    """-beta (log pi - log reference) at every token, and the reward of the answer at the last."""
    pairs = zip(answer.old, answer.reference, strict=True)
    # summed over an answer, -beta times an estimate of its KL divergence from the reference
    rewards = [-beta * (old - reference) for old, reference in pairs]
    rewards[-1] += answer.reward or 0.0
    return rewards


def whiten(experience: Sequence[Experience], settings: GrpoSettings) -> list[LearnedAnswer]:
    """Advantages with mean 0 and standard deviation 1 over all tokens that are learned."""
    rows = []
    for answer in experience:
        rewards = token_rewards(answer, settings.beta)
        estimates = estimate_advantages(rewards, answer.values, settings.gae_lambda)
        rows.append(LearnedAnswer(answer, *estimates))
    learned_advantages = [value for row in rows if row.is_learned for value in row.advantages]
    # of no token: all zeros, which are not looked at
    advantages = torch.tensor(learned_advantages or [0.0], dtype=torch.float64)
    mean, deviation = float(advantages.mean()), float(advantages.std(correction=0))
    return [
        row._replace(advantages=[(value - mean) / (deviation + 1e-8) for value in row.advantages])
        for row in rows
    ]


def policy_loss(new: Any, old: Any, advantages: Any, clip: float) -> Any:
    """max(-A r, -A clamp(r, 1 - clip, 1 + clip)) of each token, with r = exp(new - old)
    (arXiv 1707.06347). All (tokens,).
    """
    ratio = (new - old).exp()
    return -(ratio * advantages).minimum(ratio.clamp(1 - clip, 1 + clip) * advantages)


def value_loss(new: Any, old: Any, returns: Any, clip: float) -> Any:
    """Half of max((V - R)^2, (V' - R)^2) of each token, where V' is V, no further than `clip` from
    what it was when the round began. All (tokens,).
    """
    clipped = old + (new - old).clamp(-clip, clip)
    return 0.5 * (new - returns).square().maximum((clipped - returns).square())


def make_trainer(
    loaded: Loaded,
    settings: GrpoSettings,
    folder: Path,
    task: grpo.GrpoTask,
    micro: trainer.Schedule,
) -> Any:
    """TRL's SFTTrainer, whose rows are those of a round. In place of grpo.make_trainer."""
    check_head(loaded.model, "it can have no value head", "Take --advantage group.")
    checkpoints.restore_log(EXPERIENCE, folder)
    plan = grpo.schedule(settings, task.prompt_count)
    rounds = _Rounds(folder, settings, task, plan)
    model = adapter.add_adapter(loaded, settings)
    trl.trainer.utils.disable_dropout_in_model(model)
    # Zero at first, so that nothing is expected of any answer. In float32, as an adapter is.
    hidden = model.config.get_text_config().hidden_size
    head = torch.nn.Linear(hidden, 1, device=model.device, dtype=torch.float32)
    for weights in head.parameters():
        torch.nn.init.zeros_(weights)
    model.add_module(HEAD, head)
    trl_trainer = summed_loss.make_trainer(
        _with_value_head(trl.SFTTrainer, settings.value_learning_rate),
        rounds.rows,
        partial(clipped_loss, settings),
        model,
        loaded.tokenizer,
        settings,
        folder,
        micro,
        range(plan.rows),
    )
    adapter.keep_reference(trl_trainer.model)
    return trl_trainer


def clipped_loss(settings: GrpoSettings, model: Any, inputs: dict[str, Any]) -> SummedLoss:
    """Policy loss + value_coef x value loss, of the answers that are learned."""
    labels = inputs.pop("labels")
    old, advantages, returns, values = (
        inputs.pop(name) for name in ("old", "advantages", "returns", "values")
    )
    new, new_values = read_tokens(model, inputs, labels, settings.temperature)
    value_sum = value_loss(new_values, values, returns, settings.clip).sum()
    policy_sum = policy_loss(new, old, advantages, settings.clip).sum()
    clipped = (((new - old).exp() - 1).abs() > settings.clip).sum()
    return SummedLoss(
        policy_sum + settings.value_coef * value_sum,
        {"clipped": clipped, "value_loss": value_sum.detach()},
    )


def read_tokens(
    model: Any, inputs: dict[str, Any], labels: Any, temperature: float
) -> tuple[Any, Any]:
    """Of every trained token of a micro-batch: its log-probability, and the value before it."""
    states, targets, _ = trained_states(model, inputs, labels)
    head = head_of(model)

    def chunk_logprobs(states: Any, targets: Any) -> Any:
        logprobs = (head(states).float() / (temperature or 1.0)).log_softmax(-1)
        return logprobs.gather(-1, targets[:, None])[:, 0]

    # a zero that hangs on the model: without trained tokens there is still a gradient, of zeros
    zero = states.sum(dtype=torch.float32)[None] * 0.0
    # `zero[:0]` gives `cat` something to return where there is no chunk at all
    logprobs = torch.cat([zero[:0], *in_chunks(chunk_logprobs, states, targets)])
    return logprobs + zero, getattr(model, HEAD)(states.float())[:, 0]


def _with_value_head(trl_class: Any, learning_rate: float) -> Any:
    """TRL's trainer, with the value head in its optimizer and its checkpoints."""
    from safetensors.torch import load_file, save_file

    class WithValueHead(trl_class):  # type: ignore[misc]  # trl is untyped here
        def create_optimizer(self, *arguments: Any) -> Any:
            """The head begins at nothing: it has a learning rate of its own."""
            # transformers groups what requires a gradient: for that moment the head does not
            head = getattr(self.model, HEAD).requires_grad_(False)
            optimizer = super().create_optimizer(*arguments)
            weights = [*head.requires_grad_(True).parameters()]
            optimizer.add_param_group({"params": weights, "lr": learning_rate, "weight_decay": 0.0})
            return optimizer

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            super()._save_checkpoint(model, trial)
            folder = Path(self._get_output_dir(trial), f"checkpoint-{self.state.global_step}", HEAD)
            folder.mkdir()
            head = getattr(self.model, HEAD).state_dict()
            save_file({name: t.contiguous() for name, t in head.items()}, folder / WEIGHTS)

        def _load_from_checkpoint(self, checkpoint: str, model: Any = None) -> None:
            super()._load_from_checkpoint(checkpoint, model)
            getattr(self.model, HEAD).load_state_dict(load_file(Path(checkpoint, HEAD, WEIGHTS)))

    return WithValueHead


class _Rounds:
    """Samples the answers of a round, keeps them on disk, and hands them to its steps."""

    def __init__(
        self, folder: Path, settings: GrpoSettings, task: grpo.GrpoTask, plan: trainer.Schedule
    ):
        self.path, self.settings, self.task = folder / EXPERIENCE, settings, task
        self.rows_a_step = plan.rows_a_step
        # of a round: 128 answers, four times each, in steps of 64 are 8
        self.steps = settings.ppo_epochs * settings.rollouts // plan.rows_a_step
        self.round_start = -1  # the step at which the round in memory began
        self.answers: list[LearnedAnswer] = []

    def rows(self, trl_trainer: Any, numbers: Sequence[int]) -> list[Row]:
        """Those of the optimizer step that begins."""
        step = trl_trainer.state.global_step  # from 0
        start = step - step % self.steps
        # A run that is carried on within a round has the answers on disk, by the checkpoint's copy.
        if self.round_start != start:
            if step == start:
                write_rows(self.path, map(structs.asdict, self._sample(trl_trainer, step)))
            experience = [Experience(**row) for row in read_rows(self.path)]
            self.answers, self.round_start = whiten(experience, self.settings), start
        self._log(trl_trainer._metrics["train"])
        offset = (step - start) * self.rows_a_step
        order = round_order(self.settings, start)[offset : offset + self.rows_a_step]
        return [self.answers[index].row() for index in order]

    def _sample(self, trl_trainer: Any, step: int) -> list[Experience]:
        """The answers of the round that begins at `step`."""
        settings, task = self.settings, self.task
        groups = settings.rollouts // settings.group_size
        groups_so_far = groups * (step // self.steps + 1)
        order = grpo.prompt_order(task.prompt_count, groups_so_far, settings.seed)
        loaded = local_sampler.learner(settings, trl_trainer)
        # as many prompts at once as a step of grpo has
        size = max(1, settings.batch_size * settings.gradient_accumulation // settings.group_size)

        # a sample of a part is numbered by its prompt's index in the whole round
        def draw(requests: Any, decoding: Any) -> Any:
            return [
                sample._replace(prompt=sample.prompt + start)
                for start in range(0, len(requests), size)
                for sample in local_sampler.sample(loaded, requests[start : start + size], decoding)
            ]

        rows = task.sample(draw, order[-groups:], step)
        return [
            answer
            for start in range(0, len(rows), settings.batch_size)
            for answer in self._read(trl_trainer, loaded, rows[start : start + settings.batch_size])
        ]

    def _read(
        self, trl_trainer: Any, loaded: Loaded, rows: Sequence[grpo.LearnedRow]
    ) -> list[Experience]:
        """The log-probabilities of policy and reference, and the values, before the round."""
        model, temperature = loaded.model, self.settings.temperature
        inputs = collate(
            [training_row(row.prompt, row.ids) for row in rows], loaded.tokenizer.pad_token_id
        )
        inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
        labels, counts = inputs.pop("labels"), [len(row.ids) for row in rows]
        with torch.no_grad(), trl_trainer.compute_loss_context_manager():
            old, values = read_tokens(model, inputs, labels, temperature)
            model.set_adapter(checkpoints.REFERENCE)
            reference, _ = read_tokens(model, inputs, labels, temperature)
            model.set_adapter("default")
        # each is (tokens of all answers,), end to end: a list for each answer
        by_row = ([t.tolist() for t in each.split(counts)] for each in (old, reference, values))
        experience = []
        for row, *columns in zip(rows, *by_row, strict=True):
            parts = {name: float(value) for name, value in (row.reward or {}).items()}
            weighted_parts = (weight * parts[name] for name, weight in self.task.weights.items())
            reward = None if row.reward is None else sum(weighted_parts)
            experience.append(Experience([*row.prompt], [*row.ids], reward, parts, *columns))
        return experience

    def _log(self, metrics: Any) -> None:
        rows = [row for row in self.answers if row.is_learned]
        gaps = [
            old - reference
            for row in self.answers
            for old, reference in zip(row.answer.old, row.answer.reference, strict=True)
        ]
        metrics["completions/mean_length"].append(len(gaps) / len(self.answers))
        metrics["kl"].append(sum(gaps) / len(gaps))
        # the share of the variance of the returns that the values knew before; 0 without one
        returns = [value for row in rows for value in row.returns]
        values = [value for row in rows for value in row.answer.values]
        errors = [r - v for r, v in zip(returns, values, strict=True)]
        variance = pvariance(returns) if returns else 0.0
        metrics["explained"].append(1 - pvariance(errors) / variance if variance > 1e-12 else 0.0)
        if rows:
            metrics["reward"].append(sum(row.answer.reward or 0.0 for row in rows) / len(rows))
            for name in self.task.weights:
                mean = sum(row.answer.parts[name] for row in rows) / len(rows)
                metrics[f"rewards/{name}/mean"].append(mean)


def round_order(settings: GrpoSettings, start: int) -> list[int]:
    """Indices of the answers of a round: each pass shuffled, from the seed and its first step."""
    order: list[int] = []
    for epoch in range(settings.ppo_epochs):
        indices = list(range(settings.rollouts))
        random.Random(f"{settings.seed} {start} {epoch}").shuffle(indices)
        order += indices
    return order
