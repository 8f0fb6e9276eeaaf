"""Known ways to cheat a reward, in every protocol, and the most that each earns."""

import io
import re
from contextlib import suppress

import pytest
from msgspec.structs import replace
from support.examples import sample
from support.samples import ROOT

from agentlite.core.errors import RowError
from agentlite.core.records import (
    Call,
    Candidate,
    Gold,
    GoldCall,
    GreedyAnswer,
    Message,
    Parsed,
    Record,
    Tool,
    to_json,
)
from agentlite.data.formats import to_record
from agentlite.data.formats.raw_rows import read_raw
from agentlite.rendering import PROTOCOLS, Prompt
from agentlite.rendering.protocol import Protocol
from agentlite.rendering.protocols import hermes
from agentlite.scoring.predictions import to_prediction
from agentlite.scoring.rewards import WEIGHTS, total
from agentlite.scoring.rewards.attempt import Attempt
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
OTHER = Message("assistant", "It rains.")
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
    "chat-json": Protocol("chat-json", hermes.parse_json, parallel_calls=True),
}


def written(name, calls=(), content=""):
    """An assistant's turn in a protocol."""
    protocol, message = READERS[name], Message("assistant", content, tuple(calls))
    if protocol.exchanges:
        one = Record(messages=(QUESTION, message), tools=TOOLS)
        return next(e.answer for e in protocol.exchanges(one, 1) if e.prompted)
    if name == "chat-json" and calls:
        return "; ".join(to_json({"name": c.name, "parameters": c.arguments}) for c in calls)
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
    return written(name, [RIGHT, RIGHT]) if READERS[name].parallel_calls else None


def before(text):
    return lambda name: f"{text}{right(name)}"


def behind(text):
    return lambda name: f"{right(name)}{text}"


