"""A teacher -> its log-probabilities at every answer token, from memory or from a file."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core import console
from agentlite.engine import local_sampler
from agentlite.engine.divergence import with_rest
from agentlite.engine.load import Loaded
from agentlite.engine.weighted_loss import CHUNK, collate, head_of, trained_states

STORED = "teacher.safetensors"


class AnswerRow(NamedTuple):
    """The ids of prompt number `prompt` and of an answer to it."""

    prompt: int
    ids: Sequence[int]
    answer: Sequence[int]

    def columns(self) -> dict[str, list[int]]:
        """As `collate` takes them: the answer's tokens alone are trained."""
        return {
            "input_ids": [*self.ids, *self.answer],
            "labels": [-100] * len(self.ids) + [*self.answer],
        }


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
            return (trained_states(self.loaded.model, inputs, labels).states,)

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
        rest = [
            likely[:, -1].exp()
            for name, likely in self.tensors.items()
            if name.endswith(".log_probabilities")
        ]
        return 1 - float(sum(one.sum() for one in rest) / sum(len(one) for one in rest))


def store_top(
    teacher: LiveTeacher, rows: Sequence[AnswerRow], top_k: int, batch_size: int, path: Path
) -> None:
    """Writes the `top_k` likeliest tokens at each answer token of every row, by the number of its
    prompt; the file is there once it is whole."""
    import torch
    from safetensors.torch import save_file

    loaded, tensors = teacher.loaded, dict[str, Any]()
    pad, device = loaded.tokenizer.pad_token_id, loaded.model.device
    lengths = [len(row.ids) + len(row.answer) for row in rows]
    batches = local_sampler.plan_batches(lengths, batch_size)
    with torch.no_grad(), console.progress("the teacher reads", len(batches)) as advance:
        for done, batch in enumerate(batches, 1):
            some = [rows[index] for index in batch]
            inputs = collate([row.columns() for row in some], pad)
            inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
            (states,) = teacher.guide([], inputs, inputs.pop("labels"))
            found = [_top(teacher, part, top_k) for part in states.split(CHUNK)]
            ids, likely = (torch.cat(list(parts)) for parts in zip(*found, strict=True))
            counts = [len(row.answer) for row in some]
            for row, row_ids, row_likely in zip(
                some, ids.split(counts), likely.split(counts), strict=True
            ):
                tensors[f"{row.prompt}.ids"] = row_ids.int().cpu().contiguous()
                tensors[f"{row.prompt}.log_probabilities"] = row_likely.cpu().contiguous()
            advance(done)
    partial = path.with_suffix(".partial")
    save_file(tensors, partial)
    os.replace(partial, path)


def _top(teacher: LiveTeacher, states: Any, top_k: int) -> tuple[Any, Any]:
    logits = head_of(teacher.loaded.model)(states)[:, : teacher.width].float()
    likely = logits.log_softmax(-1)
    ids = likely.topk(min(top_k, likely.shape[-1] - 1), dim=-1).indices
    return ids, with_rest(likely, ids)
