"""Prompts and rewards -> an adapter that says more of what scored above its group, by TRL.

Where the advantages come from: for each optimizer step a whole group of answers to each prompt is
sampled, each scored by components. TRL's GRPOTrainer adds the components up by their weights, takes
the group's mean away and divides by what `scale_rewards` says: with `group`, the standard deviation
of the group plus 1e-4; with `component` it scales each component before it adds them up.

What is simpler here than in general GRPO, since settings that would break it are refused:
- Each answer is used for one update (num_iterations 1), and all answers of a step are sampled
  before it. The policy that sampled them is the one that is updated: the ratio of the two is 1, TRL
  takes the log-probabilities of the sampler from the forward pass of the update, and clipping
  changes nothing.
- Dropout is off, so that policy and reference differ by training alone: before step 1 their KL
  divergence is 0, and a run where it is not is refused.
- An answer whose reward function failed has no components: TRL gives it no advantage, and leaves it
  out of its group's mean.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import GrpoSettings
from agentlite.core import console
from agentlite.core.errors import DIVERGED, UserError
from agentlite.engine import (
    adapter,
    datasets,
    load_dtype,
    local_sampler,
    on_gpu,
    torch,
    trainer,
    trl,
    vllm_sampler,
)
from agentlite.engine.decoding import Decoding
from agentlite.engine.grpo_reading import keep_groups_together, trust_packing
from agentlite.engine.load import Loaded, Loading, load, loading_of, prepare_libraries
from agentlite.engine.planning.estimate import load_of, vllm_share
from agentlite.engine.planning.model_shape import find_shape
from agentlite.engine.watch import Watch, mean, read_metrics
from agentlite.workspace.lookup import Source

MEASURES = {  # of GRPO and PPO, where they are logged: Unsloth's loss on CUDA has no entropy
    "reward": "reward",
    "reward_std": "reward_std",
    "frac_reward_zero_std": "flat",
    "kl": "kl",
    "value_loss": "value_loss",
    "clipped": "clipped",
    "explained": "explained",
    "entropy": "entropy",
    "surprisal": "surprisal",
    "completions/mean_length": "new_tokens",
    "sampler_gap/mean": "sampler_gap",
    "sampler_gap/p99": "sampler_gap_p99",
    "sampler_gap/max": "sampler_gap_max",
    "sampling/sampling_logp_difference/mean": "sampler_gap",  # with vLLM
    "sampling/sampling_logp_difference/max": "sampler_gap_max",
    "sampling/importance_sampling_ratio/mean": "importance",
    "sampling/importance_sampling_ratio/max": "importance_max",
}
# What else a loss is in TRL's configuration, where its name does not say it all. The ratio of cispo
# is clipped at epsilon_high, and is 1 here; TRL recommends 5 (ScaleRL, arXiv 2510.13786). By
# default it is .2, which would make the policy's part of the loss a fifth beside that of the KL.
LOSSES: dict[str, dict[str, object]] = {
    "cispo": {"epsilon_high": 5.0},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "luspo": {"importance_sampling_level": "sequence"},
}
# vLLM's tokens weigh at most this: truncated importance sampling with C = 2. TRL's default, 3 over
# whole answers, leaves out a long one for a single token.
MAX_IMPORTANCE = 2.0
LEVERS = {  # Unsloth reads them as it is imported
    "standby": "UNSLOTH_VLLM_STANDBY",
    "suffix": "UNSLOTH_VLLM_SUFFIX_DECODING",
    "sampled-as-old": "UNSLOTH_GRPO_ROLLOUT_LOGPROBS_AS_OLD",
}
LOOK_EVERY = 5  # steps between two looks at what may be wrong
GAP_TOKENS = 256  # the last of a row, since a long one's logits would fill the memory
GAP_PROMPTS = 4  # of so many one answer is read again to compare sampler and trainer
# What the mean difference of their log-probabilities may be: rounding, and no more.
MAX_GAP, MAX_GAP_IN_16_BIT = 1e-3, 0.1


# every part of an answer's score; None where a reward function failed or a world was lost
Reward = Mapping[str, float] | None


class LearnedRow(NamedTuple):
    """A row of a step: a prompt, what follows, a mask of the same length that is 1 on what was
    sampled, the logarithms of its probabilities (0 elsewhere), and what it earns.
    """

    prompt: Sequence[int]
    ids: Sequence[int]
    mask: Sequence[int]
    log_probabilities: Sequence[float]
    reward: Reward


Draw = Callable[[Sequence[local_sampler.SampleRequest], Decoding], list[local_sampler.Sample]]


class GrpoTask(NamedTuple):
    """What GRPO learns from: `prompt_count` prompts or tasks of an environment, of which an epoch
    takes each once, and how the parts of a reward weigh.

    `sample` gets what draws answers, the prompts of a step and its number, and makes a group of
    rows for each. `halt`: of watch.Watch. `is_live`: whether the model acts in an environment, so
    that what it reads between its turns is in the rows.
    """

    prompt_count: int
    sample: Callable[[Draw, Sequence[int], int], list[LearnedRow]]
    weights: Mapping[str, float]
    halt: list[Exception]
    is_live: bool = False


def train(
    source: Source,
    settings: GrpoSettings,
    folder: Path,
    make_task: Callable[[], GrpoTask],
    make_ppo_trainer: Callable[..., Any] | None = None,
) -> dict[str, object]:
    """A task is made for each trainer, whose steps begin at the last checkpoint.
    `make_ppo_trainer`: in place of make_trainer. Returns the key figures. Raises what
    engine.trainer.train raises, and UserError 5 if the reference is not the start.
    """
    prepare_libraries(loading_of(settings))
    loading, task = _loading(settings, source), make_task()
    plan = schedule(settings, task.prompt_count)

    def make(micro: trainer.Schedule) -> Any:
        loaded = load(source, loading, trainable=True)
        return (make_ppo_trainer or make_trainer)(loaded, settings, folder, make_task(), micro)

    measures = {**MEASURES, **{f"rewards/{name}/mean": f"reward/{name}" for name in task.weights}}
    watch = Watch(measures, _StepChecks(folder, settings, task, plan.steps), task.halt)
    # a second engine would find the memory of the first in use
    figures = trainer.train(make, folder, plan, watch, restarts=not settings.vllm)
    rows = read_metrics(folder)
    count = max(1, min(LOOK_EVERY, len(rows) // 2))
    figures["first_reward"] = mean(rows[:count], "reward")
    figures["last_reward"] = mean(rows[-count:], "reward")
    if _measures_kl(settings):
        figures["kl"] = mean(rows[-count:], "kl")
    if settings.advantage == "value":
        figures["explained"] = mean(rows[-count:], "explained")
    else:
        figures["flat_groups"] = mean(rows, "flat")
    return figures


def _measures_kl(settings: GrpoSettings) -> bool:
    return bool(settings.beta) or settings.advantage == "value"


def _loading(settings: GrpoSettings, source: Source) -> Loading:
    """With Unsloth vLLM is part of the model that is loaded, in the share of the card that is
    planned for it, unless `trl` says another.
    """
    loading = loading_of(settings)
    if not settings.vllm or settings.engine != "unsloth":
        return loading
    share = settings.trl.get("vllm_gpu_memory_utilization")
    if share is None:
        total = torch.cuda.mem_get_info()[1]
        share = vllm_share(load_of(settings, find_shape(source.base), True), total)
    return loading._replace(vllm_share=share, vllm_rank=settings.lora_r)


def schedule(settings: GrpoSettings, prompts: int) -> trainer.Schedule:
    """A row is an answer, as for TRL; an epoch takes every prompt once, with a whole group of
    answers, each as often as it is learned from.
    """
    return trainer.schedule(settings, prompts * settings.group_size * settings.passes)


def prompt_order(count: int, groups: int, seed: int) -> list[int]:
    """The prompt of every group, one after the other: whole epochs, each shuffled, from the seed
    alone.
    """
    return trainer.shuffled_epochs(count, groups, random.Random(seed))[:groups]


def configure(settings: GrpoSettings, folder: Path, task: GrpoTask, micro: trainer.Schedule) -> Any:
    """The configuration of TRL's trainer: a GRPOConfig."""
    own_arguments = {
        "beta": settings.beta,
        "num_generations": settings.group_size,
        "temperature": settings.temperature or 1.0,
        "top_p": settings.top_p,
        "max_completion_length": settings.max_new_tokens,
        "loss_type": settings.loss_type,
        **LOSSES.get(settings.loss_type, {}),
        "reward_weights": list(task.weights.values()),
        "shuffle_dataset": False,
        "remove_unused_columns": False,
        "disable_dropout": True,
        "use_vllm": settings.vllm,
        **adapter.reference_arguments(settings),
    }
    if settings.scale_rewards == "component":
        # TRL scales components (GDPO, arXiv 2601.05242) whatever its scale_rewards says
        own_arguments["multi_objective_aggregation"] = "normalize_then_sum"
    else:
        own_arguments["scale_rewards"] = settings.scale_rewards
    if settings.vllm:
        # vLLM rounds otherwise than the trainer does: TRL weighs each token by the ratio of the two
        # probabilities, cut off above
        own_arguments |= {
            "vllm_mode": "colocate",
            "vllm_max_model_length": settings.max_length,
            "vllm_importance_sampling_correction": True,
            "vllm_importance_sampling_mode": "token_truncate",
            "vllm_importance_sampling_clip_max": MAX_IMPORTANCE,
        }
    shared_arguments = trainer.trl_arguments(settings, folder, micro)
    return trainer.configuration(trl.GRPOConfig, {**own_arguments, **shared_arguments})


