"""What a protocol promises: it reads back, its prompts are prefixes, only the assistant's own words
are trained.
"""

import io
import json
import re
from collections import Counter
from functools import cache

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.examples import examples, sample
from support.samples import DATA, PROMPT_TEMPLATES, TIME, WEATHER

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Call, Gold, Message, Parsed, Record
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, detect_format, to_record
from agentlite.data.formats.raw_rows import read_raw
from agentlite.rendering import (
    PROTOCOLS,
    Protocol,
    choose,
    encoding,
    mark_trained,
    native_problem,
    render,
    renderer,
    training_rows,
)
from agentlite.rendering.protocol import THINK_END
from agentlite.rendering.template import Template
from agentlite.scoring.metrics.step_metrics import score_step

# built in, and the files of prompt templates
WRITTEN = [*(name for name in PROTOCOLS if name != "chat"), *map(str, PROMPT_TEMPLATES)]
COMBINATIONS = [
    ("chat", "tools"),
    *((p, t) for p in WRITTEN for t in ("smollm2", "tools", "forgets")),
]
CONCLUDES = ("kuaiagent", "kuaiagent-zh", "autogpt")
anywhere = pytest.mark.parametrize(("protocol_name", "template_name"), COMBINATIONS)

words = st.text(
    st.characters(codec="utf-8", exclude_characters="\r", exclude_categories=("Cs", "Cc")),
    max_size=30,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(words, values, max_size=4)


def both(
    protocol_name: str, template_name: str, templates: dict[str, Template]
) -> tuple[Protocol, Template]:
    template = templates[template_name]
    return chosen(protocol_name, template), template


def chosen(name: str, template: Template) -> Protocol:
    (protocol,) = choose(name, template).protocols.values()
    return protocol


def trained_text(record: Record, protocol: Protocol, template: Template) -> str:
    shown = [mark_trained(row, "\0{}\0".format) for row in render(record, protocol, template)]
    return "".join(piece for text in shown for piece in text.split("\0")[1::2])


@anywhere
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=arguments, thought=words)
@example(arguments={"<|im_end|>": None}, thought="")
@example(arguments={"city": "<|im_start|>"}, thought="")
@example(arguments={"</think>": None}, thought="")  # all before it would be read as a thought
def test_what_is_rendered_reads_back(protocol_name, template_name, templates, arguments, thought):
    protocol, template = both(protocol_name, template_name, templates)
    call = Call("get_weather", arguments, "call_0")
    record = Record(
        messages=(Message("user", "x"), Message("assistant", thought, (call,))), tools=(WEATHER,)
    )
    try:
        rows = render(record, protocol, template)
        renderer.check_reading(record, rows, protocol, template)
    except (
        RowError
    ):  # a thought or an argument may hold a tag or a label: refused, never trained wrongly
        said = thought + str(arguments)
        assert any(mark in thought for mark in ("<", ":")) or any(
            mark in said for mark in (*protocol.stops, *template.control_tokens, THINK_END)
        )
        return
    (span,) = [span for row in rows for span in row.spans]
    read = protocol.parse(renderer.span_text(rows[0], span, template))
    assert [(c.name, c.arguments) for c in read.calls] == [("get_weather", arguments)]


@anywhere
def test_no_prompt_holds_what_comes_behind_it(protocol_name, template_name, templates):
    """Neither the answer itself nor anything later: that would be learned, and missed in use."""
    protocol, template = both(protocol_name, template_name, templates)
    first = Call("get_weather", {"city": "Aaaq"}, "call_0")
    second = Call("get_weather", {"city": "Cccq"}, "call_1")
    messages = (
        Message("user", "Where is it wet?"),
        Message("assistant", "Thinkq.", (first,)),
        Message("tool", "Bbbq", call_id="call_0"),
        Message("assistant", "Again1q.", (second,)),
        Message("tool", "Dddq", call_id="call_1"),
        Message("assistant", "Eeeq."),
        Message("user", "Fffq?"),
        Message("assistant", "Gggq."),
    )
    names = ("Aaaq Thinkq", "Bbbq", "Cccq Again1q", "Dddq", "Eeeq", "Fffq", "Gggq")
    rows = render(Record(messages=messages, tools=(WEATHER,)), protocol, template)
    seen = set()
    for row in rows:
        for span in row.spans:
            seen.add(span.turn)
            later = " ".join(names[span.turn - 1 :]).split()
            assert not [one for one in later if one in row.text[: span.start]]
    assert seen == {1, 3, 5, 7}


