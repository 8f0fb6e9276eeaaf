"""Tools in the system text, calls and results in the turns' texts: Hermes, ToolACE, Glaive."""

import contextlib
import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Role, Tool
from agentlite.data.formats import chains, sharegpt
from agentlite.data.formats.chains import Calls, PromptParts, Syntax
from agentlite.data.formats.format import Format, Row, meta_of, text_at
from agentlite.data.formats.json_decode import json_or_literal, parse_json, quote
from agentlite.data.formats.openai import merge_turns
from agentlite.data.formats.tool_calls import read_arguments, read_call, read_tools
from agentlite.rendering.foreign_text import OWN_NAME, RESULT_NAME

# --- Hermes: <tools>, <tool_call> and <tool_response> ---

# tags that others write in place of these: BUTTON, When2Call and Nemotron, OLMo
TAGS = {"tool": "tools", **dict.fromkeys(("call", "TOOLCALL", "function_calls"), "tool_call")}
# <call>[{"name": ...}]</call> and <TOOLCALL>[f(x=1)]</TOOLCALL>; not <tool>a hammer</tool>
FOREIGN_BLOCK = re.compile(
    rf"<({'|'.join(TAGS)})>(\s*(?:[\[{{\s]+[\"'](?:name|arguments|type)\b|\[?[\w.-]+\()"
    r"(?:(?!<\1>).)*?)</\1>",
    re.DOTALL,
)
FINAL = re.compile(r"<final>(.*)</final>", re.DOTALL)  # BUTTON's answer
# also as AmanPriyanshu's rows and Kimi's template list them
TOOLS = re.compile(
    r"(?:(?P<tag><tools>)|^## Tools|<\|im_system\|>tool_declare<\|im_middle\|>)\s*(?=[\[{])",
    re.MULTILINE,
)
TOOLS_END = re.compile(r"\s*(?:</tools>\.?|<\|im_end\|>)")
CALL = re.compile(r"<tool_call>(?:(?!<tool_call>).)*?</tool_call>", re.DOTALL)
# A call, <tool_response>...</tool_response>, or a result right behind a call in any other tag:
# </tool_call> <weather>4 mm</weather> So yes. The steps (?!<tool_call>). stop at the next call: of
# many tags that nothing closes, not each is looked for up to the end.
BLOCK = re.compile(
    r"<tool_call>(?P<call>(?:(?!<tool_call>).)*?)</tool_call>"
    r"|<tool_(?:response|result)>(?P<result>(?:(?!<tool_re).)*?)</tool_(?:response|result)>"
    # any other block right behind a call, but at the end of a turn only by its name
    rf"|(?<=</tool_call>)\s*<(?P<tag>(?P<known>{RESULT_NAME}(?=>))|(?!tool_|{OWN_NAME}>)[\w.-]+)>"
    r"(?P<named>(?:(?!<tool_call>).)*?)</(?P=tag)>(?(known)|(?!\s*\Z))"
    rf"|(?<=</tool_call>)\s*```{RESULT_NAME}\n(?P<fenced>.*?)\n```",
    re.DOTALL | re.IGNORECASE,
)
THOUGHT = re.compile(r"</?scratch_pad>\n?")
HERMES_FRAME = chains.sentences_pattern(
    r"You are a function calling AI model(?: named [^.\n]{1,40})?\.",
    r"You are provided with function signatures within <tools>\s*</tools> XML tags[.:]",
    r"(?:# Tools\s+)?You may call one or more functions to assist with the user query\.",
    r"Don't make assumptions about what values to plug into functions\.",
    r"Here are the available tools:",
    r"Use the following pydantic model json schema for each tool call\b.{0,3000}?\n</tool_call>",
    r"For each function call,? return a json object.{0,3000}?\n</tool_call>",
    r"You are an expert in using functions.{0,200}?are detailed below:",
    r"In your response, you need first provide.{0,3000}?<final></final>\"?\.?",
    r"## Tool-Use Protocol\b.{0,3000}\Z",
)


def read_hermes(row: Row) -> Record:
    tools: list[Tool] = []
    messages: list[Message] = []
    open_calls: list[Call] = []
    for message in sharegpt.read({**row, "tools": None}).messages:
        if message.role == "system":
            prompt = _hermes_prompt(message.content)
            tools += prompt.tools
            message = replace(message, content=prompt.text)
        elif message.role == "tool":  # it may name the call that it answers
            content = message.content
            message = chains.result_of(parse_json(content), content, "content", open_calls)
        elif message.calls:  # which part thoughts from an answer
            open_calls = [*message.calls]
            message = replace(message, content=THOUGHT.sub("", message.content).strip())
        if message.content or message.role != "system":
            messages.append(message)
    known_keys = ["conversations", "conversation", "system"]
    with contextlib.suppress(RowError):  # the row's own tools may be those of its text
        if [*read_tools(row.get("tools"), json_or_literal)] == tools:
            known_keys.append("tools")
    return Record(messages=tuple(messages), tools=tuple(tools), meta=meta_of(row, *known_keys))


