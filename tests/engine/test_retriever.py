"""The retriever's steps, its refusals, and vectors of texts, by a model that counts letters."""

import sys
from dataclasses import make_dataclass
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from agentlite.config.settings import RetrieverSettings
from agentlite.core.errors import UserError
from agentlite.engine import retriever, sentence_encoder, trainer
from agentlite.engine.trainer import Schedule
from agentlite.retrieval.training_pairs import TrainingPair


@pytest.mark.parametrize(
    ("settings", "count", "expected"),
    [
        ({"batch_size": 4}, 10, Schedule(3, 4, 1)),  # a part of a batch is a step
        ({"batch_size": 4, "num_epochs": 2.0}, 10, Schedule(5, 4, 1)),
        ({"batch_size": 32}, 10, Schedule(1, 10, 1)),
        ({"batch_size": 4, "num_epochs": 0.1}, 10, Schedule(1, 4, 1)),
        ({"batch_size": 4, "num_epochs": 0.01}, 10, Schedule(1, 4, 1)),
        ({"batch_size": 4, "max_steps": 7}, 10, Schedule(7, 4, 1)),
    ],
)
def test_a_step_of_the_retriever_is_one_batch_no_larger_than_the_pairs(
    settings: dict[str, Any], count: int, expected: Schedule
) -> None:
    assert retriever.schedule(RetrieverSettings(**settings), count) == expected


@pytest.mark.parametrize("key", [*retriever.FIXED])
def test_what_would_put_right_tools_among_the_wrong_ones_is_refused(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules, "peft", SimpleNamespace(LoraConfig=make_dataclass("LoraConfig", []))
    )
    library = make_dataclass("Arguments", [(key, int)])
    with pytest.raises(UserError, match="is fixed"):
        trainer.check_passed_through(
            "retriever", RetrieverSettings(trl={key: 1}), library, {}, retriever.FIXED
        )


class Letters:
    """A text's vector: its length, and its first letter's number."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def encode(self, texts: list[str], **asked: Any) -> Any:
        assert asked["normalize_embeddings"] is True and asked["convert_to_numpy"] is True
        self.batches.append(texts)
        return numpy.array([[len(text), ord(text[0])] for text in texts], dtype="float64")


def test_vectors_come_in_the_order_of_the_texts_read_in_batches_of_like_length() -> None:
    texts = [chr(97 + number % 26) * (1 + 37 * number % 101) for number in range(150)]
    model, told = Letters(), []
    vectors = sentence_encoder.embed(model, texts, told.append)
    assert vectors.dtype == numpy.float32 and vectors.shape == (150, 2)
    assert vectors.tolist() == [[len(text), ord(text[0])] for text in texts]
    assert [len(batch) for batch in model.batches] == [64, 64, 22] and told == [64, 128, 150]
    lengths = [len(text) for batch in model.batches for text in batch]
    assert lengths == sorted(lengths)
    assert sentence_encoder.embed(model, []).shape == (0, 0)


def test_every_pair_has_as_many_wrong_tools_as_the_pair_with_the_fewest(monkeypatch) -> None:
    dataset = SimpleNamespace(from_dict=lambda columns: columns)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(Dataset=dataset))
    pool: Any = SimpleNamespace(texts=["a", "b", "c", "d"])
    pairs = [
        TrainingPair("first", 0, (1, 2, 3), frozenset()),
        TrainingPair("second", 1, (3, 0), frozenset()),
    ]
    assert retriever._dataset(pairs, pool) == {
        "query": ["first", "second"],
        "tool": ["a", "b"],
        "negative_0": ["b", "d"],
        "negative_1": ["c", "a"],
    }
