"""What an answer must be where a client asks for JSON or for a call: a grammar, and a check."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.core.errors import RowError
from agentlite.core.json_schema import KEYWORDS, STRUCTURE, as_meant, schema_error
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.openai_messages import Opened, Turn
from agentlite.rendering import Protocol, render_last
from agentlite.rendering.protocol import THINK_END
from agentlite.rendering.renderer import span_text
from agentlite.rendering.template import Template

# of llguidance. A weak model would write blanks for ever; what else a schema says is checked behind
OPTIONS = {"whitespace_pattern": r"[ \n\t\r]{0,32}", "lenient": True}


class AnswerForm(NamedTuple):
    """`lead`: what the answer begins with and a client is not given. `problem`: why an answer does
    not fit; "" if it does.
    """

    grammar: str
    problem: Callable[[Turn], str]
    lead: str = ""


def json_form(
    schema: Mapping[str, Any], protocol: Protocol, template: Template
) -> AnswerForm | None:
    """One JSON value that fits a schema, and nothing else; None for a schema that no value fits. A
    schema of properties without a type is that of an object.
    """
    schema = {"type": "object", **schema} if "properties" in schema else dict(schema)
    lead = f"\n{THINK_END}\n\n" if protocol.prompt_opens_thought else ""
    grammar = _grammar([(lead, schema, "")], template)

    def problem(turn: Turn) -> str:
        try:
            value = json.loads(turn.text)
        except (ValueError, RecursionError) as error:
            return f"not JSON: {error}"
        return schema_error(value, schema)

    return AnswerForm(grammar, problem, lead) if grammar else None


def call_form(
    dialog: Opened, names: Sequence[str], protocol: Protocol, template: Template
) -> AnswerForm | None:
    """One call of one of these tools, its arguments by the tool's schema; None where the protocol
    writes calls in which JSON cannot stand.
    """
    tools = {tool.name: tool for tool in dialog.record.tools if tool.name in names}
    calls = []
    for tool in tools.values():
        if not (syntax := call_syntax(tool, protocol, template)):
            return None
        before, after = syntax
        calls.append((before, {**tool.parameters, "type": "object"}, after))
    grammar = _grammar(calls, template)

    def problem(turn: Turn) -> str:
        if turn.parsed.problem or not turn.parsed.calls:
            return turn.parsed.problem or "no call"
        call = turn.parsed.calls[0]
        if call.name not in tools:
            return f"a call of {call.name}"
        return schema_error(call.arguments, tools[call.name].parameters)

    return AnswerForm(grammar, problem) if grammar else None


def call_syntax(tool: Tool, protocol: Protocol, template: Template) -> tuple[str, str] | None:
    """What stands before and behind the arguments of a call of `tool`, in any dialog: found by
    writing a call and reading it back. None where one whose arguments are JSON does not read back.
    """
    call = Message("assistant", calls=(Call(tool.name, {}, "call00000"),))
    record = Record(messages=(Message("user", "x"), call), tools=(tool,))
    try:
        row = render_last(record, protocol, template)
    except RowError:
        return None
    span = next(span for span in row.spans if span.turn == 1)
    before, empty, after = span_text(row, span, template).rpartition("{}")
    read = protocol.read(f'{before}{{"probe": 1}}{after}', record.tools)
    reads_back = [(call.name, call.arguments) for call in read.calls] == [(tool.name, {"probe": 1})]
    return (before, after) if empty and reads_back and not read.problem else None


def _grammar(values: Sequence[tuple[str, Mapping[str, Any], str]], template: Template) -> str:
    """One of several JSON values, each between two texts, in llguidance's form of Lark. A keyword
    that llguidance cannot follow, such as a pattern that looks ahead, leaves only the structure of
    the schemas. "" where no value fits.
    """
    from llguidance import LLMatcher

    for kept in (KEYWORDS, STRUCTURE):
        rules = []
        for before, schema, after in values:
            meant = json.dumps({**as_meant(dict(schema), kept), "x-guidance": OPTIONS})
            texts = (_literal(before, template), f"%json {meant}", _literal(after, template))
            rules.append(" ".join(texts))
        grammar = "start: " + "\n  | ".join(rules)
        if rules and not LLMatcher.validate_grammar(grammar):
            return grammar
    return ""


def _literal(text: str, template: Template) -> str:
    """A text in Lark. What is a token of its own, such as <tool_call>, is named by its id: for
    llguidance it is special, and would be spelled letter by letter.
    """
    added = {
        token.content: number
        for number, token in template.tokenizer.get_added_tokens_decoder().items()
    }
    longest_first = sorted(added, key=len, reverse=True)
    pieces = re.split(f"({'|'.join(map(re.escape, longest_first))})", text) if added else [text]
    return " ".join(
        f"<[{added[piece]}]>" if piece in added else json.dumps(piece, ensure_ascii=False)
        for piece in pieces
    )