def retag(record: Record) -> Record:
    """The record, with the tags of others in what it is told and says as those of Hermes."""

    def replace_tag(tag: re.Match[str]) -> str:
        return f"<{TAGS[tag[1]]}>{tag[2]}</{TAGS[tag[1]]}>"

    messages = [
        replace(message, content=FOREIGN_BLOCK.sub(replace_tag, message.content))
        if message.role in ("system", "assistant") and FOREIGN_BLOCK.search(message.content)
        else message
        for message in record.messages
    ]
    return replace(record, messages=tuple(messages))


def _hermes_prompt(system: str) -> PromptParts:
    """The tools and, without them and their frame, the author's own words."""
    if not (opening := TOOLS.search(system)):
        return PromptParts((), system)
    tools, end = chains.tools_at(system, opening.end())
    closing = TOOLS_END.match(system, end)
    if opening["tag"] and not closing:
        raise RowError("E124", "<tools> holds more than JSON, or is not closed")
    text_after = system[closing.end() if closing else end :]
    return PromptParts(tools, HERMES_FRAME.sub("", system[: opening.start()] + text_after).strip())


def _hermes_chain(text: str, loss: bool, calls: Calls, tools: Sequence[Tool]) -> Iterator[Message]:
    """One answer with calls and their results in tags, as the messages it stands for."""
    texts: list[str] = []
    # `new_calls`: those of the turn that is collected; the first result ends it, and from then on
    # they are the `open_calls`
    new_calls, open_calls, end = list[Call](), list[Call](), 0
    for block in BLOCK.finditer(text):
        words = text[end : block.start()].strip()
        texts.append(words)
        end = block.end()
        if block["call"] is None:
            if new_calls:
                yield Message("assistant", _join_texts(texts), tuple(new_calls), loss=loss)
                texts, open_calls, new_calls = [], new_calls, []
            elif words or not open_calls:
                raise RowError("E214", f"a result without a call: {quote(block[0])}")
            result = (block["result"] or block["named"] or block["fenced"] or "").strip()
            yield chains.result_of(parse_json(result), result, "content", open_calls)
            continue
        open_calls = []
        new_calls += chains.number_calls(chains.calls_in(block["call"]), calls)
    if not end:
        yield Message("assistant", FINAL.sub(r"\1", text), loss=loss)
    elif (content := _join_texts([*texts, text[end:]])) or new_calls:
        yield Message("assistant", content, tuple(new_calls), loss=loss)


def _join_texts(texts: list[str]) -> str:
    return "\n".join(filter(None, (THOUGHT.sub("", text).strip() for text in texts)))


# --- ToolACE: [Name A(x=1, y='b'), g()] ---

TOOL_LIST = re.compile(
    r"(?:(?:Here is a list of )?functions in JSON format that you can invoke[:.]?\s*(?=\[)"
    r"|List of tools[:.]?\s*(?=\[\s*\{))"
)
TOOLACE_FRAME = chains.sentences_pattern(
    r"You are an expert in composing functions\.",
    r"You are given a question and a set of possible functions\.",
    r"Based on the question, you will need to make one or more function/tool calls [\w ]*\.",
    r"If none of the functions? can be used, point it out\.",
    r"If the given question lacks the parameters required by the function,\s*also point it out\.",
    r"You should only return the function calls? in (?:tools call sections|your response)\.",
    r"If you decide to invoke any of the function\(s\), you MUST",  # and how, as below
    r"You SHOULD NOT include any other text in the response\.",
    r"Should you decide to return the function call\(s\)[.,]",
    r"Put it in the format of \[[^\]]{0,300}\]\.?",
    r"NO other text MUST be included\.",
)
FIRST_NAME = re.compile(r"\s*\[([^][(){}]*)\(")


def _toolace_prompt(text: str) -> PromptParts:
    if not (listing := TOOL_LIST.search(text)):
        return PromptParts((), text)
    tools, end = chains.tools_at(text, listing.end())
    parts = (text[: listing.start()], text[end:].lstrip(". \n"))
    words = (TOOLACE_FRAME.sub("", part).strip() for part in parts)
    return PromptParts(tools, "\n".join(filter(None, words)))


