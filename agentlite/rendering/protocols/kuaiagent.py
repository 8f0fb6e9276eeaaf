"""KuaiAgent: one prompt asks for the next command as JSON, another for the final answer.

{"task_name": "look up the weather", "command": {"name": "weather", "args": {"city": "Oslo"}}}

Every step has a prompt of its own: the goal, what was said before it, and the commands that were
run, with their results. A turn that answers is two rows: the command task_complete, and the answer
to the second prompt.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from agentlite.core.errors import RowError
from agentlite.core.records import ANY_ARGUMENTS, Call, Gold, Parsed, Record, Tool, to_json
from agentlite.rendering.protocol import PromptExchange, Protocol, json_object, to_call, with_tool

DONE = "task_complete"
BUDGET = 5  # steps: the seed's limit, and the unit in which a longer dialog gets more
LONGEST_NAME = 80
PLACEHOLDER = re.compile(r"\{([^}]*)\}")
HAN = re.compile(r"[\u4e00-\u9fff]")


class KuaiAgentTexts(NamedTuple):
    """The prompt that plans and calls, the one that concludes, the form of a command, what the
    command says that ends a task, that command as a tool, and the language of the answer: to a
    goal in Chinese, and to any other.
    """

    plan: str
    conclude: str
    form: str
    done: str
    complete: Tool
    in_chinese: str
    in_any: str


ENGLISH = KuaiAgentTexts(
    """You are an expert at planning tasks. Given a goal or a question you decide alone, without help from people; play to your strengths and plan efficiently.

Constraints:
1. Your short-term memory holds about 4000 words.
2. You ask no user for help.
3. You use only the commands listed in double quotes, for example "command_name".
4. You can search the Internet, put information together, and tell true from false.
5. Stay modest: call a command for what you are not sure of, but as few as possible, and none twice.
6. When you can conclude from what you know or remember, be clever and efficient: finish the task and conclude.
7. Criticise your conduct as a whole, constructively and often; think over earlier decisions and strategies to improve your approach.
8. You may think for at most {steps} steps and plan {steps} tasks, so plan as efficiently as you can.
9. You can reflect: if the completed tasks and their results do not give what the question or the goal needs, go on planning.

Commands:
{commands}

GOAL: {goal}

Completed tasks: {tasks}

Conversation history: {history}

Knowledge: {knowledge}

Plan one new task that is not done yet, and answer only with JSON in this form:
{form}

Where the completed tasks are enough to reach the goal, the new task is {done}. The new task:""",  # noqa: E501  (a paragraph of the prompt is one line)
    """You are a strong assistant. In the steps before you have found information on the user's goal; now put it together and give the final answer {language}.
Note: the information comes from many tools, and some of it may be redundant.

Completed tasks and results: {tasks}

Conversation history: {history}

Knowledge: {knowledge}

GOAL: {goal}

An answer that helps the user:""",  # noqa: E501  (verbatim text)
    '{"task_name": "description of the task", "command": {"name": "command name", "args": '
    '{"arg name": "value"}}}',
    "the task is done",
    Tool(
        DONE,
        "The completed tasks are enough to answer; no further command is needed.",
        returns={"description": "", "type": ""},
    ),
    "in Chinese",
    "in the language of the goal",
)
CHINESE = KuaiAgentTexts(
    """你是一个很专业的AI任务规划师,给定目标或问题,你的决策将独立执行而不依赖于人类的帮助,请发挥LLM的优势并且追求高效的策略进行任务规划。

Constraints:
1.你有~4000字的短期记忆
2.不需要用户的帮助
3.只使用双引号中列出的commands,例如:"command_name"
4.互联网搜索、信息聚合和鉴别真伪的能力
5.保持谦逊,对自己没把握的问题,尽可能调用command,但尽量少调用,不能重复调用
6.当你从自身知识或者历史记忆中能得出结论,请聪明且高效,完成任务并得出结论
7.经常建设性地自我批评整个行为大局,反思过去的决策和策略,以改进你的方法
8.你最多只能进行{steps}步思考,规划{steps}个任务,所以尽可能高效规划任务
9.你有反思能力,如果已完成的任务和结果暂不能得到回答问题所需信息或尚不能完成目标,应继续规划

Commands:
{commands}

GOAL: {goal}

Completed tasks: {tasks}

Conversation history: {history}

Knowledge: {knowledge}

根据目标和已有任务,规划一个新Task(不能重复),你只能以以下json的格式生成Task
{form}

当已完成的Tasks能够帮助回答这个目标问题,则新Task为{done}。一个新Task:""",
    """你是一个很强的AI助手,在前几次交互中,对于用户给定的目标和问题,你已经通过自己搜寻出了一定信息,你需要整合这些信息{language}给出最终的结论。
注意事项:搜寻的信息从很多工具中获取,会出现冗余。

Completed tasks and results: {tasks}

Conversation history: {history}

Knowledge: {knowledge}

GOAL: {goal}

