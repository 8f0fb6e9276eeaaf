"""Chains of calls, and marks of results: no container can make a result trainable."""

import ast
import functools
import json
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chain_rows import CONTAINERS, SYNTAXES, TOOLS, ChainStep
from support.damaged_rows import rows_in
from support.examples import examples, pairs
from support.samples import DATA, with_template

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool, to_row
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, quick, to_record
from agentlite.data.formats.chains import _opened
from agentlite.data.formats.readers import RawLine
from agentlite.rendering import PROTOCOLS, choose, training_rows
from agentlite.rendering.encoding import IGNORED
from agentlite.rendering.protocols import hermes
from agentlite.rendering.template import Template

SECRET = "R35ULT"
OPTIONS = {"self_cognition": {"name": ["a"], "author": ["b"]}}


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
        protocol = choose(name, template).of(record)
        rows = training_rows(record, protocol, template)
    except RowError:
        return ""
    return "\n".join(
        template.decode([label for label in row.labels if label != IGNORED]) for row in rows
    )


@pytest.mark.parametrize(("container", "syntax"), pairs(8, [*CONTAINERS], [*SYNTAXES]))
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
TWO = (
    [*PLAIN[0], ChainStep("", "clock", "Oslo", f"{SECRET} 10:00")],
    "So yes, and it is ten.",
)
# a text that is learned whole holds no turns to take apart
WHOLE = ("text",)


@pytest.mark.parametrize("syntax", [name for name, one in SYNTAXES.items() if one.split])
@pytest.mark.parametrize("container", [name for name in CONTAINERS if name not in WHOLE])
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


@pytest.mark.parametrize("syntax", [name for name, one in SYNTAXES.items() if not one.split])
@pytest.mark.parametrize("container", CONTAINERS)
def test_what_cannot_be_taken_apart_is_rejected_by_its_mark(container: str, syntax: str) -> None:
    if container == syntax == "glaive":  # its own marks
        return
    with pytest.raises(RowError) as caught:
        to_record(row_of(container, syntax, [PLAIN]), options=OPTIONS)
    assert caught.value.code in ("E218", "E206", "E214", "E201"), caught.value.reason


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_plain_text_that_holds_a_chain_is_rejected(syntax: str) -> None:
    with pytest.raises(RowError) as caught:
        to_record(row_of("text", syntax, [PLAIN]))
    assert caught.value.code == "E218"


@pytest.mark.parametrize(
    "text",
    [
        "Observation: the liquid boils at 100 degrees.",
        "The labels are Thought, Action, Action Input and Observation: one a line.",
        "Action: heat the water.\nObservation: it boils.",
        "Lab report\n\nAction: Heat slowly\nObservation: bubbles\nResult: steam",
        "观察：水开了。",
        "Results come in `<tool_response>` tags.",
        "Final Answer: 4",
        "The Result: see the tool output below.",
    ],
)
@pytest.mark.parametrize("container", ["openai", "alpaca", "query", "text"])
def test_prose_about_observations_and_results_is_kept(container: str, text: str) -> None:
    row = CONTAINERS[container]("", [("q", text)])
    record = to_record(row)
    assert record.messages[-1].content.endswith(text)
    assert not record.tools


def test_a_row_that_is_read_quickly_is_split_like_any_other() -> None:
    for syntax in SYNTAXES:
        row = row_of("openai", syntax, [PLAIN, TWO])
        read = quick(RawLine("x:1", json.dumps(row, ensure_ascii=False).encode() + b"\n"))
        if SYNTAXES[syntax].split:
            assert read == to_record(row)
        else:
            assert read is None


@pytest.mark.parametrize("container", ["openai", "query", "sharegpt"])
@pytest.mark.parametrize("syntax", [name for name, one in SYNTAXES.items() if one.split])
def test_a_record_that_was_split_is_split_no_further(container: str, syntax: str) -> None:
    record = to_record(row_of(container, syntax, [PLAIN, TWO]))
    again = to_record(json.loads(json.dumps(to_row(record))))
    assert (again.messages, again.tools) == (record.messages, record.tools)


