"""Trained text -> the results, other speakers' turns and other models' calls that stand in it.

A model would learn to invent results, and learn calls in another model's own form as words.
"""

import json
import re
from collections.abc import Iterable, Iterator

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
CALL_ACTION = re.compile(r"```|\{|[\w.]+[ \t]*[\[({]|\s*$")
# results in tags, and turns of other speakers, as protocols and chat templates write them; in
# backticks a tag is only mentioned
TAG = re.compile(
    r"(?<!`)(?:<[|｜]?(?:start_of_)?(?:tool|function|api)s?[_▁ ](?:calls?[_▁])?"
    r"(?:response|result|output)s?(?:[_▁](?:begin|start))?(?: [^<>\n]*)?[|｜]?>"
    r"|<\|startofexec\|>|<\|TOOL\w*_TOKEN\|>|\[TOOL_RESULTS?\]|<results>"
    r"|<\|(?:system|user|tool|observation|ipython|environment)\|>"
    r"|<\|(?:im_start|start_header_id|start_of_role)\|>(?!assistant)\w+"
    r"|<(?:start_of_turn|\|turn)>(?!model|assistant)\w+|<\|start\|>(?!assistant)\w+)"
    r"|^[ \t]*FUNCTION RESPONSE:|GPT4 Correct Tool:|✿(?:RESULT|结果)✿",
    re.IGNORECASE | re.MULTILINE,
)
# what a tag or a fence that holds a result is called, where it stands behind another one
RESULT_NAME = r"(?:\w+[_-])?(?:results?|outputs?|information|observations?)"
IS_RESULT = re.compile(RESULT_NAME, re.IGNORECASE)
FENCED = re.compile(r"^[ \t]*```([^`\n]*)\n(?:(?![ \t]*```).*\n)*+[ \t]*```[ \t]*$", re.MULTILINE)
ADJACENT = re.compile(
    r"(?:</(?P<before>[\w.-]+)>|^```$)\s*(?:<(?P<tag>[\w.-]+)>|^```(?P<fence>\w+)$)", re.MULTILINE
)
# blocks that no tool answers, and none of which is an answer
OWN_NAME = (
    r"(?:\w+[_-])?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|plan|analysis|answer|response"
    r"|scratch_?pad)"
)
IS_OWN = re.compile(OWN_NAME, re.IGNORECASE)
# how a prompt says that a block is not the model's: "what is found comes between <result>"
INTRODUCTION = re.compile(
    r"(?:found|results?|returned|retriev\w*|observ\w*|结果|检索|观察)"
    r"[^<>`.;\n。；]{0,80}(?:<(?P<tag>[\w.-]+)>|```(?P<fence>\w+))",
    re.IGNORECASE,
)
# a model -> how its template writes calls; in backticks a mark is only mentioned, and what prose
# may hold as well counts at the start of the text, or of a line with a call behind it
CALL_MARKS = {
    "Llama": r"(?<!`)<\|python_tag\|>|^[ \t]*<function=[\w.-]+>(?=\s*[{<])",
    "Mistral": r"(?<!`)\[TOOL_CALLS?\](?=\s*[\[{]|\s*[\w.-]+\s*[\[{])",
    "DeepSeek": r"(?<!`)<｜(?:tool▁calls?▁begin|DSML｜(?:function|tool)_calls)",
    "Kimi": r"(?<!`)<\|tool_calls?(?:_section)?_begin\|>",
    "gpt-oss": r"(?<!`)<\|channel\|>\w+ to=|\A\s*commentary to=functions\.",
    "Granite": r"(?<!`)<\|tool_call\|>",
    "Phi": r"\A\s*functools\[",
    "Gemma": r"^```tool_code\b|(?<!`)(?:<start_function_call>|<\|tool_call>)",
    "InternLM": r"(?<!`)<\|action_start\|>",
    "Command R": r"(?<!`)<\|START_ACTION\|>",
    "Hermes": r"\A\s*<tool_call>",
    "Nemotron": r"(?<!`)<TOOLCALL>(?=\s*[\[{])",
    "LFM2": r"(?<!`)<\|tool_call_start\|>",
    "Claude": r"(?<!`)<(?:antml:)?function_calls>(?=\s*<(?:antml:)?invoke)"
    r"|^[ \t]*<tool_use>(?=\s*[{<])",
    "OLMo": r"(?<!`)<function_calls>(?=\s*[\w.]+\()",
    "Glaive": r"(?<!`)<function_?call>(?=\s*[\[{])",
    "Jamba": r"(?<!`)<tool_calls>(?=\s*[\[{])",
    "Seed": r"(?<!`)<seed:tool_call>",
    "MiniMax": r"(?<!`)<minimax:tool_call>",
    "LongCat": r"(?<!`)<longcat_tool_call>",
}
CALL_PATTERNS = {model: re.compile(marks, re.MULTILINE) for model, marks in CALL_MARKS.items()}
# one is in each mark
CALL_HINTS = ("<", "[TOOL_CALL", "functools[", "commentary to=", "```tool_code")
IN_PROMPT = "Tools in its prompt (ToolRL, API-Bank, SWE-smith): write `tools`, `tool_calls`."
BARE_MODEL = "Llama"  # its third version writes a call as its JSON alone, or as Python
# what may stand before such a call on its line, a label, a fence or a tag; in code it is none
OPENING = re.compile(
    r"(?<!```python\n)^[ \t]*(?:[\w -]{1,30}:[ \t]*)?"
    r"(?:(?:```(?:json|tool_calls?)?|<[\w-]+>)\s*)?(?=[\w\[{])",
    re.MULTILINE,
)
# how JSON names the tool of a call and its arguments, and what may hold calls
TOOL_KEYS = ("name", "tool_name", "tool", "function", "action")
ARGUMENT_KEYS = ("parameters", "arguments", "args", "input", "kwargs", "action_input", "tool_input")
CALL_KEYS = ("tool_calls", "tool_call", "calls", "function_call", "function")
# a tool that a text describes: by JSON, or as OpenHands and ToolRL do
TOOL_NAME = re.compile(
    r"""(?:["']name["']\s*:\s*["']|FUNCTION #\d+: |^\d+\. Name: )([\w.-]+)""", re.MULTILINE
)
PYTHON_NAME = re.compile(r"\[?\s*([\w.-]+)\(")
PYTHON_REST = re.compile(r".*\)\]?(?:</\w+>)?[ \t]*$|(?s:.*)\)\s*\]?\s*\Z", re.MULTILINE)


