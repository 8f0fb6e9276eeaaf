"""A teacher -> its log-probabilities at every answer token, from memory or from a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core import console
from agentlite.core.row_files import replacing
from agentlite.engine import local_sampler
from agentlite.engine.load import Loaded
from agentlite.engine.weighted_loss import CHUNK, collate, head_of, trained_states

STORED = "teacher.safetensors"


class AnswerRow(NamedTuple):
    """The ids of prompt number `prompt` and of an answer to it."""

    prompt: int
    ids: Sequence[int]
    answer: Sequence[int]


def collate_answers(rows: Sequence[AnswerRow], pad: int) -> dict[str, Any]:
    """The columns of `collate`, in which the answers' tokens alone are trained, and the numbers of
    the prompts.
    """
    import torch

    columns = [
        {
            "input_ids": [*row.ids, *row.answer],
            "labels": [-100] * len(row.ids) + [*row.answer],
        }
        for row in rows
    ]
    return {**collate(columns, pad), "prompt": torch.tensor([row.prompt for row in rows])}


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
    teacher: LiveTeacher, rows: Sequence[AnswerRow], top_k: int, batch_size: int, path: Path
) -> None:
    """Writes the `top_k` likeliest tokens at each answer token of every row, by the number of its
    prompt; the file is there once it is whole."""
    import torch
    from safetensors.torch import save

    loaded, tensors = teacher.loaded, dict[str, Any]()
    head = head_of(loaded.model)

    def likeliest(states: Any) -> tuple[Any, Any]:
        likely = head(states)[:, : teacher.width].float().log_softmax(-1)
        ids = likely.topk(min(top_k, likely.shape[-1] - 1), dim=-1).indices
        return ids, with_rest(likely, ids)

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
