"""ReAct in English: thought, action, input and observation as lines of one assistant turn.

Thought: I must look it up.
Action: weather
Action Input: {"city": "Oslo"}
Observation: 4 mm of rain
Thought: I now know the final answer
Final Answer: Yes, about 4 mm.
"""

import ast
import re
from collections.abc import Sequence
from typing import Any

from agentlite.protocols.protocol import Protocol, arguments_problem, json_object
from agentlite.records import Call, Message, Parsed, Tool, plain

STOP = "Observation:"
FINAL = "Thought: I now know the final answer\nFinal Answer:"
LONGEST_LITERAL = 64 << 10
FRAME = """Answer the following questions as best you can. You have access to the following tools:

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

Begin!"""
ACTION = re.compile(r"^Action:[ \t]*(.*?)[ \t]*\nAction Input:", re.MULTILINE)


def system(tools: Sequence[Tool]) -> str:
    lines = "\n\n".join(
        f"{tool.name}: Call this tool to interact with the {tool.name} API. What is the {tool.name} API useful for? "
        f"{tool.description} Parameters: {plain(tool.parameters)} Format the arguments as a JSON object."
        for tool in tools
    )
    return FRAME.format(tools=lines, names=",".join(tool.name for tool in tools)) if tools else ""


def assistant(message: Message) -> str:
    said = message.content.strip()
    if not message.calls:
        return f"{FINAL} {said}"
    (call,) = message.calls
    thought = f"Thought: {said}\n" if said else ""
    return f"{thought}Action: {call.name}\nAction Input: {plain(call.arguments)}\n{STOP}"


def results(messages: Sequence[Message]) -> str:
    (message,) = messages
    return f" {message.content.strip()}\n"


def parse(text: str) -> Parsed:
    """The first action, up to where the observation would come; otherwise the final answer."""
    action = ACTION.search(text)
    _, final, answer = text.partition("Final Answer:")
    if action and not (final and text.index("Final Answer:") < action.start()):
        thought = text[: action.start()].strip().removeprefix("Thought:").strip()
        return _call(thought, action[1], text[action.end() :])
    if final:
        return Parsed(answer.strip())
    return Parsed(text.strip(), (), "neither an action nor a final answer")


def _call(thought: str, name: str, rest: str) -> Parsed:
    try:
        arguments, end = _input(rest)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return Parsed(thought, (), "action input is no JSON")
    if problem := arguments_problem(arguments):
        return Parsed(thought, (), problem)
    after = rest[end:].strip()
    problem = "" if not after or after.startswith(STOP) else "text after the action input"
    return Parsed(thought, (Call(name, arguments),), problem)


def _input(rest: str) -> tuple[Any, int]:
    """JSON, or a Python literal as many data sets and the models trained on them write it. Nothing is evaluated."""
    try:
        return json_object(rest)
    except ValueError:
        literal = rest.partition(f"\n{STOP}")[0]
        if len(literal) > LONGEST_LITERAL:
            raise
        return ast.literal_eval(literal.strip()), len(literal)


PROTOCOL = Protocol("react", parse, system, assistant, results, stops=(STOP,), several=False, inline=True)
