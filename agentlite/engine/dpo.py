"""Pairs as token ids -> an adapter that prefers the chosen answers, by TRL's DPOTrainer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import DpoSettings
from agentlite.engine import adapter, kto, load_dtype, trainer, training_log
from agentlite.engine.load import Loaded, load, loading_of, prepare
from agentlite.engine.watch import Watch
from agentlite.workspace.model_source import Source

MEASURES = {
    "rewards/margins": "margin",
    "rewards/accuracies": "accuracy",
    "rewards/chosen": "chosen_reward",
    "rewards/rejected": "rejected_reward",
    "logps/chosen": "chosen_logp",
    "logps/rejected": "rejected_logp",
    "kl": "kl",
}
OURS_OF_TRL = {
    "beta": "beta",
    "loss_type": "loss_type",
    "loss_weights": "label_smoothing",
    "label_smoothing": "label_smoothing",
    "precompute_ref_log_probs": "reference_free",
    "truncation_mode": "max_length",
}
Rows = Sequence["Preference"] | Sequence[kto.Answer]  # the latter for kto
LAST = 5  # steps that the figures at the end are the mean of


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


def train(source: Source, settings: DpoSettings, folder: Path, rows: Rows) -> dict[str, Any]:
    """Returns the key figures. Raises what trainer.train raises, and UserError 5 if the reference
    is not the start.
    """
    prepare(loading_of(settings))

    def make(micro: trainer.Schedule) -> Any:
        # before the model: ZeRO-3 cuts it up while it is read
        configuration = arguments(settings, folder, micro)
        return make_trainer(
            load(source, loading_of(settings), trainable=True), settings, configuration, rows
        )

    def at_step(step: int, row: Mapping[str, float]) -> None:
        if step == 1 and settings.has_reference:
            _refuse_other_start(row, settings.beta)

    figures = trainer.train(make, folder, schedule(settings, rows), Watch(MEASURES, at_step))
    return {**figures, **_figures(settings, training_log.logged(folder)[-LAST:])}


def check(settings: DpoSettings) -> None:
    """Needs no rows and no model. Raises UserError 2 for settings that this machine, TRL or PEFT
    cannot use; 5 where a library is missing.
    """
    prepare(loading_of(settings))
    from trl import DPOConfig, KTOConfig

    of_trl = (KTOConfig, kto.OURS_OF_TRL) if _is_kto(settings) else (DPOConfig, OURS_OF_TRL)
    trainer.check_passed_through("dpo", settings, *of_trl)


def _is_kto(settings: DpoSettings) -> bool:
    return settings.loss_type == "kto"


def schedule(settings: DpoSettings, rows: Rows) -> trainer.Schedule:
    return trainer.schedule_of(settings, len(rows))


def arguments(settings: DpoSettings, folder: Path, micro: trainer.Schedule) -> Any:
    """The configuration of TRL's trainer: a DPOConfig, or a KTOConfig."""
    if _is_kto(settings):
        return kto.arguments(settings, folder, micro)
    from trl import DPOConfig

    shared = trainer.arguments(settings, folder, micro, with_dev=False)
    own = {"beta": settings.beta, "max_length": settings.max_length}
    values = {**losses(settings), **adapter.reference(settings), **own, **shared}
    return trainer.configuration(DPOConfig, values)


def make_trainer(loaded: Loaded, settings: DpoSettings, configuration: Any, rows: Rows) -> Any:
    """A DPOTrainer, or a KTOTrainer, over rows that are tokenised already, in the order of the
    run. `configuration`: its `arguments`.
    """
    order = trainer.row_order([row.tokens for row in rows], schedule(settings, rows), settings.seed)
    ordered: list[Any] = [rows[index] for index in order]
    if _is_kto(settings):
        return kto.make_trainer(loaded, settings, configuration, ordered)
    return _make_trainer(loaded, settings, configuration, ordered)


def _make_trainer(
    loaded: Loaded, settings: DpoSettings, configuration: Any, rows: Sequence[Preference]
) -> Any:
    from datasets import Dataset
    from trl import DPOTrainer

    columns: dict[str, list[Any]] = {
        "prompt_ids": [row.prompt for row in rows],
        "chosen_ids": [row.chosen for row in rows],
        "rejected_ids": [row.rejected for row in rows],
    }
    if not settings.has_reference:
        columns |= {
            "ref_chosen_logps": [0.0] * len(rows),
            "ref_rejected_logps": [0.0] * len(rows),
        }
    trainer_class = trainer.warming_up(_tokenised(adapter.uncast(DPOTrainer), settings))
    trl_trainer = trainer_class(
        model=adapter.adapted(loaded, settings),
        args=configuration,
        train_dataset=Dataset.from_dict(columns),
        processing_class=loaded.tokenizer,
    )
    if settings.has_reference:
        adapter.keep_reference(trl_trainer.model)
    else:
        trl_trainer.precompute_ref_logps = True  # it takes the columns for the reference's
        adapter.drop_reference(trl_trainer)
    return trl_trainer


