"""KAgentInstruct rows -> Record: one for each prompt and response of a row."""

from typing import Any

from msgspec.structs import replace

from agentlite.core.records import Record
from agentlite.data.formats import modelscope, ms_agent, task_prompts, toolllama
from agentlite.data.formats.extra_fields import dialog, meta_of, rest, text_at
from agentlite.data.formats.tool_calls import read_tools

EXAMPLE = r'{"id": "1", "query": "Is it wet in Oslo?", "source": "kwai-agent", "functions": ["{\"name\": \"weather\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}"], "function_names": ["weather"], "llm_prompt_response": [{"instruction": "Commands:\n1:{\"name\": \"weather\"}\nGOAL: ", "input": "Is it wet in Oslo?", "output": "{\"command\": {\"name\": \"weather\", \"args\": {\"city\": \"Oslo\"}}}", "llm_name": "a model", "human_edited": false}], "extra_infos": {}}'  # noqa: E501  (a row is one line)
FIELDS = {"llm_prompt_response": list}
SAMPLES = "llm_prompt_response"
FUNCTIONS = ("functions", "function_names")  # in meta only where they are not tools of the record
KEPT = ("query", "source", *FUNCTIONS, "extra_infos")
# of other templates there are thousands: their prompts and answers stay as they are
PROMPTS = (modelscope.SYNTAX, toolllama.SYNTAX, ms_agent.SYNTAX)


def parts(row: dict[str, object]) -> list[dict[str, object]]:
    """A row for each sample; one that ends a task and the conclusion behind it are one. One without
    any stays one row, for `read` to refuse.
    """
    samples = row.get(SAMPLES)
    if not isinstance(samples, list) or not samples:
        return [row]
    groups: list[list[object]] = []
    for sample in samples:
        if groups and len(groups[-1]) == 1 and _concludes(groups[-1][0], sample):
            groups[-1].append(sample)
        else:
            groups.append([sample])
    return [{**row, SAMPLES: group} for group in groups]


def _concludes(ending: object, sample: object) -> bool:
    """Whether a sample ends a task, and the next asks for the answer to the user."""
    if not (isinstance(ending, dict) and isinstance(sample, dict)):
        return False
    output, prompt = ending.get("output"), sample.get("instruction")
    return (
        isinstance(output, str)
        and isinstance(prompt, str)
        and isinstance(sample.get("output"), str)
        and task_prompts.ends_task(output)
        and task_prompts.asks_for_conclusion(f"{prompt}{sample.get('input') or ''}")
    )


def read(row: dict[str, Any]) -> Record:
    """One sample, or one and its conclusion."""
    samples = row[SAMPLES]
    sample = samples[0]
    question = text_at(sample, "instruction") + text_at(sample, "input")
    conclusion = text_at(samples[1], "output") if len(samples) == 2 else ""
    is_task = task_prompts.is_prompt(question)
    is_known = is_task or any(syntax.is_prompt(question) for syntax in PROMPTS)
    record = Record(
        messages=dialog("", [(question, text_at(sample, "output"))]),
        tools=read_tools(row.get(FUNCTIONS[0]), task_prompts.command_json) if is_known else (),
    )
    split = task_prompts.split(record, conclusion)
    if is_task and split is record:  # a prompt that is not understood lists its tools itself
        split = replace(record, tools=())
    kept = {key: row.get(key) for key in KEPT if not (split.tools and key in FUNCTIONS)}
    sample_meta = rest(sample, "instruction", "input", "output")
    return replace(split, meta=meta_of(row, SAMPLES, *KEPT, sample=sample_meta, **kept))
