"""AutoGPT: one prompt asks for the next command as JSON, another for the final answer.

{"task_name": "look up the weather", "command": {"name": "weather", "args": {"city": "Oslo"}}}

Every step has a prompt of its own: the goal, what was said before it, and the commands that were
run, with their results. A turn that answers is two rows: the command task_complete, and the answer
to the second prompt.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Parsed, Record, Tool, plain
from agentlite.rendering.protocol import PromptExchange, Protocol, arguments_problem, json_object

DONE = "task_complete"


class AutoGptTexts(NamedTuple):
    """The prompt that plans and calls, the one that concludes, and what the command says that ends
    a task.
    """

    plan: str
    conclude: str
    done: str


ENGLISH = AutoGptTexts(
    """You are an expert at planning tasks. Given a goal or a question you decide alone, without help from people; play to your strengths and plan efficiently.

Constraints:
1. Your short-term memory holds about 4000 words.
2. You ask no user for help.
3. You use only the commands listed in double quotes, for example "command_name".
4. Stay modest: call a command for what you are not sure of, but as few as possible, and none twice.
5. When you can conclude from what you know or remember, finish the task.
6. Reflect on earlier decisions; if the results so far do not reach the goal, go on planning.

Commands:
{commands}

GOAL: {goal}

Completed tasks: {tasks}

Conversation history: {history}

Knowledge: {knowledge}

Plan one new task that is not done yet, and answer only with JSON in this form:
{form}

Where the completed tasks are enough to reach the goal, the new task is {done}. The new task:""",  # noqa: E501  (a paragraph of the prompt is one line)
    """You are a strong assistant. In the steps before you have found information on the user's goal; now put it together and give the final answer. What the tools found may be redundant.

Completed tasks and results: {tasks}

Conversation history: {history}

Knowledge: {knowledge}

GOAL: {goal}

An answer that helps the user:""",  # noqa: E501  (verbatim text)
    "the task is done",
)
CHINESE = AutoGptTexts(
    """你是一个很专业的AI任务规划师,给定目标或问题,你的决策将独立执行而不依赖于人类的帮助,请发挥LLM的优势并且追求高效的策略进行任务规划。

Constraints:
1.你有~4000字的短期记忆
2.不需要用户的帮助
3.只使用双引号中列出的commands,例如:"command_name"
4.保持谦逊,对自己没把握的问题,尽可能调用command,但尽量少调用,不能重复调用
5.当你从自身知识或者历史记忆中能得出结论,请聪明且高效,完成任务并得出结论
6.你有反思能力,如果已完成的任务和结果暂不能得到回答问题所需信息或尚不能完成目标,应继续规划

Commands:
{commands}

GOAL: {goal}

Completed tasks: {tasks}

Conversation history: {history}

Knowledge: {knowledge}

根据目标和已有任务,规划一个新Task(不能重复),你只能以以下json的格式生成Task
{form}

当已完成的Tasks能够帮助回答这个目标问题,则新Task为{done}。一个新Task:""",
    """你是一个很强的AI助手,在前几次交互中,对于用户给定的目标和问题,你已经通过自己搜寻出了一定信息,你需要整合这些信息给出最终的结论。
注意事项:搜寻的信息从很多工具中获取,会出现冗余。

Completed tasks and results: {tasks}

Conversation history: {history}

Knowledge: {knowledge}

GOAL: {goal}

生成对用户有帮助的回答:""",
    "任务已完成",
)
FORM = '{"task_name": "...", "command": {"name": "command name", "args": {"arg name": "value"}}}'
COMPLETE = Tool(DONE, "The completed tasks are enough to answer; no further command is needed.")


def exchanges(record: Record, turn: int, language: AutoGptTexts) -> list[PromptExchange]:
    """The prompts of a turn and what is said to them. Raises RowError E212 for a tool that is named
    like the end.
    """
    if any(tool.name == DONE for tool in record.tools):
        raise RowError("E212", f"a tool is named {DONE}, which ends a task in protocol autogpt")
    message, shown = record.messages[turn], _shown(record.messages[:turn])
    commands = "\n".join(
        f"{n}:{plain(tool.schema['function'])}"
        for n, tool in enumerate([*record.tools, COMPLETE], 1)
    )
    planned = _filled(language.plan, {**shown, "commands": commands, "form": FORM, "done": DONE})
    if message.calls:
        (call,) = message.calls
        return [PromptExchange(planned, _command(message.content, call.name, call.arguments))]
    finished = _command(language.done, DONE, {})
    return [
        PromptExchange(planned, finished),
        PromptExchange(_filled(language.conclude, shown), message.content, prompted=False),
    ]


def _filled(frame: str, texts: dict[str, str]) -> str:
    """Each text at its name; what stands in a text is not looked at again."""
    filled = ""
    while frame:
        before, brace, frame = frame.partition("{")
        name, _, frame = frame.partition("}") if brace else ("", "", "")
        filled += before + texts.get(name, "")
    return filled


def _shown(before: Sequence[Message]) -> dict[str, str]:
    """The goal: what the user asked last; every command that was run, with its result; what was
    said before.
    """
    question_index = max(
        (i for i, message in enumerate(before) if message.role == "user"), default=-1
    )
    earlier = [
        m for m in before[: max(question_index, 0)] if m.role in ("user", "assistant") and m.content
    ]
    return {
        "goal": before[question_index].content if question_index >= 0 else "",
        "tasks": plain(_tasks(before)),
        "history": plain([{m.role: m.content} for m in earlier]),
        "knowledge": "\n\n".join(m.content for m in before if m.role == "system"),
    }


def _tasks(messages: Sequence[Message]) -> list[dict[str, object]]:
    results = {message.call_id: message.content for message in messages if message.role == "tool"}
    return [
        {
            "task_name": message.content,
            "command": {"name": call.name, "args": call.arguments},
            "result": results.get(call.id, ""),
        }
        for message in messages
        for call in message.calls
    ]


def _command(task: str, name: str, arguments: dict[str, object]) -> str:
    return plain({"task_name": task.strip(), "command": {"name": name, "args": arguments}})


def parse(text: str) -> Parsed:
    """The first JSON object; the command that ends a task is no call."""
    start = text.find("{")
    if start < 0:
        return Parsed(text.strip(), (), "no command")
    try:
        value, end = json_object(text, start)
    except ValueError:
        return Parsed("", (), "command is no JSON")
    command, task = value.get("command"), value.get("task_name")
    content = task if isinstance(task, str) else ""
    if not isinstance(command, dict) or not isinstance(command.get("name"), str):
        return Parsed(content, (), "command has no name")
    outside = "text beside the command" if (text[:start] + text[end:]).strip() else ""
    if command["name"] == DONE:
        return Parsed(content, (), outside)
    problem = arguments_problem(command.get("args", {}))
    return Parsed(
        content,
        () if problem else (Call(command["name"], command.get("args", {})),),
        problem or outside,
    )


def _protocol(name: str, language: AutoGptTexts) -> Protocol:
    return Protocol(name, parse, several=False, exchanges=partial(exchanges, language=language))


PROTOCOL = _protocol("autogpt", ENGLISH)
PROTOCOL_ZH = _protocol("autogpt-zh", CHINESE)
