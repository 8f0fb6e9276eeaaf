"""Record -> the task it trains, by its expected calls, hardly by words; how much a step asks for.

SAGE's classifier takes "if" inside "notify" for timing, every wish to search for retrieval, a long
chat for a plan, and reads English only.
"""

import re
from collections.abc import Callable
from typing import NamedTuple, get_args

from msgspec.structs import replace

from agentlite.core.records import Gold, Record, Task
from agentlite.data.formats import sage
from agentlite.data.formats.format import stated_in

MANY_DUE = 3  # different tools in answer to one question: SAGE's number
MANY_OFFERED = 20  # more than a prompt lists at ease: the tool has to be found
FINDER = re.compile(
    r"(?:search|find|retrieve|discover|list|recommend)_?(?:tools|apis|plugins)$|(?:tool|api|plugin)s?_?(?:search|find|retriev)",
    re.IGNORECASE,
)  # the name of a tool that finds tools; a search_tool finds something else
ASKS_FOR_TOOL = re.compile(
    r"\b(?:which|what|find|search for|look for|retrieve|recommend|is there)\b(?: \w+){0,3} "
    r"(?:tool|api|plugin)s?"
    r"(?= (?:can|could|should|do|does|would|to|for|that|which|is best)\b| *[?.!]| *$)"
    r"|(?:哪个|哪些|哪款|什么|找|搜索|检索|查找|推荐|有没有).{0,8}(?:工具|接口|插件|API)",
    re.IGNORECASE,
)
CONDITION = re.compile(
    r"\b(?:only (?:if|when)|unless|as soon as|in case|wait (?:for|until)|if "
    r"(?:necessary|needed|required|not))\b"
    r"|(?:^|[.!?;,]) *(?:and |but )?if\b(?! possible| you (?:can|could))[^.?!,]{3,80},"
    # "if I save 100 a month, how much"
    r"(?! *(?:what|how|who|when|where|which|can|could|is|are|does?|will|would)\b)"
    r"|(?:如果|假如|倘若|要是|一旦|若)[^。？！?!]{1,40}?(?:就|请|帮|则|再|通知|提醒|取消|改)"
    r"|除非|等到|只有.{1,20}才|必要时|需要时|有必要|先(?:确认|检查|核实|看看|问)",
    re.IGNORECASE,
)


NAMES: dict[str, Task] = {
    **{task: task for task in get_args(Task)},
    **{name: task for name, (task, _) in sage.TASKS.items()},
}


class Exchange(NamedTuple):
    """A question, and what is expected at each turn until the next question."""

    question: str
    expected: tuple[Gold, ...]

    @property
    def tools(self) -> set[str]:
        return {call.name for gold in self.expected for call in gold.calls}


class TaskRule(NamedTuple):
    task: Task
    holds: Callable[[Record, list[Exchange]], bool]


def classified(record: Record) -> tuple[Record, str]:
    """The record with its task, and the name of the rule it has it by: "said" if the record names
    one itself, or its row does as `task_type`, by its own name or SAGE's.

    A record that says nothing is `general`, so one that says `general` is looked at too.
    """
    stated = stated_in(record.meta, "task_type")
    if isinstance(stated, str) and (task := NAMES.get(stated, "general")) != "general":
        return replace(record, task=task), "said"
    if record.task != "general":
        return record, "said"
    exchanges = _exchanges(record)
    name = next(name for name, rule in RULES.items() if rule.holds(record, exchanges))
    return replace(record, task=RULES[name].task), name


def _exchanges(record: Record) -> list[Exchange]:
    """Only turns that are learned count: what is given shows nothing."""
    exchanges = [Exchange("", ())]
    for index, message in enumerate(record.messages):
        if message.role == "user":
            exchanges.append(Exchange(message.content, ()))
        elif message.role == "assistant" and message.loss:
            question, expected = exchanges.pop()
            exchanges.append(Exchange(question, (*expected, record.expected(index))))
    return [exchange for exchange in exchanges if exchange.expected]


def _seeks_tool(record: Record, exchanges: list[Exchange]) -> bool:
    return any(
        ASKS_FOR_TOOL.search(exchange.question) or any(map(FINDER.search, exchange.tools))
        for exchange in exchanges
        if exchange.tools
    )


# the first that holds
RULES: dict[str, TaskRule] = {
    "no tools": TaskRule("general", lambda record, _: not record.tools),
    "never a call": TaskRule(
        "timing_decision", lambda _, exchanges: not any(one.tools for one in exchanges)
    ),
    "a tool is sought": TaskRule("tool_retrieval", _seeks_tool),
    # one question takes several steps; questions one after the other do not make a plan
    "a call after a call": TaskRule(
        "multi_step_planning",
        lambda _, exchanges: any(
            sum(bool(gold.calls) for gold in one.expected) > 1 for one in exchanges
        ),
    ),
    "many tools expected": TaskRule(
        "multi_step_planning",
        lambda _, exchanges: any(len(one.tools) >= MANY_DUE for one in exchanges),
    ),
    # the first question is met with words, a later one with a call
    "asks back first": TaskRule("timing_decision", lambda _, exchanges: not exchanges[0].tools),
    "a condition": TaskRule(
        "timing_decision",
        lambda _, exchanges: any(one.tools and CONDITION.search(one.question) for one in exchanges),
    ),
    "many tools on offer": TaskRule(
        "tool_retrieval", lambda record, _: len(record.tools) >= MANY_OFFERED
    ),
    "a call": TaskRule("tool_selection", lambda record, exchanges: True),
}
