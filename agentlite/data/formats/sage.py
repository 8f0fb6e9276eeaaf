"""SAGE's dialogs, tools and tasks (agent_sft, agent_tools, agent_benchmark) -> Record."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import (
    ANY_ARGUMENTS,
    ANY_TOOL,
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    Task,
    Tool,
    digest,
    gold_call,
    text_or_json,
)
from agentlite.data.formats import sharegpt, tool_calls
from agentlite.data.formats.bfcl import ANY_CALL_ANSWER, NO_CALL_ANSWER
from agentlite.data.formats.format import Format, Row, extra_by_turn, meta_of, omit, text_at
from agentlite.data.formats.json_decode import quote
from agentlite.data.formats.openai import LOSS_KEYS, has_loss
from agentlite.data.formats.tool_calls import json_schema, read_arguments, schema_from_list

NO_CATALOGUE: Mapping[str, Tool] = {}
ANY_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}
CANDIDATES, EXAMPLES = "candidate_tools", "invoke_examples"
TURN_KEYS = ("role", "content", "tool_id", "result", "arguments", *LOSS_KEYS)
READ_KEYS = frozenset((*TURN_KEYS, *sharegpt.TURN_KEYS))

# --- what the three share ---


def resolve_tool(value: object, catalogue: Mapping[str, Tool] = NO_CATALOGUE) -> Tool:
    """A tool by its id, as SAGE's dialogs and tasks name it: the one of the catalogue, unless its
    inputs stand here. Of one that is only an id, any argument is taken.
    """
    fields: Row = value if isinstance(value, dict) else {"tool_id": value}
    tool_id, name, capabilities = (fields.get(key) for key in ("tool_id", "name", "capabilities"))
    if not isinstance(tool_id, str) or not tool_id.strip():
        raise RowError("E212", f"a tool without an id: {quote(value)}")
    # the schema has no description: the name and what the tool can do stand in for it
    # {"name": "Weather", "capabilities": ["forecast", "alerts"]} -> "Weather: forecast, alerts"
    abilities = capabilities if isinstance(capabilities, list) else []
    parts = (name, ", ".join(text for text in abilities if isinstance(text, str)))
    description = ": ".join(part for part in parts if part and isinstance(part, str))
    if fields.get("inputs") is None:
        return catalogue.get(tool_id) or Tool(tool_id, description, ANY_PARAMETERS)
    inputs = fields["inputs"] if isinstance(fields["inputs"], list) else [fields["inputs"]]
    inputs = [{"required": True, **omit(i)} if isinstance(i, dict) else i for i in inputs]
    return Tool(tool_id, description, json_schema(schema_from_list(inputs, tool_id), tool_id))


def is_id_alone(tool: Tool) -> bool:
    """Whether nothing is known of a tool but its id."""
    return not tool.description and tool.parameters == ANY_PARAMETERS


def _unknown_call(tool_id: str, tools: Iterable[Tool]) -> GoldCall:
    """The gold of a call without arguments: not known, unless its tool takes none."""
    parameters = next((tool.parameters for tool in tools if tool.name == tool_id), ANY_PARAMETERS)
    takes_none = not parameters.get("properties") and not parameters.get("additionalProperties")
    return GoldCall(tool_id, {} if takes_none else ANY_ARGUMENTS)


# --- tools: each example of a tool's use is a question and its call ---


def examples_of(row: Row) -> list[Row]:
    """A row for each example. A tool without any stays one row, for `read_tool_row` to refuse."""
    examples = row.get(EXAMPLES)
    if not isinstance(examples, list) or not examples:
        return [row]
    return [{**row, EXAMPLES: [example]} for example in examples]


def read_tool_row(row: Row) -> Record:
    """The example's result is what a tool would say, not what a model learns: it is in meta."""
    examples = row.get(EXAMPLES)
    if not examples:
        reason = "a tool without examples of its use: there is nothing to learn from"
        raise RowError("E201", reason, "To describe tools alone, give the file as --tools.")
    example, tool = examples[0], resolve_tool(row)
    if not isinstance(example, dict):
        raise RowError("E201", f"an example is {example!r:.60}, not an object")
    arguments = tool_calls.arguments_of(
        {"name": tool.name, **omit(example, "instruction", "expected_output")}
    )
    call = Call(tool.name, tool_calls.drop_nulls(example, arguments, tool), "call_0")
    extra = omit(example, "instruction", *tool_calls.ARGUMENT_KEYS)
    meta = meta_of({**row, "id": tool.name}, EXAMPLES, "tool_id", "inputs")
    question = Message("user", text_at(example, "instruction"))
    return Record(
        messages=(question, Message("assistant", calls=(call,))),
        tools=(tool,),
        meta=meta | ({"example": extra} if extra else {}),
    )


