"""A trainer of TRL's whose rows are made at each optimizer step, and whose loss is summed by token.

Its dataset holds numbers of rows in the order of the run. At a step they become rows: answers that
are sampled now, or that a round has sampled.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import TrainerSettings
from agentlite.engine import adapter, trainer

# a trainer, the numbers of a step's rows -> these rows
MakeRows = Callable[[Any, Sequence[int]], Sequence[Any]]
# rows, the id that pads them -> the tensors of a micro-batch, with `labels`
Collate = Callable[[Sequence[Any], int], dict[str, Any]]


class SummedLoss(NamedTuple):
    """Of a micro-batch: the sum of the losses of its trained tokens, and sums of figures to log, as
    means over the trained tokens, or over the rows, of the whole step.
    """

    total: Any
    by_token: Mapping[str, Any]
    by_row: Mapping[str, Any] = {}


def step_trainer(
    trl_class: Any,
    make_rows: MakeRows,
    collate: Collate,
    summed_loss: Callable[[Any, dict[str, Any]], SummedLoss],
) -> Any:
    """A subclass of `trl_class`. `summed_loss`: of a model without wrappers and a micro-batch."""

    class StepTrainer(trl_class):  # type: ignore[misc]  # trl is untyped here
        def get_batch_samples(self, *request: Any) -> Any:
            """The micro-batches of an optimizer step, and how many tokens they train."""
            batches, _ = super().get_batch_samples(*request)
            # a share of the loss for each token: no division by the number of micro-batches
            self.model_accepts_loss_kwargs = True
            numbers = [batch["number"].tolist() for batch in batches]
            rows = iter(make_rows(self, [number for part in numbers for number in part]))
            pad = self.processing_class.pad_token_id
            made = [collate([next(rows) for _ in part], pad) for part in numbers]
            self.micro_batches, self.step_rows = len(made), sum(map(len, numbers))
            return made, max(1, sum(int((batch["labels"] != -100).sum()) for batch in made))

        def compute_loss(
            self,
            model: Any,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            summed = summed_loss(self.accelerator.unwrap_model(model), inputs)
            for sums, count in (
                (summed.by_token, num_items_in_batch),
                (summed.by_row, self.step_rows),
            ):
                for name, value in sums.items():
                    # TRL logs the mean over micro-batches: so it is that over the whole step
                    mean = float(value) * self.micro_batches / count
                    self._metrics["train"][name].append(mean)
            loss = summed.total / num_items_in_batch
            return (loss, {}) if return_outputs else loss

    return StepTrainer


def make_trainer(
    trainer_class: Any,
    model: Any,
    tokenizer: Any,
    settings: TrainerSettings,
    folder: Path,
    micro: trainer.Schedule,
    order: Sequence[int],
) -> Any:
    """`trainer_class`: a `step_trainer` of SFTTrainer. `order`: the numbers of rows."""
    import torch
    from datasets import Dataset
    from trl import SFTConfig

    shared = trainer.arguments(settings, folder, micro, with_dev=False)
    own = {
        "max_length": settings.max_length,
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "remove_unused_columns": False,
    }
    return trainer.warming_up(adapter.uncast(trainer_class))(
        model=model,
        args=trainer.configuration(SFTConfig, {**own, **shared}),
        train_dataset=Dataset.from_dict({"number": list(order)}),
        data_collator=lambda rows: {"number": torch.tensor([row["number"] for row in rows])},
        processing_class=tokenizer,
    )
