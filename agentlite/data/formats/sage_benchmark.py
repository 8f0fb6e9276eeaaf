"""SAGE's AgentBenchmarkSample -> Record: a task with its expected answer."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agentlite.core.errors import RowError
from agentlite.core.records import (
    ANY_TOOL,
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    Task,
    Tool,
    plain,
)
from agentlite.data.formats.bfcl import ANY_CALL_ANSWER, NO_CALL_ANSWER
from agentlite.data.formats.extra_fields import meta_of, text_at
from agentlite.data.formats.sage_tools import NO_CATALOGUE, declared, split_of, unknown_call

EXAMPLE = '{"sample_id": "sel_001", "task_type": "tool_selection", "instruction": "Is it wet in Oslo?", "context": "", "candidate_tools": ["rain_001", "tide_002"], "ground_truth": {"top_k": ["rain_001"], "explanation": "Rain is asked for."}, "metadata": {"difficulty": "easy", "tags": [], "created_by": "me"}, "split": "test"}'  # noqa: E501  (a row is one line)
FIELDS = {"ground_truth": dict}
Truth = dict[str, Any]


class BenchmarkTurn(NamedTuple):
    """What the assistant says, and the tools it calls: the truth names no arguments. `is_any`: one
    call is expected, of any tool.
    """

    content: str
    tool_ids: list[str]
    is_any: bool = False


def fits(row: dict[str, Any]) -> bool:
    return "sample_id" in row and "task_type" in row


def read(row: dict[str, Any], catalogue: Mapping[str, Tool] = NO_CATALOGUE) -> Record:
    """`catalogue`: the tools that candidates name by their ids.

    Where any call is right there is none to learn: as with BFCL's live_relevance, such a row is for
    tests, whatever its own split, and its turn only marks the place.
    """
    kind, truth, given = (
        row.get("task_type"),
        row.get("ground_truth"),
        row.get("candidate_tools") or [],
    )
    if not isinstance(truth, dict) or not isinstance(given, list):
        raise RowError("E201", "ground_truth is not an object, or candidate_tools is not a list")
    if not isinstance(kind, str) or kind not in TASKS:
        raise RowError("E202", f"unknown task_type {kind!r}; known: {', '.join(TASKS)}")
    task, answer = TASKS[kind]
    tools = tuple(declared(tool, catalogue) for tool in given)
    content, tool_ids, is_any = answer(truth, tools)
    context = row.get("context") or ""
    before = context if isinstance(context, str) else plain(context)
    question = "\n\n".join(filter(None, (before, text_at(row, "instruction"))))
    calls = tuple(Call(tool_id, {}, f"call_{i}") for i, tool_id in enumerate(tool_ids))
    gold = [GoldCall(ANY_TOOL)] if is_any else [unknown_call(call.name, tools) for call in calls]
    known = ["sample_id", "task_type", "instruction", "context", "split"]
    known += ["candidate_tools"] if all(isinstance(tool, str) for tool in given) else []
    return Record(
        messages=(Message("user", question), Message("assistant", content, calls)),
        tools=tools,
        gold={1: Gold(tuple(gold))},
        task=task,
        split="test" if is_any else split_of(row),
        meta=meta_of({**row, "id": row.get("sample_id")}, *known),
    )


def _selection(truth: Truth, tools: tuple[Tool, ...]) -> BenchmarkTurn:
    top = truth.get("top_k")
    if not isinstance(top, list) or not top or not all(isinstance(tool_id, str) for tool_id in top):
        raise RowError("E201", "top_k is not a list of tool ids")
    return BenchmarkTurn(text_at(truth, "explanation"), top)


def _plan(truth: Truth, tools: tuple[Tool, ...]) -> BenchmarkTurn:
    """The plan as a numbered list, and its tools in their order."""
    steps = truth.get("plan_steps")
    if (
        not isinstance(steps, list)
        or not steps
        or not all(isinstance(step, dict) for step in steps)
    ):
        raise RowError("E201", "plan_steps is not a list of steps")
    sequence = [step.get("tool_id") for step in steps]
    if (
        not all(isinstance(tool_id, str) for tool_id in sequence)
        or truth.get("tool_sequence", sequence) != sequence
    ):
        raise RowError(
            "E201", "a step without a tool, or a tool_sequence that is not that of the steps"
        )
    lines = [
        f"{step.get('step_id', number)}. {text_at(step, 'description')}"
        for number, step in enumerate(steps, 1)
    ]
    return BenchmarkTurn("\n".join(lines), sequence)


def _timing(truth: Truth, tools: tuple[Tool, ...]) -> BenchmarkTurn:
    """A call of a candidate, or the direct answer. The truth is whether to call, not what: of
    several candidates any is right.
    """
    expected = truth.get("should_call_tool")
    if not isinstance(expected, bool):
        raise RowError("E201", f"should_call_tool is {expected!r}, not true or false")
    if not expected:
        return BenchmarkTurn(text_at(truth, "direct_answer") or NO_CALL_ANSWER, [])
    if not tools:
        raise RowError("E201", "a call is expected, but the row names no tool")
    chain = truth.get("reasoning_chain")
    reasons = "\n".join(
        step if isinstance(step, str) else plain(step)
        for step in (chain if isinstance(chain, list) else [chain])
        if step is not None
    )
    if len(tools) == 1:
        return BenchmarkTurn(reasons, [tools[0].name])
    return BenchmarkTurn(reasons or ANY_CALL_ANSWER, [], is_any=True)


TASKS: dict[str, tuple[Task, Callable[[Truth, tuple[Tool, ...]], BenchmarkTurn]]] = {
    "tool_selection": ("tool_selection", _selection),
    "task_planning": ("multi_step_planning", _plan),
    "timing_judgment": ("timing_decision", _timing),
}
