"""ReAct, English and Chinese: thought, action, input and observation as lines of one turn.

Thought: I must look it up.
Action: weather
Action Input: {"city": "Oslo"}
Observation: 4 mm of rain
Thought: I now know the final answer
Final Answer: Yes, about 4 mm.

A model may write the input of a tool with one parameter as plain text: Action Input: Oslo
ms-agent is ReAct under the prompt of ms-agent's rows: numbered APIs, and Python literals as input.
"""

import ast
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from agentlite.core.records import Call, Message, Parsed, Tool, to_json
from agentlite.rendering.protocol import Protocol, arguments_problem, json_object

STOP = "Observation:"
LONGEST_LITERAL = 64 << 10
ACTION = re.compile(r"^Action:[ \t]*(.*?)[ \t]*\nAction Input:", re.MULTILINE)
LABEL = re.compile(r"^(?:Thought|Action|Action Input|Observation|Final Answer):", re.MULTILINE)
CALL_THIS = "Call this tool to interact with the"


class ReactTexts(NamedTuple):
    """The words around the tools, before and around the description of each, before an answer."""

    frame: str
    about: str
    tool: str
    final: str


ENGLISH = ReactTexts(
    """Answer the following questions as best you can. You have access to the following tools:

{tools}

Use the following format:

Question: the input question you must answer
Thought: you should always think about what to do
Action: the action to take, should be one of [{names}]
Action Input: the input to the action
Observation: the result of the action
... (this Thought/Action/Action Input/Observation can be repeated zero or more times)
Thought: I now know the final answer
Final Answer: the final answer to the original input question

Begin!""",
    CALL_THIS + " {name} API. What is the {name} API useful for? ",
    "{name}: {description} Parameters: {parameters} Format the arguments as a JSON object.",
    "Thought: I now know the final answer\nFinal Answer:",
)
CHINESE = ReactTexts(
    """尽可能地回答以下问题。你可以使用以下工具:

{tools}

请按照以下格式进行:

Question: 需要你回答的输入问题
Thought: 你应该总是思考该做什么
Action: 需要使用的工具,应该是[{names}]中的一个
Action Input: 传入工具的内容
Observation: 行动的结果
... (这个Thought/Action/Action Input/Observation可以重复零次或多次)
Thought: 我现在知道最终答案
Final Answer: 对原始输入问题的最终答案

现在开始!""",
    "调用此工具与 {name} API 进行交互。{name} 有什么用?",
    "{name}: {description} 输入参数:{parameters} 此工具的输入应为JSON对象。",
    "Thought: 我现在知道最终答案\nFinal Answer:",
)


MS_AGENT_FRAME = """Answer the following questions as best you can. You have access to the following APIs:
{apis}

Use the following format:

Thought: you should always think about what to do
Action: the action to take, should be one of the above tools[{names}]
Action Input: the input to the action
Observation: the result of the action
... (this Thought/Action/Action Input/Observation can be repeated zero or more times)
Thought: I now know the final answer
Final Answer: the final answer to the original input question
Begin!"""  # noqa: E501  (verbatim text)


def system(tools: Sequence[Tool], language: ReactTexts) -> str:
    lines = [
        language.tool.format(
            name=tool.name,
            description=describe_tool(tool.name, tool.description, language),
            parameters=to_json(tool.parameters),
        )
        for tool in tools
    ]
    return language.frame.format(
        tools="\n\n".join(lines), names=",".join(tool.name for tool in tools)
    )


def describe_tool(name: str, description: str, language: ReactTexts) -> str:
    """A description behind the words that many data sets begin one with themselves."""
    is_described = description.startswith(CALL_THIS)
    return description if is_described else language.about.format(name=name) + description


def ms_agent_system(tools: Sequence[Tool]) -> str:
    apis = []
    for number, tool in enumerate(tools, 1):
        properties = _flag_required(tool.parameters).get("properties", {})
        parameters = [{"name": name, **schema} for name, schema in properties.items()]
        description = describe_tool(tool.name, tool.description.strip(), ENGLISH)
        apis.append(f"{number}. {tool.name}: {description} Parameters: {to_json(parameters)}")
    return MS_AGENT_FRAME.format(
        apis="\n\n".join(apis), names=", ".join(tool.name for tool in tools)
    )


def _flag_required(schema: Any) -> dict[str, Any]:
    """A schema whose properties say themselves whether they are required, at every depth."""
    if not isinstance(schema, dict):
        return {}
    required = schema.get("required", [])
    flagged = {key: value for key, value in schema.items() if key != "required"}
    if isinstance(schema.get("properties"), dict):
        flagged["properties"] = {
            name: {**_flag_required(inner), "required": str(name in required)}
            for name, inner in schema["properties"].items()
        }
    if isinstance(schema.get("items"), dict):
        flagged["items"] = _flag_required(schema["items"])
    return flagged


def assistant(
    message: Message, language: ReactTexts, write: Callable[[dict[str, Any]], str] = to_json
) -> str:
    if message.calls:
        return f"{thought_and_call(message, write)}\n{STOP}"
    return f"{language.final} {message.content.strip()}"


