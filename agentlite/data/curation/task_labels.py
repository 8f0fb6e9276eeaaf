"""Record -> the task it trains, by its expected calls: words, as SAGE's classifier reads them, tell
too little.
"""

import re
from typing import get_args

from msgspec.structs import replace

from agentlite.core.records import Record, Task
from agentlite.data.formats import sage
from agentlite.data.formats.format import stated_value

MANY_EXPECTED = 3  # different tools in answer to one question: SAGE's number
MANY_OFFERED = 20  # more than a prompt lists at ease: the tool has to be found
FINDER = re.compile(
    r"(?:search|find|retrieve|discover|list|recommend)_?(?:tools|apis|plugins)$|(?:tool|api|plugin)s?_?(?:search|find|retriev)",
    re.IGNORECASE,
)  # the name of a tool that finds tools; a search_tool finds something else
NAMES: dict[str, Task] = {
    **{task: task for task in get_args(Task)},
    **{name: task for name, (task, _) in sage.TASKS.items()},
}
RULES: dict[str, Task] = {
    "no tools": "general",
    "never a call": "timing_decision",
    "a tool is sought": "tool_retrieval",
    "a call after a call": "multi_step_planning",
    "many tools expected": "multi_step_planning",
    "asks back first": "timing_decision",
    "many tools on offer": "tool_retrieval",
    "a call": "tool_selection",
}


def classify(record: Record) -> tuple[Record, str]:
    """The record with its task, and the name of the rule it has it by: "said" if the record names
    one itself, or its row does as `task_type`, by its own name or SAGE's.

    A record that says nothing is `general`, so one that says `general` is looked at too.
    """
    stated = stated_value(record.meta, "task_type")
    if isinstance(stated, str) and (task := NAMES.get(stated, "general")) != "general":
        return replace(record, task=task), "said"
    if record.task != "general":
        return record, "said"
    name = _rule(record)
    return replace(record, task=RULES[name]), name


def _rule(record: Record) -> str:
    """The first rule that holds. Only turns that are learned count: what is given shows nothing."""
    questions: list[list[set[str]]] = [[]]  # each with the tools expected at its turns
    for index, message in enumerate(record.messages):
        if message.role == "user":
            questions.append([])
        elif message.role == "assistant" and message.loss:
            questions[-1].append({call.name for call in record.gold_at(index).calls})
    questions = [turns for turns in questions if turns]
    expected = [{name for names in turns for name in names} for turns in questions]
    holds = {
        "no tools": not record.tools,
        "never a call": not any(expected),
        "a tool is sought": any(FINDER.search(name) for names in expected for name in names),
        # one question takes several steps; questions one after the other do not make a plan
        "a call after a call": any(sum(map(bool, turns)) > 1 for turns in questions),
        "many tools expected": any(len(names) >= MANY_EXPECTED for names in expected),
        # the first question is met with words, a later one with a call
        "asks back first": not any(expected[:1]),
        "many tools on offer": len(record.tools) >= MANY_OFFERED,
        "a call": True,
    }
    return next(name for name in RULES if holds[name])