@anywhere
def test_a_turn_that_is_switched_off_is_not_trained_but_stays_in_the_prompt(
    protocol_name, template_name, templates
):
    protocol, template = both(protocol_name, template_name, templates)
    messages = (
        Message("user", "a"),
        Message("assistant", "kept out", loss=False),
        Message("user", "b"),
        Message("assistant", "learned"),
    )
    record = Record(messages=messages, tools=(WEATHER,))
    assert "kept out" not in trained_text(record, protocol, template)
    assert "learned" in trained_text(record, protocol, template)
    row = next(
        row for row in render(record, protocol, template) if 3 in [span.turn for span in row.spans]
    )
    assert "kept out" in template.decode(encoding.encode_prompt(row, 3, template))


def test_a_row_with_nothing_to_train_is_refused(smollm2):
    record = Record(messages=(Message("user", "a"), Message("assistant", "b", loss=False)))
    with pytest.raises(RowError, match="E217"):
        training_rows(record, chosen("hermes", smollm2), smollm2)


@cache
def records_of_all_data() -> list[Record]:
    """Every row under tests/support/rows that is a record, of every format."""
    found = []
    for path in sorted(DATA.rglob("*.jsonl")):
        for raw in read_raw(str(path), io.BytesIO()):
            try:
                for part in FORMATS[detect_format(raw.value)].samples(raw.value):
                    record = to_record(part)
                    validate(record)
                    found.append(record)
            except RowError:
                continue
    return found


@anywhere
def test_over_all_rows_no_result_is_trained_and_every_turn_end_is(
    protocol_name, template_name, templates
):
    protocol, template = both(protocol_name, template_name, templates)
    seen = Counter()
    for record in sample(40, records_of_all_data()):
        try:
            rows = render(record, protocol, template)
            renderer.check_reading(record, rows, protocol, template)
            training_rows(record, protocol, template)
        except RowError:
            continue
        for row in rows:
            ids = encoding.encode_row(row, template).input_ids
            for span in filter(lambda span: span.prompted, row.spans):
                prompt = encoding.encode_prompt(row, span.turn, template)
                assert ids[: len(prompt)] == prompt
                assert template.decode(prompt) == row.text[: span.start]
        marked = replace(
            record,
            messages=tuple(
                replace(m, content=f"{m.content} FOREIGN")
                if m.role in ("tool", "user", "system")
                else m
                for m in record.messages
            ),
        )
        learned = [
            label
            for row in training_rows(marked, protocol, template)
            for label in row.labels
            if label >= 0
        ]
        assert "FOREIGN" not in template.decode(learned)
        turns = [m for m in record.messages if m.role == "assistant" and m.loss]
        ends = learned.count(template.token_id(template.turn_end))
        stops = template.decode(learned).count(protocol.stops[0]) if protocol.stops else 0
        concluded = (
            [m for m in turns if not m.calls and record.tools] if protocol_name in CONCLUDES else []
        )  # two rows each
        assert ends + stops == len(turns) + len(concluded)
        seen["rows"] += 1
        seen["results"] += sum(m.role == "tool" for m in record.messages)
    assert seen["rows"] >= examples(60)
    assert seen["results"] >= examples(20)


def test_an_answer_followed_by_another_is_never_trained_past_its_end(smollm2):
    messages = (Message("user", "a"), Message("assistant", "first"), Message("assistant", "second"))
    with pytest.raises(RowError, match="E203"):
        render(Record(messages=messages), chosen("react", smollm2), smollm2)


def test_an_invented_observation_is_refused_since_sampling_would_end_there(smollm2):
    messages = (Message("user", "a"), Message("assistant", "As seen:\nObservation: 9 mm"))
    record, protocol = Record(messages=messages, tools=(WEATHER,)), chosen("react", smollm2)
    with pytest.raises(RowError, match="stop string"):
        renderer.check_reading(record, render(record, protocol, smollm2), protocol, smollm2)


@settings(max_examples=examples(200))
@given(
    text=st.text(max_size=80)
    | st.from_regex(re.compile(r"(<tool_call>|Action:|\{|\}|\"|\n| |a)*"), fullmatch=True)
)
def test_no_text_makes_a_reader_fail(text):
    for protocol in PROTOCOLS.values():
        read = protocol.parse(text)
        score_step(read, Gold(), (WEATHER,))
        json.dumps([call.arguments for call in read.calls])


