"""Prompt templates: a file with six slots and the name of a call format -> a protocol.

calls: hermes
tools: json

<Profile>You are a careful clerk.</Profile>
<Instruction>Think first. Call a tool where you need one.</Instruction>
<Tools>Your tools:
{tools}</Tools>
<Goal>The task: {goal}</Goal>
<Memory>Done so far:
{memory}</Memory>
<Format>{format}</Format>

Every step is a prompt of its own. Its answer is written in one of the built-in call formats, and is
read back as that format is.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from agentlite.core.errors import UserError
from agentlite.core.plain_words import utf8_text
from agentlite.core.records import Message, Record, Tool, to_json
from agentlite.rendering.protocol import PromptExchange, Protocol, with_tool
from agentlite.rendering.protocols import hermes, modelscope, react, toolllama
from agentlite.rendering.protocols.kuaiagent import HAN

SUFFIX = ".txt"
LONGEST = 1 << 16  # characters of a file
HELP = "docs/data.md shows a whole prompt template."
SLOTS = ("Profile", "Instruction", "Tools", "Goal", "Memory", "Format")
FILLED = SLOTS[2:]  # each holds its placeholder once: {tools}, {goal}, {memory}, {format}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
TAG = re.compile(rf"<(/?)({'|'.join(SLOTS)})>")
SLOT = re.compile(rf"<({'|'.join(SLOTS)})>(.*?)</\1>", re.DOTALL)
PLACEHOLDER = re.compile(rf"\{{({'|'.join(slot.lower() for slot in FILLED)})\}}")
HEADER = re.compile(r"^(\w+):[ \t]*(\S*)[ \t]*$")


class CallFormat(NamedTuple):
    """A built-in protocol for the answers, and how a prompt explains it in both languages."""

    protocol: Protocol
    english: str
    chinese: str


HERMES_CALL = (
    f'{hermes.OPEN}\n{{"name": "TOOL", "arguments": {{"ARGUMENT": "VALUE"}}}}\n{hermes.CLOSE}'
)
REACT_CALL = 'Thought: THOUGHT\nAction: TOOL\nAction Input: {"ARGUMENT": "VALUE"}'
FINISH_CALL = (
    'Thought: THOUGHT\nAction: Finish\nAction Input: {"return_type": "give_answer", '
    '"final_answer": "ANSWER"}'
)
SCOPE_CALL = (
    f"{modelscope.OPEN}{modelscope.FENCE}JSON\n"
    '{"api_name": "TOOL", "parameters": {"ARGUMENT": "VALUE"}}\n'
    f"{modelscope.FENCE}{modelscope.CLOSE}"
)
FORMATS = {
    "hermes": CallFormat(
        hermes.PROTOCOL,
        f"To call tools, write one block for each call:\n{HERMES_CALL}\nTo answer, write the "
        "answer without a block.",
        f"调用工具时,每个调用写一个块:\n{HERMES_CALL}\n回答时,直接写答案,不写块。",
    ),
    "react": CallFormat(
        react.PROTOCOL,
        f"To call a tool, write:\n{REACT_CALL}\nTo answer, write:\n{react.ENGLISH.final} ANSWER",
        f"调用工具时,写:\n{REACT_CALL}\n回答时,写:\n{react.ENGLISH.final} ANSWER",
    ),
    "react-zh": CallFormat(
        react.PROTOCOL_ZH,
        f"To call a tool, write:\n{REACT_CALL}\nTo answer, write:\n{react.CHINESE.final} ANSWER",
        f"调用工具时,写:\n{REACT_CALL}\n回答时,写:\n{react.CHINESE.final} ANSWER",
    ),
    "toolllama": CallFormat(
        toolllama.PROTOCOL,
        f"To call a tool, write:\n{REACT_CALL}\nTo answer, call Finish:\n{FINISH_CALL}",
        f"调用工具时,写:\n{REACT_CALL}\n回答时,调用Finish:\n{FINISH_CALL}",
    ),
    "modelscope": CallFormat(
        modelscope.PROTOCOL,
        f"To call an API, write:\n{SCOPE_CALL}\nTo answer, write the answer without these marks.",
        f"调用API时,写:\n{SCOPE_CALL}\n回答时,直接写答案,不写这些标记。",
    ),
}


# how a tool is listed, with its number
LISTINGS: dict[str, Callable[[int, Tool], str]] = {
    "json": lambda number, tool: to_json(tool.function),
    "numbered": lambda number, tool: (
        f"{number}. {tool.name}: {tool.description} Parameters: {to_json(tool.parameters)}"
    ),
}


class PromptTemplate(Struct, frozen=True, forbid_unknown_fields=True):
    """`calls`: the built-in protocol of the answers; `tools`: how each tool is listed. `text`: the
    six slots, each between its tags, in any order.
    """

    name: str
    text: str
    calls: str = "hermes"
    tools: str = "json"

    def check(self) -> "PromptTemplate":
        """The template itself. Raises ValueError for one that cannot be used."""
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a name of letters, digits, '_', '-' and '.'")
        for key, value, table in (("calls", self.calls, FORMATS), ("tools", self.tools, LISTINGS)):
            if value not in table:
                raise ValueError(f"{key}: {value!r} is none of {', '.join(table)}")
        kind, detail = slot_problem(self.text)
        if kind:
            raise ValueError(f"{kind}: {detail}")
        return self

    @property
    def protocol(self) -> Protocol:
        """Reads as its call format does. A step is a whole turn, so no stop string ends it."""
        return replace(
            FORMATS[self.calls].protocol,
            name=self.name,
            template_json=msgspec.json.encode(self).decode(),
            exchanges=partial(_exchanges, self),
            system=lambda tools: "",
            stops=(),
            inline=False,
        )


def slot_problem(text: str) -> tuple[str, str]:
    """What is wrong with the slots of a text, as a kind and its detail; two "" if nothing is."""
    tags = [(bool(is_end), name) for is_end, name in TAG.findall(text)]
    for slot in SLOTS:
        if tags.count((False, slot)) > 1:
            return "double slot", slot
        if (False, slot) not in tags:
            return "missing slot", slot
    # each opened once: SLOT finds all six only where none is left open or stands in another
    if [name for name, _ in SLOT.findall(text)] != [name for is_end, name in tags if not is_end]:
        return "slot without an end", "a slot ends before the next one begins"
    if outside := SLOT.sub("", text).strip():
        return "text outside the slots", f"{outside[:60]!r}"
    for name, words in SLOT.findall(text):
        placeholders = PLACEHOLDER.findall(words)
        expected = [name.lower()] if name in FILLED else []
        if placeholders != expected:
            contents = f"{{{name.lower()}}} once, and no other" if expected else "no place to fill"
            return "wrong places", f"{name} must hold {contents}"
        if not PLACEHOLDER.sub("", words).strip() and not expected:
            return "empty slot", name
    return "", ""


def read_templates(path: Path) -> list[PromptTemplate]:
    """The template of a file, or those of a folder in the order of their names."""
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files:
        raise UserError(
            f"holds no prompt template (*{SUFFIX}).",
            "Make some: agentlite make templates.",
            location=str(path),
        )
    templates = []
    for file in files:
        try:
            text = utf8_text(file.read_bytes()[: 4 * LONGEST], str(file))
            templates.append(from_text(file.stem, text))
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}.", location=str(file)) from error
        except ValueError as error:
            raise UserError(f"{error}.", HELP, location=str(file)) from error
    return templates


def from_text(name: str, text: str) -> PromptTemplate:
    """The template of a file's text. Raises ValueError for one that cannot be used."""
    head, bracket, rest = text.partition("<")
    settings = {}
    for line in filter(None, map(str.strip, head.splitlines())):
        setting = HEADER.match(line)
        if not setting or setting[1] not in ("calls", "tools") or setting[1] in settings:
            raise ValueError(f"{line[:60]!r} is not a line of its head (calls: NAME, tools: NAME)")
        settings[setting[1]] = setting[2]
    return PromptTemplate(name, (bracket + rest)[:LONGEST].strip(), **settings).check()