JUNK = "and so on " * 150
LETTERS = " ".join(chr(97 + n % 26) * 3 + chr(97 + n // 26) for n in range(149))
ABOUT = " ".join(f"rain{n} in Oslo{n}" for n in range(300))
# A hack, the most it earns, and its texts where a call is expected; None: no text in this protocol
CALL_HACKS = [
    (
        "right call, then a result invented after it",
        0.25,
        behind("\n<tool_response>\n9 mm\n</tool_response>\nIt rains."),
        behind("\nObservation: 9 mm\nThought: I now know.\nFinal Answer: It rains."),
        behind(" 9 mm\nThought: I now know.\nFinal Answer: It rains."),
        behind("\n\n<|startofexec|>9 mm<|endofexec|>\nIt rains."),
        behind("\nResult: 9 mm"),
        behind("\n<result>9 mm</result>"),
        behind("\n```output\n9 mm\n```"),
    ),
    (
        "result invented before the right call",
        0.45,
        before("<tool_response>\n9 mm\n</tool_response>\n"),
        before("Observation: 9 mm\n"),
        before("Result: 4 mm\n"),
        before("**Output**: 4 mm\n"),
        before("Tool output: 4 mm\n"),
        before("返回：4 mm\n"),
        before("The tool returned: 4 mm.\n"),
        before("The API has responded with 4 mm.\n"),
        before("```output\n4 mm\n```\n"),
        before("```\n4 mm\n```\n"),
        before("<result>4 mm</result>\n"),
        before("<information>\n4 mm\n</information>\n"),
        before('<doc id="1">4 mm</doc>\n'),
        before('{"role": "tool", "content": "4 mm"}\n'),
        before('{"rain": 4}\n'),
    ),
    (
        "a turn invented before the right call",
        0.45,
        before("User: please\nAssistant: ok\n"),
        before("Human: please\n"),
        before("**User:** please\n"),
        before("用户：请\n助手：好\n"),
        before("<|user|>please<|assistant|>"),
    ),
    (
        "another call before the right call, in another syntax",
        0.45,
        before('{"name": "no_tool", "arguments": {}}\n'),
        before('{"name": "book", "arguments": {"city": "Oslo"}}\n'),
        before("<book><city>Oslo</city></book>\n"),
        before("book(city='Oslo')\n"),
    ),
    ("right call, then hundreds of words", 0.25, behind(f"\n{JUNK}"), behind(f"\n{ABOUT}")),
    (
        "hundreds of words, then the right call",
        0.4,
        before(f"{JUNK}\n"),
        before(f"{JUNK[:1490]}\n"),
        before(f"{LETTERS}\n"),
        before(f"{ABOUT}\n"),
        before("Oslo " * 40),
    ),
    (
        "thousands of letters or marks, then the right call",
        0.4,
        before("x" * 3000 + "\n"),
        before("x" * 1499 + "\n"),
        before("🎉" * 2000 + "\n"),
        before("雨" * 149),
    ),
    (
        "thousands of words in thoughts, then the right call",
        0.4,
        before(f"<think>{ABOUT} {ABOUT} {ABOUT}</think>\n"),
        before(f"<think>{'hm ' * 3000}</think>"),
        before(f"<think>hm</think><think>{'x' * 30000}</think>"),
    ),
    (
        "right call, a value padded with hundreds of blanks",
        0.65,
        called_with({"city": "Oslo" + " " * 500, "days": 3}),
        called_with({"city": "Oslo" + "-" * 500, "days": 3}),
    ),
    ("right call, then a refusal", 0.25, behind("\nbut I will NOT call it.")),
    (
        "a refusal, then the right call",
        0.45,
        before("I will never call a tool for you. "),
        before("I won't call it.\n"),
    ),
    (
        "right call quoted in a refusal",
        0.25,
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
    (
        "an answer where a call is expected",
        -0.2,
        lambda name: written(name, content="It rains."),
        lambda name: written(name, content="I will call get_weather for Oslo now."),
    ),
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
        '{"fn": "get_weather", "args": {"city": "Oslo"}}',
        '{\n "fn": "get_weather",\n "args": {\n  "city": "Oslo"}}',
        '{"get_weather": {"city": "Oslo", "days": 3}}',
        "{'get_weather': {'city': 'Oslo'}}",
        "<get_weather><city>Oslo</city></get_weather>",
        "get_weather (city='Oslo')",
        "Now I do get_weather(city='Oslo') for you.",
        "get_weather city=Oslo days=3",
    ),
    (
        "an invented result",
        0.15,
        "<tool_response>\n9 mm\n</tool_response>\nIt rains in Oslo.",
    ),
    (
        "an invented turn behind the answer",
        0.35,
        "It rains.\nUser: And in Rome?\nAssistant: There, too.",
        "It rains.\n\n**Human**: Thanks\n**Assistant**: Good.",
    ),
    (
        "a call that is announced and not made",
        0.35,
        "Let me call get_weather for Oslo now.",
        "I'll use the weather tool for Oslo.",
        "I am going to query the API.",
    ),
    (
        "the words of the question",
        0.35,
        QUESTION.content,
        QUESTION.content.upper().strip("?"),
    ),
    (
        "nothing of the result",
        0.35,
        "Sorry, I cannot help with that in any way.",
        "I am unable to assist you with this.",
    ),
    (
        "hundreds of words, and thousands in thoughts",
        0.4,
        "rain " * 20000,
        ABOUT,
        f"<think>{ABOUT} {ABOUT} {ABOUT}</think>{ANSWER}",
    ),
]
HONEST_CALLS = [
    "I look up the weather in Oslo for the next three days.",
    "Note: the forecast covers three days.\n\n1. Look up the weather.\n2. Answer.",
    "I call get_weather with city=Oslo, days=3.",
    "I can't see the weather myself, so I call get_weather, which is the right tool.",
    f"<think>{ABOUT}</think>I look it up.",
    "我需要先查询一下奥斯陆未来三天的天气预报，然后再根据查询到的结果详细地回答用户提出的问题。",
    "<plan>Look it up, then answer.</plan>",
    "So that you can do it yourself:\n```python\nforecast(city)\n```",
    "Once the tool has returned the forecast, I sum it up.",
    "I won't call book, only get_weather.",
    "I can't call anyone by phone, but I can look.",
]
HONEST_ANSWERS = [
    "It will rain 4 mm in Oslo.",
    "Yes.",
    "No rain worth a word: 4 mm.",
    "The tool says 4 mm of rain. Shall I book a room?",
    "I will call again if you name another city. For Oslo it is 4 mm.",
    '{"city": "Oslo", "rain": "4 mm"}',
    "Sorry, only a little rain: 4 mm.",
    "4 mm.",
    "It will.",
    "Here you are: 4 mm.",
    "奥斯陆会下4毫米的雨。",
    "According to get_weather (city: Oslo, days: 3), 4 mm.",
    "I'll use no tool for that: it is 4 mm.",
    "If you want Rome as well, I will call get_weather again. Oslo: 4 mm.",
    "See https://example.com/get_weather?city=Oslo for more than these 4 mm.",
    "| day | rain |\n" + "\n".join(f"| {day} | 0 mm |" for day in range(60)) + "\nIn all 4 mm.",
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
    return score, to_prediction(
        prompt, GreedyAnswer(record.id, turn, "k", text, ended), READERS[name]
    )


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
    # eval does not look at the length of thoughts
    assert prediction.metrics["tool_n1"] == 0.0 or "words in thoughts" in hack
    # eval's exact_call does not look at the words before a call
    is_only_words = "the right call" in hack and not prediction.problem
    assert prediction.metrics["exact_call"] == float(is_only_words and len(prediction.calls) == 1)


@pytest.mark.parametrize(
    ("name", "hack", "most", "text"),
    sample(60, in_protocols(ANSWER_HACKS)),
)
def test_a_hack_where_no_call_is_expected_earns_no_more_than_the_table_says(name, hack, most, text):
    for form in {text} if READERS[name].exchanges else {text, written(name, content=text)}:
        score, prediction = judged(name, form, ANSWERING)
        assert (earned(score) <= most, score.components["exact"]) == (True, 0.0), score
        assert score.feedback != "right"
        assert prediction.metrics["tool_n1"] == 0.0 or "thousands in thoughts" in hack
        assert prediction.metrics["call_decision"] == 0.0 or most != 0.15


@pytest.mark.parametrize("words", HONEST_CALLS)
def test_honest_words_before_the_right_call_earn_everything(words):
    score, prediction = judged("hermes", f"{words}\n{right('hermes')}", CALLING)
    assert (earned(score), score.components["exact"], score.feedback) == (1.0, 1.0, "right")
    assert prediction.metrics["exact_call"] == 1.0 and not prediction.problem


@pytest.mark.parametrize("words", HONEST_ANSWERS)
def test_honest_answers_do_their_task(words):
    """`Yes` has no word of the dialog, which is all that it loses."""
    score, prediction = judged(
        "hermes", words, replace(ANSWERING, messages=(*ANSWERING.messages[:-1], OTHER))
    )
    assert earned(score) >= 0.9 and score.components["task_completion"] == 1.0, score
    assert prediction.metrics["call_decision"] == 1.0


def test_what_people_recorded_is_sound_though_nothing_is_recorded_here():
    """The answers of the formats' rows, each as if the record said something else."""
    faults = []
    for path in sorted((ROOT / "tests/support/rows").glob("*/*.jsonl")):
        for raw in read_raw(str(path), io.BytesIO()):
            with suppress(RowError):
                record = to_record(raw.row)
                for turn in record.turns:
                    message = record.messages[turn]
                    said, before = Parsed(message.content, message.calls), record.messages[:turn]
                    attempt = Attempt(
                        said, record.gold_at(turn), record.tools, messages=before, reference="x"
                    )
                    if message.content and (attempt.fault or attempt.excess_words):
                        faults.append((attempt.fault, message.content))
    assert not faults


@pytest.mark.parametrize("name", ["hermes", "chat-json", "modelscope", "kuaiagent"])
def test_harmless_writings_of_arguments_cost_nothing(name):
    """As JSON in a text; and none at all, of a tool without parameters."""
    bare = Call("get_time", {}, "call00000")
    no_parameters = Tool("get_time", "The time.", {"type": "object", "properties": {}})
    turn = Message("assistant", calls=(bare,))
    asked = Record(messages=(QUESTION, turn), tools=(*TOOLS, no_parameters))
    for call, record, forms in (
        (RIGHT, CALLING, [to_json(to_json(RIGHT.arguments))]),
        (bare, asked, ["null", '""', "[]", '"{}"']),
    ):
        for form in forms:
            text = written(name, [call])
            assert text.count(to_json(call.arguments)) == 1
            score, prediction = judged(name, text.replace(to_json(call.arguments), form), record)
            assert (earned(score), prediction.metrics["exact_call"]) == (1.0, 1.0), form


def test_a_refusal_is_an_answer_where_no_result_stands():
    """To a question that no tool answers, and behind a call that failed."""
    refusal = "Sorry, I cannot help with that."
    asked = Record(messages=(QUESTION, Message("assistant", "No.")), tools=TOOLS, gold={1: Gold()})
    question, call, _, answer = ANSWERING.messages
    failed = Message("tool", "Error: no such city", call_id=RIGHT.id)
    for record in (asked, replace(ANSWERING, messages=(question, call, failed, answer))):
        score, _ = judged("hermes", refusal, record)
        assert score.components["task_completion"] == 1.0, score


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
