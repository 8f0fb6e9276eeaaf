"""How fast dialogs become input_ids and labels: ours beside TRL's own preparation.

    .venv/bin/python scripts/bench/rendering.py [--rows 1000] [--repeats 3]

Both sides make all rows in one process on one core, in turns; `times_trl` is the median of the
ratios. Loading libraries and reading files are not counted; ours begins with nothing remembered.
The rows are those of reading.py, with SmolLM2's tokenizer and Qwen2.5's chat template, which TRL
ships. `equal`: rows whose ids and labels are the same. TRL's own training template of Qwen2.5 also
trains the newlines before and after each turn, so TRL is timed with the same template and
`{% generation %}` around what the model writes.
"""

import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reading
from common import in_turns, make_parser, show

ALIAS = "smollm2-135m"
Rows = list[tuple[list[int], list[int]]]

# Qwen2.5's way to write what the assistant says; the markers stand around what is trained.
MARKED = """{%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant\\n' }}
        {%- generation %}
        {{- message.content or '' }}
        {%- for call in message.tool_calls or [] %}
            {%- if message.content or not loop.first %}{{ '\\n' }}{% endif %}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\\n' }}
    """


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reading.write_rows(folder / "rows.jsonl", options.rows)
        write_model(folder)
        rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
        show(compare(folder, rows, options.repeats))


def write_model(folder: Path) -> None:
    """What both sides load: SmolLM2's tokenizer, Qwen2.5's template, and a tiny model for TRL."""
    from tiny import make_model
    from trl.chat_template_utils import qwen2_5_chat_template

    make_model(folder, "hf")
    (folder / "chat_template.jinja").write_text(qwen2_5_chat_template, encoding="utf-8")


def ours(folder: Path, rows: list[dict[str, Any]]) -> Callable[[], Rows]:
    """What prep and sft call; each time with a template that remembers nothing yet."""
    from agentlite.data.formats import to_record
    from agentlite.rendering import choose, training_rows
    from agentlite.rendering.template import Template
    from agentlite.workspace.input_files import load_template

    loaded = load_template(str(folder))
    protocol = choose("chat", loaded).protocols["chat"]
    records = [to_record(row, "openai") for row in rows]

    def prepare() -> Rows:
        template = Template(loaded.name, loaded.tokenizer, loaded.chat_template, loaded.special)
        encoded = [row for record in records for row in training_rows(record, protocol, template)]
        return [(row.input_ids, row.labels) for row in encoded]

    return prepare


def trl(folder: Path, rows: list[dict[str, Any]]) -> Callable[[], Any]:
    """SFTTrainer's own preparation, without truncation: a data set of `datasets`."""
    import datasets
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer
    from trl.chat_template_utils import qwen2_5_training_chat_template

    datasets.disable_caching()
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    before, tail = qwen2_5_training_chat_template.split('{%- elif message.role == "assistant" %}')
    after = tail[tail.index('{%- elif message.role == "tool" %}') :]
    tokenizer.chat_template = before + MARKED + after
    for row in rows:
        for call in (call for turn in row["messages"] for call in turn.get("tool_calls", ())):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    dataset = datasets.Dataset.from_list(
        [{**row, "tools": json.dumps(row["tools"])} for row in rows]
    )
    arguments = SFTConfig(
        output_dir=str(folder / "trl"),
        assistant_only_loss=True,
        max_length=None,
        use_cpu=True,
        bf16=False,
        report_to="none",
        shuffle_dataset=False,
    )
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        args=arguments,
        train_dataset=dataset.select([0]),
        processing_class=tokenizer,
    )

    def prepare() -> Any:
        return trainer._prepare_dataset(dataset, tokenizer, arguments, False, None, "train")

    return prepare


def compare(folder: Path, rows: list[dict[str, Any]], repeats: int) -> dict[str, Any]:
    sides = {"ours": ours(folder, rows), "trl": trl(folder, rows)}
    own, theirs = (make() for make in sides.values())
    seconds = in_turns(sides, repeats)
    pairs = zip(seconds["trl"], seconds["ours"], strict=True)
    equal = zip(own, zip(theirs["input_ids"], theirs["labels"], strict=True), strict=True)
    return {
        "rows": len(rows),
        "tokens_a_row": round(statistics.mean(len(ids) for ids, _ in own)),
        "times_trl": round(statistics.median(trl / ours for trl, ours in pairs), 2),
        "equal": sum([*map(list, left)] == [*map(list, right)] for left, right in equal),
    }


if __name__ == "__main__":
    main()
