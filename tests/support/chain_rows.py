"""Dialogs whose answers are whole chains of calls and results, as rows of every container, in every
syntax.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agentlite.core.records import Call, Message, Record, Tool, to_json, to_row
from agentlite.rendering.protocols import hermes, modelscope, react, toolllama

Row = dict[str, Any]
Exchange = tuple[str, str]  # a question, and the chain that answers it
TOOLS = tuple(
    Tool(
        name,
        f"{name} of a city.",
        {
            "type": "object",
            "properties": {"city": {"description": "a town"}},
            "required": ["city"],
        },
    )
    for name in ("weather", "clock")
)


class ChainStep(NamedTuple):
    thought: str
    tool: str
    city: str
    result: str


class ChainSyntax(NamedTuple):
    """`system`: lists TOOLS; `answer`: a chain as one text. `split`: whether it becomes turns; what
    does not is rejected.
    """

    system: str
    answer: Callable[[Sequence[ChainStep], str], str]
    split: bool = True


def _by(protocol: Any) -> Callable[[Sequence[ChainStep], str], str]:
    def answer(steps: Sequence[ChainStep], final: str) -> str:
        text = ""
        for step in steps:
            calls = (Call(step.tool, {"city": step.city}),)
            text += protocol.assistant(Message("assistant", step.thought, calls))
            text += protocol.results([Message("tool", step.result)])
        return text + protocol.assistant(Message("assistant", final))

    return answer


def _lines(written: str) -> Callable[[Sequence[ChainStep], str], str]:
    """A line each for the thought, the action, its input, the result, and the final answer."""
    thought, action, given, observation, final = written.split(" | ")

    def answer(steps: Sequence[ChainStep], answered: str) -> str:
        lines = []
        for number, step in enumerate(steps, 1):
            said = {
                **{"n": number, "tool": step.tool, "city": step.city},
                **{"arguments": to_json({"city": step.city}), "literal": {"city": step.city}},
            }
            lines += [thought.format(text=step.thought, **said)] if step.thought else []
            lines += [line.format(**said) for line in (action, given) if line != "-"]
            lines.append(observation.format(text=step.result, **said))
        return "\n".join([*lines, final.format(text=answered)])

    return answer


def _toolllama(steps: Sequence[ChainStep], final: str) -> str:
    return _lines(f"{CALLED} | {OBSERVED}")(steps, "").removesuffix(
        "Final Answer: "
    ) + toolllama.answer(final)


def _tagged(
    before: str, call: Callable[[ChainStep], str], result: str
) -> Callable[[Sequence[ChainStep], str], str]:
    def answer(steps: Sequence[ChainStep], final: str) -> str:
        parts = [
            f"{step.thought}{before}{call(step)}{result.format(text=step.result)}" for step in steps
        ]
        return "\n".join([*parts, final])

    return answer


def _called(step: ChainStep) -> str:
    return to_json({"name": step.tool, "arguments": {"city": step.city}})


CALLED = "Thought: {text} | Action: {tool} | Action Input: {arguments}"
OBSERVED = "Observation: {text} | Final Answer: {text}"
APIS = "\n\n".join(
    f"{n}. {tool.name}: Call this tool to interact with the {tool.name} API. What is the "
    f"{tool.name} API useful for? {tool.description} Parameters: "
    + to_json([{"name": "city", "description": "a town", "required": "True"}])
    for n, tool in enumerate(TOOLS, 1)
)
MS_AGENT = (
    "Answer the following questions as best you can. You have access to the following APIs:\n"
    f"{APIS}\n\nUse the following format:\n\nThought: you should always think about what to do\n"
    "Action: the action to take, should be one of the above tools[weather, clock]\n"
    "Action Input: the input to the action\nObservation: the result of the action\n"
    "Final Answer: the final answer to the original input question\nBegin!"
)
PLUGINS = "\n".join(
    to_json({"plugin_name": tool.name, **tool.schema["function"]})  # type: ignore[dict-item]
    for tool in TOOLS
)
# a chain as lines, in the words of the prompt of ms_agent
LINES = {
    "ms_agent": f"{CALLED.replace('arguments', 'literal')} | {OBSERVED}",
    "中文": "思考：{text} | 行动：{tool} | 行动输入：{arguments} | 观察：{text} | 最终答案：{text}",
    "indented": f"{CALLED} |   {OBSERVED}",
    "plain input": f"{CALLED.replace('arguments', 'city')} | {OBSERVED}",
}
REJECTED_LINES = {
    "plain input, result": f"{CALLED.replace('arguments', 'city')} | {OBSERVED}",
    "response": f"{CALLED} | {OBSERVED.replace('Observation', 'Response')}",
}
SYNTAXES = {
    **{name: ChainSyntax(MS_AGENT, _lines(written)) for name, written in LINES.items()},
    **{
        name: ChainSyntax(MS_AGENT, _lines(written.replace("Observation", "Result")), split=False)
        for name, written in REJECTED_LINES.items()
    },
    "react": ChainSyntax(react.PROTOCOL.system(TOOLS), _by(react.PROTOCOL)),
    "react-zh": ChainSyntax(react.PROTOCOL_ZH.system(TOOLS), _by(react.PROTOCOL_ZH)),
    "toolllama": ChainSyntax(toolllama.PROTOCOL.system(TOOLS), _toolllama),
    "modelscope": ChainSyntax(f"Call these.\n{PLUGINS}", _by(modelscope.PROTOCOL)),
    "hermes": ChainSyntax(hermes.PROTOCOL.system(TOOLS), _by(hermes.PROTOCOL)),
    "numbered": ChainSyntax(
        "",
        _lines(
            "Thought {n}: {text} | Action {n}: {tool}[{city}] | - | Observation {n}: {text} | "
            "Answer: {text}"
        ),
        split=False,
    ),
    "bold": ChainSyntax(
        "",
        _lines(
            "**Thought:** {text} | **Action:** {tool} | **Action Input:** {arguments} | "
            "**Observation:** {text} | **Final Answer:** {text}"
        ),
        split=False,
    ),
    **{
        name: ChainSyntax("", _tagged(before, _called, result), split=False)
        for name, before, result in (
            ("glaive", "<functioncall> ", "\n\n\nFUNCTION RESPONSE: {text}\n\n\nASSISTANT:"),
            ("mistral", "[TOOL_CALLS]", "[TOOL_RESULTS]{text}[/TOOL_RESULTS]"),
            ("glm", "<|assistant|>", "<|observation|>\n{text}<|assistant|>\n"),
            ("llama", "<|python_tag|>", "<|start_header_id|>ipython<|end_header_id|>{text}"),
            ("deepseek", "", "<｜tool▁output▁begin｜>{text}<｜tool▁output▁end｜>"),
            ("results", "<call>", "<function_results>{text}</function_results>"),
            ("torn", "<tool_call>", "<tool_response>{text}"),
        )
    },
}


def _turns(
    system: str, exchanges: Sequence[Exchange], key: str = "value", by: str = "from"
) -> list[Row]:
    first = [{by: "system", key: system}] if system else []
    return first + [
        {by: speaker, key: text}
        for exchange in exchanges
        for speaker, text in zip(("user", "assistant"), exchange, strict=True)
    ]


def _query(system: str, exchanges: Sequence[Exchange], **more: object) -> Row:
    query, response = exchanges[-1]
    history = [[*exchange] for exchange in exchanges[:-1]]
    return {"system": system, "query": query, "response": response, "history": history, **more}


def _alpaca(system: str, exchanges: Sequence[Exchange]) -> Row:
    row = _query(system, exchanges)
    return {"instruction": row["query"], "output": row["response"]} | {
        key: row[key] for key in ("system", "history")
    }


def _one_prompt(system: str, exchanges: Sequence[Exchange]) -> tuple[str, str]:
    """Everything before the last answer as one text, as rows without a system text have it."""
    said = [text for exchange in exchanges for text in exchange]
    return "\n\n".join(filter(None, [system, *said[:-1]])), said[-1]


def _samples(system: str, exchanges: Sequence[Exchange]) -> Row:
    prompt, answer = _one_prompt(system, exchanges)
    sample = {"instruction": prompt, "input": "", "output": answer}
    return {"id": "1", "query": "q", "llm_prompt_response": [sample]}


def _blocks(system: str, exchanges: Sequence[Exchange]) -> Row:
    turns = _turns("", exchanges, "content", "role")
    for turn in turns:
        turn["content"] = [{"type": "text", "text": turn["content"]}]
    tools = [{"name": t.name, "input_schema": t.parameters} for t in TOOLS]
    return {"system": system, "messages": turns, "tools": tools}


def _chat(system: str, exchanges: Sequence[Exchange]) -> Row:
    said = [f"USER: {q}\n\n\nASSISTANT: {a} <|endoftext|>" for q, a in exchanges]
    return {"system": system, "chat": "\n\n\n".join(said)}


def _own(system: str, exchanges: Sequence[Exchange]) -> Row:
    turns = _turns(system, exchanges, "content", "role")
    return to_row(Record(messages=tuple(Message(**turn) for turn in turns)))


def _marked(system: str, exchanges: Sequence[Exchange]) -> Row:
    turns = _turns(system, exchanges)
    for turn in turns:
        turn["loss"] = turn["from"] == "assistant"
    return {"conversations": turns}


def _weighed(system: str, exchanges: Sequence[Exchange]) -> Row:
    turns = _turns(system, exchanges, "content", "role")
    turns[-1]["loss_scale"] = 1
    return {"messages": turns}


# every container whose answers are texts; each as its format writes system, questions and answers
CONTAINERS: dict[str, Callable[[str, Sequence[Exchange]], Row]] = {
    "openai": lambda s, e: {"messages": _turns(s, e, "content", "role")},
    "openai with tools": lambda s, e: {
        "messages": _turns(s, e, "content", "role"),
        "tools": [tool.schema for tool in TOOLS],
    },
    "sharegpt": lambda s, e: {"conversations": _turns(s, e)},
    "sharegpt, system beside": lambda s, e: {"system": s, "conversations": _turns("", e)},
    "sharegpt with tools": lambda s, e: {
        "conversations": _turns(s, e),
        "tools": json.dumps([tool.schema for tool in TOOLS]),
    },
    "agentinstruct": _marked,
    "query": _query,
    "exchanges": lambda s, e: {
        "system": s,
        "conversation": [{"human": q, "assistant": a} for q, a in e],
    },
    "loss_scale": _weighed,
    "alpaca": _alpaca,
    "alpaca in one text": lambda s, e: dict(
        zip(("instruction", "output"), _one_prompt(s, e), strict=True)
    ),
    "query in one text": lambda s, e: dict(
        zip(("query", "response"), _one_prompt(s, e), strict=True)
    ),
    "self_cognition": lambda s, e: {
        **dict(zip(("query", "response"), _one_prompt(s, e), strict=True)),
        "tag": "en",
    },
    "kagentinstruct": _samples,
    "anthropic": _blocks,
    "glaive": _chat,
    "agentlite": _own,
    "text": lambda s, e: {"text": "\n".join(_one_prompt(s, e))},
}
