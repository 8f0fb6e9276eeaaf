"""Every chat template that TRL and Unsloth ship: rows are trained as written, or rejected."""

import re
from functools import cache
from itertools import product

import pytest
from msgspec.structs import replace
from support.examples import ALL, QUICK, sample
from support.samples import WEATHER
from support.shipped_templates import shipped, with_marks
from tokenizers import AddedToken, Tokenizer, normalizers

from agentlite.core.errors import RowError, UserError
from agentlite.core.openai_client import Reply
from agentlite.core.records import Call, Message, Record, Tool, wire_message
from agentlite.data.openai_messages import open_dialog
from agentlite.deploy.export.proof import Golden, prove
from agentlite.deploy.export.proof import dialogs as proving_dialogs
from agentlite.engine.remote import RemoteRequest, write_reply
from agentlite.rendering import choose, encoding, mixture_of, render, render_last, renderer
from agentlite.rendering.encoding import mark_trained
from agentlite.rendering.protocol import THINK_END, THINK_TAG, thought_and_words
from agentlite.rendering.renderer import check_reading, reading_problem, span_text
from agentlite.rendering.template import THOUGHT_KEYS, Template, today
from agentlite.scoring.read_turn import read_turn

SOURCES = dict(shipped())
SAMPLE = (
    "trl/gemma",
    "trl/gemma_training",
    "trl/llama3_1",
    "trl/qwen3",
    "trl/qwen3_training",
    "trl/qwen3_5_think",
    "trl/phi3",
    "trl/cohere2",
    "trl/deepseekv3",
    "trl/nemotron_3_nano",
    "trl/llava_next",
    "trl/smolvlm",
    "trl/glm4moe",
    "unsloth/gemma4_thinking_template",
    "unsloth/mistral_template",
    "unsloth/qwen3_thinking_template",
)
TESTED = {name: SOURCES[name] for name in SAMPLE if name in SOURCES} if QUICK else SOURCES


def user(text):
    return Message("user", text)


def answer(text, *calls):
    return Message("assistant", text, calls=calls)


def result(text, call_id):
    return Message("tool", text, call_id=call_id)


BRIEF = Message("system", "Be brief.")
OSLO = Call("get_weather", {"city": "Oslo"}, "call00000")
LIMA = Call("get_weather", {"city": "Lima"}, "call00001")
DRY, YES = answer("Quite dry."), answer("Yes, wet.")
WET = result("4 mm", OSLO.id)
DIALOGS = {
    "no system": ((user("Wet?"), DRY), ()),
    "a system turn": ((BRIEF, user("Wet?"), DRY), ()),
    "tools under a system turn": ((BRIEF, user("Wet?"), DRY), (WEATHER,)),
    "three turns": ((BRIEF, user("Wet?"), DRY, user("Sure?"), YES, user("So?"), DRY), ()),
    "a call": ((user("Wet?"), answer("", OSLO), WET, YES), (WEATHER,)),
    "a text beside a call": (
        (BRIEF, user("Wet?"), answer("I look it up first.", OSLO), WET, YES),
        (WEATHER,),
    ),
    "parallel calls": (
        (user("Wet?"), answer("", OSLO, LIMA), WET, result("dry", LIMA.id), YES),
        (WEATHER,),
    ),
    "thoughts": (
        (
            user("Wet?"),
            answer("<think>\nIt may rain.\n</think>\n\nQuite dry."),
            user("Sure?"),
            answer("<think>\nI am.\n</think>\n\nYes, wet."),
        ),
        (),
    ),
}
RECORDS = {name: Record(messages=m, tools=tools) for name, (m, tools) in DIALOGS.items()}


def texts_of(message):
    """What must be trained: the words, and the arguments of the calls."""
    values = [value for call in message.calls for value in call.arguments.values()]
    return [part.strip() for part in THINK_TAG.split(message.content) if part.strip()] + values


