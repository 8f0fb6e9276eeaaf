"""KAgentInstruct rows -> Record: one for each prompt and response of a row."""

from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.formats.extra_fields import meta_of, rest
from agentlite.data.formats.qa_text import dialog, text_at

EXAMPLE = (
    '{"id": "1", "query": "Is it wet in Oslo?", "source": "kwai-agent", "functions": '
    '["{\\"name\\": \\"weather\\"}"], '
    '"function_names": ["weather"], "llm_prompt_response": [{"instruction": '
    '"Commands:\\n1:{\\"name\\": '
    '\\"weather\\"}\\nGOAL: ", "input": "Is it wet in Oslo?", "output": "{\\"command\\": '
    '{\\"name\\": \\"weather\\", '
    '\\"args\\": {\\"city\\": \\"Oslo\\"}}}", "llm_name": "a model", "human_edited": false}], '
    '"extra_infos": {}}'
)
SAMPLES = "llm_prompt_response"
KEPT = ("query", "source", "functions", "function_names", "extra_infos")


def fits(row: dict[str, Any]) -> bool:
    return isinstance(row.get(SAMPLES), list)


def parts(row: dict[str, object]) -> list[dict[str, object]]:
    """A row for each sample. One without any stays one row, for `read` to refuse."""
    samples = row.get(SAMPLES)
    return (
        [{**row, SAMPLES: [sample]} for sample in samples]
        if isinstance(samples, list) and samples
        else [row]
    )


def read(row: dict[str, Any]) -> Record:
    """Raises RowError E201 unless the row holds one sample, E216 for what is no text."""
    samples = row.get(SAMPLES)
    if not isinstance(samples, list) or len(samples) != 1 or not isinstance(samples[0], dict):
        raise RowError("E201", f"{SAMPLES} is no list of one sample")
    sample = samples[0]
    question = text_at(sample, "instruction") + text_at(sample, "input")
    kept = {key: row.get(key) for key in KEPT}
    return Record(
        messages=dialog("", [(question, text_at(sample, "output"))]),
        meta=meta_of(
            row, SAMPLES, *KEPT, sample=rest(sample, "instruction", "input", "output"), **kept
        ),
    )
