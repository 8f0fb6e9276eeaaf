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
from agentlite.stages import retriever as stage
from agentlite.stages.retriever import evaluate
from agentlite.workspace.model_source import Source


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


@pytest.mark.parametrize(
    ("own", "asked", "expected"), [(512, 256, 256), (128, 256, 128), (None, 256, 256)]
)
def test_an_encoder_reads_no_more_tokens_than_it_can_or_than_are_wanted(
    own: int | None, asked: int, expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    made = SimpleNamespace(max_seq_length=own)
    library = SimpleNamespace(SentenceTransformer=lambda *_, **__: made)
    quiet = SimpleNamespace(set_verbosity_error=lambda: None, disable_progress_bar=lambda: None)
    transformers = SimpleNamespace(logging=quiet, utils=SimpleNamespace(logging=quiet))
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    for name in ("check_libraries", "be_quiet"):
        monkeypatch.setattr(sentence_encoder, name, lambda: None)
    monkeypatch.setattr(sentence_encoder, "on_gpu", lambda: False)
    source = Source("e", str(tmp_path), None, "")
    assert sentence_encoder.load(source, asked).max_seq_length == expected


def test_a_static_model_learns_longer_and_faster_than_one_with_layers() -> None:
    assert stage.BY_KIND == {True: (10.0, 2e-2), False: (1.0, 2e-4)}


def test_latency_is_the_median_of_milliseconds_of_one_question_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Encoding takes 1, 5 and 100 ms; a search 2; BM25 3."""
    taken = [0.001, 0.1, 0.005, *[0.002] * 3, *[0.003] * 3]
    clock = (time for number, one in enumerate(taken) for time in (number, number + one))
    monkeypatch.setattr(evaluate.time, "perf_counter", lambda: next(clock))
    asked: list[tuple[str, ...]] = []

    class Encoder:
        vectors = numpy.eye(2)

        def embed(self, texts: Any) -> Any:
            asked.append(tuple(texts))
            return numpy.ones((len(texts), 2))

    monkeypatch.setattr(evaluate.index, "likeliest", lambda scores, pool, count: [count])
    rankers: Any = {"bm25": lambda texts: numpy.ones((len(texts), 2))}
    pool: Any = None
    encoder: Any = Encoder()
    found = evaluate._latency(["a", "b", "c"], pool, rankers, encoder)
    assert found == {"encode": 5.0, "search": 2.0, "bm25": 3.0}
    assert asked[1:] == [("a",), ("b",), ("c",)]


def test_problems_are_counted_by_kind_and_the_first_of_each_is_shown(capsys: Any) -> None:
    problems = [
        {"location": f"file:{number}", "code": code, "problem": f"problem {number}"}
        for number, code in enumerate(["a", "b", "a", "a"])
    ]
    assert stage._report_problems(problems) == {"a": 3, "b": 1}
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "file:0: a: problem 0" in lines[0] and "+2 more" in lines[0]
    assert "file:1: b: problem 1" in lines[1] and "more" not in lines[1]