def rejected_or_proved(record, protocol, template):
    """The code of the reject; "" where all that is trained was proved right."""
    try:
        rows = render(record, protocol, template)
        check_reading(record, rows, protocol, template)
    except RowError as error:
        return error.code
    foreign = [m.content for m in record.messages if m.role != "assistant"]
    for row in rows:
        ids, labels = encoding.encode_row(row, template)
        trained = template.decode([label for label in labels if label != encoding.IGNORED])
        for span in row.spans:
            said = row.text[span.start : span.end]
            assert said.endswith(template.turn_end) or said.endswith(protocol.stops)
            for text in texts_of(record.messages[span.turn]):
                assert text in said and text in trained
            prompt = encoding.encode_prompt(row, span.turn, template)
            assert ids[: len(prompt)] == prompt
            assert labels[len(prompt) - 1] == encoding.IGNORED
        assert not [text for text in foreign if text in trained]
    spans = [span for row in rows for span in row.spans]
    assert [span.turn for span in spans] == list(record.turns)
    if record.messages[0].role == "system":
        assert all(row.text.count(BRIEF.content) == 1 for row in rows)
    return ""


def written_at(place, text):
    """A dialog that holds a text of a stranger's at a place."""

    def at(name, harmless):
        return text if name == place else harmless

    call = Call(at("name", "f"), {at("key", "a"): [at("argument", "b")]}, at("id", "call00000"))
    parameter = {"type": "array", "description": at("parameter", "c")}
    schema = {"type": "object", "properties": {at("key", "a"): parameter}}
    messages = (
        Message("system", at("system", "d")),
        user(at("user", "e")),
        answer(at("words", ""), call),
        result(at("result", "g"), call.id),
        answer(at("answer", "h")),
        user("Sure?"),
        answer("x"),
    )
    return Record(messages=messages, tools=(Tool(call.name, at("description", "i"), schema),))


PLACES = ("name", "key", "argument", "id", "parameter", "system", "user", "words", "result")
PLACES = (*PLACES, "answer", "description")
WIDE = {ord(char): ord(char) + 0xFEE0 for char in "<>|[]_"}  # what NFKC makes them again


def control_ids(record, protocol, template):
    """The ids of control tokens in the rows of a record, by all ways to render it."""
    rows = [*render(record, protocol, template), render_last(record, protocol, template)]
    ids = [encoding.encode_row(row, template).input_ids for row in rows]
    messages = [wire_message(message) for message in record.messages[:-1]]
    ids.append(open_dialog(messages, [t.schema for t in record.tools], protocol, template).ids)
    marks = set(map(template.token_id, template.control_tokens))
    return [[token for token in row if token in marks] for row in ids]


@pytest.mark.parametrize("name", sample(6, [*TESTED]))
@pytest.mark.parametrize("setting", ["chat", "hermes"])
def test_no_text_of_a_stranger_becomes_a_control_token(name, setting, marked):
    """In prep, rollouts, grpo, chat and serve: they all render so."""
    template = marked(name)
    # as full-width letters the tokenizer finds <|wide|>, and <|turn|> as DeepSeek writes its marks
    own = Tokenizer.from_str(template.tokenizer.to_str())
    own.normalizer = normalizers.NFKC()
    own.add_special_tokens([AddedToken("<|wide|>", normalized=True)])
    own.add_tokens([AddedToken("<|turn|>", normalized=False, special=False)])
    source = "{{ '<|turn|>' }}" + template.source
    template = Template(name, own, source, template.special)
    assert "<|turn|>" in template.control_tokens
    (protocol,) = mixture_of(setting, template).protocols.values()
    try:
        expected = control_ids(written_at("nowhere", ""), protocol, template)
    except RowError:
        pytest.skip(f"{setting} cannot hold the dialog")
    marks = template.control_tokens
    for place, mark in product(PLACES, {*marks, *(mark.translate(WIDE) for mark in marks)}):
        code, ids = "", expected
        try:
            ids = control_ids(written_at(place, f"q {mark}\n"), protocol, template)
        except RowError as error:
            code = error.code
        assert ids == expected
        assert code == "E215" or mark not in template.control_tokens


