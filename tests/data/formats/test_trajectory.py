"""A row of trajectories.jsonl is a record: what failed is shown and not learned."""

import json
import shutil

import pytest
from support.samples import ROOT

import agentlite
from agentlite.core.errors import RowError
from agentlite.core.row_files import read_rows
from agentlite.data.curation.validate import validate
from agentlite.data.formats import detected, to_record
from agentlite.rendering import PROTOCOLS
from agentlite.workspace.model_source import embedded_folder, load_template

TOOL = {"type": "function", "function": {"name": "buy", "parameters": {"type": "object"}}}


def turn(*results, ended="turn", problem=""):
    return {"text": "x", "ended": ended, "new_tokens": 1, "results": results, "problem": problem}


def called(name="buy", id="a"):
    function = {"name": name, "arguments": "{}"}
    made = [{"id": id, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(text, id="a"):
    return {"role": "tool", "tool_call_id": id, "content": text}


USER, WORDS = {"role": "user", "content": "Buy it."}, {"role": "assistant", "content": "Done."}


def row(messages, turns, ended="user", **rest):
    known = {"task": "one", "sample": 2, "split": "", "scores": {"env": 1.0}, "problem": ""}
    return {**known, "messages": messages, "tools": [TOOL], "turns": turns, "ended": ended, **rest}


def learned(value):
    record = to_record(value)
    validate(record)
    return [record.messages[turn].loss for turn in record.turns]


def test_a_rollout_is_its_dialog_with_its_scores_and_its_split():
    value = row([USER, called(), result("1"), WORDS], [turn(["1", False]), turn()], split="dev")
    assert detected(value) == "trajectory" and learned(value) == [True, True]
    record = to_record(value)
    assert (record.split, len(record.messages)) == ("dev", 4)
    assert record.meta["rollout"] == {
        "task": "one",
        "sample": 2,
        "scores": {"env": 1.0},
        "ended": "user",
    }


def test_answers_of_others_before_the_first_turn_of_the_model_are_not_learned():
    messages = [USER, WORDS, USER, WORDS, USER, called(), result("1"), WORDS]
    value = row(messages, [turn(["1", False]), turn()])
    assert learned(value) == [False, False, True, True]
    assert len(to_record(value).messages) == 8


def test_the_turns_of_a_rollout_stay_as_they_are_whatever_their_texts_look_like():
    chain = "Action: buy\nAction Input: {}\nObservation: 1\nFinal Answer: Done."
    messages = [USER, {"role": "assistant", "content": chain}, USER, WORDS]
    record = to_record(row(messages, [turn(problem="no call"), turn()]))
    assert [one.content for one in record.messages] == [one["content"] for one in messages]
    assert [record.messages[place].loss for place in record.turns] == [False, True]


@pytest.mark.parametrize(
    "failed",
    [turn(["Error: no such item", True]), turn(ended="cut"), turn(problem="no JSON")],
    ids=["a call", "cut", "unreadable"],
)
def test_a_turn_that_failed_is_not_learned(failed):
    messages = [USER, called(), result("x"), called(id="b"), result("1", "b"), WORDS]
    assert learned(row(messages, [failed, turn(["1", False]), turn()])) == [False, True, True]
    # several calls in a turn: one that failed is enough
    messages = [USER, called(), result("x"), WORDS]
    failed = turn(["1", False], ["Error", True])
    assert learned(row(messages, [failed, turn()])) == [False, True]


@pytest.mark.parametrize(
    "arguments",
    [{"count": "two"}, {}, {"count": 2, "colour": "red"}, {"count": 0}],
    ids=["type", "required", "unknown", "minimum"],
)
def test_a_call_that_breaks_its_schema_is_not_learned_though_the_world_took_it(arguments):
    schema = {
        "type": "object",
        "properties": {"count": {"type": "integer", "minimum": 1}},
        "required": ["count"],
    }
    tool = {"type": "function", "function": {"name": "buy", "parameters": schema}}

    def buys(arguments, id):
        function = {"name": "buy", "arguments": json.dumps(arguments)}
        call = {"id": id, "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    messages = [USER, buys(arguments, "a"), result("1"), buys({"count": 2}, "b"), result("2", "b")]
    turns = [turn(["1", False]), turn(["2", False]), turn()]
    assert learned(row([*messages, WORDS], turns, tools=[tool])) == [False, True, True]
    with pytest.raises(RowError, match="F313"):
        learned(row(messages[:3], turns[:1], tools=[tool]))


def test_a_call_of_a_tool_that_is_not_there_is_shown_but_must_have_failed():
    messages = [USER, called("bye"), result("Error: no tool bye"), WORDS]
    assert learned(row(messages, [turn(["Error", True]), turn()])) == [False, True]
    with pytest.raises(RowError, match="E209"):
        learned(row(messages, [turn(["1", False]), turn()]))


@pytest.mark.parametrize("ended", ["user", "turns", "length"])
def test_what_comes_behind_the_last_turn_of_the_model_is_left_out(ended):
    value = row([USER, called(), result("1")], [turn(["1", False])], ended)
    assert learned(value) == [True]
    assert [message.role for message in to_record(value).messages] == ["user", "assistant"]
    value = row([USER, WORDS, USER], [turn()], ended)
    assert [message.role for message in to_record(value).messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("value", "code", "reason"),
    [
        (row([USER, WORDS], [turn()], "world", problem="it died"), "F313", "it died"),
        (row([USER, WORDS], [turn()], "unwritten"), "F313", "unwritten"),
        (row([USER, WORDS], [turn(ended="cut")]), "F313", "every turn"),
        (row([USER], [], "length"), "F313", "no turn"),
        (row([USER, WORDS], [{**turn(), "offered": ["buy"]}]), "F313", "tools on offer changed"),
        (row([USER, WORDS], [turn(), turn()]), "E201", "1 assistant messages, but 2 turns"),
        (row([USER, WORDS], 3), "E201", "turns"),
        (row([USER, WORDS], [turn()], scores={"env": "1"}), "E201", "scores"),
    ],
)
def test_what_cannot_be_learned_has_its_reason(value, code, reason):
    with pytest.raises(RowError) as found:
        to_record(value)
    assert found.value.code == code and reason in found.value.reason


# what a model may say in place of a call, for any protocol; the last holds the template's own mark
UNREADABLE = (
    '<tool_call>\n{"name": "buy", "arguments": {"item": ',
    "<tool_call>\nbuy fig\n</tool_call>",
    "</tool_call>",
    "<tool_call></tool_call><tool_call>",
    "Thought: so\nAction: buy\nAction Input: {fig",
    "Action: buy\nAction Input: {}\nObservation: 1\nThought: hm",
    "<|startofthink|>buy<|endofthink|>",
    '{"command": {"name": "buy"',
    "[buy(item=",
    "{}",
    "```json\n[",
    "Done.<|im_start|>user\nThanks.",
)
INVENTED = (
    "It is there.\n<tool_response>\n4\n</tool_response>",
    "Action: buy\nAction Input: {}\nObservation: 4 figs\nThought: I have them.",
)


@pytest.fixture
def model(tmp_path):
    """The real tokenizer under a chat template that takes tools, as the protocol chat needs it."""
    folder = tmp_path / "model"
    folder.mkdir()
    load_template("smollm2-135m")  # makes the files of the tokenizer
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(embedded_folder("smollm2-135m") / name, folder / name)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(b"")
    template = (ROOT / "tests/rendering/tools.jinja").read_text(encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whatever_a_model_has_said_is_no_fault_of_the_row(protocol, model, tmp_path):
    """It stays in the dialog and is not learned; a dialog that cannot be written is left out. None
    of them counts as a rejected row, which would end the run.
    """
    wrong = turn(problem="cannot be read")
    said = [(text, wrong) for text in UNREADABLE] + [(text, turn()) for text in INVENTED]
    rows = [
        row(
            [USER, {"role": "assistant", "content": text}, USER, called(), result("1"), WORDS],
            [outcome, turn(["1", False]), turn()],
            task=str(number),
        )
        for number, (text, outcome) in enumerate(said)
    ]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    done = agentlite.prep(
        str(tmp_path / "rollouts.jsonl"),
        run=str(tmp_path / "run"),
        model=str(model),
        protocol=protocol,
        duplicates=("none",),
        test=0,
        dev=0,
    )
    assert done.figures["rejected"] == 0
    assert (done.figures["kept"], done.figures["filtered"]) == (len(rows) - 1, 1)
    for one in read_rows(tmp_path / "run/prep/train.jsonl"):
        losses = [said.get("loss", True) for said in one["messages"] if said["role"] == "assistant"]
        assert losses == [False, True, True]


def test_a_row_that_lacks_its_messages_or_its_tools_is_read_as_one_of_openai_would_be():
    whole = row([USER, WORDS], [turn()])
    with pytest.raises(RowError) as refused:
        to_record({key: value for key, value in whole.items() if key != "messages"}, "trajectory")
    assert refused.value.code == "E201"
    without = {key: value for key, value in whole.items() if key != "tools"}
    assert to_record(without, "trajectory").tools == ()