# --- dialogs: a result names its tool, and the turn before it made the call ---


def read_dialog(row: Row, catalogue: Mapping[str, Tool] = NO_CATALOGUE) -> Record:
    """A result without its call's arguments leaves them unknown. `catalogue`: tools by id."""
    tools = tuple(resolve_tool(tool, catalogue) for tool in _offered_tools(row))
    messages: list[Message] = []
    owner = -1  # the index of the last turn that is no result: the calls are its own
    call_count, unknown_ids = 0, set[str]()  # of calls whose arguments are not known
    for number, turn in enumerate(row["turns"], 1):
        speaker, text = sharegpt.speaker_of(turn, number), sharegpt.text_of(turn, number, READ_KEYS)
        if speaker == "call":
            raise RowError("E202", f"a call in a format that has no turns of calls (turn {number})")
        if speaker != "tool":
            owner = len(messages)
            messages.append(Message(speaker, text, loss=has_loss(turn)))
            continue
        call, is_known = _call(turn, number, f"call_{call_count}")
        call_count += 1
        unknown_ids |= set() if is_known else {call.id}
        # the assistant turn before it made the call, and does not say so
        if owner < 0 or messages[owner].role != "assistant":
            raise RowError("E204", f"a result that follows no assistant turn (turn {number})")
        messages[owner] = replace(messages[owner], calls=(*messages[owner].calls, call))
        result = "" if turn.get("result") is None else text_or_json(turn["result"])
        parts = [text] if result == text else filter(None, (text, result))
        messages.append(Message("tool", "\n".join(parts), call_id=call.id))
    gold = {}
    for index, message in enumerate(messages):
        # where the arguments are not known, gold takes any, or none if the tool takes none
        if any(call.id in unknown_ids for call in message.calls):
            expected = [
                _unknown_call(call.name, tools) if call.id in unknown_ids else gold_call(call)
                for call in message.calls
            ]
            gold[index] = Gold(tuple(expected))
    known_keys = ("dialog_id", "turns", "target_tools", "split")
    extra = extra_by_turn(row["turns"], frozenset(TURN_KEYS))
    turns = {"turns": extra} if extra else {}
    return Record(
        messages=tuple(messages),
        tools=tools,
        gold=gold,
        split=str(row.get("split") or ""),
        meta=meta_of({**row, "id": row.get("dialog_id")}, *known_keys) | turns,
    )


def _offered_tools(row: Row) -> list[object]:
    """The targets; among candidates, where there are any, in an order that tells nothing."""
    targets, metadata = row["target_tools"], row.get("metadata")
    candidates = row.get(CANDIDATES)
    if not candidates and isinstance(metadata, dict):
        candidates = metadata.get(CANDIDATES)
    if not candidates:
        return [*targets]
    names = {resolve_tool(tool).name for tool in candidates}
    tools = [*candidates, *(tool for tool in targets if tool not in names)]
    dialog = row.get("dialog_id")
    return sorted(tools, key=lambda tool: digest(f"{dialog} {resolve_tool(tool).name}"))


def _call(turn: Row, number: int, call_id: str) -> tuple[Call, bool]:
    """The call that a result answers, and whether its arguments are known."""
    tool_id, sources = turn.get("tool_id"), (turn, turn.get("metadata"), turn.get("result"))
    values = [source.get("arguments") for source in sources if isinstance(source, dict)]
    arguments = next((read_arguments(value) for value in values if value is not None), None)
    if not isinstance(tool_id, str) or not tool_id:
        raise RowError("E205", f"a result that does not say of which tool (turn {number})")
    return Call(tool_id, arguments or {}, call_id), arguments is not None


# --- tasks: a question with its expected answer ---