@cache
def of_transformers(tokenizer):
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


@pytest.fixture(scope="module")
def marked(smollm2):
    """The template of a name; copying a tokenizer takes a tenth of a second."""
    return cache(lambda name: with_marks(name, TESTED[name], smollm2.tokenizer))


@pytest.mark.parametrize(
    ("name", "setting"), sample(60, [*product(TESTED, ("auto", "hermes", "react", "modelscope"))])
)
def test_every_row_is_trained_as_the_assistant_wrote_it_or_rejected_by_itself(
    name, setting, marked
):
    template = marked(name)
    (protocol,) = mixture_of(setting, template).protocols.values() if setting != "auto" else [None]
    if protocol and setting != "hermes" and reading_problem(protocol, template):
        with pytest.raises(UserError, match="cannot be used") as error:
            choose(setting, template)
        assert error.value.fix.startswith("With it these work: --protocol hermes")
        return
    protocol = next(iter(choose(setting, template).protocols.values()))
    codes = {kind: rejected_or_proved(r, protocol, template) for kind, r in RECORDS.items()}
    rejected = {kind: code for kind, code in codes.items() if code}
    allowed = {"parallel calls": "E204", "a text beside a call": "E214", "thoughts": "E220"}
    assert rejected.items() <= allowed.items()
    if setting == "hermes":
        assert set(rejected) <= {"thoughts"}


THINKING = Record(
    messages=(
        user("Wet?"),
        answer("<think>\nI look.\n</think>\n\n", OSLO),
        WET,
        answer("<think>\nIt is.\n</think>\n\nYes, wet."),
        user("Sure?"),
        answer("<think>\nI am.\n</think>\n\nQuite."),
    ),
    tools=(WEATHER,),
)


@pytest.mark.parametrize("name", sample(40, [*TESTED]))
def test_a_thought_is_trained_where_the_template_has_thoughts(name, marked):
    """As it writes the thought that servers give it under a key of its own."""
    template, hints = marked(name), list[str]()
    for setting, record in product(("auto", "hermes"), (RECORDS["thoughts"], THINKING)):
        (protocol,) = choose(setting, template).protocols.values()
        try:
            rows = render(record, protocol, template)
        except RowError as error:  # its prompts close an empty thought
            hints.append(error.hint)
            continue
        turns = renderer._turns(record, protocol)
        given = [{**turn.message} for turn in turns]
        for message in given:
            thought, message["content"] = thought_and_words(message["content"])
            message |= dict.fromkeys(THOUGHT_KEYS, thought) if thought else {}
        tools = renderer._dialog(record, protocol, template).tools
        for row, span in ((row, row.spans[-1]) for row in rows):
            said = span_text(row, span, template)
            thought, words = thought_and_words(record.messages[span.turn].content)
            before, _, behind = said.partition(thought)
            assert words in behind and THINK_END not in before
            assert not template.thought_marks[1] or template.thought_marks[1] not in before
            assert not before.strip() or row.text[: span.start].count(thought) == 0
            read = protocol.read(said, record.tools)
            assert thought_and_words(read.content) == (thought, words)
            if all(template.thought_keys):
                at = [turn.parts[0][0] if turn.parts else -1 for turn in turns].index(span.turn)
                end = template.end_of(given[at]) if template.unwritten_end else ""
                servers = template.render(given[: at + 1], tools).removesuffix(end) + end
                assert servers.startswith(row.text[: span.end])
    assert all(hint.startswith("--thoughts drop") and name not in SAMPLE for hint in hints)


@pytest.mark.parametrize("name", ["trl/gptoss", "trl/gemma4", "trl/glm4moe"])
def test_a_turn_with_calls_ends_with_its_own_token_and_is_read_to_it(name, marked):
    template, record = marked(name), RECORDS["a call"]
    protocol = mixture_of("chat", template).protocols["chat"]
    assert template.call_end != template.turn_end and protocol.stops == (template.call_end,)
    (row, *_) = render(record, protocol, template)
    said = span_text(row, row.spans[0], template)
    assert said.endswith(template.call_end)
    read = protocol.read(said, record.tools)
    assert [(c.name, c.arguments) for c in read.calls] == [
        (c.name, c.arguments) for c in record.messages[row.spans[0].turn].calls
    ]


