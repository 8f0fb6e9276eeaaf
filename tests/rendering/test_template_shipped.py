"""Every chat template that TRL and Unsloth ship: rows are trained as written, or rejected."""

import re

import pytest
from support.examples import QUICK
from support.samples import WEATHER
from support.shipped_templates import shipped, with_marks

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Call, Message, Record
from agentlite.rendering import choose, encoding, render
from agentlite.rendering.renderer import THINK_TAG, check_reading

SOURCES = dict(shipped())
# Their prompt opens a thought that a turn without one does not have, they take only lists of parts
# (images), or they end no turn: no row could be trained as servers would prompt it.
UNUSABLE = (
    "deepseek",
    "nemotron",
    "gemma4_thinking",
    "llava",
    "idefics",
    "smolvlm",
    "trl/glm4moe",
)
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
        ids, labels, _ = encoding.encode(row, template)
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


@pytest.mark.parametrize("setting", ["auto", "hermes", "react"])
@pytest.mark.parametrize("name", TESTED)
def test_every_row_is_trained_as_the_assistant_wrote_it_or_rejected_by_itself(
    name, setting, smollm2
):
    template = with_marks(name, TESTED[name], smollm2.tokenizer)
    try:
        protocol = next(iter(choose(setting, template).protocols.values()))
    except UserError as error:
        fix = error.fix
        protocol = None
    if protocol is None:
        works = not any(part in name for part in UNUSABLE)
        assert fix.startswith("With it these work: --protocol") == works
        assert setting == "react" or not works
        return
    codes = {kind: rejected_or_proved(r, protocol, template) for kind, r in RECORDS.items()}
    rejected = {kind: code for kind, code in codes.items() if code}
    allowed = {"parallel calls": "E204", "a text beside a call": "E214", "thoughts": "E220"}
    assert rejected.items() <= allowed.items()
    if setting == "hermes":
        assert set(rejected) <= {"thoughts"}


@pytest.mark.skipif("trl/gemma" not in SOURCES, reason="needs TRL's templates")
@pytest.mark.parametrize("setting", ["hermes", "react", "modelscope"])
def test_a_system_turn_that_a_template_refuses_begins_the_first_user_turn(setting, smollm2):
    template = with_marks("gemma", SOURCES["trl/gemma"], smollm2.tokenizer)
    assert template.folds_system
    protocol = choose(setting, template).protocols[setting]
    text = render(RECORDS["a text beside a call"], protocol, template)[0].text
    head, _, rest = text.partition("Be brief.")
    assert head == "<s><start_of_turn>user\n" and "\n\nWet?<end_of_turn>" in rest
    plain = render(RECORDS["no system"], protocol, template)[0].text
    assert plain == "<s><start_of_turn>user\nWet?<end_of_turn>\n" + (
        "<start_of_turn>model\nQuite dry.<end_of_turn>\n"
    )
    # the exported template is the one that folds, and folding it again changes nothing
    exported = with_marks("exported", template.chat_template, smollm2.tokenizer)
    assert not exported.folds_system and exported.chat_template == template.chat_template
    assert render(RECORDS["a text beside a call"], protocol, exported)[0].text == text


def test_a_template_with_a_system_role_is_left_as_it_is(smollm2):
    assert not smollm2.folds_system and smollm2.chat_template == smollm2.source


@pytest.mark.torch
@pytest.mark.parametrize("name", [name for name in SOURCES if name.endswith("_training")])
def test_the_trained_tokens_are_those_of_transformers_masks(name, smollm2):
    """But for the line break behind a turn's end, and marks behind it: no model has to write them,
    since an answer ends at the turn's end."""
    transformers = pytest.importorskip("transformers")
    template = with_marks(name, SOURCES[name], smollm2.tokenizer)
    try:
        protocol = choose("hermes", template).protocols["hermes"]
    except UserError:
        pytest.skip("no protocol works with it")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=template.tokenizer, bos_token="<s>", eos_token="</s>"
    )
    for kind in ("no system", "a system turn", "three turns"):
        record = RECORDS[kind]
        messages = [{"role": m.role, "content": m.content} for m in record.messages]
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
            template.decode([one for one in encoding.encode(row, template).labels if one >= 0])
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
