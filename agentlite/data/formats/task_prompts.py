"""A prompt of KuaiAgent or AutoGPT with its answer -> its goal, tools, steps so far, and a call.

KAgentInstruct's rows hold several of them, and prompts of other agents.
"""

import contextlib
import re

import msgspec
from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Role, Tool, text_or_json, to_json
from agentlite.data.formats import react
from agentlite.data.formats.chains import with_text_behind
from agentlite.data.formats.format import Format, Row, as_list, dialog, meta_of, omit, text_at
from agentlite.data.formats.json_decode import json_or_literal, json_value, parse_json, quote
from agentlite.data.formats.tool_calls import read_tool, read_tools
from agentlite.rendering.protocol import with_tool
from agentlite.rendering.protocols import autogpt, kuaiagent

# what begins a part of such a prompt, in the words of the seed, of KwaiAgents and of AutoGPT
PARTS = {
    "goal": r"goals?|问题或目标",
    "rules": r"constraints|resources|best practices|performance evaluation",
    "commands": r"commands",
    "tasks": r"completed? tasks(?: and results)?",
    "history": r"conversation history",
    "knowledge": r"knowledge",
    "time": r"current time",
}
# "Completed tasks: [...]", "* Constraints:", "问题或目标:"; the group names the part
LABEL = re.compile(
    rf"^[ \t]*(?:\*[ \t]*)?(?:{'|'.join(f'(?P<{key}>{words})' for key, words in PARTS.items())})"
    r"[ \t]*[:：]",
    re.MULTILINE | re.IGNORECASE,
)
FORM = re.compile(
    r"^[ \t]*\\?(?:根据目标和已有任务|Based on the goal and existing|Plan one new task"
    r"|You should only respond in JSON|Respond only in JSON)",
    re.MULTILINE,
)
CONCLUDE = re.compile(
    r"^[ \t]*\\?(?:生成对用户有帮助的|Generate helpful answers|An answer that helps the user:"
    r"|The final answer:)",
    re.MULTILINE,
)
COMMANDS = re.compile(r"^Commands:", re.MULTILINE)
# the words of the templates themselves; others are the author's, and stay as a system message
FRAME = re.compile(
    r"你是一个很专业的AI任务规划师.*?任务规划。|当前阶段是任务规划阶段.*?任务规划。"
    r"|你是一个很强的AI助手,.*?最终的结论。|当前阶段是总结阶段.*?最终的结论。"
    r"|注意事项[:：]搜寻的信息从很多工具中获取,会出现冗余。"
    r"|You are an expert at planning tasks\..*?plan efficiently\."
    r"|Currently, you are in the task planning phase.*?strategies for task planning\."
    r"|You are a strong assistant\..*?may be redundant\."
    r"|You are AutoGPT, an agent that reaches its goals alone\."
    r"|Decide always by yourself .*?strategy simple\."
    r"|The commands that the goals needed were run\..*?language of the goals\.",
    re.DOTALL,
)
RULE = re.compile(r"^[ \t]*\d{1,2}[.、].*$", re.MULTILINE)
# a command as JSON, or as AutoGPT has it: 1. Search: "search", args: "input": "<what>"
COMMAND = re.compile(r"\s*\d{1,3}\s*[:.、]\s*(\{.*\})\s*")
CLASSIC = re.compile(r'\s*\d{1,3}\.\s*([^"]*?):\s*"([^"]+)"(?:,\s*args:\s*(.*))?\s*')
ARGUMENT = re.compile(r'"([^"]+)":\s*"([^"]*)"')
# in JSON: up to the first quote that is followed by what may stand behind a text
TEXT = re.compile(r'"(.*?)"(?=\s*(?:[,:\]}]|\Z))', re.DOTALL)
FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)
# AutoGPT sends its prompt as the system message, and this as the user's
TRIGGER = re.compile(r"\s*Determine (?:exactly one|which next) command to use[^\n]*\s*")
EMPTY = ("", "[]", "None", "无")
HISTORY_ROLES: dict[str, Role] = {
    **dict.fromkeys(("user", "query"), "user"),
    **dict.fromkeys(("assistant", "answer"), "assistant"),
}
SPEAKER = re.compile(r"^(User|Assistant):", re.MULTILINE)
# what shows that steps of an agent stand behind the form, where nothing here reads them
MORE_HISTORY = re.compile(r"returned|reminds you|Observation:|\"result\"|Assistant:")