def _toolace_turns(text: str, loss: bool, calls: Calls, tools: Sequence[Tool]) -> Iterator[Message]:
    """A list of calls and a text, or a text. What begins as a declared tool's call must be one."""
    new_calls: tuple[Call, ...] = ()
    first_name, end = FIRST_NAME.match(text), 0
    # [Get Weather(city='Oslo')] Let me see. -> a call and words, if the row declares Get Weather;
    # with any other name it is a text, unless the list is all there is
    begins_as_call = bool(first_name and first_name[1].strip() in {tool.name for tool in tools})
    try:
        end = chains.bracket_end(text, text.index("["), "E206") if first_name else 0
        if first_name and (begins_as_call or end == len(text.rstrip())):
            new_calls = chains.number_calls(map(read_call, chains.parse_calls(text[:end])), calls)
    except RowError:
        if begins_as_call:
            raise
    yield Message("assistant", text[end:].strip() if new_calls else text, new_calls, loss=loss)


# --- Glaive: {"system", "chat"}, a dialog written as one text ---

GLAIVE_FRAME = re.compile(
    r"You are a helpful assistant,? with access to the following functions\.\s*Use them if "
    r"required\s*-?\s*",
    re.IGNORECASE,
)
END_OF_TEXT = "<|endoftext|>"
SPEAKERS: dict[str, Role] = {"USER": "user", "ASSISTANT": "assistant", "FUNCTION RESPONSE": "tool"}
SPEAKER = re.compile(r"(?:\A|\n\n|<\|endoftext\|>)\s{0,9}(USER|ASSISTANT|FUNCTION RESPONSE):")
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
QUOTED = re.compile(r"""\s*\{\s*"name":\s*"([^"\\]*)",\s*"arguments":\s*'(.*)'\s*\}""", re.DOTALL)


def read_glaive(row: Row) -> Record:
    preamble, *pieces = SPEAKER.split(text_at(row, "chat"))
    if preamble.strip() or not pieces:
        raise RowError("E201", f"the chat does not begin with who speaks: {quote(preamble)}")
    system = text_at(row, "system").strip().removeprefix("SYSTEM:").strip()
    messages = [Message("system", system)] if system else []
    for speaker, text in zip(pieces[::2], map(str.strip, pieces[1::2]), strict=True):
        messages.append(Message(SPEAKERS[speaker], text))
    record = Record(messages=tuple(messages), meta=meta_of(row, "system", "chat"))
    record = chains.take_apart(record, GLAIVE_SYNTAX)
    return replace(record, messages=merge_turns(record.messages))


def _glaive_prompt(system: str) -> PromptParts:
    if not (frame := GLAIVE_FRAME.search(system)):
        return PromptParts((), system)
    tools, end = chains.tools_at(system, frame.end())
    return PromptParts(tools, (system[: frame.start()] + system[end:]).strip())


def _glaive_answer(text: str, loss: bool, calls: Calls, tools: Sequence[Tool]) -> Iterator[Message]:
    text, *blocks = text.removesuffix(END_OF_TEXT).strip().split("<functioncall>")
    pairs = [_glaive_call(block) for block in blocks]
    new_calls = chains.number_calls((call for call, _ in pairs), calls)
    words = (text.strip(), *(text_after for _, text_after in pairs))
    yield Message("assistant", "\n".join(filter(None, words)), new_calls, loss=loss)


def _glaive_call(text: str) -> tuple[Call, str]:
    """A call and what follows. Its arguments are JSON in single quotes, and may hold some."""
    if match := QUOTED.match(text):
        # of the escapes in it, only that of a single quote is not JSON's
        # '{"a": "it\'s"}' -> {"a": "it's"}
        arguments = ESCAPED.sub(lambda pair: "'" if pair[1] == "'" else pair[0], match[2])
        call = Call(match[1], read_arguments(arguments, json_or_literal))
        return call, text[match.end() :].strip()
    text = text.lstrip()
    if not text.startswith("{"):
        raise RowError("E206", f"a call that is not an object: {quote(text)}")
    end = chains.bracket_end(text, 0, "E206")
    return read_call(text[:end], json_or_literal), text[end:].strip()


SYNTAX = Syntax(TOOLS.search, _hermes_prompt, _hermes_chain, lambda text, _: CALL.search(text))
TOOLACE_SYNTAX = Syntax(TOOL_LIST.search, _toolace_prompt, _toolace_turns)
GLAIVE_SYNTAX = Syntax(GLAIVE_FRAME.search, _glaive_prompt, _glaive_answer)
HERMES_FC = Format(
    "hermes_fc",
    read_hermes,
    # by its tools or, in its rows without any, the schema that the answer must have
    shape=lambda row: sharegpt.says(
        row, lambda text: "<schema>" in text or TOOLS.search(text), ("system",)
    ),
)
TOOLACE = Format(
    "toolace",
    lambda row: chains.take_apart(sharegpt.read(row), TOOLACE_SYNTAX),
    shape=lambda row: sharegpt.says(row, TOOL_LIST.search, ("system",)),
)
GLAIVE = Format(
    "glaive",
    read_glaive,
    {"system": str, "chat": str},
    lambda row: bool(SPEAKER.search(row["chat"])),
)
