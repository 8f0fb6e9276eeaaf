"""Chains of calls, and marks of results: no container can make a result trainable."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chain_rows import CONTAINERS, SYNTAXES, TOOLS, ChainStep
from support.damaged_rows import rows_in
from support.examples import examples, sample
from support.samples import DATA, with_template

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record
from agentlite.data.curation.validate import validate
from agentlite.data.formats import to_record
from agentlite.rendering import PROTOCOLS, choose, training_rows
from agentlite.rendering.encoding import IGNORED
from agentlite.rendering.protocols import hermes
from agentlite.rendering.template import Template

SECRET = "R35ULT"
PAIRS = [*product(CONTAINERS, SYNTAXES)]
OPTIONS = {"names": {"name": ["a"], "author": ["b"]}}


def words(marks: str = "") -> st.SearchStrategy[str]:
    """Lines of text that hold no mark of a protocol."""
    line = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="<[|{}`:："))
    return line.map(str.strip)


texts = words()
results = st.lists(texts, max_size=3).map(lambda lines: "\n".join([SECRET, *lines, SECRET]))
steps = st.builds(ChainStep, texts, st.sampled_from(["weather", "clock"]), texts, results)
chains = st.tuples(st.lists(steps, min_size=1, max_size=3), texts.map(lambda text: f"So {text}."))
dialogs = st.lists(chains, min_size=1, max_size=2)
Chain = tuple[Sequence[ChainStep], str]


def row_of(container: str, syntax: str, dialog: Sequence[Chain]) -> dict[str, Any]:
    """A row of the container whose answers are these chains."""
    written = SYNTAXES[syntax]
    exchanges = [(f"Is it wet? {n}", written.answer(*chain)) for n, chain in enumerate(dialog, 1)]
    return CONTAINERS[container](written.system, exchanges)


def trained_text(record: Record, name: str, template: Template) -> str:
    """What the loss covers under a protocol, which may hold fewer calls than the record has."""
    template = with_template(template, "tools") if name == "chat" else template
    try:
        protocol = choose(name, template).protocol_of(record)
        rows = training_rows(record, protocol, template)
    except RowError:
        return ""
    return "\n".join(
        template.decode([label for label in row.labels if label != IGNORED]) for row in rows
    )


@pytest.mark.parametrize(("container", "syntax"), sample(30, PAIRS))
@settings(max_examples=examples(40))
@given(dialog=dialogs, protocol=st.sampled_from(sorted(PROTOCOLS)))
def test_no_container_makes_a_result_trainable_in_any_protocol(
    container: str, syntax: str, dialog: list[Chain], protocol: str, smollm2: Template
) -> None:
    try:
        record = to_record(row_of(container, syntax, dialog), options=OPTIONS)
        validate(record)
    except RowError:
        return
    assert SECRET not in trained_text(record, protocol, smollm2)
    assert any(message.role == "tool" for message in record.messages)


PLAIN = ([ChainStep("I look.", "weather", "Oslo", f"4 mm {SECRET}")], "So yes.")
TWO = ([*PLAIN[0], ChainStep("", "clock", "Oslo", f"{SECRET} 10:00")], "So yes, and it is ten.")
# a text that is learned whole holds no turns to take apart
WHOLE = ("text",)


@pytest.mark.parametrize(
    ("container", "syntax"),
    sample(45, [one for one in PAIRS if one[0] not in WHOLE and SYNTAXES[one[1]].split]),
)
def test_a_chain_becomes_the_same_turns_in_every_container(container: str, syntax: str) -> None:
    whole = "one text" in container or container in ONE_TEXT or syntax == "toolllama"
    dialog = [TWO] if whole else [PLAIN, TWO]
    record = to_record(row_of(container, syntax, dialog), options=OPTIONS)
    validate(record)
    offered = [tool.name for tool in record.tools if tool.name != "Finish"]
    assert offered == [tool.name for tool in TOOLS]
    calls = [call for message in record.messages for call in message.calls]
    made = [(call.name, call.arguments) for call in calls if call.name != "Finish"]
    steps = [step for chain in dialog for step in chain[0]]
    assert made == [(step.tool, {"city": step.city}) for step in steps]
    read = [message.content for message in record.messages if message.role == "tool"]
    assert [text for text in read if SECRET in text] == [step.result for step in steps]
    last = record.messages[-1]
    final = last.calls[0].arguments["final_answer"] if last.calls else last.content
    assert final == TWO[1]


ONE_TEXT = ("self_cognition", "kagentinstruct")


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_plain_text_that_holds_a_chain_is_rejected(syntax: str) -> None:
    with pytest.raises(RowError) as caught:
        to_record(row_of("text", syntax, [PLAIN]))
    assert caught.value.code == "E218"


RESULTS = [
    (["4 mm"], ["4 mm"]),
    (["4 mm", '["dry"]'], ["4 mm", '["dry"]']),
    (['{"name": "clock", "content": {"h": 1}}', "4 mm"], ["4 mm", '{"h": 1}']),
    (["", "a <b>\n<c>"], ["", "a <b>\n<c>"]),
]
HOLDS_TURNS = [
    name
    for name in CONTAINERS
    if "one text" not in name and name not in (*WHOLE, "self_cognition", "kagentinstruct")
]


@pytest.mark.parametrize(
    ("container", "given", "read"),
    sample(20, [(name, *result) for name, result in product(HOLDS_TURNS, RESULTS)]),
)
def test_tagged_results_in_the_user_s_turn_answer_the_calls_before_it(
    container: str, given: list[str], read: list[str]
) -> None:
    """As the templates of Hermes and Qwen print a dialog."""
    calls = [Call(name, {"city": "Oslo"}) for name in ("weather", "clock")][: len(given)]
    asked = hermes.assistant(Message("assistant", "I look.", tuple(calls)))
    answered = hermes.results([Message("tool", text) for text in given])
    exchanges = [("Is it wet?", asked), (answered, "So yes."), ("Thanks.", "Welcome.")]
    record = to_record(CONTAINERS[container](SYNTAXES["hermes"].system, exchanges))
    validate(record)
    called, *results, final, _, _ = record.messages[record.turns[0] :]
    assert [(call.name, call.arguments) for call in called.calls] == [
        (call.name, call.arguments) for call in calls
    ]
    assert [message.content for message in results] == read
    assert [message.call_id for message in results] == [call.id for call in called.calls]
    assert final == Message("assistant", "So yes.")


@pytest.mark.parametrize("syntax", [name for name, one in SYNTAXES.items() if one.split])
def test_a_result_that_is_a_turn_answers_the_call_that_has_none_in_the_text(syntax: str) -> None:
    """Of the two calls in one text the first has its result there."""
    written = SYNTAXES[syntax]
    steps = [ChainStep("", "weather", "Oslo", "4 mm"), ChainStep("", "clock", "Bergen", "12:34")]
    text = written.answer(steps, "Yes.").partition("12:34")[0]
    text = text.removesuffix("<|startofexec|>").rstrip().removesuffix("<tool_response>").rstrip()
    turns = [
        {"role": "system", "content": written.system},
        {"role": "user", "content": "Is it wet, and how late is it?"},
        {"role": "assistant", "content": text},
        {"role": "tool", "content": "12:34"},
        {"role": "assistant", "content": "It is wet, at 12:34."},
    ]
    record = to_record({"messages": turns})
    validate(record)
    calls = {call.id: call.name for message in record.messages for call in message.calls}
    results = [message for message in record.messages if message.role == "tool"]
    answered = [(calls[one.call_id], one.content) for one in results]
    assert answered == [("weather", "4 mm"), ("clock", "12:34")]


@pytest.mark.parametrize(
    ("syntax", "protocol"),
    sample(30, [*product([n for n, one in SYNTAXES.items() if one.split], sorted(PROTOCOLS))]),
)
def test_what_the_assistant_says_is_trained_and_results_are_not(
    syntax: str, protocol: str, smollm2: Template
) -> None:
    """Without this, a row of which nothing is trained would pass for a safe one."""
    trained = trained_text(to_record(row_of("query", syntax, [PLAIN])), protocol, smollm2)
    assert "weather" in trained and "Oslo" in trained and "So yes." in trained
    assert SECRET not in trained


@pytest.mark.parametrize("container", [name for name in CONTAINERS if name not in WHOLE])
def test_seed_004_s_printed_row_is_the_same_dialog_in_every_container(
    container: str, smollm2: Template
) -> None:
    printed_row = rows_in(DATA / "seeds/seed_004.jsonl")[0]
    record = to_record(printed_row)
    trained = trained_text(record, "hermes", smollm2)
    assert trained.count("<tool_call>") == 3
    assert "sku_code'" not in trained  # of the results alone
    system, *said = [turn["value"] for turn in printed_row["conversations"]]
    exchanges = list(zip(said[::2], said[1::2], strict=True))
    if "one text" in container or container in ONE_TEXT:
        exchanges, kept = exchanges[:1], 4
    else:
        kept = len(record.messages)
    found = to_record(CONTAINERS[container](system, exchanges), options=OPTIONS)
    assert found.messages[-kept:] == record.messages[:kept]
    if "tools" not in container and container != "anthropic":  # these declare others
        assert found.tools == record.tools