def read_task(row: Row, catalogue: Mapping[str, Tool] = NO_CATALOGUE) -> Record:
    """`catalogue`: the tools that candidates name by their ids.

    Where any call is right there is none to learn: as with BFCL's live_relevance, such a row is for
    tests, whatever its own split, and its turn only marks the place.
    """
    kind, truth = row.get("task_type"), row.get("ground_truth")
    candidates = row.get(CANDIDATES) or []
    if not isinstance(truth, dict) or not isinstance(candidates, list):
        raise RowError("E201", "ground_truth is not an object, or candidate_tools is not a list")
    if not isinstance(kind, str) or kind not in TASKS:
        raise RowError("E202", f"unknown task_type {kind!r}; known: {', '.join(TASKS)}")
    task, answer = TASKS[kind]
    tools = tuple(resolve_tool(tool, catalogue) for tool in candidates)
    content, names = answer(truth, tools)
    is_any = names is None
    calls = [Call(name, {}, f"call_{i}") for i, name in enumerate(names or [])]
    gold = [GoldCall(ANY_TOOL)] if is_any else [_unknown_call(call.name, tools) for call in calls]
    context = text_or_json(row.get("context") or "")
    question = "\n\n".join(filter(None, (context, text_at(row, "instruction"))))
    known_keys = ["sample_id", "task_type", "instruction", "context", "split"]
    known_keys += [CANDIDATES] if all(isinstance(tool, str) for tool in candidates) else []
    return Record(
        messages=(Message("user", question), Message("assistant", content, tuple(calls))),
        tools=tools,
        gold={1: Gold(tuple(gold))},
        task=task,
        split="test" if is_any else str(row.get("split") or ""),
        meta=meta_of({**row, "id": row.get("sample_id")}, *known_keys),
    )


# What the assistant says, and the tools it calls, None for any: the truth names no arguments.
Answer = tuple[str, list[str] | None]


def _selection(truth: Row, tools: tuple[Tool, ...]) -> Answer:
    top = truth.get("top_k")
    if not isinstance(top, list) or not top or not all(isinstance(tool_id, str) for tool_id in top):
        raise RowError("E201", "top_k is not a list of tool ids")
    return text_at(truth, "explanation"), top


def _plan(truth: Row, tools: tuple[Tool, ...]) -> Answer:
    """The plan as a numbered list, and its tools in their order."""
    steps = truth.get("plan_steps")
    is_list = isinstance(steps, list) and all(isinstance(step, dict) for step in steps)
    if not steps or not is_list:
        raise RowError("E201", "plan_steps is not a list of steps")
    tool_ids = [step.get("tool_id") for step in steps]
    are_ids = all(isinstance(tool_id, str) for tool_id in tool_ids)
    if not are_ids or truth.get("tool_sequence", tool_ids) != tool_ids:
        raise RowError("E201", "a step without a tool, or other tools in tool_sequence")
    lines = [
        f"{step.get('step_id', number)}. {text_at(step, 'description')}"
        for number, step in enumerate(steps, 1)
    ]
    return "\n".join(lines), tool_ids


def _timing(truth: Row, tools: tuple[Tool, ...]) -> Answer:
    """A call or the direct answer. The truth is whether to call: any of the candidates fits."""
    expected = truth.get("should_call_tool")
    if not isinstance(expected, bool):
        raise RowError("E201", f"should_call_tool is {expected!r}, not true or false")
    if not expected:
        return text_at(truth, "direct_answer") or NO_CALL_ANSWER, []
    if not tools:
        raise RowError("E201", "a call is expected, but the row names no tool")
    chain = truth.get("reasoning_chain")
    steps = chain if isinstance(chain, list) else [chain]
    reasons = "\n".join(text_or_json(step) for step in steps if step is not None)
    if len(tools) == 1:
        return reasons, [tools[0].name]
    return reasons or ANY_CALL_ANSWER, None


TASKS: dict[str, tuple[Task, Callable[[Row, tuple[Tool, ...]], Answer]]] = {
    "tool_selection": ("tool_selection", _selection),
    "task_planning": ("multi_step_planning", _plan),
    "timing_judgment": ("timing_decision", _timing),
}
DIALOGS = Format(
    "sage_sft",
    read_dialog,
    {"turns": list},
    lambda row: "dialog_id" in row and "target_tools" in row,
)
TOOLS = Format(
    "sage_tools", read_tool_row, {"tool_id": object}, lambda row: EXAMPLES in row, examples_of
)
BENCHMARK = Format(
    "sage_benchmark",
    read_task,
    {"ground_truth": dict},
    lambda row: "sample_id" in row and "task_type" in row,
)
