"""Segment weights: the tables weigh what they say they weigh, and the loss is the weighted one,
exactly.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.trainers import sft, source

from agentlite.core.errors import MODEL, UserError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.engine import load, weighted_loss
from agentlite.engine import sft as sft_trainer
from agentlite.rendering import TABLES, Encoded, choose, training_rows
from agentlite.rendering.loss_weights import segments, weight_at
from agentlite.workspace.model_source import load_template

TOOL = Tool(
    "get_weather", "Weather.", {"type": "object", "properties": {"city": {"type": "string"}}}
)
WEIGHED = {
    ("react", "Thought: a\nAction: f\nAction Input: {}\nObservation: 4"): [
        ("Thought:", 1),
        (" a\n", 1),
        ("Action:", 2),
        (" f\n", 2),
        ("Action Input:", 2),
        (" {}\n", 2),
        ("Observation:", 2),
        (" 4", 0),
    ],
    ("react", "Yes."): [("Yes.", 1)],
    ("hermes", "I see.\n<tool_call>\n{}\n</tool_call>\n<tool_call>1</tool_call> so"): [
        ("I see.\n", 1),
        ("<tool_call>\n{}\n</tool_call>", 2),
        ("\n", 1),
        ("<tool_call>1</tool_call>", 2),
        (" so", 1),
    ],
    ("qwen", "✿FUNCTION✿: f\n✿ARGS✿: {}\n✿RESULT✿: 4\n✿RETURN✿: Yes."): [
        ("✿FUNCTION✿:", 2),
        (" f\n", 2),
        ("✿ARGS✿:", 2),
        (" {}\n", 2),
        ("✿RESULT✿:", 2),
        (" 4\n", 0),
        ("✿RETURN✿:", 1),
        (" Yes.", 1),
    ],
    ("alpha_umi", "a Next: caller"): [("a ", 1), ("Next:", 2), (" caller", 2)],
    ("agentflan", "Thought: a\nName: f\nArguments: {}"): [
        ("Thought:", 1),
        (" a\n", 1),
        ("Name:", 1),
        (" f\n", 3),
        ("Arguments:", 1),
        (" {}", 3),
    ],
}


@pytest.mark.parametrize(("table", "text"), WEIGHED, ids=lambda value: value[:12])
def test_a_table_weighs_its_marks_and_what_follows_them(table, text):
    found = [(text[part.start : part.end], part.weight) for part in segments(text, TABLES[table])]
    assert found == WEIGHED[table, text]


marks = st.sampled_from(
    [
        "Action:",
        "Action Input:",
        "Observation:",
        "<tool_call>",
        "</tool_call>",
        "Name:",
        "x",
        "\n",
        "✿ARGS✿:",
    ]
)


@given(st.lists(marks).map("".join), st.sampled_from(sorted(TABLES)))
def test_segments_are_the_text_without_gaps(text, table):
    parts = segments(text, TABLES[table])
    assert "".join(text[part.start : part.end] for part in parts) == text
    assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]
    assert all(
        weight_at(parts, place) == part.weight
        for part in parts
        for place in (part.start, part.end - 1)
    )


def record(content: str = "I must look it up.", city: str = "Oslo") -> Record:
    call = Call("get_weather", {"city": city}, "call_0")
    return Record(
        messages=(
            Message("user", f"Is it wet in {city}?"),
            Message("assistant", content, (call,)),
            Message("tool", "4 mm", call_id="call_0"),
            Message("assistant", "Yes, 4 mm."),
        ),
        tools=(TOOL,),
    )


def weighed(protocol: str, table: str, one: Record) -> Encoded:
    template = load_template("smollm2-135m")
    (row,) = training_rows(
        one, choose(protocol, template).protocols[protocol], template, TABLES[table]
    )
    return row


def test_a_token_has_the_weight_of_the_text_it_begins_in_and_ids_do_not_change():
    template = load_template("smollm2-135m")
    row = weighed("hermes", "hermes", record())
    (plain,) = training_rows(record(), choose("hermes", template).protocols["hermes"], template)
    assert (row.input_ids, row.labels) == (plain.input_ids, plain.labels)
    heavy = template.decode(
        [token for token, weight in zip(row.input_ids, row.weights, strict=True) if weight == 2]
    )
    assert (
        heavy == '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    )
    assert all(
        (weight > 0) == (label >= 0) for weight, label in zip(row.weights, row.labels, strict=True)
    )


def test_what_weighs_nothing_is_not_trained():
    row = weighed("hermes", "react", record("As seen.\nObservation: 9 mm\nThought: so"))
    learned = load_template("smollm2-135m").decode([label for label in row.labels if label >= 0])
    assert "9 mm" not in learned
    assert "Observation:" in learned


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_the_loss_is_the_weighted_sum_over_the_number_of_trained_tokens(
    engine: str, tiny_model: Path, tmp_path: Path
):
    rows = [
        weighed("hermes", "hermes", record(city=city))
        for city in ("Oslo", "Bergen and Oslo", "Rome", "Paris")
    ]
    settings = sft(engine=engine, segment_weights="hermes", max_steps=1, lora_dropout=0.0)
    figures = sft_trainer.train(source(tiny_model), settings, tmp_path, rows, rows[:1])
    model = load.load(source(tiny_model), load.loading_of(settings), trainable=False).model.eval()
    total, count = 0.0, 0
    for row in rows:
        with torch.no_grad():
            scores = (
                model(input_ids=torch.tensor([row.input_ids]))
                .logits[0, :-1]
                .float()
                .log_softmax(-1)
            )
        for place, (label, weight) in enumerate(zip(row.labels[1:], row.weights[1:], strict=True)):
            if label >= 0:
                total -= weight * float(scores[place, label])
                count += 1
    assert figures["first_loss"] == pytest.approx(total / count, rel=1e-4)
    assert figures["dev_loss"] > 0


def test_weights_of_one_give_the_loss_without_weights(tiny_model: Path, tmp_path: Path):
    plain = weighed("hermes", "hermes", record())
    ones = plain._replace(weights=[1.0] * len(plain.weights))
    losses = [
        sft_trainer.train(
            source(tiny_model), sft(max_steps=3, lora_dropout=0.0), tmp_path / str(n), [row] * 4, []
        )
        for n, row in enumerate([ones, plain._replace(weights=[])])
    ]
    assert losses[0]["first_loss"] == pytest.approx(losses[1]["first_loss"], rel=1e-4)
    assert losses[0]["last_loss"] == pytest.approx(losses[1]["last_loss"], rel=1e-3)


class Causal:
    """A model whose hidden states are those of a table, by token."""

    base_model_prefix = "model"

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.table = torch.randn(50, 6, generator=generator, requires_grad=True)
        self.head = torch.nn.Linear(6, 50)

    def model(self, input_ids: Any, attention_mask: Any, use_cache: bool) -> Any:
        return (self.table[input_ids],)

    def get_output_embeddings(self) -> Any:
        return self.head


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 511, 512, 600])
def test_every_trained_token_counts_once_however_many_chunks_they_fill(count: int):
    assert weighted_loss.CHUNK == 256  # the numbers of tokens stand on both sides of its edges
    model, generator = Causal(), torch.Generator().manual_seed(count)
    ids = torch.randint(50, (2, 400), generator=generator)
    weights = torch.rand(ids.shape, generator=generator)
    places = torch.randperm(2 * 399, generator=generator)[:count]
    labels = torch.full(ids.shape, -100)
    labels[places // 399, places % 399 + 1] = ids[places // 399, places % 399 + 1]
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    total, number = weighted_loss.weighted_loss(model, inputs, labels, weights)
    scores = model.head(model.table[ids[:, :-1]]).log_softmax(-1)
    picked = scores.gather(-1, ids[:, 1:, None])[..., 0]
    expected = -(picked * weights[:, 1:] * (labels[:, 1:] != -100)).sum()
    assert int(number) == count
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)
    (found,) = torch.autograd.grad(total, model.table)
    (wanted,) = torch.autograd.grad(expected, model.table)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", weighted_loss.SCALED)
def test_logits_that_are_more_than_the_head_are_refused_and_those_by_a_scale_of_one_are_not(name):
    def model(value: float | None) -> Any:
        config = SimpleNamespace(model_type="odd", **{name: value})
        return SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: config))

    for value in (None, 1, 1.0):
        weighted_loss.check_head(model(value))
    for value in (0, 0.5, 30.0):
        with pytest.raises(UserError, match=f"changed by {name}") as refused:
            weighted_loss.check_head(model(value))
        assert (refused.value.exit_code, refused.value.location) == (MODEL, "odd")


@pytest.mark.parametrize("processes", [1, 3])
def test_the_loss_of_a_process_is_its_share_of_a_mean_over_all_of_them(
    processes: int, monkeypatch: pytest.MonkeyPatch
):
    """The trainer counts the tokens of all processes and takes the mean of their gradients: each
    loss is multiplied by their number, and their mean is the sum over all tokens by their count.
    """

    class Base:
        def __init__(self, data_collator: object) -> None:
            self.accelerator = SimpleNamespace(unwrap_model=lambda model: model)

    monkeypatch.setattr(weighted_loss, "weighted_loss", lambda *_: (6.0, 4))
    monkeypatch.setattr(weighted_loss.distributed, "count", lambda: processes)
    trainer = weighted_loss.weighted(Base, pad=0)()
    batch = {"weights": None, "labels": None}
    assert trainer.compute_loss(None, dict(batch), num_items_in_batch=12) == 6 / 12 * processes
    assert trainer.compute_loss(None, dict(batch)) == 6 / 4