def split(record: Record, conclusion: str = "") -> Record:
    """The record as a dialog of turns, if its one question is such a prompt and all of it is
    understood; any other record as it is. `conclusion`: what was said to the prompt that concludes,
    where a task ends with this answer.
    """
    roles = [message.role for message in record.messages]
    if roles[-2:] != ["user", "assistant"] or {*roles[:-2]} - {"system"} or record.gold:
        return record
    *system, question, answer = record.messages
    request = "" if is_prompt(question.content) else question.content.strip()
    if request and len(system) == 1:  # the prompt is the system message
        (question,), system = system, []
    if answer.calls or not is_prompt(question.content):
        return record
    if not (prompt := _prompt(question.content)):
        return record
    tools, context, goal, steps = prompt
    tools, goal = [*record.tools] or tools, goal or request
    if all(tool.name == kuaiagent.DONE for tool in tools):
        return record
    if request not in ("", goal) and not TRIGGER.fullmatch(request):
        return record
    words = answer.content.strip()
    turn: Message | None = Message("assistant", words)
    if not asks_for_conclusion(question.content):
        turn = _command(words, conclusion, len(steps) // 2)
    if turn is None:
        return record
    turns = (Message("user", goal), *steps, replace(turn, loss=answer.loss))
    if any(call.name == kuaiagent.DONE for call in turn.calls):  # the end is a decision of its own
        tools = with_tool(tools, kuaiagent.ENGLISH.complete)
    else:
        tools = [tool for tool in tools if tool.name != kuaiagent.DONE]
    return replace(record, messages=(*system, *context, *turns), tools=tuple(tools))


def is_prompt(text: str) -> bool:
    """Whether a text asks for the next command, or for the conclusion."""
    if "GOAL" not in text and "Goal:" not in text and "问题或目标" not in text:
        return False
    return bool(FORM.search(text) or CONCLUDE.search(text) or COMMANDS.search(text))


def asks_for_conclusion(text: str) -> bool:
    return is_prompt(text) and not (FORM.search(text) or COMMANDS.search(text))


def _prompt(text: str) -> tuple[list[Tool], list[Message], str, list[Message]] | None:
    """The tools that a prompt lists, what is before its goal, the goal, and the calls that were
    made, with their results; None where anything is not understood: the readers of its parts raise
    what says so.
    """
    form = FORM.search(text) or CONCLUDE.search(text)
    if form and MORE_HISTORY.search(text, form.end()):
        return None
    body = text[: form.start()] if form else text
    labels = [*LABEL.finditer(body)]
    parts: dict[str, list[str]] = {key: [] for key in PARTS}
    for label, content in with_text_behind(labels, body):
        parts[label.lastgroup or ""].append(content)
    # a part that appears twice, or none that says what is wanted
    if not parts["goal"] or any(len(parts[key]) > 1 for key in parts if key != "rules"):
        return None
    goal = parts["goal"][0].strip()
    if not form and "\n" in goal:
        return None
    if any(RULE.sub("", rules).strip() for rules in parts["rules"]):
        return None
    try:
        tools, dates = _tools("".join(parts["commands"]))
        steps, history = _steps("".join(parts["tasks"])), _history("".join(parts["history"]))
    except (ValueError, LookupError, TypeError, msgspec.ValidationError):
        return None
    words = FRAME.sub("", RULE.sub("", body[: labels[0].start()])).strip()
    times = [f"Current Time: {time.strip()}" for time in parts["time"] if time.strip()]
    knowledge = [text.strip() for text in parts["knowledge"] if text.strip() not in EMPTY]
    system = "\n".join(filter(None, [words, *dates, *times, *knowledge]))
    # AutoGPT numbers its goals, a lone one too: "GOALS:\n1. Find tea"
    if "GOALS:" in text and "\n2. " not in goal:
        goal = goal.removeprefix("1. ")
    return tools, [*([Message("system", system)] if system else []), *history], goal, steps


def _tools(text: str) -> tuple[list[Tool], list[str]]:
    """The tools that are listed, and other lines among them, as KwaiAgents' date."""
    tools, other_lines = [], []
    for line in filter(str.strip, text.splitlines()):
        if command := COMMAND.fullmatch(line):
            tools.append(read_tool(command[1], _command_json))
        elif classic := CLASSIC.fullmatch(line):
            arguments = ARGUMENT.findall(classic[3] or "")
            properties = {name: {"description": about} for name, about in arguments}
            parameters = {"type": "object", "properties": properties}
            tools.append(Tool(classic[2], classic[1].strip(), parameters))
        elif line.strip()[0] in '{}[]",' or RULE.fullmatch(line):
            raise ValueError("a command that is not understood")
        else:
            other_lines.append(line.strip())
    return tools, other_lines


def _command_json(text: str) -> object:
    """The value of a command's JSON, in whose texts quotes may stand as they are."""
    with contextlib.suppress(RowError):
        return json_or_literal(text)
    # "about": "the "best" one" -> "about": "the \"best\" one"
    return json_or_literal(TEXT.sub(lambda match: '"' + match[1].replace('"', '\\"') + '"', text))


def _steps(text: str) -> list[Message]:
    """The calls that were made, with their results."""
    if text.strip() in EMPTY:
        return []
    messages: list[Message] = []
    tasks = msgspec.convert(parse_json(text.strip()), list[Row])
    for number, task in enumerate(tasks):
        command, words, result = task["command"], task.get("task_name", ""), task["result"]
        call_row = {"name": command["name"], "arguments": command["args"], "id": f"call_{number}"}
        call = msgspec.convert(call_row, Call)
        messages += [
            Message("assistant", str(words).strip(), (call,), loss=False),
            Message("tool", text_or_json(result), call_id=call.id),
        ]
    return messages


def _history(text: str) -> list[Message]:
    """What precedes the goal."""
    if (text := text.strip()) in EMPTY:
        return []
    if SPEAKER.match(text):
        _, *pieces = SPEAKER.split(text)
        turns = [*zip(map(str.lower, pieces[::2]), map(str.strip, pieces[1::2]), strict=True)]
    else:
        exchanges = msgspec.convert(parse_json(text), list[dict[str, str]])
        turns = [turn for exchange in exchanges for turn in exchange.items()]
    pairs = ((HISTORY_ROLES[speaker], words) for speaker, words in turns)
    return [Message(role, words, loss=role == "user") for role, words in pairs]


def _command(text: str, conclusion: str, start: int) -> Message | None:
    """The turn that an answer is: the calls of its tasks, with ids from `start` on, or the words
    that end one; else None.
    """
    tasks = _tasks(text)
    if not tasks or any("command" not in task for task in tasks):
        if '"command"' in text:
            raise RowError("E206", f"a command is not JSON: {quote(text)}")
        return None
    words, calls = list[str](), list[Call]()
    for number, task in enumerate(tasks, start):
        # {"thoughts": {...}, "command": {...}} of AutoGPT, {"task_name": ..., "command": {...}}
        parsed = (autogpt if "thoughts" in task else kuaiagent).parse(to_json(task))
        if parsed.problem:
            raise RowError("E206", f"{parsed.problem}: {quote(text)}")
        words.append(parsed.content)
        calls += [replace(call, id=f"call_{number}") for call in parsed.calls]
    responses = [c.arguments.get("response", "") for c in calls if c.name == kuaiagent.DONE]
    if responses and len(calls) > 1:
        raise RowError("E206", f"the end of a task beside other tasks: {quote(text)}")
    conclusion = conclusion or next((r for r in responses if isinstance(r, str)), "")
    if responses and conclusion.strip():
        return Message("assistant", conclusion.strip())
    return Message("assistant", "\n".join(filter(None, words)), tuple(calls))


def _tasks(text: str) -> list[Row]:
    """The JSON objects that a text is or lists, alone or in a fence; none for other texts."""
    fenced = FENCED.match(text)
    try:
        values = as_list(json_value((fenced[1] if fenced else text).strip()))
    except RowError:
        return []
    return values if all(isinstance(task, dict) for task in values) else []


# --- KAgentInstruct: a record for each prompt and response of a row ---

SAMPLES = "llm_prompt_response"
FUNCTIONS = ("functions", "function_names")  # in meta only where they are not tools of the record
META_KEYS = ("query", "source", *FUNCTIONS, "extra_infos")
# of other templates there are thousands: their prompts and answers stay as they are
PROMPT_SYNTAXES = (react.MODELSCOPE_SYNTAX, react.TOOLLLAMA_SYNTAX, react.SYNTAX)


def samples_of(row: Row) -> list[Row]:
    """A row for each sample (with the conclusion it leads to); the row itself if it has none."""
    samples = row.get(SAMPLES)
    if not isinstance(samples, list) or not samples:
        return [row]
    groups: list[list[object]] = []
    for sample in samples:
        if groups and len(groups[-1]) == 1 and _concludes(groups[-1][0], sample):
            groups[-1].append(sample)
        else:
            groups.append([sample])
    return [{**row, SAMPLES: group} for group in groups]


def _concludes(sample: object, next_sample: object) -> bool:
    """Whether a sample ends a task, and the next asks for the answer to the user."""
    if not (isinstance(sample, dict) and isinstance(next_sample, dict)):
        return False
    output, prompt = sample.get("output"), next_sample.get("instruction")
    if not all(isinstance(text, str) for text in (output, prompt, next_sample.get("output"))):
        return False
    commands = [task.get("command") for task in _tasks(str(output))]
    are_ends = [isinstance(c, dict) and c.get("name") == kuaiagent.DONE for c in commands]
    return are_ends == [True] and asks_for_conclusion(f"{prompt}{next_sample.get('input') or ''}")


def read_kagentinstruct(row: Row) -> Record:
    """One sample, or one and its conclusion."""
    samples = row[SAMPLES]
    sample = samples[0]
    question = text_at(sample, "instruction") + text_at(sample, "input")
    conclusion = text_at(samples[1], "output") if len(samples) == 2 else ""
    is_task = is_prompt(question)
    is_known = is_task or any(syntax.is_prompt(question) for syntax in PROMPT_SYNTAXES)
    record = Record(
        messages=dialog("", [(question, text_at(sample, "output"))]),
        tools=read_tools(row.get(FUNCTIONS[0]), _command_json) if is_known else (),
    )
    split_record = split(record, conclusion)
    if is_task and split_record is record:  # a prompt that is not understood lists its tools itself
        split_record = replace(record, tools=())
    fields = {k: row.get(k) for k in META_KEYS if not (split_record.tools and k in FUNCTIONS)}
    sample_meta = omit(sample, "instruction", "input", "output")
    meta = meta_of(row, SAMPLES, *META_KEYS, sample=sample_meta, **fields)
    return replace(split_record, meta=meta)


KAGENTINSTRUCT = Format("kagentinstruct", read_kagentinstruct, {SAMPLES: list}, samples=samples_of)