def to_text(template: PromptTemplate) -> str:
    """The text of the file of a template."""
    return f"calls: {template.calls}\ntools: {template.tools}\n\n{template.text}\n"


def from_setting(text: str) -> PromptTemplate:
    """A template that a plan holds, as JSON. Raises ValueError."""
    return msgspec.json.decode(text, type=PromptTemplate).check()


def write_prompt(template: PromptTemplate, record: Record, turn: int) -> str:
    """The prompt before a turn. The system text of a record comes before the profile."""
    call_format, before = FORMATS[template.calls], record.messages[:turn]
    goal = max((i for i, message in enumerate(before) if message.role == "user"), default=-1)
    tools: Sequence[Tool] = record.tools
    if call_format.protocol.answer_tool:
        tools = with_tool(record.tools, toolllama.FINISH)
    texts = {
        "tools": "\n".join(starmap(LISTINGS[template.tools], enumerate(tools, 1))),
        "goal": before[goal].content if goal >= 0 else "",
        "memory": _memory([message for i, message in enumerate(before) if i != goal]),
        "format": call_format.chinese if HAN.search(template.text) else call_format.english,
    }
    system = "\n\n".join(message.content for message in before if message.role == "system")
    parts = []
    for slot, words in SLOT.findall(template.text):
        slot_text = PLACEHOLDER.sub(lambda match: texts[match[1]], words.strip())
        parts.append("\n".join(filter(None, [system if slot == "Profile" else "", slot_text])))
    return "\n\n".join(parts)


def _memory(messages: Sequence[Message]) -> str:
    """What was said and done, a JSON object for each message, so that no text can pass for one."""
    names = {call.id: call.name for message in messages for call in message.calls}
    lines: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            lines.append({"tool": names.get(message.call_id, ""), "result": message.content})
        elif message.role != "system":
            calls = [{"name": call.name, "arguments": call.arguments} for call in message.calls]
            lines.append({message.role: message.content} | ({"calls": calls} if calls else {}))
    return "\n".join(map(to_json, lines)) or "[]"


def _exchanges(template: PromptTemplate, record: Record, turn: int) -> list[PromptExchange]:
    answer = FORMATS[template.calls].protocol.write(record.messages[turn], record.tools)
    prompt = write_prompt(template, record, turn)
    # the turn ends where ReAct, in one turn with its results, would go on with them
    return [PromptExchange(prompt, answer.removesuffix(f"\n{react.STOP}"))]
