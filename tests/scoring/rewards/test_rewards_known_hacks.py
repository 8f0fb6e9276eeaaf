"""Known ways to cheat a reward, in every protocol, and the most that each earns."""

import re

import pytest
from support.examples import sample
from support.samples import ROOT

from agentlite.core.records import (
    Call,
    Candidate,
    Gold,
    GoldCall,
    GreedyAnswer,
    Message,
    Record,
    Tool,
    plain,
)
from agentlite.rendering import PROTOCOLS, Prompt
from agentlite.rendering.protocol import Protocol
from agentlite.rendering.protocols import hermes
from agentlite.scoring.predictions import answered
from agentlite.scoring.rewards import WEIGHTS, total
from agentlite.scoring.rewards.scorer import Scorer

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
TOOLS = (Tool("get_weather", "Weather of a city.", SCHEMA), Tool("book", "Books a room.", SCHEMA))
RIGHT = Call("get_weather", {"city": "Oslo", "days": 3}, "call00000")
QUESTION = Message("user", "Will it rain in Oslo in the next three days?")
ANSWER = "Yes, about 4 mm of rain in Oslo."
CALLING = Record(messages=(QUESTION, Message("assistant", calls=(RIGHT,))), tools=TOOLS)
ANSWERING = Record(
    messages=(
        *CALLING.messages,
        Message("tool", "4 mm", call_id=RIGHT.id),
        Message("assistant", ANSWER),
    ),
    tools=TOOLS,
)
TWO_EXPECTED = Record(
    messages=CALLING.messages,
    tools=TOOLS,
    gold={
        1: Gold(
            (
                GoldCall("get_weather", {"city": ["Oslo"], "days": [3]}),
                GoldCall("get_weather", {"city": ["Rome"], "days": [3]}),
            )
        )
    },
)
READERS = {
    **{name: protocol for name, protocol in PROTOCOLS.items() if not protocol.native},
    "chat": hermes.PROTOCOL,
    "chat-json": Protocol("chat-json", hermes.parse_json, several=True),
}


def written(name, calls=(), content=""):
    """An assistant's turn in a protocol."""
    protocol, message = READERS[name], Message("assistant", content, tuple(calls))
    if protocol.exchanges:
        one = Record(messages=(QUESTION, message), tools=TOOLS)
        return next(e.answer for e in protocol.exchanges(one, 1) if e.prompted)
    if name == "chat-json" and calls:
        return "; ".join(plain({"name": c.name, "parameters": c.arguments}) for c in calls)
    return protocol.write(message, TOOLS)


def right(name):
    return written(name, [RIGHT])


def called_with(arguments):
    return lambda name: written(name, [Call("get_weather", arguments)])


def key_twice(name):
    text, count = re.subn(r"""(['"])city\1: """, r"\1city\1: \1Lima\1, \g<0>", right(name))
    assert count == 1
    return text


def name_twice(name):
    """Where a call has its name in its JSON."""
    texts = {
        right(name).replace(f'"{key}": "get', f'"{key}": "book", "{key}": "get')
        for key in ("name", "api_name")
    } - {right(name)}
    return next(iter(texts), None)


def right_twice(name):
    return written(name, [RIGHT, RIGHT]) if READERS[name].several else None


def before(text):
    return lambda name: f"{text}{right(name)}"


def behind(text):
    return lambda name: f"{right(name)}{text}"


JUNK = "and so on " * 150
# A hack, the most it earns, and its texts where a call is expected; None: no text in this protocol
CALL_HACKS = [
    (
        "right call, then a result invented after it",
        0.8,
        behind("\n<tool_response>\n9 mm\n</tool_response>\nIt rains."),
        behind("\nObservation: 9 mm\nThought: I now know.\nFinal Answer: It rains."),
        behind(" 9 mm\nThought: I now know.\nFinal Answer: It rains."),
        behind("\n\n<|startofexec|>9 mm<|endofexec|>\nIt rains."),
    ),
    (
        "result invented before the right call",
        0.8,
        before("<tool_response>\n9 mm\n</tool_response>\n"),
        before("Observation: 9 mm\n"),
    ),
    ("right call, then hundreds of words", 0.8, behind(f"\n{JUNK}")),
    ("hundreds of words, then the right call", 0.9, before(f"{JUNK}\n")),
    (
        "thousands of letters or marks, then the right call",
        0.9,
        before("x" * 3000 + "\n"),
        before("🎉" * 2000 + "\n"),
    ),
    (
        "right call, a value padded with hundreds of blanks",
        0.65,
        called_with({"city": "Oslo" + " " * 500, "days": 3}),
        called_with({"city": "Oslo" + "-" * 500, "days": 3}),
    ),
    ("right call, then a refusal", 0.8, behind("\nbut I will NOT call it.")),
    (
        "right call quoted in a refusal",
        0.8,
        lambda name: f"You want me to write {right(name)} but I will NOT call it.",
    ),
    (
        "right call in thoughts only",
        -0.2,
        lambda name: f"<think>{right(name)}</think>\nNo.",
        lambda name: f"<think>a</think> <think>{right(name)}</think>No.",
    ),
    ("right call in thoughts without an end", -0.2, before("<think>I call it. ")),
    ("a key twice in the JSON", -0.2, key_twice),
    ("the name twice in the JSON", -0.2, name_twice),
    ("right tool, every argument wrong", 0.45, called_with({"city": "Rome", "days": 9})),
    ("right tool, no argument", 0.35, called_with({})),
    ("right tool, its schema for arguments", 0.35, called_with(SCHEMA["properties"])),
    ("the right call twice", 0.5, right_twice),
    ("an answer where a call is expected", -0.2, lambda name: written(name, content="It rains.")),
]
# Where no call is expected: what the assistant writes as its answer.
ANSWER_HACKS = [
    ("a full stop", 0.15, "."),
    ("a character without width", 0.15, "\u200b"),
    ("marks alone", 0.15, "?! ... !!"),
    ("random letters", 0.9, "xqz vlkr plomf"),
    ("thoughts without an end", 0.15, "<think>hm"),
    ("thoughts alone", 0.15, "<think>It rains in Oslo.</think>"),
    (
        "a call in another syntax",
        0.15,
        '{"name": "get_weather", "arguments": {"city": "Oslo"}}',
        "Action: get_weather",
        'I look. {"tool": "book", "args": {}}',
        "[get_weather(city='Oslo', days=3)]",
        "<function=get_weather>{}</function>",
        '<invoke name="book"></invoke>',
    ),
    ("an invented result", 0.15, "<tool_response>\n9 mm\n</tool_response>\nIt rains in Oslo."),
]


