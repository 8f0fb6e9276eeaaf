"""ToolLLaMA: ReAct's lines, one step per turn; the answer is a call of Finish.

Thought: I must look it up.
Action: weather
Action Input: {"city": "Oslo"}
"""

from collections.abc import Sequence

from agentlite.core.records import Call, Message, Parsed, Tool, to_json
from agentlite.rendering.protocol import Protocol, with_tool
from agentlite.rendering.protocols import react

FINISH = Tool(
    "Finish",
    "Ends the task: with an answer for the user, or to start again when no call helps any more.",
    {
        "type": "object",
        "properties": {
            "return_type": {"type": "string", "enum": ["give_answer", "give_up_and_restart"]},
            "final_answer": {
                "type": "string",
                "description": "what the user reads, if return_type is give_answer",
            },
        },
        "required": ["return_type"],
    },
)
HEAD = """You are AutoGPT, you solve the user's task step by step with functions.
At each step, think about where you stand and what to do next, in at most five sentences; then call one function. Write:
Thought: your thought
Action: the name of the function
Action Input: its arguments as a JSON object

You are then told the result of the call, and take the next step. What a call has changed stays changed: if no way forward is left, call Finish with give_up_and_restart.
End every task with a call of Finish; its final_answer holds all that the user needs.
Specifically, you have access to the following APIs: """  # noqa: E501  (a paragraph of the prompt is one line)


def system(tools: Sequence[Tool]) -> str:
    return HEAD + to_json([tool.function for tool in with_tool(tools, FINISH)])


def assistant(message: Message) -> str:
    return react.thought_and_call(message) if message.calls else message.content


def answer(text: str) -> str:
    call = Call(FINISH.name, {"return_type": "give_answer", "final_answer": text.strip()})
    return react.thought_and_call(Message("assistant", calls=(call,)))


def parse(text: str, tools: Sequence[Tool] = ()) -> Parsed:
    """The first action. Words without one are not a step."""
    if action := react.ACTION.search(text):
        return react.read_call(text, action, stop="")
    return Parsed(text.strip(), (), "no action")


PROTOCOL = Protocol(
    "toolllama",
    parse,
    system,
    assistant,
    parallel_calls=False,
    answer_tool=FINISH.name,
    answer=answer,
)
