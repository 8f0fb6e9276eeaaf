"""Pairs as token ids -> an adapter that prefers the chosen answers, by TRL's DPOTrainer."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import DpoSettings
from agentlite.engine import adapter, datasets, load_dtype, torch, trainer, trl, watch
from agentlite.engine.load import load, loading_of, prepare_libraries
from agentlite.workspace.lookup import Source

MEASURES = {
    "rewards/margins": "margin",
    "rewards/accuracies": "accuracy",
    "rewards/chosen": "chosen_reward",
    "rewards/rejected": "rejected_reward",
    "logps/chosen": "chosen_logp",
    "logps/rejected": "rejected_logp",
}
LAST_STEPS = 5  # steps that the figures at the end are the mean of


class Preference(NamedTuple):
    """The ids of a prompt and of the two answers to it, each with the end of its turn."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]

    @property
    def tokens(self) -> int:
        return 2 * len(self.prompt) + len(self.chosen) + len(self.rejected)

    @property
    def longest(self) -> int:
        """Tokens of the longer of its two rows."""
        return len(self.prompt) + max(len(self.chosen), len(self.rejected))


def train(
    source: Source, settings: DpoSettings, folder: Path, rows: Sequence[Preference]
) -> dict[str, Any]:
    """Returns the key figures. Raises what trainer.train raises, and UserError 5 if the reference
    is not the start.
    """
    prepare_libraries(loading_of(settings))

    def at_step(step: int, row: Mapping[str, float]) -> None:
        if step > 1 or not settings.has_reference:
            return
        # log-probabilities of whole answers agree to a hundredth in float32; in 16 bits a sum of
        # many is coarser
        tolerance = 0.01 if str(load_dtype()) == "torch.float32" else 1.0
        for side in ("chosen", "rejected"):
            ratio = row[f"{side}_reward"] / settings.beta
            adapter.refuse_other_start(ratio, tolerance, f"the mean log-ratio of the {side}")

    make = partial(make_trainer, source, settings, folder, rows)
    plan = trainer.schedule(settings, len(rows))
    figures = trainer.train(make, folder, plan, watch.Watch(MEASURES, at_step))
    # over the last steps: how far chosen is above rejected, how often, and how many nats both sides
    # have moved
    last_rows = watch.read_metrics(folder)[-LAST_STEPS:]
    figures |= {name: watch.mean(last_rows, name) for name in ("margin", "accuracy")}
    if settings.has_reference:
        figures |= {
            f"{side}_drift": round(watch.mean(last_rows, f"{side}_reward") / settings.beta, 3)
            for side in ("chosen", "rejected")
        }
    return figures


def configure(settings: DpoSettings, folder: Path, micro: trainer.Schedule) -> Any:
    """The configuration of TRL's trainer. TRL 1.15 does not smooth its sigmoid loss, but mixes
    losses. With s for the smoothing, L for the sigmoid loss of a pair and L' for that of the pair
    swapped, its robust loss is ((1-s) L - s L') / (1-2s). So 2(1-s) sigmoid - (1-2s) robust is
    (1-s) L + s L', which is cDPO.
    """
    smoothing = settings.label_smoothing
    weights: dict[str, float] = {settings.loss_type: 1.0}
    if settings.loss_type in OWN_LOSSES:
        weights = {}  # none of TRL's: WithLosses adds it to a loss of 0
    elif smoothing and settings.loss_type == "sigmoid":
        weights = {"sigmoid": 2 * (1 - smoothing), "robust": -(1 - 2 * smoothing)}
    own_arguments = {
        "loss_type": list(weights),
        "loss_weights": list(weights.values()),
        "label_smoothing": smoothing,
        "beta": settings.beta,
        "max_length": settings.max_length,
        **adapter.reference_arguments(settings),
    }
    shared_arguments = trainer.trl_arguments(settings, folder, micro)
    return trainer.configuration(trl.DPOConfig, {**own_arguments, **shared_arguments})


def make_trainer(
    source: Source,
    settings: DpoSettings,
    folder: Path,
    rows: Sequence[Preference],
    micro: trainer.Schedule,
) -> Any:
    """A DPOTrainer over rows that are tokenised already, in the order of the run."""
    # before the model: ZeRO-3 cuts it up while it is read
    configuration = configure(settings, folder, micro)
    loaded = load(source, loading_of(settings), trainable=True)
    plan = trainer.schedule(settings, len(rows))
    order = trainer.row_order([row.tokens for row in rows], plan, settings.seed)
    ordered_rows = [rows[index] for index in order]
    columns: dict[str, list[Any]] = {
        "prompt_ids": [row.prompt for row in ordered_rows],
        "chosen_ids": [row.chosen for row in ordered_rows],
        "rejected_ids": [row.rejected for row in ordered_rows],
    }
    if not settings.has_reference:
        # the names under which TRL keeps what it computed of a reference before training
        columns["ref_chosen_logps"] = columns["ref_rejected_logps"] = [0.0] * len(ordered_rows)
    trl_trainer = trainer.adjust_trainer(_with_losses(trl.DPOTrainer, settings))(
        model=adapter.add_adapter(loaded, settings),
        args=configuration,
        train_dataset=datasets.Dataset.from_dict(columns),
        processing_class=loaded.tokenizer,
    )
    if settings.has_reference:
        adapter.keep_reference(trl_trainer.model)
    else:
        trl_trainer.precompute_ref_logps = True  # it takes the columns for the reference's
        adapter.drop_reference(trl_trainer)
    return trl_trainer