@pytest.mark.parametrize("name", sample(25, [*TESTED]))
def test_a_prompt_by_two_renderings_is_that_of_the_row_by_many(name, marked):
    """Those of a template whose turns begin with no mark are cut into other tokens."""
    template = marked(name)
    for setting, kind in product(("chat", "hermes", "react", "kuaiagent"), RECORDS):
        record = RECORDS[kind]
        protocol = mixture_of(setting, template).protocols[setting]
        for turn in record.turns:
            asked = replace(record, messages=(*record.messages[:turn], answer("x")))
            try:
                rows = render(asked, protocol, template)
            except RowError:
                continue
            row = next(row for row in rows if any(span.turn == turn for span in row.spans))
            last = render_last(asked, protocol, template)
            ids, found = (encoding.encode_prompt(one, turn, template) for one in (row, last))
            assert last.text == row.text and template.decode(found) == template.decode(ids)
            assert found == ids or name == "unsloth/unsloth_template"


def test_a_template_with_a_system_role_is_left_as_it_is(smollm2):
    assert not smollm2.folds_system and smollm2.chat_template == smollm2.source


@pytest.mark.torch
@pytest.mark.parametrize(
    "name", sample(12, [name for name in SOURCES if name.endswith("_training")])
)
def test_the_trained_tokens_are_those_of_transformers_masks(name, smollm2):
    """But for the line break behind a turn's end, and marks behind it: no model has to write them,
    since an answer ends at the turn's end."""
    template = with_marks(name, SOURCES[name], smollm2.tokenizer)
    try:
        protocol = choose("hermes", template).protocols["hermes"]
    except UserError:
        pytest.skip("no protocol works with it")
    theirs = of_transformers(template.tokenizer)
    for kind in ("no system", "a system turn", "three turns"):
        record = RECORDS[kind]
        messages = template.adapt_messages(
            [{"role": m.role, "content": m.content} for m in record.messages]
        )
        found = theirs.apply_chat_template(
            messages,
            chat_template=template.chat_template,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        masked = [
            i for i, on in zip(found["input_ids"], found["assistant_masks"], strict=True) if on
        ]
        rows = render(record, protocol, template)
        ours = [
            template.decode([one for one in encoding.encode_row(row, template).labels if one >= 0])
            for row in rows
        ]
        expected = template.decode(masked)
        # gpt-oss's prompt ends with the role, which TRL's mask counts to the answer
        expected = re.sub(r"(<\|start\|>)?assistant(?=<\|| to=user)", "", expected)
        if len(rows) > 1:  # a row a step, of which each trains its last turn only
            expected = expected[-len(ours[-1]) - 40 :]
            ours = ours[-1:]
        for mark in ("\n", *template.control_tokens, "<think>", "</think>"):
            expected = expected.replace(mark, "")
            ours = [text.replace(mark, "") for text in ours]
        assert expected.endswith("".join(ours))
        if len(rows) == 1:
            assert expected == "".join(ours)


OPENS, CLOSES = "Wet?<｜Assistant｜><think>\n", "<｜end▁of▁sentence｜>"
EMPTY = "\n<think></think>\n"
NEMOTRON = "Wet?<|im_end|>\n<|im_start|>assistant\n<think>\n"
GLM_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
# the rows of a dialog from its first question on, what is trained in brackets
DEEPSEEK = {
    "no system": [f"{OPENS}⟦\n</think>\n\nQuite dry.{CLOSES}⟧"],
    "thoughts": [
        f"{OPENS}⟦It may rain.\n</think>\n\nQuite dry.{CLOSES}⟧",
        f"Wet?<｜Assistant｜>\n\nQuite dry.{CLOSES}<｜User｜>Sure?<｜Assistant｜><think>\n"
        f"⟦I am.\n</think>\n\nYes, wet.{CLOSES}⟧",
    ],
}
# the mark of the next turn ends a turn
GLM = [
    f"Wet?<|assistant|>⟦{EMPTY}Quite dry.<|user|>⟧\nSure?<|assistant|>⟦{EMPTY}Yes, wet."
    f"<|user|>⟧\nSo?<|assistant|>⟦{EMPTY}Quite dry.<|user|>⟧"
]
AS_TRAINED = {
    **{("trl/deepseek_r1_distill", kind): rows for kind, rows in DEEPSEEK.items()},
    **{("trl/deepseekv3", kind): rows for kind, rows in DEEPSEEK.items()},
    # an empty thought of the template is continued from where the prompt opens it
    ("trl/nemotron_3_nano", "no system"): [f"{NEMOTRON}⟦</think>Quite dry.<|im_end|>⟧\n"],
    ("trl/glm4moe", "three turns"): GLM,
    ("trl/glm4moe_training", "three turns"): GLM,
    ("trl/glm4moe", "a call"): [
        f"Wet?<|assistant|>⟦{EMPTY}{GLM_CALL}<|user|>⟧\n<tool_response>\n4 mm\n</tool_response>"
        f"<|assistant|>⟦{EMPTY}Yes, wet.<|user|>⟧"
    ],
    # templates for images are given texts as parts
    ("trl/smolvlm", "a system turn"): [
        "Wet?<end_of_utterance>\nAssistant:⟦ Quite dry.<end_of_utterance>⟧\n"
    ],
    ("trl/llava_next", "no system"): ["Wet? [/INST]⟦ Quite dry.</s>⟧ "],
}


@pytest.mark.long
@pytest.mark.parametrize(("name", "kind"), [key for key in AS_TRAINED if key[0] in SOURCES])
def test_a_dialog_is_trained_as_its_template_prompts_and_ends_it(name, kind, smollm2):
    template = with_marks(name, SOURCES[name], smollm2.tokenizer)
    protocol = choose("hermes", template).protocols["hermes"]
    shown = [mark_trained(row, "⟦{}⟧".format) for row in render(RECORDS[kind], protocol, template)]
    assert [text[text.rindex("Wet?") :] for text in shown] == AS_TRAINED[name, kind]


NO_ROLE = (  # parts, and no system turn
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('No system!') }}"
    "{% endif %}{{ m.role }}:{% for part in m.content %} {{ part.text }}{% endfor %}</s>"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)


