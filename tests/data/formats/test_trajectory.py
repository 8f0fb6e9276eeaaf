"""A row of trajectories.jsonl is a record: what failed is shown and not learned."""

import json
import shutil

import pytest
from support.samples import ROOT

import agentlite
from agentlite.core.row_files import read_rows
from agentlite.rendering import PROTOCOLS
from agentlite.workspace.input_files import embedded_folder, load_template

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
