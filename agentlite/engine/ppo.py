"""Prompts and rewards -> an adapter that says more of what earned more than was expected, by PPO.

A round: `rollouts` answers are sampled and judged, and learned from in `ppo_epochs` passes, each
cut into optimizer steps. Within a round the policy moves away from the one that sampled: the ratio
of the two is clipped. What an answer is expected to earn, at each of its tokens, is said by a value
head: a linear layer on the hidden states that the logits are made of, trained along.

A round is kept in experience.jsonl, of which each checkpoint has a copy, and its order follows from
the seed: a run that is carried on within a round goes on with the same rows.
"""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, structs

from agentlite.config.settings import GrpoSettings
from agentlite.core.row_files import read_rows, write_rows
from agentlite.engine import adapter, checkpoints, grpo, load_dtype, trainer, training_log
from agentlite.engine.load import Loaded, load, loading_of, prepare
from agentlite.engine.planning.estimate import kept_in_training
from agentlite.engine.watch import Watch
from agentlite.engine.weighted_loss import CHUNK, check_head, collate, head_of, trained_states
from agentlite.workspace.model_source import Source

EXPERIENCE = "experience.jsonl"
HEAD = "value_head"  # of the model, and its folder in a checkpoint
WEIGHTS = "value_head.safetensors"
MEASURES = {
    "reward": "reward",
    "kl": "kl",
    "value_loss": "value_loss",
    "clipped": "clipped",
    "explained": "explained",
    "answer_tokens": "new_tokens",
}
LAST = 5  # steps that the figures are the mean of


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

    def columns(self) -> dict[str, list[int]]:
        """As `collate` takes them."""
        labels = self.ids if self.reward is not None else [-100] * len(self.ids)
        return {
            "input_ids": [*self.prompt, *self.ids],
            "labels": [*[-100] * len(self.prompt), *labels],
        }


class Advantage(NamedTuple):
    """Of each token of an answer: how much more was earned than expected, and the return that its
    value should have been."""

    advantages: list[float]
    returns: list[float]


def estimated(rewards: Sequence[float], values: Sequence[float], lam: float) -> Advantage:
    """Generalised advantage estimation (arXiv 1506.02438) without a discount: with the value 0
    behind the last token, d_t = r_t + V_{t+1} - V_t and A_t = d_t + lam A_{t+1}; the return is
    A_t + V_t.
    """
    advantages = [0.0] * len(values)
    later, next_value = 0.0, 0.0
    for place in reversed(range(len(values))):
        later = rewards[place] + next_value - values[place] + lam * later
        advantages[place], next_value = later, values[place]
    returns = [one + value for one, value in zip(advantages, values, strict=True)]
    return Advantage(advantages, returns)


def token_rewards(one: Experience, beta: float) -> list[float]:
    """-beta (log pi - log reference) at every token, and the reward of the answer at the last."""
    rewards = [
        -beta * (old - reference) for old, reference in zip(one.old, one.reference, strict=True)
    ]
    rewards[-1] += one.reward or 0.0
    return rewards


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
    near = old + (new - old).clamp(-clip, clip)
    return 0.5 * (new - returns).square().maximum((near - returns).square())


