"""The retriever's steps, its refusals, and vectors of texts, by a model that counts letters."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy

from agentlite.engine import retriever, sentence_encoder
from agentlite.retrieval.training_pairs import TrainingPair


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