def make_trainer(
    loaded: Loaded, settings: GrpoSettings, folder: Path, task: GrpoTask, micro: trainer.Schedule
) -> Any:
    """A GRPOTrainer whose answers we draw and score. Its prompts are numbers, its rewards one
    function a part.
    """
    plan = schedule(settings, task.prompt_count)
    order = prompt_order(task.prompt_count, plan.rows // settings.group_size, settings.seed)
    trainer_class = keep_groups_together(trainer.adjust_trainer(trl.GRPOTrainer))
    if on_gpu() and settings.engine == "unsloth":
        trainer_class = trust_packing(trainer_class, MAX_GAP_IN_16_BIT)
    trl_trainer = trainer_class(
        model=adapter.add_adapter(loaded, settings),
        reward_funcs=[_reward_function(name) for name in task.weights],
        args=configure(settings, folder, task, micro),
        train_dataset=datasets.Dataset.from_dict({"prompt": [str(index) for index in order]}),
        processing_class=loaded.tokenizer,
        rollout_func=_rollout_function(settings, task),
    )
    adapter.keep_reference(trl_trainer.model)
    return trl_trainer


def _reward_function(component: str) -> Callable[..., list[float | None]]:
    """TRL names a reward after its function, and logs it by that name."""

    def reward(reward_parts: Sequence[Reward], **_: object) -> list[float | None]:
        return [None if parts is None else parts[component] for parts in reward_parts]

    reward.__name__ = component
    return reward


def _rollout_function(settings: GrpoSettings, task: GrpoTask) -> Callable[..., dict[str, object]]:
    """What TRL calls for a step's answers, with every prompt once for each answer of its group."""

    def rollout(prompts: list[str], trl_trainer: Any) -> dict[str, object]:
        step = trl_trainer.state.global_step
        # groups of 2: ["7", "7", "3", "3"] -> [7, 3]
        prompt_indices = [int(prompt) for prompt in prompts[:: settings.group_size]]
        policy = local_sampler.learner(settings, trl_trainer)
        draw: Draw = partial(local_sampler.sample, policy)
        if settings.vllm:
            draw = partial(vllm_sampler.sample, trl_trainer.vllm_generation.llm, policy)
        rows = task.sample(draw, prompt_indices, step)
        metrics = trl_trainer._metrics["train"]
        metrics["surprisal"].append(surprisal(rows))
        if step % LOOK_EVERY == 0 and not settings.vllm:  # of vLLM TRL compares all tokens
            sampled_rows = [row for row in rows if any(row.mask)]  # not of a rollout without a turn
            compared_rows = sampled_rows[:: settings.group_size][:GAP_PROMPTS]
            gaps = sampler_gaps(trl_trainer.model, compared_rows, settings.temperature)
            metrics["sampler_gap/mean"].append(sum(gaps) / len(gaps))
            metrics["sampler_gap/p99"].append(gaps[int(0.99 * (len(gaps) - 1))])
            metrics["sampler_gap/max"].append(gaps[-1])
        return {
            "prompt_ids": [list(row.prompt) for row in rows],
            "completion_ids": [list(row.ids) for row in rows],
            "logprobs": [list(row.log_probabilities) for row in rows] if settings.vllm else None,
            "reward_parts": [row.reward for row in rows],
            **({"env_mask": [list(row.mask) for row in rows]} if task.is_live else {}),
        }

    return rollout


def answer_row(prompt: Sequence[int], answer: local_sampler.Sample, reward: Reward) -> LearnedRow:
    """An answer to a prompt alone."""
    return LearnedRow(prompt, answer.ids, [1] * len(answer.ids), answer.log_probabilities, reward)


def surprisal(rows: Sequence[LearnedRow]) -> float:
    """The mean of -log p of the tokens that were sampled, in nats."""
    pairs = [pair for row in rows for pair in zip(row.log_probabilities, row.mask, strict=True)]
    logprobs = [logprob for logprob, is_sampled in pairs if is_sampled]
    return -sum(logprobs) / len(logprobs)


def sampler_gaps(model: Any, rows: Sequence[LearnedRow], temperature: float) -> list[float]:
    """|sampler's - trainer's log-probability| of every sampled token, ascending.

    The trainer's is that of a forward pass over prompt and answer, without cache, padding and
    other rows: what the loss is made of. A mask, a position or a weight that differs in the sampler
    shows here at once.
    """
    gaps: list[float] = []
    for row in rows:
        ids = torch.tensor([[*row.prompt, *row.ids]], device=model.device)
        count = min(len(row.ids), GAP_TOKENS)
        # The logits at a token are those of the next one: of count + 1 the last is not needed, and
        # the first one is that of the id before the last `count`.
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False, logits_to_keep=count + 1).logits[0, :-1]
            logits = logits.float() / (temperature or 1.0)
            losses = torch.nn.functional.cross_entropy(logits, ids[0, -count:], reduction="none")
        logprobs = torch.tensor(row.log_probabilities[-count:], device=losses.device)
        is_sampled = torch.tensor(row.mask[-count:], device=losses.device) == 1
        gaps += (logprobs + losses).abs()[is_sampled].tolist()  # a loss is -log p
    return sorted(gaps)