生成对用户有帮助的回答:""",
    '{"task_name": "任务描述", "command": {"name": "command name", "args": {"arg name": "value"}}}',
    "任务已完成",
    Tool(
        DONE,
        "你已经获得了足够的信息来回答用户的问题,不再需要调用外部工具了。",
        returns={"description": "", "type": ""},
    ),
    "用中文",
    "用目标所用的语言",
)


def exchanges(record: Record, turn: int, language: KuaiAgentTexts) -> list[PromptExchange]:
    texts = prompt_texts(record, turn, with_tool(record.tools, language.complete), "{}:{}")
    in_chinese = HAN.search(texts["goal"])
    texts["form"] = language.form
    texts["language"] = language.in_chinese if in_chinese else language.in_any
    task = task_name(record, turn) if record.messages[turn].calls else language.done
    frames = (language.plan, language.conclude)
    return step_exchanges(record, turn, frames, texts, {"task_name": task})


def step_exchanges(
    record: Record,
    turn: int,
    frames: tuple[str, str],
    texts: dict[str, str],
    thought: dict[str, Any],
) -> list[PromptExchange]:
    """The prompts of a turn and their answers: a command behind its thought; and behind the
    one that ends a task, the answer. `frames`: of the prompt that plans and the one that concludes.
    Raises RowError E212 for an answer where a tool is named like the end.
    """
    message, (plan, conclude) = record.messages[turn], frames
    if not message.calls and any(tool.name == DONE for tool in record.tools):
        raise RowError("E212", f"a tool is named {DONE}: in kuaiagent and autogpt that ends a task")
    call = message.calls[0] if message.calls else Call(DONE)
    command = to_json({**thought, "command": {"name": call.name, "args": call.arguments}})
    steps = [PromptExchange(_fill(plan, texts), command)]
    if not message.calls:
        steps.append(PromptExchange(_fill(conclude, texts), message.content, prompted=False))
    return steps


def _fill(frame: str, texts: dict[str, str]) -> str:
    """Each text at its name; what stands in a text is not looked at again."""
    return PLACEHOLDER.sub(lambda match: texts.get(match[1], ""), frame)


def prompt_texts(record: Record, turn: int, tools: Sequence[Tool], line: str) -> dict[str, str]:
    """The goal: what the user asked last; every command that was run, with its result; what was
    said before; the number of steps that the goal may take; how the task ends; and the commands,
    each in a `line` with its number, `required` beside its parameters.
    """
    before = record.messages[:turn]
    question = max((i for i, message in enumerate(before) if message.role == "user"), default=-1)
    results = {message.call_id: message.content for message in before if message.role == "tool"}
    tasks = [
        {
            "task_name": task_name(record, index),
            "command": {"name": call.name, "args": call.arguments},
            "result": results.get(call.id, ""),
        }
        for index, message in enumerate(before)
        for call in message.calls
    ]
    earlier = [m for m in before[: max(question, 0)] if m.content]
    history = [{m.role: m.content} for m in earlier if m.role in ("user", "assistant")]
    # a dialog that takes more steps has a larger budget: none is trained to overstep its own
    goal_messages = takewhile(lambda m: m.role != "user", record.messages[question + 1 :])
    steps = sum(len(message.calls) for message in goal_messages)
    commands = []
    for number, tool in enumerate(tools, 1):
        parameters = {key: value for key, value in tool.parameters.items() if key != "required"}
        required = {"parameters": parameters, "required": tool.parameters.get("required", [])}
        commands.append(line.format(number, to_json(tool.function | required)))
    return {
        "goal": before[question].content if question >= 0 else "",
        "tasks": to_json(tasks),
        "history": to_json(history),
        "knowledge": "\n\n".join(m.content for m in before if m.role == "system"),
        "done": DONE,
        "steps": str(BUDGET * max(1, -(-steps // BUDGET))),  # rounded up to a whole budget
        "commands": "\n".join(commands),
    }


def task_name(record: Record, turn: int) -> str:
    """What a turn's call does, in words: its thought or, where it has none, its description."""
    return record.messages[turn].content.strip() or describe_call(record, turn)


def describe_call(record: Record, turn: int) -> str:
    """A call in words: the first sentence that describes the tool, or the tool's name, and the
    values of the call as far as they are known.
    """
    call = record.messages[turn].calls[0]
    description = next((tool.description for tool in record.tools if tool.name == call.name), "")
    sentence = re.split(r"[。\n]|\.(?:\s|$)", description.strip(), maxsplit=1)[0].strip()
    subject = sentence if 0 < len(sentence) <= LONGEST_NAME else call.name.replace("_", " ")
    gold = record.gold.get(turn, Gold()).calls
    are_known = all(expected.arguments is not ANY_ARGUMENTS for expected in gold)
    arguments = call.arguments.values() if are_known else ()
    values = ", ".join(value if isinstance(value, str) else to_json(value) for value in arguments)
    values = " ".join(values.split())
    shortened = values if len(values) <= LONGEST_NAME else f"{values[: LONGEST_NAME - 3]}..."
    return f"{subject}: {shortened}" if shortened else subject


def _task_name(value: dict[str, Any]) -> str:
    task = value.get("task_name")
    return task if isinstance(task, str) else ""


def parse(
    text: str,
    tools: Sequence[Tool] = (),
    read_thought: Callable[[dict[str, Any]], str] = _task_name,
) -> Parsed:
    """The command of the first JSON object; `read_thought` reads its words."""
    if (start := text.find("{")) < 0:
        return Parsed(text.strip(), (), "no command")
    try:
        value, end = json_object(text, start)
    except ValueError:
        return Parsed("", (), "command is not JSON")
    content, command = read_thought(value), value.get("command")
    if not isinstance(command, dict) or not isinstance(command.get("name"), str):
        return Parsed(content, (), "command has no name")
    problem_outside = "text beside the command" if (text[:start] + text[end:]).strip() else ""
    arguments = command.get("args", {})
    if command["name"] == DONE and not isinstance(arguments, dict):
        arguments = {}
    call, problem = to_call(command["name"], arguments)
    return Parsed(content, (call,) if call else (), problem or problem_outside)


PROTOCOL, PROTOCOL_ZH = (
    Protocol(
        name,
        parse,
        parallel_calls=False,
        exchanges=partial(exchanges, language=language),
        answer_tool=DONE,
    )
    for name, language in (("kuaiagent", ENGLISH), ("kuaiagent-zh", CHINESE))
)