def _tokenised(trl_class: Any, settings: DpoSettings) -> Any:
    """TRL's trainer over rows that are encoded, with the losses that it lacks."""

    class Tokenised(trl_class):  # type: ignore[misc]  # a class made at run time
        def _prepare_dataset(self, dataset: Any, *_: object, **__: object) -> Any:
            return dataset  # the protocols rendered and encoded it: TRL would do so a second way

        def get_batch_samples(self, *request: Any) -> Any:
            """The micro-batches of an optimizer step: their mean number of chosen tokens, over all
            processes.
            """
            batches, items = super().get_batch_samples(*request)
            counts = sum(_chosen_tokens(batch) for batch in batches).to(self.args.device)
            self.mean_tokens = self.accelerator.gather(counts).float().mean() / len(batches)
            return batches, items

        def compute_loss(
            self, model: Any, inputs: dict[str, Any], *others: Any, **more: Any
        ) -> Any:
            """TRL takes the mean loss of a micro-batch's chosen tokens, and then the mean of those:
            a token of a short micro-batch would weigh more.
            """
            if "sft" in self.loss_types:
                share = float(_chosen_tokens(inputs) / self.mean_tokens)
                self.loss_weights = [*self.args.loss_weights[:-1], settings.sft_weight * share]
            return super().compute_loss(model, inputs, *others, **more)

        def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
            """Adds a loss that TRL's trainer lacks to those of its own, from the same forward
            pass. Both sides of the batch are means over the tokens of an answer.
            """
            if settings.loss_type not in LENGTH_NORMALIZED:
                return super()._compute_loss(model, inputs, return_outputs)
            passes: list[Any] = []

            def forward(**arguments: Any) -> Any:
                passes.append(model(**arguments))
                return passes[0]

            loss = super()._compute_loss(forward, inputs, return_outputs)
            lengths = inputs["completion_mask"].sum(dim=1)
            chosen, rejected = (passes[0].log_probs.sum(dim=1) / lengths).chunk(2)
            self._log_rewards(settings.beta * chosen.detach(), settings.beta * rejected.detach())
            of_pairs = LENGTH_NORMALIZED[settings.loss_type](chosen, rejected, settings)
            return loss + of_pairs.mean()

        def _log_rewards(self, chosen: Any, rejected: Any) -> None:
            """In place of TRL's, which are sums over the tokens."""
            for name, values in {
                "chosen": chosen,
                "rejected": rejected,
                "margins": chosen - rejected,
                "accuracies": (chosen > rejected).float(),
            }.items():
                mean = self.accelerator.gather(values).mean().item()
                self._metrics["train"][f"rewards/{name}"][-1] = mean

    return Tokenised


def _chosen_tokens(batch: Mapping[str, Any]) -> Any:
    """How many tokens of chosen answers a micro-batch of TRL's has: they are its first half."""
    chosen, _ = batch["completion_mask"].chunk(2)
    return chosen.sum()


def losses(settings: DpoSettings) -> dict[str, object]:
    """The arguments of TRL's loss. TRL 1.15 does not smooth its sigmoid loss, but mixes losses:
    with s for the smoothing, 2(1-s) sigmoid - (1-2s) robust is (1-s) of the loss of the pair and s
    of that of the pair swapped, which is cDPO.

    `sft_weight` keeps the chosen answers likely while the margin grows (RPO, arXiv 2404.19733):
    their loss a token, over all chosen tokens of the optimizer step.
    """
    smoothing = settings.label_smoothing
    weights: dict[str, float] = {settings.loss_type: 1.0}
    if settings.loss_type in LENGTH_NORMALIZED:
        weights = {}  # the trainer adds it
    elif smoothing and settings.loss_type == "sigmoid":
        weights = {"sigmoid": 2 * (1 - smoothing), "robust": -(1 - 2 * smoothing)}
    if settings.sft_weight:
        weights["sft"] = settings.sft_weight
    return {
        "loss_type": list(weights),
        "loss_weights": list(weights.values()),
        "label_smoothing": smoothing,
    }


def simpo(chosen: Any, rejected: Any, settings: DpoSettings) -> Any:
    """-log sigmoid(beta (chosen - rejected) - gamma) of each pair (arXiv 2405.14734). `chosen`,
    `rejected`: the mean log-probability of a token, in nats, of each answer.
    """
    from torch.nn.functional import logsigmoid

    return -logsigmoid(settings.beta * (chosen - rejected) - settings.gamma)


def orpo(chosen: Any, rejected: Any, settings: DpoSettings) -> Any:
    """-beta log sigmoid(log odds(chosen) - log odds(rejected)) of each pair, where odds(p) is
    p / (1 - p) (arXiv 2403.07691). The loss of ORPO has the SFT loss beside it: sft_weight.
    """
    from torch.nn.functional import logsigmoid

    def log_odds(likely: Any) -> Any:
        likely = likely.float().clamp(max=-1e-6)  # a probability of 1 has no odds
        return likely - (-likely.expm1()).log()

    return -settings.beta * logsigmoid(log_odds(chosen) - log_odds(rejected))


LENGTH_NORMALIZED = {"simpo": simpo, "orpo": orpo}


def _refuse_other_start(row: Mapping[str, float], beta: float) -> None:
    """Log-probabilities of whole answers agree to a hundredth in float32; in 16 bits a sum of many
    is coarser.
    """
    allowed = 0.01 if str(load_dtype()) == "torch.float32" else 1.0
    for side in {"chosen_reward", "rejected_reward"} & row.keys():  # a step of kto may lack one
        adapter.refuse_other_start(
            row[side] / beta, allowed, "the mean log-ratio of the " + side.split("_")[0]
        )


def _figures(settings: DpoSettings, last: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Over the last steps: how far chosen is above rejected, how often, and how many nats both
    sides moved.
    """
    names = ("margin", "kl") if _is_kto(settings) else ("margin", "accuracy")
    figures = {name: training_log.mean(last, name) for name in names}
    if settings.has_reference:
        for side in ("chosen", "rejected"):
            figures[f"{side}_drift"] = round(
                training_log.mean(last, f"{side}_reward") / settings.beta, 3
            )
    return figures