class _StepChecks:
    """Sees the row of each step: ends a run that does not learn what it should, and says every few
    steps what makes them teach nothing.
    """

    def __init__(self, folder: Path, settings: GrpoSettings, task: GrpoTask, steps: int):
        self.folder, self.settings, self.task, self.steps = folder, settings, task, steps
        self.recent_rows: list[Mapping[str, float]] = []
        # whether all answers to each prompt of a step score the same, those before a stop as well
        self.is_flat: dict[int, bool] = {}

    def __call__(self, step: int, row: Mapping[str, float]) -> None:
        settings = self.settings
        # the trainer computes so: its weights are in 16 bit, or the user's `trl` wants it
        in_16_bit = load_dtype() != torch.float32 or any(map(settings.trl.get, ("bf16", "fp16")))
        if step == 1 and _measures_kl(settings):
            tolerance = 1e-2 if in_16_bit else 1e-4
            adapter.refuse_other_start(row["kl"], tolerance, "the divergence (KL)")
        gap = 0.0 if settings.vllm else row.get("sampler_gap", 0.0)
        if gap > (MAX_GAP_IN_16_BIT if in_16_bit else MAX_GAP):
            self.task.halt.append(
                UserError(
                    "the answers are sampled by other probabilities than those that are trained: "
                    f"their logarithms differ by {gap:.2g} on average.",
                    "Try --engine hf, and report this with the output of `agentlite doctor`.",
                    exit_code=DIVERGED,
                )
            )
        if not self.is_flat:
            self.is_flat = {r["step"]: r.get("flat") == 1 for r in read_metrics(self.folder)}
        self.is_flat[step] = row.get("flat") == 1
        # how many steps in a row, up to this one, were flat; there is no step 0 that could be
        flat_steps = next(n for n in range(step + 1) if not self.is_flat.get(step - n))
        if 0 < settings.max_flat_steps <= flat_steps and step < self.steps:
            self.task.halt.append(
                UserError(
                    f"for {flat_steps} steps all answers to each prompt scored the same: nothing "
                    "is learned.",
                    "Raise --temperature or --group-size, let such prompts rest (rest_epochs) or "
                    "weigh other parts (--weights), with --force; or continue anyway: "
                    "--set grpo.max_flat_steps=0.",
                    location=str(self.folder),
                    exit_code=DIVERGED,
                )
            )
        self.recent_rows.append(row)
        if step % LOOK_EVERY == 0 or step == self.steps:
            steps = f"steps {step - len(self.recent_rows) + 1} to {step}"
            for sentence in complaints(self.recent_rows, is_live=self.task.is_live):
                console.notice(f"{self.folder.name}, {steps}: {sentence}")
            self.recent_rows = []


def complaints(rows: Sequence[Mapping[str, float]], is_live: bool = False) -> list[str]:
    """What is wrong with some steps, each with a way out; nothing if they are well. `is_live`:
    whether the prompts are tasks, of which those that teach nothing are passed over.
    """
    flat, cut, kl = (mean(rows, name) for name in ("flat", "reward/timeout", "kl"))
    leave_out = "" if is_live else ", or let such prompts rest (--set grpo.rest_epochs=2)"
    cases = [
        (
            flat >= 0.5,
            f"in {flat:.0%} of groups all candidates score the same: raise temperature or group "
            f"size{leave_out}",
        ),
        (
            cut >= 0.5,
            f"{cut:.0%} of completions are cut off: raise --max-new-tokens, or train longer with "
            "sft first",
        ),
        (
            kl > 1,
            f"the policy is far from its start (KL {kl:.2g}): lower --learning-rate or raise "
            "--beta",
        ),
    ]
    return [sentence for is_so, sentence in cases if is_so]
