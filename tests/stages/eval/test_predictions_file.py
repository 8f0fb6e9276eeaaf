"""Rows of another system: which answer is read for which step, and which row is refused."""

import contextlib
import json

import pytest
from msgspec.structs import replace
from support.shipped_templates import shipped, with_marks

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Message, Step
from agentlite.rendering import PROTOCOLS, Prompt
from agentlite.scoring.predictions import ExternalAnswer, external_prediction
from agentlite.stages.eval.subjects import read_predictions_file
from agentlite.workspace.input_files import load_template

HERMES = PROTOCOLS["hermes"]
OSLO = Call("get_weather", {"city": "Oslo"})
RIGHT = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


@pytest.fixture(scope="module")
def ends():
    """Of shipped templates: the end of a turn, and all that may stand there, or is empty."""
    tokenizer, found = load_template("smollm2-135m").tokenizer, {}
    for name, source in shipped():
        with contextlib.suppress(UserError):
            template = with_marks(name, source, tokenizer)
            found[template.turn_end] = [template.turn_end, *template.special.values(), ""]
    return found


def external(path, rows, dialog, steps=None):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_predictions_file(
        path, steps or [Step(dialog.id, turn) for turn in (2, 4)], {dialog.id: dialog}
    )


def test_rows_from_elsewhere_are_taken_for_the_steps_that_are_asked(tmp_path, dialog):
    path = tmp_path / "said.jsonl"
    arguments = {"city": "Oslo"}
    found = external(
        path,
        [
            {"record_id": dialog.id, "turn": 2, "calls": [{"name": "f", "arguments": arguments}]},
            {"id": dialog.id, "turn": 4, "text": "Yes."},
            {"id": dialog.id, "turn": 6, "text": "not asked of us"},
        ],
        dialog,
    )
    assert found == {
        (dialog.id, 2): ExternalAnswer("", (Call("f", arguments),)),
        (dialog.id, 4): ExternalAnswer("Yes."),
    }
    text = {"name": "f", "arguments": '{"city": "Oslo"}'}
    row = {"id": dialog.id, "turn": 2, "text": "Hm.", "calls": [text, {"name": "g"}]}
    (said,) = external(path, [row], dialog).values()
    assert said == ExternalAnswer("Hm.", (Call("f", arguments), Call("g", {})))


FUNCTION = {"name": "get_weather", "arguments": {"city": "Oslo"}}
WRITTEN = {**FUNCTION, "arguments": '{"city": "Oslo"}'}
OF_OPENAI = [{"id": "call_0", "type": "function", "function": WRITTEN}]


@pytest.mark.parametrize("words", ["", "Let me look."])
@pytest.mark.parametrize(
    "shape",
    [
        {"calls": [FUNCTION]},
        {"calls": OF_OPENAI},
        {"tool_calls": OF_OPENAI},
        {"tool_calls": [{"function": FUNCTION}]},
        {"tool_calls": [WRITTEN]},
        {"function_call": WRITTEN},
        {"calls": None, "tool_calls": OF_OPENAI},
        {"message": {"role": "assistant", "content": None, "tool_calls": OF_OPENAI}},
        {"message": {"content": "", "function_call": WRITTEN, "tool_calls": None}},
        {"message": {"content": "Let me look.", "tool_calls": OF_OPENAI}},
        {"message": {"content": "Let me look.", "tool_calls": OF_OPENAI}, "tool_calls": OF_OPENAI},
    ],
)
def test_right_calls_are_right_in_whatever_shape_a_row_has_them(shape, words, tmp_path, dialog):
    if (own := shape.get("message", {}).get("content")) is not None:
        words = own
    elif "message" in shape:
        words = ""
    row = {"id": dialog.id, "turn": 2, "text": words, **shape}
    without_text = {key: value for key, value in row.items() if key != "text" or value}
    for one in (row, without_text):
        (answer,) = external(tmp_path / "rows.jsonl", [one], dialog).values()
        assert answer == ExternalAnswer(words, (OSLO,))
        asked = Prompt(dialog, 2, "hermes", [1, 2], "", "turn")
        found = external_prediction(asked, answer, HERMES)
        assert (found.problem, found.metrics["exact_call"]) == ("", 1.0)


@pytest.mark.parametrize("name", [name for name, one in PROTOCOLS.items() if not one.native])
def test_the_end_of_a_turn_never_changes_a_verdict(name, ends, dialog):
    """Of any shipped template, its padding behind it, in any protocol: right and wrong answers."""
    protocol, asked = PROTOCOLS[name], Prompt(dialog, 2, name, [1, 2], "", "turn")
    message = Message("assistant", "", (OSLO,))
    if protocol.exchanges:
        record = replace(dialog, messages=(*dialog.messages[:2], message))
        right = next(one.answer for one in protocol.exchanges(record, 2) if one.prompted)
    else:
        right = protocol.write(message, dialog.tools)
    for text in (right, right.replace("Oslo", "Rome"), right[:-3], "It rains.", ""):
        verdict = external_prediction(asked, ExternalAnswer(text), protocol)
        for end, own in ends.items():
            for behind in (end, f"{end}\n", f"\n{end}{end}", f"{end}</s></s>"):
                found = external_prediction(asked, ExternalAnswer(text + behind), protocol, own)
                assert (found.metrics, found.problem) == (verdict.metrics, verdict.problem), behind
    assert len(ends) > 8


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"text": RIGHT, "tool_calls": []}, ExternalAnswer(RIGHT)),
        ({"text": RIGHT, "tool_calls": None}, ExternalAnswer(RIGHT)),
        ({"message": {"content": RIGHT, "tool_calls": []}}, ExternalAnswer(RIGHT)),
        ({"message": {"content": RIGHT}, "text": RIGHT}, ExternalAnswer(RIGHT)),
        ({"message": {"content": None}}, ExternalAnswer("")),
        ({"text": RIGHT, "calls": []}, ExternalAnswer(RIGHT, ())),
        ({"tool_calls": []}, ExternalAnswer("", ())),
    ],
)
def test_a_server_that_found_no_call_leaves_the_text_to_be_read(shape, expected, tmp_path, dialog):
    row = {"id": dialog.id, "turn": 2, **shape}
    assert list(external(tmp_path / "rows.jsonl", [row], dialog).values()) == [expected]