def test_a_result_that_is_a_turn_answers_the_action_before_it() -> None:
    """ms-swift writes the call as text, up to its stop string, and the result as a turn."""
    call = 'Thought: I look.\nAction: weather\nAction Input: {"city": "Oslo"}\nObservation:'
    for turn in (
        {"role": "tool", "content": "4 mm"},
        {"role": "user", "content": "Observation: 4 mm"},
    ):
        record = to_record(
            {
                "messages": [
                    {"role": "system", "content": SYNTAXES["ms_agent"].system},
                    {"role": "user", "content": "Wet?"},
                    {"role": "assistant", "content": call},
                    turn,
                    {"role": "assistant", "content": "Final Answer: Yes."},
                ]
            }
        )
        validate(record)
        assert [message.role for message in record.messages] == [
            *("user", "assistant", "tool", "assistant")
        ]
        assert record.messages[2] == Message("tool", "4 mm", call_id="call_0")
        assert record.messages[3].content == "Yes."


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


@pytest.mark.parametrize("container", HOLDS_TURNS)
@pytest.mark.parametrize(("given", "read"), RESULTS)
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


@pytest.mark.parametrize("role", ["user", "tool"])
@pytest.mark.parametrize("tag", ["tool_response", "tool_result"])
def test_tags_around_a_result_are_taken_off(role: str, tag: str) -> None:
    messages = json.loads(FORMATS["openai"].example)["messages"]
    messages[2] |= {"role": role, "content": f"<{tag}>\n4 mm\n</{tag}>\n"}
    tools = [TOOLS[0].schema]
    record = to_record({"messages": messages, "tools": tools, "gold": {"3": {"calls": []}}})
    validate(record)
    assert record.messages[2] == Message("tool", "4 mm", call_id="a")
    assert [*record.gold] == [3]


@pytest.mark.parametrize(
    "text",
    [
        "4 mm",
        "See <tool_response>4</tool_response>",
        "<tool_response>4</tool_response> So?",
        "<tool_response>4",
        "<tool_response><tool_response>4</tool_response>",
        "<tool_response>4</tool_result>",
    ],
)
def test_a_text_that_is_more_than_tagged_results_stays_as_it_is(text: str) -> None:
    messages = json.loads(FORMATS["openai"].example)["messages"]
    for place in ({"role": "tool", "content": text}, {"role": "user", "content": text}):
        messages[2] |= place
        assert to_record({"messages": messages}).messages[2].content == text


def test_tagged_results_in_one_turn_move_the_gold_behind_them() -> None:
    called = {
        "role": "assistant",
        "tool_calls": [{"function": {"name": name}} for name in ("weather", "clock")],
    }
    row = {
        "messages": [
            {"role": "user", "content": "q"},
            called,
            {"role": "user", "content": hermes.results([Message("tool", "4")] * 2)},
            {"role": "assistant", "content": "a"},
        ],
        "gold": {"3": {"calls": []}},
    }
    assert [*to_record(row).gold] == [4]


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


def test_a_turn_that_is_not_learned_may_hold_what_cannot_be_taken_apart() -> None:
    torn = "Action: weather\nObservation: 4 mm\nFinal Answer: x"
    turns = [
        {"role": "system", "content": SYNTAXES["ms_agent"].system},
        {"role": "user", "content": "Wet?"},
        {"role": "assistant", "content": torn, "loss": False},
        {"role": "user", "content": "Again."},
        {"role": "assistant", "content": "Final Answer: Yes."},
    ]
    record = to_record({"messages": turns})
    assert [message.content for message in record.messages] == ["Wet?", torn, "Again.", "Yes."]
    turns[2]["loss"] = True
    with pytest.raises(RowError) as caught:
        to_record({"messages": turns})
    assert caught.value.code == "E214"