def check_trained(record: Record) -> None:
    """Raises RowError E218 for a trained turn that holds a result, or another speaker's turn; and
    E222 for one that writes a call as another model does, where tools are on offer, or described in
    a prompt that no format knows. Of an answer with calls, only its words count.
    """
    names = {tool.name for tool in record.tools}
    turns = [(turn, record.messages[turn]) for turn in record.turns if record.messages[turn].loss]
    for turn, message in turns:
        if mark := result_mark(message.content, names):
            raise RowError(
                "E218", f"messages[{turn}] is trained and holds a result behind {mark!r}"
            )
    prompts = [m.content for m in record.messages if m.role in ("system", "user")]
    for turn, message in turns:
        for block, goes_on, is_near in blocks_behind(message.content):
            says_result = is_near and IS_RESULT.fullmatch(block)
            if goes_on and (says_result or _is_introduced(block, prompts)):
                raise RowError(
                    "E218",
                    f"messages[{turn}] is trained and holds a result: the block {block!r}",
                    at=block,
                )
    known_names = names or {
        name for prompt in prompts if "arameters" in prompt for name in TOOL_NAME.findall(prompt)
    }
    for turn, message in turns if known_names else ():
        call = call_mark(message.content)
        if not call and not message.calls:
            call = _bare_call(message.content, known_names)
        if not call and not names and message.calls:
            call = "Hermes", message.calls[0].name
        if call:
            model, mark = call
            raise RowError(
                "E222",
                f"messages[{turn}] is trained and holds a call in {model}'s own form: {mark!r}",
                "" if names else IN_PROMPT,
                mark,
            )


def result_mark(text: str, names: set[str]) -> str:
    """The first mark of a result, "" if there is none. A line counts behind an action only: one
    with an input or arguments, or of a tool of these `names`.
    """
    if tag := TAG.search(text):
        return tag[0].strip()
    if not (line := ACTION_LINE.search(text)):
        return ""
    action, result = line["action"].strip(), RESULT_LINE.search(text, line.end())
    is_agent = AGENT_LINE.search(text) or CALL_ACTION.match(action)
    is_tool = action.strip("*`'\" ") in names
    return result[0].strip() if result and (is_agent or is_tool) else ""


