"""The log-probabilities of a student and a teacher -> how far apart they are at every token."""

from typing import Any


def divergence(student: Any, teacher: Any, beta: float) -> Any:
    """The generalised Jensen-Shannon divergence of each token, in nats (arXiv 2306.13649, eq. 1).

    With P for the teacher and Q for the student: at 0 KL(P || Q), at 1 KL(Q || P), and between
    beta KL(P || M) + (1 - beta) KL(Q || M), where M = beta P + (1 - beta) Q.

    student, teacher: (tokens, outcomes), finite logarithms of probabilities that add up to 1.
    """
    import math

    import torch

    if beta in (0.0, 1.0):
        left, right = (teacher, student) if beta == 0 else (student, teacher)
        return (left.exp() * (left - right)).sum(-1)
    mixed = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
    of_teacher = (teacher.exp() * (teacher - mixed)).sum(-1)
    of_student = (student.exp() * (student - mixed)).sum(-1)
    return beta * of_teacher + (1 - beta) * of_student


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