@pytest.mark.parametrize("syntax", [name for name, one in SYNTAXES.items() if one.split])
def test_a_turn_that_only_lists_tools_keeps_its_place(syntax: str) -> None:
    """Empty, it is refused as the user's; left out, the turns before and behind it would be one."""
    written = SYNTAXES[syntax]
    said = ["Hello.", "Welcome.", written.system, written.answer(*PLAIN)]
    turns = zip(("user", "assistant") * 2, said, strict=True)
    record = to_record({"messages": [{"role": of, "content": text} for of, text in turns]})
    assert [tool.name for tool in record.tools if tool.name != "Finish"] == ["weather", "clock"]
    assert [message.role for message in record.messages] == [
        *("user", "assistant", "user", "assistant", "tool", "assistant")
    ]


@pytest.mark.parametrize("container", HOLDS_TURNS)
def test_what_a_prompt_says_about_its_tools_is_kept(container: str) -> None:
    about = "You have access of the following tools:\n1.shop: A tea seller."
    row = CONTAINERS[container](f"{about}\n{SYNTAXES['toolllama'].system}", [("q", "a")])
    record = to_record(row)
    assert record.meta["about_tools"].startswith("1.shop: A tea seller.")
    assert "1.shop" not in "".join(message.content for message in record.messages)


@pytest.mark.parametrize("container", ["openai", "alpaca", "query", "anthropic"])
@pytest.mark.parametrize("offered", [False, True])
def test_a_lone_call_is_a_call_where_tools_are_on_offer_and_else_a_text(
    container: str, offered: bool
) -> None:
    text = SYNTAXES["ms_agent"].answer(PLAIN[0], "").partition("\nObservation:")[0]
    row = CONTAINERS[container](SYNTAXES["ms_agent"].system if offered else "", [("q", text)])
    row = row if offered else {key: value for key, value in row.items() if key != "tools"}
    record = to_record(row)
    *_, answer = record.messages
    assert [call.name for call in answer.calls] == (["weather"] if offered else [])
    assert answer.content == ("I look." if offered else text)


def test_gold_stays_with_the_turn_it_is_for() -> None:
    written = SYNTAXES["hermes"]
    row = {
        "messages": [
            {"role": "system", "content": written.system},
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": written.answer(*PLAIN)},
            {"role": "user", "content": "And now?"},
            {"role": "assistant", "content": "Nothing."},
        ],
        "gold": {"4": {"calls": []}},
    }
    record = to_record(row)
    (turn,) = record.gold
    assert record.messages[turn].content == "Nothing."
    row["gold"] = {"2": {"calls": []}}
    with pytest.raises(RowError, match="several steps"):
        to_record(row)


def test_a_parameter_that_a_list_lacks_is_taken_and_named() -> None:
    """A list of names is not JSON Schema; one that the tool has stays as strict as it is."""
    chain = (
        'Action: weather\nAction Input: {"city": "Oslo", "day": 1}\nObservation: 4\n'
        'Action: weather\nAction Input: {"day": 2, "city": "Oslo", "unit": "mm"}\nObservation: 5\n'
        'Action: clock\nAction Input: {"city": "Oslo"}\nObservation: 6\nFinal Answer: 4'
    )
    listed = CONTAINERS["query"](SYNTAXES["ms_agent"].system, [("q", chain)])
    record = to_record(listed)
    validate(record)
    weather, clock = record.tools
    assert weather.parameters["additionalProperties"] is True
    assert "additionalProperties" not in clock.parameters
    assert record.meta["undeclared"] == {"weather": ["day", "unit"]}
    declared = CONTAINERS["query"](SYNTAXES["react"].system, [("q", chain)])
    with pytest.raises(RowError) as caught:
        validate(to_record(declared))
    assert caught.value.code == "E210"


def test_a_dialog_that_is_only_continued_stays_as_it_is() -> None:
    row = row_of("openai", "ms_agent", [PLAIN])
    record = to_record(row, "openai", split=False)
    assert [message.content for message in record.messages] == [
        turn["content"] for turn in row["messages"]
    ]


