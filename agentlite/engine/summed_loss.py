"""Losses that are summed token by token, and a trainer whose rows are made at each step.

The hidden states are computed as ever, and the logits of the trained tokens alone, a few hundred at
a time and again on the way back: exact, and without more memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import TrainerSettings
from agentlite.core import console
from agentlite.core.errors import MODEL, UserError
from agentlite.engine import datasets, torch, trainer, trl
from agentlite.engine.load import Loading, load, prepare_libraries
from agentlite.rendering import Encoded
from agentlite.workspace.lookup import Source

# what a row has: input_ids, labels, and further columns, if any
Row = Mapping[str, Sequence[float]]
CHUNK = 256  # tokens whose logits are in memory at once
# where logits are not those of the head and the hidden states alone
LOGIT_FIELDS = (
    "final_logit_softcapping",
    "logits_soft_cap",
    "output_logit_soft_cap",
    "logits_scaling",
    "logits_mup_width_multiplier",
    "logit_scale",
    "lm_head_multiplier",
    "output_multiplier",
)


class SummedLoss(NamedTuple):
    """Of a micro-batch: the sum of the losses of its trained tokens, and sums of figures to log, as
    means over the trained tokens, or over the rows, of the whole step.
    """

    total: Any
    by_token: Mapping[str, Any]
    by_row: Mapping[str, Any] = {}


def check_head(model: Any, consequence: str, fix: str = "") -> None:
    """Raises UserError 5 where logits are more than the head of hidden states."""
    config = model.config.get_text_config()
    for name in LOGIT_FIELDS:
        if getattr(config, name, None) not in (None, 1, 1.0):
            raise UserError(
                f"its logits are changed by {name}: {consequence}.",
                fix,
                location=config.model_type,
                exit_code=MODEL,
            )


def make_trainer(
    trl_class: Any,
    make_rows: Callable[[Any, Sequence[int]], Sequence[Row]],
    summed_loss: Callable[[Any, dict[str, Any]], SummedLoss],
    model: Any,
    tokenizer: Any,
    settings: TrainerSettings,
    folder: Path,
    micro: trainer.Schedule,
    order: Sequence[int],
) -> Any:
    """A trainer of a subclass of SFTTrainer, whose dataset holds the numbers of rows: `order`, of
    the whole run.

    `make_rows` gets the trainer and the numbers of a step, and makes the rows: answers that are
    sampled now, or that a round has sampled. `summed_loss` gets the model without wrappers, and
    what `collate` makes of a micro-batch's rows.
    """
    own_arguments = {
        "max_length": settings.max_length,
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "remove_unused_columns": False,
    }
    shared_arguments = trainer.trl_arguments(settings, folder, micro)
    return trainer.adjust_trainer(_step_trainer(trl_class, make_rows, summed_loss))(
        model=model,
        args=trainer.configuration(trl.SFTConfig, {**own_arguments, **shared_arguments}),
        train_dataset=datasets.Dataset.from_dict({"number": list(order)}),
        data_collator=lambda rows: {"number": torch.tensor([row["number"] for row in rows])},
        processing_class=tokenizer,
    )


def _step_trainer(trl_class: Any, make_rows: Any, summed_loss: Any) -> Any:
    class StepTrainer(trl_class):  # type: ignore[misc]  # trl is untyped here
        def get_batch_samples(self, *request: Any) -> Any:
            """The micro-batches of an optimizer step, and how many tokens they train."""
            number_batches, _ = super().get_batch_samples(*request)
            # `compute_loss` divides by the tokens of the whole step: without this transformers 5.17
            # would divide by the number of micro-batches as well
            self.model_accepts_loss_kwargs = True
            numbers = [batch["number"].tolist() for batch in number_batches]
            pad = self.processing_class.pad_token_id
            rows = iter(make_rows(self, [number for batch in numbers for number in batch]))
            batches = [collate([next(rows) for _ in batch], pad) for batch in numbers]
            self.micro_batches, self.step_rows = len(batches), sum(map(len, numbers))
            return batches, max(1, sum(int((batch["labels"] != -100).sum()) for batch in batches))

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
                    self._metrics["train"][name].append(float(value) * self.micro_batches / count)
            loss = summed.total / num_items_in_batch
            return (loss, {}) if return_outputs else loss

    return StepTrainer


def training_row(prompt: Sequence[int], answer: Sequence[int]) -> dict[str, list[int]]:
    """Of an answer whose tokens alone are trained."""
    return {"input_ids": [*prompt, *answer], "labels": [*[-100] * len(prompt), *answer]}


def collate(rows: Sequence[Row], pad: int) -> dict[str, Any]:
    """Padded on the right: (rows, longest). Further columns, which have a number for each trained
    token, end to end: (tokens,).
    """
    lengths = [len(row["input_ids"]) for row in rows]
    longest = max(lengths)
    columns = {
        key: torch.tensor([[*row[key], *[padding] * (longest - len(row[key]))] for row in rows])
        for key, padding in (("input_ids", pad), ("labels", -100))
    }
    mask = [[1] * length + [0] * (longest - length) for length in lengths]
    extra_columns = {
        key: torch.tensor([number for row in rows for number in row[key]], dtype=torch.float32)
        for key in rows[0].keys() - columns.keys()
    }
    return {**columns, "attention_mask": torch.tensor(mask), **extra_columns}


def in_chunks(compute: Callable[..., Any], *tensors: Any) -> list[Any]:
    """What `compute` makes of CHUNK tokens at a time, the first axis of each tensor. Its logits
    are dropped, and made again on the way back.
    """
    chunks = zip(*(tensor.split(CHUNK) for tensor in tensors), strict=True)
    return [
        torch.utils.checkpoint.checkpoint(compute, *chunk, use_reentrant=False)
        for chunk in chunks
        if len(chunk[0])
    ]


def trained_states(model: Any, inputs: dict[str, Any], labels: Any) -> tuple[Any, Any, Any]:
    """Of a micro-batch, without logits, whatever their size: the hidden state before each trained
    token, (tokens, hidden), the token, (tokens,), and where they stand, a mask (rows, columns - 1).
    labels: (rows, columns).
    """
    causal = _causal_model(model)
    # The state at a token predicts the next one: the last state and the first label have no
    # partner. Of the ids a b c d with the labels -100 -100 c d the states at b and c are taken.
    hidden = getattr(causal, causal.base_model_prefix)(**inputs, use_cache=False)[0][:, :-1]
    targets = labels[:, 1:]
    is_trained = targets != -100
    # (trained tokens, ...): rows and columns are one axis from here on
    return hidden[is_trained], targets[is_trained], is_trained


def head_of(model: Any) -> Any:
    """The layer that makes logits of hidden states."""
    return _causal_model(model).get_output_embeddings()


def _causal_model(model: Any) -> Any:
    """The model without the wrapper of an adapter."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def record_losses(
    ids: Sequence[str], rows: Callable[[str], Sequence[Encoded]], source: Source, loading: Loading
) -> Iterator[tuple[str, float]]:
    """The loss of each record under a model, in nats per trained token, as it is found. `rows`:
    what is trained of a record. Raises UserError 5, 7 or 8.
    """
    if not ids:
        return
    prepare_libraries(loading)
    loaded = load(source, loading, trainable=False)
    check_head(loaded.model, "the losses of its tokens cannot be summed")
    loaded.model.eval()
    pad, device, head = loaded.tokenizer.pad_token_id, loaded.model.device, head_of(loaded.model)

    def chunk_loss(states: Any, targets: Any) -> Any:
        return torch.nn.functional.cross_entropy(head(states).float(), targets, reduction="sum")

    with torch.no_grad(), console.progress(f"losses under {source.name}", len(ids)) as advance:
        for number, record_id in enumerate(ids, 1):
            columns = [
                {"input_ids": row.input_ids, "labels": row.labels} for row in rows(record_id)
            ]
            batch = {name: tensor.to(device) for name, tensor in collate(columns, pad).items()}
            states, targets, _ = trained_states(loaded.model, batch, batch.pop("labels"))
            yield record_id, float(sum(in_chunks(chunk_loss, states, targets)) / len(targets))
            advance(number)
