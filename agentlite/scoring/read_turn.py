"""A completion -> its calls, and the first thing that is wrong with the whole turn around them."""

import re

import msgspec

from agentlite.core.records import Parsed, Record
from agentlite.rendering import Protocol
from agentlite.rendering.foreign_text import RESULT_LINE, result_mark
from agentlite.rendering.protocol import THINK_END, is_unclosed, thought_and_words, without_thoughts

UNCLOSED = "thinking is not closed"


def read_turn(text: str, protocol: Protocol, record: Record, turn: int) -> Parsed:
    """The calls of a completion as its protocol reads them, but none that is only thought.

    The protocol forgives what a program that runs the calls would not see: words behind a call, a
    result that the model has made up, a call in another syntax. Here that is a problem, since a
    model would learn it, or seem to be right by it. The record's own text at the turn never is.
    """
    if not record.tools:
        return _read_without_tools(text, protocol, record.messages[turn].content)
    text = protocol.tag_thought(text)
    # inline, a step behind a result goes on in the same turn: no prompt opened a thought for it
    follows_prompt = not protocol.inline or record.messages[turn - 1].role != "tool"
    thought_is_open = protocol.prompt_opens_thought and follows_prompt
    _, words = thought_and_words(text)
    if is_unclosed(words) or (thought_is_open and THINK_END not in text):
        return Parsed("", (), UNCLOSED)
    if (parsed := protocol.read(words, record.tools)).problem:
        return parsed
    # the protocol has taken `Final Answer:` away, so that a thought behind it shows only now
    _, content = thought_and_words(parsed.content)
    if is_unclosed(content):
        return Parsed("", parsed.calls, UNCLOSED)
    parsed = msgspec.structs.replace(parsed, content=content.strip())
    problem = "text after a call" if parsed.trailing else ""
    # a protocol may name a call without words
    if parsed.content != reference_of(protocol, record, turn):
        words = words.rstrip()
        for stop in protocol.stops:
            words = words.removesuffix(stop)
        names = {tool.name for tool in record.tools}
        # a line such as `Observation:` counts beside a call, or behind the lines of one
        line = RESULT_LINE.search(words) if parsed.calls else None
        if mark := line[0] if line else result_mark(words, names):
            problem = f"invents a result behind {mark.strip()!r}"
        elif not problem and not parsed.calls and not says_something(parsed.content):
            problem = "says nothing"
        elif not problem and (name := _find_foreign_call(parsed, record, turn)):
            problem = f"call of {name} in another syntax"
    return msgspec.structs.replace(parsed, problem=problem)


def _read_without_tools(text: str, protocol: Protocol, recorded_text: str) -> Parsed:
    """Words, unless it is a call: one is wrong where nothing is on offer, but it is one."""
    parsed = protocol.parse(text, ())
    if parsed.calls and not parsed.problem and text.strip() != recorded_text.strip():
        return parsed
    parsed = protocol.read(text, ())
    problem = "" if says_something(parsed.content) else "says nothing"
    return msgspec.structs.replace(parsed, problem=problem)


def reference_of(protocol: Protocol, record: Record, turn: int) -> str:
    """The words that the record has at a turn, as a reader of the protocol would find them."""
    if not record.has_gold(turn):
        return ""  # they are a stand-in
    if not (protocol.exchanges and record.tools):
        return thought_and_words(record.messages[turn].content)[1].strip()
    exchanges = protocol.exchanges(without_thoughts(record), turn)
    answer = next(exchange.answer for exchange in exchanges if exchange.prompted)
    return protocol.read(answer, record.tools).content


def says_something(text: str) -> bool:
    """Whether there is a letter or a digit: a mark or a character without width does not answer."""
    return any(character.isalnum() for character in text)


def _find_foreign_call(parsed: Parsed, record: Record, turn: int) -> str:
    """The tool that the words call in the syntax of another protocol, or with an argument behind
    its name, as no message before has it; "" if they call none.
    """
    text = parsed.content
    named_tools = [tool for tool in record.tools if tool.name in text]
    names = sorted((re.escape(tool.name) for tool in named_tools), key=len, reverse=True)
    for syntax in SYNTAXES if named_tools else ():
        if match := re.search(syntax.format("|".join(names)), text, re.MULTILINE):
            return match[1]
    # beside a call, words may well say which one it is
    for tool in named_tools if not parsed.calls else ():
        for argument in map(re.escape, tool.parameters.get("properties", {})):
            patterns = (pattern.format(re.escape(tool.name), argument) for pattern in WITH_ARGUMENT)
            match = next(filter(None, (re.search(pattern, text) for pattern in patterns)), None)
            earlier_messages = record.messages[:turn]
            if match and not any(match[0] in message.content for message in earlier_messages):
                return tool.name
    return ""


# of a call, with the names of the tools to be filled in: an object, a line of ReAct, a tag, Python
SYNTAXES = (
    r"""["'](?:name|api_name|tool|tool_name|function|action|command)["']\s*:\s*["']({})["']""",
    r"^\W*(?:Action|Tool|Function|API)(?: Name)?[ \t]*[:：][ \t]*\W?({})\W?[ \t]*$",
    r"<(?:function|invoke|tool|call)\b[^<>\n]*[\"'= ]({})[\"']?\s*/?>",
    r"^[\s`\[]*({})\(.*\)[\s`\];,]*$",
)
# a name, then one of its arguments: weather (city= anywhere; as the whole text weather city=,
# {"weather": {"city":, {"fn": "weather", "args": {"city": or <weather><city>
WITH_ARGUMENT = (
    r"(?<![\w./-]){0}\s?\(\s*{1}\s*=",
    r"\A[\s`]*(?:\{{\s*[\"']\w+[\"']\s*:\s*)?[\[{{<\"'\s]*{0}\b\W{{1,20}}"
    r"(?:(?:args|arguments|parameters|input|kwargs)\W{{1,20}})?"
    r"(?:(?<=[\"']){1}[\"']\s*:|{1}\s*=|(?<=<){1}>)",
)