def train(
    source: Source,
    settings: GrpoSettings,
    folder: Path,
    task: Callable[[Loaded], grpo.GrpoTask],
) -> dict[str, object]:
    """As engine.grpo.train. Raises what engine.trainer.train raises, and UserError 5 if the
    reference is not the start.
    """
    prepare(loading_of(settings))

    def prepared() -> tuple[Loaded, grpo.GrpoTask]:
        loaded = load(source, loading_of(settings), trainable=True)
        check_head(loaded.model, "it can have no value head", "Take --advantage group.")
        return loaded, task(loaded)

    ready = [prepared()]  # taken out by the first trainer, so that a second finds its memory free
    todo = ready[0][1]
    plan = grpo.schedule(settings, len(todo.prompts))

    def make(micro: trainer.Schedule) -> Any:
        loaded, of_run = ready.pop() if ready else prepared()
        checkpoints.restore_log(EXPERIENCE, folder, checkpoints.newest(folder))
        return make_trainer(loaded, settings, folder, of_run, micro)

    def at_step(step: int, row: Mapping[str, float]) -> None:
        if step == 1:
            allowed = 1e-4 if str(load_dtype()) == "torch.float32" else 1e-2
            adapter.refuse_other_start(row["kl"], allowed, "the divergence (KL)")

    measures = {**MEASURES, **{f"rewards/{name}": f"reward/{name}" for name in todo.weights}}
    watch = Watch(measures, at_step, todo.halt)
    figures = trainer.train(make, folder, plan, watch)
    rows = training_log.logged(folder)
    few = max(1, min(LAST, len(rows) // 2))
    return {
        **figures,
        "first_reward": training_log.mean(rows[:few], "reward"),
        "last_reward": training_log.mean(rows[-few:], "reward"),
        "kl": training_log.mean(rows[-few:], "kl"),
        "explained": training_log.mean(rows[-few:], "explained"),
    }


def check(settings: GrpoSettings) -> None:
    """Needs no prompts and no model. Raises UserError 2 for settings that this machine, TRL or PEFT
    cannot use; 5 where a library is missing.
    """
    prepare(loading_of(settings))
    from trl import SFTConfig

    trainer.check_passed_through(grpo.NAME, settings, SFTConfig, grpo.OURS_OF_TRL)


def arguments(settings: GrpoSettings, folder: Path, micro: trainer.Schedule) -> Any:
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
    loaded: Loaded,
    settings: GrpoSettings,
    folder: Path,
    task: grpo.GrpoTask,
    micro: trainer.Schedule,
) -> Any:
    """TRL's SFTTrainer, whose rows are those of a round."""
    from datasets import Dataset
    from trl import SFTTrainer
    from trl.trainer.utils import disable_dropout_in_model

    plan = grpo.schedule(settings, len(task.prompts))
    rounds = _Rounds(folder, settings, task, plan, loaded.tokenizer)
    trainer_class = trainer.warming_up(adapter.uncast(_clipping(SFTTrainer, settings, rounds)))
    model = adapter.adapted(loaded, settings)
    disable_dropout_in_model(model)
    _add_value_head(model)
    trl_trainer = trainer_class(
        model=model,
        args=arguments(settings, folder, micro),
        train_dataset=Dataset.from_dict({"place": list(range(plan.rows))}),
        data_collator=_places,
        processing_class=loaded.tokenizer,
    )
    adapter.keep_reference(trl_trainer.model)
    return trl_trainer


def _places(rows: Sequence[dict[str, int]]) -> dict[str, Any]:
    import torch

    return {"place": torch.tensor([row["place"] for row in rows])}


def _add_value_head(model: Any) -> None:
    """Zero at first, so that nothing is expected of any answer. In float32, as an adapter is."""
    import torch

    hidden = model.config.get_text_config().hidden_size
    head = torch.nn.Linear(hidden, 1, device=model.device, dtype=torch.float32)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    model.add_module(HEAD, head)


def _clipping(trl_class: Any, settings: GrpoSettings, rounds: "_Rounds") -> Any:
    """TRL's trainer with the loss of PPO, and a value head in its checkpoints."""

    class Clipping(trl_class):  # type: ignore[misc]  # trl is untyped here
        def create_optimizer(self, *of_what: Any) -> Any:
            """The head begins at nothing: it has a learning rate of its own."""
            optimizer = super().create_optimizer(*of_what)
            own = [*getattr(self.model, HEAD).parameters()]
            for group in optimizer.param_groups:
                group["params"] = [
                    one for one in group["params"] if not any(one is other for other in own)
                ]
            optimizer.add_param_group(
                {"params": own, "lr": settings.value_learning_rate, "weight_decay": 0.0}
            )
            return optimizer

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            from safetensors.torch import save_file

            super()._save_checkpoint(model, trial)
            made = Path(self._get_output_dir(trial), f"checkpoint-{self.state.global_step}", HEAD)
            made.mkdir()
            head = getattr(self.model, HEAD).state_dict()
            save_file({name: one.contiguous() for name, one in head.items()}, made / WEIGHTS)

        def _load_from_checkpoint(self, checkpoint: str, model: Any = None) -> None:
            from safetensors.torch import load_file

            super()._load_from_checkpoint(checkpoint, model)
            head = getattr(self.model, HEAD)
            head.load_state_dict(load_file(Path(checkpoint, HEAD, WEIGHTS)))

        def get_batch_samples(self, *request: Any) -> Any:
            """The micro-batches of an optimizer step, and how many tokens they train."""
            batches, _ = super().get_batch_samples(*request)
            # a share of the loss for each token: no division by the number of micro-batches
            self.model_accepts_loss_kwargs = True
            model = self.accelerator.unwrap_model(self.model)
            rows = iter(rounds.rows(self, model, self.state.global_step))
            made = [[next(rows) for _ in batch["place"]] for batch in batches]
            pad = self.processing_class.pad_token_id
            self.micro_batches = len(batches)
            count = sum(len(row.one.ids) for some in made for row in some if row.is_learned)
            return [_micro_batch(some, pad) for some in made], max(1, count)

        def compute_loss(
            self,
            model: Any,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            labels = inputs.pop("labels")
            old, advantages, returns, values = (
                inputs.pop(name) for name in ("old", "advantages", "returns", "values")
            )
            student = self.accelerator.unwrap_model(model)
            found = read_tokens(student, inputs, labels, settings.temperature)
            of_policy = policy_loss(found.likely, old, advantages, settings.clip)
            of_value = value_loss(found.values, values, returns, settings.clip)
            tokens = num_items_in_batch or max(1, len(old))
            # TRL logs the mean over micro-batches: so it is that over the tokens of the step
            share, measured = self.micro_batches / tokens, self._metrics["train"]
            clipped = ((found.likely - old).exp() - 1).abs() > settings.clip
            measured["clipped"].append(float(clipped.sum()) * share)
            measured["value_loss"].append(float(of_value.detach().sum()) * share)
            loss = (of_policy.sum() + settings.value_coef * of_value.sum()) / tokens
            return (loss, {}) if return_outputs else loss

    return Clipping


class TokenFigures(NamedTuple):
    """Of every trained token of a micro-batch: its log-probability and the value before it."""

    likely: Any
    values: Any


def read_tokens(
    model: Any, inputs: dict[str, Any], labels: Any, temperature: float
) -> TokenFigures:
    """A few hundred tokens' logits are in memory at once, and are made again on the way back."""
    import torch
    from torch.utils.checkpoint import checkpoint

    states, targets, _ = trained_states(model, inputs, labels)
    head, heat = head_of(model), temperature or 1.0

    def of_chunk(some: Any, wanted: Any) -> Any:
        likely = (head(some).float() / heat).log_softmax(-1)
        return likely.gather(-1, wanted[:, None])[:, 0]

    # a zero that hangs on the model: without trained tokens there is still a gradient, of zeros
    parts = [states.sum().float()[None] * 0.0]
    for some, wanted in zip(states.split(CHUNK), targets.split(CHUNK), strict=True):
        if len(wanted):
            parts.append(checkpoint(of_chunk, some, wanted, use_reentrant=False))
    likely = torch.cat(parts[1:]) if len(parts) > 1 else parts[0][:0]
    values = getattr(model, HEAD)(states.float())[:, 0]
    return TokenFigures(likely + parts[0], values)


class _LearnedAnswer(NamedTuple):
    """An answer of a round, with what each of its tokens is learned by; None where its reward
    failed."""

    one: Experience
    advantages: Sequence[float]
    returns: Sequence[float]

    @property
    def is_learned(self) -> bool:
        return self.one.reward is not None


def _micro_batch(rows: Sequence[_LearnedAnswer], pad: int) -> dict[str, Any]:
    """The columns of `collate`, and a number for each trained token, in the order of rows."""
    import torch

    learned = [row for row in rows if row.is_learned]
    numbers = {
        "old": [one for row in learned for one in row.one.old],
        "advantages": [one for row in learned for one in row.advantages],
        "returns": [one for row in learned for one in row.returns],
        "values": [one for row in learned for one in row.one.values],
    }
    return {
        **collate([row.one.columns() for row in rows], pad),
        **{name: torch.tensor(values, dtype=torch.float32) for name, values in numbers.items()},
    }


class _Rounds:
    """Samples the answers of a round, keeps them on disk, and hands them to its steps."""

    def __init__(
        self,
        folder: Path,
        settings: GrpoSettings,
        task: grpo.GrpoTask,
        plan: trainer.Schedule,
        tokenizer: Any,
    ):
        self.path, self.settings, self.task = folder / EXPERIENCE, settings, task
        self.plan, self.tokenizer = plan, tokenizer
        self.steps = settings.ppo_epochs * settings.rollouts // plan.rows_a_step  # of a round
        self.begun = -1  # the step at which the round in memory began
        self.learned: list[_LearnedAnswer] = []

    def rows(self, trl_trainer: Any, model: Any, step: int) -> list[_LearnedAnswer]:
        """Those of an optimizer step, numbered from 0."""
        begin = step - step % self.steps
        if self.begun != begin:
            if step == begin:
                self._keep(self._sampled(trl_trainer, model, step))
            experience = [Experience(**row) for row in read_rows(self.path)]
            self.learned, self.begun = whitened(experience, self.settings), begin
        self._log(trl_trainer._metrics["train"])
        order = round_order(self.settings, begin)
        rows, first = self.plan.rows_a_step, (step - begin) * self.plan.rows_a_step
        return [self.learned[index] for index in order[first : first + rows]]

    def _keep(self, experience: Sequence[Experience]) -> None:
        partial_file = self.path.with_suffix(".partial")
        write_rows(partial_file, map(structs.asdict, experience))
        os.replace(partial_file, self.path)

    def _sampled(self, trl_trainer: Any, model: Any, step: int) -> list[Experience]:
        settings, task = self.settings, self.task
        groups = settings.rollouts // settings.group_size
        number = step // self.steps
        order = grpo.prompt_order(
            len(task.prompts), groups * (number + 1), settings.seed, task.levels
        )
        fixed = partial(kept_in_training, grpo.NAME, settings, model)
        sample = partial(_sample, Loaded(model, self.tokenizer, fixed), settings)
        rows = grpo.answered_rows(task, settings, order[-groups:], step, sample)
        size, found = settings.batch_size, list[Experience]()
        for start in range(0, len(rows), size):
            found += self._read(trl_trainer, model, rows[start : start + size])
        return found

    def _read(
        self, trl_trainer: Any, model: Any, rows: Sequence[grpo.LearnedRow]
    ) -> list[Experience]:
        """The log-probabilities of policy and reference, and the values, before the round."""
        import torch

        columns = [
            {
                "input_ids": [*row.prompt, *row.ids],
                "labels": [*[-100] * len(row.prompt), *row.ids],
            }
            for row in rows
        ]
        inputs = collate(columns, self.tokenizer.pad_token_id)
        inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
        labels, counts = inputs.pop("labels"), [len(row.ids) for row in rows]
        with torch.no_grad(), trl_trainer.compute_loss_context_manager():
            policy = read_tokens(model, inputs, labels, self.settings.temperature)
            model.set_adapter(checkpoints.REFERENCE)
            reference = read_tokens(model, inputs, labels, self.settings.temperature)
            model.set_adapter("default")
        old, of_reference, values = (
            [part.tolist() for part in one.split(counts)]
            for one in (policy.likely, reference.likely, policy.values)
        )
        return [
            Experience(
                [*row.prompt],
                [*row.ids],
                None
                if row.reward.parts is None
                else sum(
                    weight * row.reward.parts[name] for name, weight in self.task.weights.items()
                ),
                {name: float(value) for name, value in (row.reward.parts or {}).items()},
                *of_row,
            )
            for row, *of_row in zip(rows, old, of_reference, values, strict=True)
        ]

    def _log(self, measured: Any) -> None:
        rows = [row for row in self.learned if row.is_learned]
        tokens = [len(row.one.ids) for row in self.learned]
        gaps = [
            old - reference
            for row in self.learned
            for old, reference in zip(row.one.old, row.one.reference, strict=True)
        ]
        measured["answer_tokens"].append(sum(tokens) / len(tokens))
        measured["kl"].append(sum(gaps) / len(gaps))
        measured["explained"].append(_explained(rows))
        if rows:
            measured["reward"].append(sum(row.one.reward or 0.0 for row in rows) / len(rows))
            for name in self.task.weights:
                mean = sum(row.one.parts[name] for row in rows) / len(rows)
                measured[f"rewards/{name}"].append(mean)


def _sample(loaded: Loaded, settings: GrpoSettings, requests: Any, decoding: Any) -> Any:
    """A step's answers are sampled together; of a round, which is longer, as many at once."""
    size = max(1, settings.batch_size * settings.gradient_accumulation // settings.group_size)
    return [
        one._replace(prompt=one.prompt + start)
        for start in range(0, len(requests), size)
        for one in grpo.draw(loaded, requests[start : start + size], decoding)
    ]


def round_order(settings: GrpoSettings, begin: int) -> list[int]:
    """Indices of the answers of a round: each pass shuffled, from the seed and its first step."""
    order: list[int] = []
    for number in range(settings.ppo_epochs):
        answers = list(range(settings.rollouts))
        random.Random(f"{settings.seed} {begin} {number}").shuffle(answers)
        order += answers
    return order


def whitened(experience: Sequence[Experience], settings: GrpoSettings) -> list[_LearnedAnswer]:
    """Advantages with mean 0 and standard deviation 1 over all tokens that are learned."""
    found = [
        estimated(token_rewards(one, settings.beta), one.values, settings.gae_lambda)
        for one in experience
    ]
    every = [
        value
        for one, of_one in zip(experience, found, strict=True)
        if one.reward is not None
        for value in of_one.advantages
    ]
    mean = sum(every) / max(1, len(every))
    deviation = (sum((value - mean) ** 2 for value in every) / max(1, len(every))) ** 0.5
    return [
        _LearnedAnswer(
            one,
            [(value - mean) / (deviation + 1e-8) for value in of_one.advantages],
            of_one.returns,
        )
        for one, of_one in zip(experience, found, strict=True)
    ]


def _explained(rows: Sequence[_LearnedAnswer]) -> float:
    """The share of the variance of the returns that the values knew before; 0 without
    one."""
    returns = [one for row in rows for one in row.returns]
    values = [one for row in rows for one in row.one.values]
    if not returns:
        return 0.0
    errors = [one - value for one, value in zip(returns, values, strict=True)]
    total, left = _variance(returns), _variance(errors)
    return 1 - left / total if total > 1e-12 else 0.0


def _variance(numbers: Sequence[float]) -> float:
    mean = sum(numbers) / len(numbers)
    return sum((one - mean) ** 2 for one in numbers) / len(numbers)
