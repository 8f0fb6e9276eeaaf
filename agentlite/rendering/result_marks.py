"""Trained text -> the mark in it of a call's result, which a model would learn to invent."""

import re

from agentlite.core.errors import RowError
from agentlite.core.records import Record

START = r"^[ \t>*#_-]*"
END = r"[ \t]*\d*[ \t]*\**[ \t]*[:：]"
# results as lines behind an action: of ReAct and its relatives
RESULT_LINE = re.compile(
    START + r"(?:Obs|Observations?|(?:Action|Tool|Function|API)[ _](?:Output|Result|Response)"
    r"|观察(?:结果)?|执行结果|工具(?:返回|输出|结果)(?:结果)?)" + END,
    re.IGNORECASE | re.MULTILINE,
)
# what may stand in place of such a label, but begins a line of other texts as well
ANY_RESULT_LINE = re.compile(
    START + r"(?:Results?|Responses?|Outputs?|Returns?|结果|返回|输出)" + END,
    re.IGNORECASE | re.MULTILINE,
)
ACTION_LINE = re.compile(
    START
    + r"(?:Action|Act|(?:Tool|Function|API)(?:[ _](?:Call|Name|Input))?|行动|动作|调用工具)"
    + END
    + r"\**[ \t]*(?P<action>.*)",
    re.IGNORECASE | re.MULTILINE,
)
# what makes an action one of an agent, and no step of an experiment
AGENT_LINE = re.compile(
    START
    + r"(?:(?:Action|Tool|Function|API)[ _](?:Input|Call|Name|Arguments)|Thought|Think"
    + r"|Final[ _]Answer|行动输入|动作输入|思考|最终答案)"
    + END,
    re.IGNORECASE | re.MULTILINE,
)
CALLED = re.compile(r"```|\{|[\w.]+[ \t]*[\[({]|\s*$")
# results in tags, and turns of other speakers, as protocols and chat templates write them; in
# backticks a tag is only mentioned
TAG = re.compile(
    r"(?<!`)(?:<[|｜]?(?:start_of_)?(?:tool|function|api)s?[_▁ ](?:calls?[_▁])?"
    r"(?:response|result|output)s?(?:[_▁](?:begin|start))?(?: [^<>\n]*)?[|｜]?>"
    r"|<\|startofexec\|>|<\|TOOL\w*_TOKEN\|>|\[TOOL_RESULTS?\]|<results>"
    r"|<\|(?:system|user|tool|observation|ipython|environment)\|>"
    r"|<\|(?:im_start|start_header_id|start_of_role)\|>(?!assistant)\w+"
    r"|<(?:start_of_turn|\|turn)>(?!model|assistant)\w+|<\|start\|>(?!assistant)\w+)"
    r"|^[ \t]*FUNCTION RESPONSE:|GPT4 Correct Tool:",
    re.IGNORECASE | re.MULTILINE,
)
# what a text in lower case holds if a search may find something: the searches take far longer
TAG_HINTS = (
    *("<|", "<｜", "<tool", "<function", "<api", "<start_of", "<results"),
    *("[tool_result", "function response:", "gpt4 correct"),
)
ACTION_HINTS = ("action", "act", "tool", "function", "api", "行动", "动作", "调用")
RESULT_HINTS = (
    "observation",
    "obs",
    "output",
    "result",
    "response",
    "观察",
    "结果",
    "返回",
    "输出",
)


def check_results(record: Record) -> None:
    """Raises RowError E218 for a trained turn that holds a result, or another speaker's turn."""
    names = {tool.name for tool in record.tools}
    for turn in record.turns:
        message = record.messages[turn]
        if message.loss and (mark := result_mark(message.content, names)):
            raise RowError(
                "E218", f"messages[{turn}] is trained and holds a result behind {mark!r}"
            )


def result_mark(text: str, tools: set[str]) -> str:
    """The first mark of a result, "" if there is none. A line counts behind an action only: one
    with an input or arguments, or of one of the `tools`.
    """
    lower = text.lower()
    if any(hint in lower for hint in TAG_HINTS) and (tag := TAG.search(text)):
        return tag[0].strip()
    if not all(any(hint in lower for hint in hints) for hints in (RESULT_HINTS, ACTION_HINTS)):
        return ""
    if not (action := ACTION_LINE.search(text)):
        return ""
    behind = RESULT_LINE.search(text, action.end())
    what = action["action"].strip()
    is_agent = AGENT_LINE.search(text) or CALLED.match(what) or what.strip("*`'\" ") in tools
    return behind[0].strip() if behind and is_agent else ""


def check_input(value: object) -> None:
    """Raises RowError E218 for an argument, read from the lines of a chain, that goes on into a
    result.
    """
    text = value if isinstance(value, str) else ""
    for label in (RESULT_LINE, ANY_RESULT_LINE):
        if (start := text.find("\n")) >= 0 and (line := label.search(text, start)):
            raise RowError("E218", f"an input that holds a result behind {line[0].strip()!r}")