def templates_of_packages() -> dict[str, str]:
    """The chat templates that TRL and Unsloth ship, as text: neither is imported."""
    found = {}
    if trl := find_spec("trl"):
        for folder in trl.submodule_search_locations or ():
            paths = Path(folder, "chat_templates").glob("*.jinja")
            found |= {f"trl {path.stem}": path.read_text(encoding="utf-8") for path in paths}
    if unsloth := find_spec("unsloth"):
        for folder in unsloth.submodule_search_locations or ():
            module = ast.parse(Path(folder, "chat_templates.py").read_text(encoding="utf-8"))
            for node in module.body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    with suppress(ValueError):
                        value, name = ast.literal_eval(node.value), node.targets[0].id
                        if isinstance(value, str) and "{%" in value and "{{ .Pr" not in value:
                            found[f"unsloth {name}"] = value
    return found


TEMPLATES = templates_of_packages()
CALL = {"id": "abcdefghi", "type": "function"}
PRINTED_INTO = ["openai", "query", "sharegpt", "alpaca", "text"]
ARGUMENTS = ({"city": "Oslo"}, '{"city": "Oslo"}')  # templates take the one or the other


@functools.cache
def printed(name: str) -> str:
    """What a template prints behind the question of a dialog with a call and its result."""
    for arguments in ARGUMENTS:
        function = {"name": "weather", "arguments": arguments}
        messages = [
            {"role": "user", "content": "Is it wet in Oslo?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL | {"function": function}]},
            {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": SECRET},
            {"role": "assistant", "content": "Yes."},
        ]
        with suppress(Exception):  # a template that refuses such a dialog prints no result
            text = (
                printer()
                .from_string(TEMPLATES[name])
                .render(messages=messages, tools=[tool.schema for tool in TOOLS], bos_token="<s>")
            )
            return text.partition("Is it wet in Oslo?")[2]
    return ""


@pytest.mark.skipif(not TEMPLATES, reason="neither trl nor unsloth is installed")
@pytest.mark.parametrize(("name", "container"), pairs(5, [*TEMPLATES], PRINTED_INTO))
def test_a_result_as_any_chat_template_writes_it_is_not_trainable(
    name: str, container: str
) -> None:
    """A dialog that was printed by a template and put into one answer."""
    answer = printed(name)
    if SECRET not in answer:
        return
    try:
        record = to_record(CONTAINERS[container]("", [("Is it wet?", answer)]))
    except RowError:
        return
    trained = [m for m in record.messages if m.role == "assistant" and m.loss]
    assert not [m for m in trained if SECRET in m.content + str(m.calls)]


@pytest.mark.skipif(not TEMPLATES, reason="neither trl nor unsloth is installed")
def test_most_templates_print_the_result_of_a_call() -> None:
    """If none did, the test above would show nothing."""
    assert sum(SECRET in printed(name) for name in TEMPLATES) > len(TEMPLATES) // 2


def printer() -> jinja2.Environment:
    """Jinja as transformers sets it up, with what templates call."""

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}  # noqa: RUF012  (jinja2's own)

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals["strftime_now"] = lambda form: form
    environment.globals["raise_exception"] = refuse
    return environment


def refuse(message: str) -> None:
    raise ValueError(message)


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
@pytest.mark.parametrize("syntax", [name for name, one in SYNTAXES.items() if one.split])
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


def test_what_a_list_of_parameters_lacks_is_gathered_from_every_call_of_its_tool():
    def calling(name: str, *given: str) -> Message:
        return Message("assistant", calls=(Call(name, dict.fromkeys(given, 1)),))

    schema = {"type": "object", "properties": {"known": {}}}
    tools = [Tool(name, "", schema) for name in ("open", "whole", "elsewhere")]
    said = [
        calling("open", "known", "a"),
        calling("whole", "known"),
        calling("open", "b", "a"),
        calling("elsewhere", "a"),
        calling("open", "known"),
        calling("open", "c"),
    ]
    found, lacking = _opened(tools, frozenset({"open", "whole"}), said)
    assert lacking == {"open": ["a", "b", "c"]}
    assert [tool.parameters == schema for tool in found] == [False, True, True]
    assert found[0].parameters == {**schema, "additionalProperties": True}