def _with_losses(trl_class: Any, settings: DpoSettings) -> Any:
    """TRL's DPOTrainer, with the losses that it lacks."""

    class WithLosses(trl_class):  # type: ignore[misc]  # a class made at run time
        def _prepare_dataset(self, dataset: Any, *_: object, **__: object) -> Any:
            return dataset  # the protocols rendered and encoded it: TRL would do so a second way

        def get_batch_samples(self, *request: Any) -> Any:
            """The micro-batches of an optimizer step: their mean number of chosen tokens, over all
            processes.
            """
            batches, item_count = super().get_batch_samples(*request)
            # (2 pairs, columns): all chosen rows of a micro-batch, then all rejected ones
            chosen = (batch["completion_mask"].chunk(2)[0] for batch in batches)
            chosen_tokens = sum(mask.sum() for mask in chosen).to(self.args.device)
            self.mean_tokens = self.accelerator.gather(chosen_tokens).float().mean() / len(batches)
            return batches, item_count

        def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
            """Adds losses that TRL's trainer lacks to those of its own, from the same forward
            pass. `sft_weight` keeps the chosen answers likely while the margin grows (RPO, arXiv
            2404.19733): their loss a token, over all chosen tokens of the optimizer step. In simpo
            and orpo both sides are means over the tokens of an answer, also in what is logged,
            where TRL has sums.
            """
            pair_loss = OWN_LOSSES.get(settings.loss_type)
            outputs: list[Any] = []

            # In place of the model, so that what TRL has read need not be read again. TRL asks the
            # reference in another way: this is called once.
            def forward(**arguments: Any) -> Any:
                outputs.append(model(**arguments))
                return outputs[0]

            if not (pair_loss or settings.sft_weight):
                return super()._compute_loss(model, inputs, return_outputs)
            loss = super()._compute_loss(forward, inputs, return_outputs)
            sums = outputs[0].log_probs.sum(dim=1)  # (2 pairs,): TRL's are 0 outside the answers
            if settings.sft_weight:
                loss = loss - settings.sft_weight * sums.chunk(2)[0].sum() / self.mean_tokens
            if not pair_loss:
                return loss
            chosen, rejected = (sums / inputs["completion_mask"].sum(dim=1)).chunk(2)
            rewards = [settings.beta * side.detach() for side in (chosen, rejected)]
            for name, values in {
                "chosen": rewards[0],
                "rejected": rewards[1],
                "margins": rewards[0] - rewards[1],
                "accuracies": (rewards[0] > rewards[1]).float(),
            }.items():
                # TRL has just appended the figure of this micro-batch, by its own definition
                mean = self.accelerator.gather(values).mean().item()
                self._metrics["train"][f"rewards/{name}"][-1] = mean
            return loss + pair_loss(chosen, rejected, settings).mean()

    return WithLosses


def simpo(chosen: Any, rejected: Any, settings: DpoSettings) -> Any:
    """-log sigmoid(beta (chosen - rejected) - gamma) of each pair (arXiv 2405.14734). `chosen`,
    `rejected`: the mean log-probability of a token, in nats, of each answer.
    """
    return -torch.nn.functional.logsigmoid(settings.beta * (chosen - rejected) - settings.gamma)


def orpo(chosen: Any, rejected: Any, settings: DpoSettings) -> Any:
    """-beta log sigmoid(log odds(chosen) - log odds(rejected)) of each pair, where odds(p) is
    p / (1 - p) (arXiv 2403.07691). The loss of ORPO has the SFT loss beside it: sft_weight.
    """

    def log_odds(logprob: Any) -> Any:
        logprob = logprob.float().clamp(max=-1e-6)  # a probability of 1 has no odds
        # log p - log(1 - p), where expm1 keeps the digits of 1 - p for a p close to 1
        return logprob - (-logprob.expm1()).log()

    return -settings.beta * torch.nn.functional.logsigmoid(log_odds(chosen) - log_odds(rejected))


OWN_LOSSES = {"simpo": simpo, "orpo": orpo}
