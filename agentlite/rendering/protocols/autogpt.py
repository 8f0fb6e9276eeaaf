"""AutoGPT: thoughts and the next command as one JSON object, a prompt for every step.

{"thoughts": {"text": "I must look it up.", "reasoning": "...", "plan": "...", "criticism": "...",
"speak": "..."}, "command": {"name": "weather", "args": {"city": "Oslo"}}}

A turn that answers is two rows: the command task_complete, and the answer to a prompt that
concludes.
"""

import re
from functools import partial
from typing import Any

from agentlite.core.records import Record
from agentlite.rendering.protocol import PromptExchange, Protocol, with_tool
from agentlite.rendering.protocols import kuaiagent

# the thoughts other than "text"; in a message each is a line that begins with its name: "Plan: ..."
THOUGHT_KINDS = ("reasoning", "plan", "criticism", "speak")
LABEL = re.compile(rf"^({'|'.join(map(str.capitalize, THOUGHT_KINDS))}):[ \t]*", re.MULTILINE)
PLAN = """You are AutoGPT, an agent that reaches its goals alone.
{profile}Decide always by yourself and without help from a user; play to your strengths as a language model, and keep your strategy simple.

GOALS:
1. {goal}

Constraints:
1. Your short-term memory holds about 4000 words; what was done before stands below.
2. No user assists you.
3. Use only the commands listed below, by the name in double quotes, for example "command_name".

Commands:
{commands}

Resources:
1. The commands above, and what they find.
2. The results of the commands that you have run.
3. What you know yourself.

Best Practices:
1. Look at what you do again and again, so that you do it as well as you can.
2. Criticise your plan as a whole, constructively and often.
3. Think over earlier decisions and strategies to refine your approach.
4. Every command has a cost: be clever and efficient, and reach the goal in as few steps as possible.

Completed tasks: {tasks}

Conversation history: {history}

Respond only in JSON, in the form below. Of the thoughts, only "text" is always there.
{form}
Python's json.loads must be able to read the response. Where the completed tasks are enough to reach the goals, the command is {done}.

Determine exactly one command to use next:"""  # noqa: E501  (a paragraph of the prompt is one line)
CONCLUDE = """You are AutoGPT, an agent that reaches its goals alone.
{profile}The commands that the goals needed were run. From their results, give the user the final answer, in the language of the goals.

GOALS:
1. {goal}

Completed tasks and results: {tasks}

Conversation history: {history}

The final answer:"""  # noqa: E501  (verbatim text)
FORM = """{
    "thoughts": {
        "text": "thought",
        "reasoning": "reasoning",
        "plan": "- short list\\n- of the plan\\n- in the long run",
        "criticism": "constructive self-criticism",
        "speak": "summary of the thoughts for the user"
    },
    "command": {
        "name": "command name",
        "args": {
            "arg name": "value"
        }
    }
}"""
FINISHED = "The completed tasks are enough to reach the goals."


def exchanges(record: Record, turn: int) -> list[PromptExchange]:
    tools = with_tool(record.tools, kuaiagent.ENGLISH.complete)
    texts = kuaiagent.prompt_texts(record, turn, tools, "{}. {}")
    profile = texts.pop("knowledge")
    texts["profile"] = f"{profile}\n" if profile else ""
    texts["form"] = FORM
    message, thoughts = record.messages[turn], {"text": FINISHED}
    if message.calls:
        thoughts = _parse_thoughts(message.content)
        thoughts["text"] = thoughts["text"] or kuaiagent.describe_call(record, turn)
    return kuaiagent.step_exchanges(record, turn, (PLAN, CONCLUDE), texts, {"thoughts": thoughts})


def _parse_thoughts(content: str) -> dict[str, str]:
    """A message's words by the thought that they are: what has no label is the text."""
    text, *pieces = LABEL.split(content)
    thoughts = {"text": text.strip()}
    for label, thought in zip(pieces[::2], map(str.strip, pieces[1::2]), strict=True):
        key = label.lower()
        thoughts[key] = f"{thoughts[key]}\n{thought}" if key in thoughts else thought
    return thoughts


def _join_thoughts(value: dict[str, Any]) -> str:
    """The thoughts of an object as the words of one message."""
    thoughts = value.get("thoughts")
    if not isinstance(thoughts, dict):
        return thoughts.strip() if isinstance(thoughts, str) else ""
    words = []
    for key in ("text", *THOUGHT_KINDS):
        thought = thoughts.get(key)
        if isinstance(thought, list):  # models write the plan as a list as well
            thought = "\n".join(f"- {point}" for point in thought)
        if isinstance(thought, str) and thought.strip():
            label = "" if key == "text" else f"{key.capitalize()}: "
            words.append(f"{label}{thought.strip()}")
    return "\n".join(words)


parse = partial(kuaiagent.parse, read_thought=_join_thoughts)
PROTOCOL = Protocol(
    "autogpt", parse, parallel_calls=False, exchanges=exchanges, answer_tool=kuaiagent.DONE
)