def test_a_system_turn_of_parts_is_folded_as_well(smollm2):
    if qwen := SOURCES.get("trl/qwen2_5_vl"):  # it takes either, and is given texts
        assert not with_marks("q", qwen, smollm2.tokenizer).takes_parts
    template = with_marks("parts", NO_ROLE, smollm2.tokenizer)
    assert template.takes_parts and template.folds_system
    protocol = choose("hermes", template).protocols["hermes"]
    folded = "user: Be brief. \n\n Wet?</s>assistant: Quite dry.</s>"
    assert render(RECORDS["a system turn"], protocol, template)[0].text == folded
    # the exported template is the one that folds, and folding it again changes nothing
    exported = with_marks("exported", template.chat_template, smollm2.tokenizer)
    assert not exported.folds_system and exported.chat_template == template.chat_template
    assert render(RECORDS["a system turn"], protocol, exported)[0].text == folded


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "learn to stop"),
        (
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content | upper }}</s>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}",
            "drops or changes an assistant's answer",
        ),
        (
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content | replace('t', 'd') }}</s>"
            "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
            "drops or changes a text of messages[1]",
        ),
        (
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
            "{% if add_generation_prompt %}<|model|>{% endif %}",
            "no row would be trained as servers prompt it",
        ),
        ("{{ raise_exception('Images only!') }}", "Images only!"),
    ],
)
def test_a_template_that_cannot_train_is_refused_with_the_cause_and_what_helps(
    source, cause, smollm2
):
    template = with_marks("own", source, smollm2.tokenizer)
    with pytest.raises(UserError) as error:
        choose("auto", template)
    assert cause in error.value.problem and error.value.exit_code == 5
    assert "chat_template.jinja" in error.value.fix


