"""What an answer must be where a client asks for JSON or for a call: a guide, and a check."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.core.json_guide import Guide, behind
from agentlite.core.json_schema import misfit
from agentlite.data.openai_messages import Opened, Turn
from agentlite.rendering import Protocol
from agentlite.rendering.call_syntax import call_syntax
from agentlite.rendering.protocol import THINK_END
from agentlite.rendering.template import Template


class AnswerForm(NamedTuple):
    """`lead`: what the answer begins with and a client is not given. `endings`: by what the answer
    begins with, what is put behind it. `problem`: why an answer does not fit; "" if it does.
    """

    guide: Guide
    problem: Callable[[Turn], str]
    lead: str = ""
    endings: Mapping[str, str] = {}

    def completed(self, text: str) -> str:
        """The text of an answer, without the lead and with its ending."""
        after = (end for begin, end in self.endings.items() if text.startswith(begin))
        return text.removeprefix(self.lead) + next(after, "")


def json_form(schema: Mapping[str, Any], protocol: Protocol) -> AnswerForm:
    """One JSON value that fits a schema, and nothing else."""
    lead = f"\n{THINK_END}\n\n" if protocol.prompt_opens_thought else ""

    def problem(turn: Turn) -> str:
        try:
            value = json.loads(turn.text)
        except (ValueError, RecursionError) as error:
            return f"not JSON: {error}"
        return misfit(value, dict(schema))

    return AnswerForm(behind({lead: schema}), problem, lead)


def call_form(
    dialog: Opened, names: Sequence[str], protocol: Protocol, template: Template
) -> AnswerForm | None:
    """One call of one of these tools, its arguments by the tool's schema; None where the protocol
    writes calls in which JSON cannot stand.
    """
    tools = {tool.name: tool for tool in dialog.record.tools if tool.name in names}
    syntaxes = {name: call_syntax(tool, protocol, template) for name, tool in tools.items()}
    found = {name: syntax for name, syntax in syntaxes.items() if syntax}
    if not found or len(found) < len(tools):
        return None

    def problem(turn: Turn) -> str:
        if turn.parsed.problem or not turn.parsed.calls:
            return turn.parsed.problem or "no call"
        call = turn.parsed.calls[0]
        if call.name not in tools:
            return f"a call of {call.name}"
        return misfit(call.arguments, tools[call.name].parameters)

    return AnswerForm(
        behind(
            {
                syntax.before: {**tools[name].parameters, "type": "object"}
                for name, syntax in found.items()
            }
        ),
        problem,
        endings={syntax.before: syntax.after for syntax in found.values()},
    )
