"""What is forgotten has a positive sign: losses that rose, answers that are wrong now."""

from math import exp

import pytest

from agentlite.scoring.metrics.confidence import summary
from agentlite.scoring.metrics.forgetting import GeneralResults, forgetting, is_right


def results(loss, right, right_zh):
    return GeneralResults(
        {f"r{n}": loss for n in range(8)},
        {f"e{n}": n < right for n in range(8)},
        {f"z{n}": n < right_zh for n in range(8)},
    )


@pytest.mark.parametrize(
    ("after", "forgotten"),
    [
        ((1.5, 6, 6), (0.5, 0.0, 0.0)),
        ((1.0, 2, 6), (0.0, 0.5, 0.0)),
        ((1.0, 6, 2), (0.0, 0.0, 0.5)),
        ((0.5, 8, 7), (-0.5, -0.25, -0.125)),
    ],
)
def test_each_figure_says_how_much_was_lost_in_its_own_data(after, forgotten):
    found = forgetting(results(1.0, 6, 6), results(*after), seed=0)
    figures = (found.forgetting, found.questions_forgotten, found.questions_forgotten_zh)
    assert tuple(one.mean for one in figures) == forgotten
    shares = (found.general_questions.mean, found.general_questions_zh.mean)
    assert shares == (after[1] / 8, after[2] / 8)


def test_a_perplexity_is_that_of_its_own_model_and_its_interval_that_of_the_losses():
    losses = {"before": [0.5, 1.0, 2.5], "after": [1.0, 1.5, 2.0, 3.0]}
    models = [
        GeneralResults({f"r{n}": loss for n, loss in enumerate(one)}, {"q": True}, {"z": True})
        for one in losses.values()
    ]
    found = forgetting(*models, seed=3)
    for figure, one in zip(
        (found.perplexity_before, found.perplexity), losses.values(), strict=True
    ):
        loss = summary(one, 3)
        assert (figure.low, figure.mean, figure.high) == pytest.approx(
            (exp(loss.low), exp(loss.mean), exp(loss.high))
        )
        assert figure.low < figure.mean < figure.high and figure.count == len(one)


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("It is the cat.", "cat", True),
        ("Do concatenate it.", "cat", False),
        ("答案是猫。", "猫", True),
        ("春はさくらの花です", "さくら", True),
        ("それはコーヒーです", "コーヒー", True),
        ("ｺｰﾋｰです", "コーヒー", True),
        ("東京タワーは333メートル", "333", True),
        ("東京タワーは1333メートル", "333", False),
        ("さらくです", "さくら", False),
        ("In der STRASSE.", "Straße", True),
    ],
)
def test_an_answer_is_words_of_its_own_and_in_chinese_and_japanese_characters(text, answer, right):
    """Where no blank ends a word each character is one: Han, hiragana and katakana."""
    assert is_right(text, ["nothing else", answer]) == right