@pytest.mark.torch
@pytest.mark.parametrize("name", sample(25, [*TESTED]))
def test_transformers_writes_every_row_and_every_prompt_as_it_is_trained(name, marked):
    template = marked(name)
    theirs = of_transformers(template.tokenizer)
    prompts = set()

    def write(messages, tools, prompt):
        text = theirs.apply_chat_template(
            list(messages),
            tools=tools or None,
            chat_template=template.chat_template,
            add_generation_prompt=prompt,
            tokenize=False,
            strftime_now=today,
        )
        prompts.update([text] if prompt else [])
        return text

    working = [
        protocol
        for protocol in mixture_of("chat,hermes,react,modelscope", template).protocols.values()
        if not reading_problem(protocol, template)
    ]
    assert working
    # each template with half of its protocols, the next one with the others
    half = working[[*TESTED].index(name) % 2 :: 2]
    for protocol in working if ALL else half or working:
        dialogs = proving_dialogs()
        dialogs["thoughts"] = RECORDS["thoughts"]
        goldens = [Golden(name, one, protocol) for name, one in dialogs.items()]
        proof = prove(template, goldens, {"transformers": write})
        assert proof.dialogs > len(goldens) / 2
        for golden in goldens:
            if golden.name not in proof.left_out and not protocol.inline:
                for row in render(golden.record, protocol, template):
                    assert {row.text[: span.start] for span in row.spans} <= prompts


OPENED = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}" + (
    "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"
)


@pytest.mark.long
@pytest.mark.parametrize("setting", ["hermes", "react", "modelscope", "toolllama", "autogpt"])
def test_a_completion_behind_an_opened_thought_is_read_and_scored_behind_it(setting, smollm2):
    template = with_marks("opened", OPENED, smollm2.tokenizer)
    protocol = choose(setting, template).protocols[setting]
    record = RECORDS["a call"]
    row = render(record, protocol, template)[0]
    span = next(span for span in row.spans if span.prompted)
    recorded = span_text(row, span, template)
    assert recorded.startswith("\n</think>\n\n")
    thinking = "I could write " + recorded.removeprefix("\n</think>\n\n")
    for text in (recorded, f"It may rain.{recorded}", f"{thinking}\n{recorded}"):
        read = read_turn(text, protocol, record, 1)
        assert ([call.name for call in read.calls], read.problem) == ([OSLO.name], "")
        assert [call.name for call in protocol.read(text, record.tools).calls] == [OSLO.name]
    assert read_turn(thinking, protocol, record, 1).problem == "thinking is not closed"


@pytest.mark.long
def test_what_a_server_answers_is_put_behind_the_thought_that_the_prompt_opens(smollm2):
    template = with_marks("opened", OPENED, smollm2.tokenizer)
    protocol = choose("hermes", template).protocols["hermes"]
    prompt = next(encoding.prompts_of([RECORDS["a call"]], lambda _: protocol, template))
    request = RemoteRequest(prompt, protocol)
    for thought in ("", "It is hot."):  # that a server tells apart
        reply = Reply("Quite dry.", thought=thought)
        assert write_reply(reply, request, template)[0] == f"{thought}\n</think>\n\nQuite dry."


def test_an_answer_that_begins_by_closing_the_thought_of_its_prompt_is_trained(smollm2):
    turns = OPENED.replace("{{ m.c", "{{ '</think>' if m.role == 'assistant' }}{{ m.c")
    template = with_marks("closed", turns.replace("<think>\n", "<think>"), smollm2.tokenizer)
    protocol = choose("auto", template).protocols["hermes"]
    *_, row = render(RECORDS["three turns"], protocol, template)
    shown = mark_trained(row, "⟦{}⟧".format)
    assert shown.endswith("So?</s><|assistant|><think>⟦</think>Quite dry.</s>⟧")