def test_the_first_of_a_final_answer_and_an_action_is_what_react_reads():
    react, action = PROTOCOLS["react"], 'Action: get_weather\nAction Input: {"city": "Oslo"}'
    answered = react.read(f"Final Answer: Yes.\n{action}", [WEATHER])
    assert (answered.content, answered.calls, answered.problem) == (f"Yes.\n{action}", (), "")
    called = react.read(f"{action}\nFinal Answer: Yes.", [WEATHER])
    assert [call.name for call in called.calls] == ["get_weather"]
    assert called.problem == "text after the action input"


def test_chat_is_refused_where_the_template_takes_no_tools_and_auto_avoids_it(templates):
    assert choose("auto", templates["smollm2"]).setting == "hermes"
    assert choose("auto", templates["tools"]).setting == "chat"
    with pytest.raises(UserError) as refused:
        choose("chat", templates["smollm2"])
    assert refused.value.exit_code == 5


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("t }}{% for", "t if not message.tool_calls }}{% for", "no words before a call"),
        ("in message.tool_calls %}", "in (message.tool_calls or [])[:1] %}", "one call per turn"),
    ],
)
def test_auto_avoids_a_template_that_would_lose_a_part_of_a_turn(templates, old, new, problem):
    template = templates["tools"]
    assert old in template.source and native_problem(template) == ""
    source = template.source.replace(old, new)
    other = Template("other", template.tokenizer, source, template.special)
    assert problem in native_problem(other) and choose("auto", other).setting == "hermes"
    assert choose("chat", other).setting == "chat"  # who names it, gets it


# --- toolllama: an answer is a call of Finish ---


def test_an_answer_is_a_call_of_finish_and_reads_back_as_an_answer(smollm2, dialog):
    protocol = chosen("toolllama", smollm2)
    (row,) = render(dialog, protocol, smollm2)
    assert '"name": "Finish"' in row.text
    text = renderer.span_text(row, row.spans[-1], smollm2)
    assert text == (
        'Action: Finish\nAction Input: {"return_type": "give_answer", "final_answer": "Quite '
        'sure."}'
    )
    assert protocol.read(text, dialog.tools) == Parsed("Quite sure.")


def test_finish_is_a_call_like_others_where_the_record_has_such_a_tool(smollm2):
    finish = Call("Finish", {"return_type": "give_answer", "final_answer": "Yes."})
    record = Record(
        messages=(Message("user", "Wet?"), Message("assistant", "I know.", (finish,))),
        tools=(WEATHER, replace(WEATHER, name="Finish")),
    )
    protocol = chosen("toolllama", smollm2)
    rows = render(record, protocol, smollm2)
    renderer.check_reading(record, rows, protocol, smollm2)
    assert rows[0].text.count('"name": "Finish"') == 1


# --- kuaiagent, autogpt: one prompt to plan and call, one to conclude ---


@pytest.mark.parametrize("name", ["kuaiagent", "autogpt"])
def test_a_tool_that_is_named_like_the_end_of_a_task_is_refused(name, smollm2):
    record = Record(
        messages=(Message("user", "x"), Message("assistant", "y")),
        tools=(replace(WEATHER, name="task_complete"),),
    )
    with pytest.raises(RowError, match=f"E212.*{name}"):
        render(record, chosen(name, smollm2), smollm2)


# --- mixtures ---


def numbered(count: int, calls: tuple[Call, ...] = ()) -> list[Record]:
    return [
        Record(
            messages=(Message("user", f"{n}"), Message("assistant", "y", calls)),
            tools=(WEATHER, TIME),
        )
        for n in range(count)
    ]


def test_a_mixture_takes_each_protocol_as_often_as_its_weight_says_and_always_the_same_for_a_record(
    smollm2,
):
    mixture, other = (choose("hermes=3, react", smollm2, seed) for seed in (0, 1))
    records = numbered(2000)
    names = [mixture.protocol_of(record).name for record in records]
    counts = Counter(names)
    assert mixture.setting == "hermes=3,react=1"
    assert 1400 < counts["hermes"] < 1600 and counts["hermes"] + counts["react"] == 2000
    assert [mixture.protocol_of(record).name for record in reversed(records)] == names[::-1]
    assert [other.protocol_of(record).name for record in records] != names