def unknown_blocks(record: Record) -> list[str]:
    """What stands right behind another block in trained turns: in most rows of a file, results."""
    answers = (message for message in record.messages if message.role == "assistant")
    blocks_by_turn = (blocks_behind(message.content) for message in answers if message.loss)
    return sorted({block for blocks in blocks_by_turn for block, *_ in blocks})


def blocks_behind(text: str) -> Iterator[tuple[str, bool, bool]]:
    """The names of tags and fences right behind another one, where results stand; of the first of a
    name whether the text goes on behind it, and whether no blank line stands before it, as people
    write one before a fence. Of code in fences only the first line counts.

    <search>rain</search> <information>4 mm</information> <answer>4</answer>, as search agents
    write, gives ("information", True, True): what is thought or answered is the model's own.
    """
    if "</" not in text and "```" not in text:
        return
    text = FENCED.sub(r"```\1\n```", text).rstrip()
    first_blocks: dict[str, re.Match[str] | None] = {}
    for block in ADJACENT.finditer(text):
        name, before = block["tag"] or block["fence"], block["before"] or ""
        # no tool's: no block precedes it
        is_example = before == "input" and "input" not in first_blocks
        if name != before and not any(map(IS_OWN.fullmatch, (name, before))):
            first_blocks.setdefault(name, None if is_example else block)
    for name, match in first_blocks.items():
        closing = f"</{name}>" if match and match["tag"] else "```"
        if match and (end := text.find(closing, match.end())) >= 0:
            is_near = bool(match["tag"]) or "\n\n" not in match[0]
            yield name, end + len(closing) < len(text), is_near


def _is_introduced(block: str, prompts: Iterable[str]) -> bool:
    matches = (match for prompt in prompts for match in INTRODUCTION.finditer(prompt))
    return any(block in (match["tag"], match["fence"]) for match in matches)


def check_input(value: object) -> None:
    """Raises RowError E218 for an argument of a chain that goes on into a result."""
    text = value if isinstance(value, str) else ""
    for label in (RESULT_LINE, ANY_RESULT_LINE):
        if (start := text.find("\n")) >= 0 and (line := label.search(text, start)):
            raise RowError("E218", f"an input that holds a result behind {line[0].strip()!r}")


def call_mark(text: str) -> tuple[str, str] | None:
    """The model in whose form a text calls a tool, and the mark; None for other texts."""
    if not any(hint in text for hint in CALL_HINTS):
        return None
    for model, pattern in CALL_PATTERNS.items():
        if mark := pattern.search(text):
            return model, mark[0].strip()
    return None


def _bare_call(text: str, names: set[str]) -> tuple[str, str] | None:
    """The same, of a line that begins with the JSON of a call, or is a call in Python."""
    for opening in OPENING.finditer(text) if any(name in text for name in names) else ():
        call = PYTHON_NAME.match(text, opening.end())
        if call and call[1] in names and PYTHON_REST.match(text, call.end()):
            return BARE_MODEL, call[0]
        json_text = text[opening.end() :].removeprefix("[").lstrip()
        if not json_text.startswith("{"):
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(json_text)
        except (ValueError, RecursionError):  # no JSON, or nested too deep for a call
            continue
        if _is_call(value, names):
            return BARE_MODEL, json_text.split(",", 1)[0]
    return None


def _is_call(value: object, names: set[str]) -> bool:
    """Whether a value of JSON calls one of these tools, or holds such a call."""
    if isinstance(value, list):
        return any(_is_call(inner, names) for inner in value)
    if not isinstance(value, dict):
        return False
    has_name = any(isinstance(name := value.get(key), str) and name in names for key in TOOL_KEYS)
    arguments = [value[key] for key in ARGUMENT_KEYS if key in value]
    is_tool = any(isinstance(inner, dict) and "properties" in inner for inner in arguments)
    return (has_name and bool(arguments) and not is_tool) or any(
        _is_call(value[key], names) for key in CALL_KEYS if isinstance(value.get(key), dict | list)
    )
