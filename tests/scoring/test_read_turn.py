"""agentlite.scoring.read_turn: what is wrong with a turn, and that the recorded one never is."""

from dataclasses import replace

import pytest
from support.examples import cost

from agentlite.core.records import Call, Message, Parsed, Record, Tool
from agentlite.rendering import PROTOCOLS
from agentlite.rendering.protocol import MOST_CALLS
from agentlite.scoring.read_turn import UNCLOSED, read_turn
from agentlite.scoring.rewards import Attempt, TraceStep, score_attempt

CALL = Call("search", {"text": "rain"}, "call00000")
TOOLS = (Tool("search", "Pages.", {"type": "object", "properties": {"text": {}}}),)
DIALOG = Record(
    messages=(
        Message("user", "Wet?"),
        Message("assistant", calls=(CALL,)),
        Message("tool", "4 mm", call_id=CALL.id),
        Message("assistant", "Yes."),
    ),
    tools=TOOLS,
)


@pytest.mark.parametrize("name", ["hermes", "react"])
@pytest.mark.parametrize("turn", [1, 3])
def test_a_thought_that_the_prompt_opens_has_to_be_closed(name: str, turn: int) -> None:
    """Where results stand inside the turn, the text behind one follows no prompt that opens one."""
    opening = replace(PROTOCOLS[name], prompt_opens_thought=True)
    message = DIALOG.messages[turn]
    written = opening.write(message, TOOLS)
    is_open = not opening.inline or turn == 1
    read = read_turn(written, opening, DIALOG, turn)
    assert (read.problem, bool(read.calls)) == (
        (UNCLOSED, False) if is_open else ("", bool(message.calls))
    )
    closed = read_turn(f"I think.</think>{written}", opening, DIALOG, turn)
    assert (closed.problem, closed.calls != ()) == ("", turn == 1)


@pytest.mark.parametrize("tools", [TOOLS, ()], ids=["tools", "no tools"])
@pytest.mark.parametrize("name", [name for name, one in PROTOCOLS.items() if not one.exchanges])
def test_an_answer_says_something_if_it_has_a_letter_or_a_digit_of_any_script(
    name: str, tools: tuple[Tool, ...]
) -> None:
    """The answer to how many is a number."""
    protocol = PROTOCOLS[name]
    record = Record(messages=(DIALOG.messages[0], Message("assistant", "Wet.")), tools=tools)
    words = ["42", "-3.5", "½", "²", "٤٢", "四", "Ⅳ", "x", "ß", "да", "**7**", "“8”"]
    for text in (*words, "...", "?!", "—", "\u200b", "*", "🙂", "()", "。", "$", "%"):
        written = protocol.write(Message("assistant", text), tools) if tools else text
        read = read_turn(written, protocol, record, 1)
        assert (read.content, read.problem) == (text, "" if text in words else "says nothing")


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("name", [name for name, one in PROTOCOLS.items() if not one.native])
def test_an_answer_of_thousands_of_calls_is_a_problem_and_costs_no_square(
    name: str, same: bool
) -> None:
    """Whether it repeats one call or makes others, and in a whole dialog that has so many."""
    protocol, gold = PROTOCOLS[name], DIALOG.gold_at(1)

    def calls(number: int) -> list[Call]:
        return [Call("search", {"text": "rain" * (1 if same else n)}) for n in range(number)]

    def score(number: int) -> None:
        text = "\n".join(protocol.write(Message("", calls=(c,)), TOOLS) for c in calls(number))
        parsed = read_turn(text, protocol, DIALOG, 1)
        assert parsed.problem and len(parsed.calls) <= MOST_CALLS
        score_attempt(Attempt(parsed, gold, TOOLS, text=text))
        trace = tuple(TraceStep(call, True) for call in calls(number))
        score_attempt(Attempt(Parsed(""), gold, TOOLS, trace=trace))

    score(200)
    assert cost(lambda: score(800)) < 6 * cost(lambda: score(200))