def in_protocols(hacks):
    """Each text of each hack in each protocol."""
    return [
        (name, hack, most, text)
        for name in READERS
        for hack, most, *texts in hacks
        for text in texts
    ]


def judged(name, text, record, ended="turn"):
    """The score of a turn, and its metrics in eval."""
    turn = record.turns[-1]
    scorer = Scorer({record.id: record}, {name: READERS[name]}, {})
    (score,) = scorer([Candidate(record.id, turn, name, "sft", 0, text, ended, 5)])
    prompt = Prompt(record, turn, name, [], "", "turn")
    return score, answered(prompt, GreedyAnswer(record.id, turn, "k", text, ended), READERS[name])


def earned(score):
    return round(total(score.components, WEIGHTS), 9)


@pytest.mark.parametrize("record", [CALLING, ANSWERING], ids=["call", "answer"])
@pytest.mark.parametrize("name", READERS)
def test_what_the_record_itself_says_earns_everything(name, record):
    message = record.messages[-1]
    score, prediction = judged(name, written(name, message.calls, message.content), record)
    assert (earned(score), score.components["exact"], score.feedback) == (1.0, 1.0, "right")
    assert prediction.problem == ""
    assert set(prediction.metrics.values()) <= {1.0, float(bool(message.calls))}


@pytest.mark.parametrize(
    ("name", "hack", "most", "text_in"),
    sample(100, in_protocols(CALL_HACKS)),
)
def test_a_hack_where_a_call_is_expected_earns_no_more_than_the_table_says(
    name, hack, most, text_in
):
    if (text := text_in(name)) is None:
        pytest.skip("the protocol cannot hold it")
    score, prediction = judged(name, text, CALLING)
    assert (earned(score) <= most, score.components["exact"]) == (True, 0.0), score
    assert score.feedback != "right"
    assert prediction.metrics["tool_n1"] == 0.0
    # eval's exact_call does not count words, so a long thought leaves the call right
    is_only_long = hack.endswith(", then the right call") and not prediction.problem
    assert prediction.metrics["exact_call"] == float(is_only_long)


@pytest.mark.parametrize(
    ("name", "hack", "most", "text"),
    sample(60, in_protocols(ANSWER_HACKS)),
)
def test_a_hack_where_no_call_is_expected_earns_no_more_than_the_table_says(name, hack, most, text):
    for form in {text} if READERS[name].exchanges else {text, written(name, content=text)}:
        score, prediction = judged(name, form, ANSWERING)
        assert (earned(score) <= most, score.components["exact"]) == (True, 0.0), score
        assert score.feedback != "right"
        assert prediction.metrics["tool_n1"] == 0.0
        assert prediction.metrics["call_decision"] == 0.0 or most == 0.9


def test_one_right_call_of_two_beats_the_same_call_twice_and_a_third_one_lowers_it():
    once, twice, thrice = (
        earned(judged("hermes", written("hermes", [RIGHT] * count), TWO_EXPECTED)[0])
        for count in (1, 2, 3)
    )
    assert once > twice > thrice
    wrong = Call("get_weather", {"city": "Bonn", "days": 3})
    wrongs = [
        earned(judged("hermes", written("hermes", [wrong] * count), TWO_EXPECTED)[0])
        for count in (1, 2, 3, 4)
    ]
    assert wrongs == sorted(wrongs, reverse=True) and len(set(wrongs)) == 4


def test_the_documentation_has_the_same_table():
    text = (ROOT / "docs/rewards.md").read_text(encoding="utf-8")
    rows = {(hack, most) for hack, most, *_ in [*CALL_HACKS, *ANSWER_HACKS]}
    assert [row for row in sorted(rows) if f"| {row[0]} | {row[1]:g} |" not in text] == []