def thought_and_call(message: Message, write: Callable[[dict[str, Any]], str] = to_json) -> str:
    """A turn with one call, its arguments as `write` has them."""
    (call,) = message.calls
    thought = f"Thought: {message.content.strip()}\n" if message.content.strip() else ""
    return f"{thought}Action: {call.name}\nAction Input: {write(call.arguments)}"


def results(messages: Sequence[Message]) -> str:
    (message,) = messages
    return f" {message.content.strip()}\n"


def parse(text: str, tools: Sequence[Tool] = ()) -> Parsed:
    """The first action, up to where the observation would come; otherwise the final answer."""
    action = ACTION.search(text)
    _, label, answer = text.partition("Final Answer:")
    if action and not (label and text.index("Final Answer:") < action.start()):
        parsed = read_call(text, action)
        plain_call = _call_of_text(text, action, tools) if parsed.problem else None
        return plain_call or parsed
    if label:
        return Parsed(answer.strip())
    return Parsed(text.strip(), (), "no action and no final answer")


def read_call(text: str, action: re.Match[str], stop: str = STOP) -> Parsed:
    """The thought before an action, and its call, which nothing follows but `stop`."""
    thought, rest = _thought(text, action), text[action.end() :]
    try:
        arguments, end = _read_arguments(rest)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return Parsed(thought, (), "action input is not JSON")
    if problem := arguments_problem(arguments):
        return Parsed(thought, (), problem)
    ending = rest[end:].strip()
    is_stopped = bool(stop) and ending.startswith(stop)
    problem = "text after the action input" if ending and not is_stopped else ""
    trailing = ending[len(stop) :].strip() if is_stopped else ending
    return Parsed(thought, (Call(action[1], arguments),), problem, trailing)


def _thought(text: str, action: re.Match[str]) -> str:
    return text[: action.start()].strip().removeprefix("Thought:").strip()


def _read_arguments(text: str) -> tuple[Any, int]:
    """JSON, or a Python literal as many data sets write it. Nothing is evaluated."""
    try:
        return json_object(text)
    except ValueError:
        literal = text.partition(f"\n{STOP}")[0]
        if len(literal) > LONGEST_LITERAL:
            raise
        tree = ast.parse(literal.strip(), mode="eval")
        # as in JSON, a key twice is refused: readers differ in which of the two they take
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict) and len({*map(ast.dump, filter(None, node.keys))}) < len(
                node.keys
            ):
                raise
        return ast.literal_eval(tree), len(literal)


def _call_of_text(text: str, action: re.Match[str], tools: Sequence[Tool]) -> Parsed | None:
    """A call whose input is plain text, for a tool with one parameter; None for other text."""
    if not (tool := next((tool for tool in tools if tool.name == action[1]), None)):
        return None
    rest = text[action.end() :]
    label = LABEL.search(rest)
    arguments = arguments_of_text(rest[: label.start()] if label else rest, tool)
    if arguments is None or arguments_problem(arguments):
        return None
    problem = "" if not label or label[0] == STOP else "text after the action input"
    trailing = rest[label.end() :].strip() if label else ""
    return Parsed(_thought(text, action), (Call(tool.name, arguments),), problem, trailing)


def arguments_of_text(text: str, tool: Tool) -> dict[str, Any] | None:
    """The arguments that plain text is for a tool with one parameter: its value, unquoted, and of
    the type in the schema where it reads as such. None for another tool, no text, or an object.
    """
    properties, text = tool.parameters.get("properties") or {}, text.strip()
    if len(properties) != 1 or not text or text.startswith("{"):
        return None
    ((name, schema),) = properties.items()
    types = schema.get("type", ()) if isinstance(schema, dict) else ()
    types = [types] if isinstance(types, str) else types
    # a string is what stands there, if not in quotes; without a type, only brackets are a list
    if text[0] in "\"'" or (types and "string" not in types) or (not types and text[0] == "["):
        return {name: value_of_text(text)}
    return {name: text}


def value_of_text(text: str) -> Any:
    """What JSON or a Python literal says, or else the text: NaN is not a value."""
    for parse_value in (json.loads, ast.literal_eval) if len(text) <= LONGEST_LITERAL else ():
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = parse_value(text)
            json.dumps(value, allow_nan=False)
            return value
    return text


PROTOCOL = Protocol(
    "react",
    parse,
    partial(system, language=ENGLISH),
    partial(assistant, language=ENGLISH),
    results,
    stops=(STOP,),
    parallel_calls=False,
    inline=True,
)
PROTOCOL_ZH = replace(
    PROTOCOL,
    name="react-zh",
    system=partial(system, language=CHINESE),
    assistant=partial(assistant, language=CHINESE),
)
MS_AGENT = replace(
    PROTOCOL,
    name="ms-agent",
    system=ms_agent_system,
    assistant=partial(assistant, language=ENGLISH, write=repr),
)
