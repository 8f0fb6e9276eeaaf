"""How far student and teacher are apart: the formula by hand, and that of a few likely tokens."""

import math

import pytest
import torch

from agentlite.engine.divergence import divergence, with_rest

TEACHER, STUDENT = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)


def logs(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


def kl(one, other):
    return sum(p * math.log(p / q) for p, q in zip(one, other, strict=True))


@pytest.mark.torch
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_it_is_that_of_the_formula(beta):
    mixed = [beta * p + (1 - beta) * q for p, q in zip(TEACHER, STUDENT, strict=True)]
    expected = {
        0.0: kl(TEACHER, STUDENT),
        0.3: 0.3 * kl(TEACHER, mixed) + 0.7 * kl(STUDENT, mixed),
        1.0: kl(STUDENT, TEACHER),
    }[beta]
    found = divergence(logs(STUDENT, TEACHER), logs(TEACHER, TEACHER), beta)
    assert found.tolist() == pytest.approx([expected, 0], abs=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_over_the_likeliest_tokens_it_is_a_part_and_over_all_but_one_it_is_whole(beta):
    generator = torch.Generator().manual_seed(0)
    student, teacher = (
        torch.randn(6, 50, generator=generator, dtype=torch.float64).log_softmax(-1)
        for _ in range(2)
    )
    whole, parts = divergence(student, teacher, beta), []
    for k in (1, 10, 49):
        ids = teacher.topk(k).indices
        some = [with_rest(one, ids) for one in (student, teacher)]
        assert all(one.exp().sum(-1).allclose(torch.ones(6).double()) for one in some)
        parts.append(divergence(*some, beta))
    assert (parts[0] > 0).all() and (parts[0] < parts[1]).all() and (parts[1] < whole).all()
    assert parts[2].allclose(whole)
