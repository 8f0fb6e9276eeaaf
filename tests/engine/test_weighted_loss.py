"""Segment weights: the tables weigh what they say they weigh, and the loss is the weighted one,
exactly.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from support.trainers import sft, source

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.engine import load
from agentlite.engine import sft as sft_trainer
from agentlite.engine.weighted_loss import record_losses
from agentlite.rendering import TABLES, Encoded, choose, training_rows
from agentlite.rendering.encoding import weight_at, weight_changes
from agentlite.workspace.model_source import load_template

TOOL = Tool(
    "get_weather", "Weather.", {"type": "object", "properties": {"city": {"type": "string"}}}
)
CITIES = ("Oslo", "Bergen and Oslo", "Rome", "Paris")
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
    **{
        ("agentflan", f"a {mark} b"): [(f"a {mark}", 1), (" b", 3)]
        for mark in ("Action:", "ACTION:", "Tool:", "Command", "action input", "Action Input:")
    },
}


@pytest.mark.parametrize(("table", "text"), WEIGHED, ids=lambda value: value[:12])
def test_a_table_weighs_its_marks_and_what_follows_them(table, text):
    changes = weight_changes(text, TABLES[table])
    expected = [weight for part, weight in WEIGHED[table, text] for _ in part]
    assert [weight_at(changes, place) for place in range(len(text))] == expected


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


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_the_loss_is_the_weighted_sum_over_the_number_of_trained_tokens(
    engine: str, tiny_model: Path, tmp_path: Path
):
    rows = [weighed("hermes", "hermes", record(city=city)) for city in CITIES]
    settings = sft(engine=engine, segment_weights="hermes", max_steps=1, lora_dropout=0.0)
    figures = sft_trainer.train(source(tiny_model), settings, tmp_path, rows, rows[:1])
    loading = load.loading_of(settings)
    model = load.load(source(tiny_model), loading, trainable=False).model.eval()
    losses = {city: token_losses(model, row) for city, row in zip(CITIES, rows, strict=True)}
    weighted = [loss * weight for each in losses.values() for loss, weight in each]
    assert figures["first_loss"] == pytest.approx(sum(weighted) / len(weighted), rel=1e-4)
    assert figures["dev_loss"] > 0
    # the mean of a record is over the tokens of all its rows
    by_city = {city: [row, rows[0]] for city, row in zip(CITIES, rows, strict=True)}
    for city, loss in record_losses(CITIES, by_city.__getitem__, source(tiny_model), loading):
        tokens = [each for each, _ in losses[city] + losses[CITIES[0]]]
        assert loss == pytest.approx(fmean(tokens), rel=1e-4)


def token_losses(model: Any, row: Encoded) -> list[tuple[float, float]]:
    """The loss and the weight of each trained token."""
    with torch.no_grad():
        scores = model(input_ids=torch.tensor([row.input_ids])).logits[0, :-1].float()
    columns = zip(scores.log_softmax(-1), row.labels[1:], row.weights[1:], strict=True)
    return [(-float(likely[label]), weight) for likely, label, weight in columns if label >= 0]
