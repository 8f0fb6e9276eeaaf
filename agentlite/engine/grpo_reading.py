"""How the trainer of GRPO reads the answers of a step again: for the loss, and by the reference."""

from typing import Any

from agentlite.core import console
from agentlite.engine import torch, trl

ANSWERS_ALONE = 4  # read alone as well, where a micro-batch is longer than any before
EVERY_LENGTH = 2**62


def keep_groups_together(trainer_class: Any) -> Any:
    """TRL shuffles the answers of a step before it cuts them into micro-batches. Here those to one
    prompt stay side by side, and Unsloth reads their prompt once (PrefixGrouper).

    All answers of a step are learned from in one update, so their order changes nothing.
    """

    class Grouped(trainer_class):  # type: ignore[misc]  # trl is untyped here
        _buffered_inputs: list[Any] | None

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            micro_batches = self.args.steps_per_generation
            if self._step % micro_batches == 0 or self._buffered_inputs is None:
                answers = self._generate_and_score_completions(generation_batch)
                self._buffered_inputs = trl.trainer.utils.split_tensor_dict(answers, micro_batches)
            return self._buffered_inputs[self._step % micro_batches]

    return Grouped


def trust_packing(trainer_class: Any, tolerance: float) -> Any:
    """Unsloth puts the answers of a micro-batch into one row. It compares that with every answer
    read alone, twice, where a batch is longer than any before: 512 passes for 256 answers.

    Here ANSWERS_ALONE are compared, by the mean difference of their log-probabilities; where it is
    more than `tolerance`, answers are padded from then on. The reference reads the micro-batches of
    the loss: Unsloth would have it read all answers at once, however many fit.
    """

    class Trusting(trainer_class):  # type: ignore[misc]  # trl is untyped here
        def __init__(self, **arguments: Any):
            super().__init__(**arguments)
            self.compared = (0, 0)  # tokens of a micro-batch, and of an answer
            size = self.num_generations
            groups = self.args.per_device_train_batch_size // size
            # Unsloth notes a layout it has compared by the number of groups and their sizes: a
            # micro-batch of 8 in groups of 4 is (2, (4, 4)).
            layouts = {(groups, (size,) * groups): (EVERY_LENGTH, EVERY_LENGTH)}
            _trust(self.accelerator.unwrap_model(self.model), layouts)

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            answers = super()._generate_and_score_completions(inputs)
            if "ref_per_token_logps" not in answers:  # then nothing was read yet
                pairs = [("prompt_ids", "completion_ids"), ("prompt_mask", "completion_mask")]
                ids, mask = (torch.cat([answers[key] for key in keys], dim=1) for keys in pairs)
                if self._is_longest(mask):
                    with torch.no_grad():
                        self._get_per_token_logps_and_entropies(
                            self.model, ids, mask, answers["completion_ids"].shape[1]
                        )
            return answers

        def _get_per_token_logps_and_entropies(
            self, model: Any, input_ids: Any, attention_mask: Any, *arguments: Any, **options: Any
        ) -> Any:
            read = super()._get_per_token_logps_and_entropies
            if torch.is_grad_enabled():  # the loss, which reads by itself
                return read(model, input_ids, attention_mask, *arguments, **options)

            def read_in_batches(size: int, rows: Any) -> Any:
                """(rows, columns): aligned at the right, where each batch has only what it needs;
                0 on its left."""
                batches = [
                    read(model, input_ids[batch], attention_mask[batch], *arguments, **options)[0]
                    for batch in rows.split(size)
                ]
                width = max(batch.shape[1] for batch in batches)
                pad = torch.nn.functional.pad
                return torch.cat([pad(batch, (width - batch.shape[1], 0)) for batch in batches])

            all_rows = torch.arange(len(input_ids), device=input_ids.device)
            batch_size = self.args.per_device_train_batch_size
            packed = read_in_batches(batch_size, all_rows)
            if self._is_longest(attention_mask):
                longest = attention_mask.sum(1).topk(min(ANSWERS_ALONE, len(all_rows))).indices
                alone = read_in_batches(1, longest)
                # `alone` may be narrower: both end with the last column. 0 is no token's.
                gaps = (packed[longest, -alone.shape[1] :] - alone).abs()[alone != 0]
                if not gaps.mean() <= tolerance:  # a NaN does not agree either
                    console.notice(
                        f"answers in one row are read otherwise than alone (by {gaps.mean():.2g}): "
                        "they are padded, which takes longer"
                    )
                    _trust(self.accelerator.unwrap_model(self.model), {}, trusted=False)
                    packed = read_in_batches(batch_size, all_rows)
                self.compared = self._lengths(attention_mask)
            return packed, None, None

        def _lengths(self, mask: Any) -> tuple[int, int]:
            """The most tokens of a micro-batch, and of an answer, in `mask` and in all compared
            before."""
            lengths = mask.sum(1)
            batches = lengths.split(self.args.per_device_train_batch_size)
            tokens = max(int(batch.sum()) for batch in batches)
            return max(self.compared[0], tokens), max(self.compared[1], int(lengths.max()))

        def _is_longest(self, mask: Any) -> bool:
            return self._lengths(mask) != self.compared

    return Trusting


def _trust(model: Any, layouts: dict[Any, Any], trusted: bool = True) -> None:
    """Sets what Unsloth notes when it has compared."""
    for mode in ("nograd", "grad"):
        packing = f"_unsloth_seq_packing_{mode}"
        setattr(model, f"{packing}_ok", trusted)
        setattr(model, f"{packing}_verified_T", EVERY_LENGTH)
        setattr(model, f"{packing}_verified_seg", EVERY_LENGTH)
        setattr(model, f"_unsloth_prefix_grouper_{mode}_verified", {**layouts})
