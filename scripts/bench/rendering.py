"""How fast dialogs become input_ids and labels: ours beside TRL's own preparation.

    .venv/bin/python scripts/bench/rendering.py [--rows 2000] [--repeats 3]

Every side is a process of its own on one core, and makes all rows once to be compared before it is
timed: wall time and processor time, the best of --repeats each. TRL also gets all cores of this
process, with a `dataset_num_proc` of as many; `times_trl` is ours on one core against the faster of
the two. Loading libraries and reading files are not counted; ours begins with nothing remembered.

The rows: dialogs with 2 to 4 tools of 40 and 1 to 3 calls, in words of a fixed list, with SmolLM2's
tokenizer and Qwen2.5's chat template, which TRL ships. One answer in a hundred begins with blank
lines. `equal`: rows whose ids and labels are ours. What differs, and why:
- TRL's own training template of Qwen2.5 also trains the newlines before and after each turn. So TRL
  is timed with the same template and `{% generation %}` around what the model writes.
- `datasets` gives back fractions with an error in the last place where they are JSON.
- Before blank lines TRL, which cuts the whole text at once, makes one token of a newline of the
  prompt and those of the answer. With ours the ids of a prompt are the beginning of the row's.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ALIAS = "smollm2-135m"
Ids = list[int]
Rows = list[tuple[Ids, Ids]]

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
COMMON_TEXT = """
the of and to in a is that for it was on are as with his they at be this from have or by one had not but
what all were when we there can an your which their said if do will each about how up out them then she many some so
these would other into has more her two like him see time could no make than first been its who now people my made over
did down only way find use may water long little very after words called just where most know get through back much
before go good new write our used me man too any day same right look think also around another came come work three
word must because does part even place well such here take why things help put years different away again off went old
number great tell men say small every found still between name should home big give air line set own under read last
never us left end along while might next sound below saw something thought both few those always show large often
together asked house world going want school important until form food keep children feet land side without boy once
animals life enough took sometimes four head above kind began almost live page got earth need far hand high year mother
light parts country father let night following picture being study second eyes soon times story boys since white days
ever paper hard near sentence better best across during today others however sure means knew tried told young miles
weather forecast temperature humidity wind rainfall flight airport departure arrival booking reservation hotel price
currency exchange rate account balance payment invoice customer order delivery address schedule meeting calendar
reminder message email document report summary translation language distance route traffic restaurant menu rating
review ticket museum station platform train available confirmed cancelled requested results search query"""  # noqa: E501  (verbatim text)
NAMES_TEXT = """
Oslo Lisbon Nairobi Montréal 上海 São_Paulo München Reykjavík Kraków Osaka Chennai Tallinn Bogotá Accra Hanoi
Zürich Dublin Ankara Lima Perth Alice Bruno Chidi Divya Elif Farid Greta Hiro Ines Jamal"""  # noqa: E501  (verbatim text)
COMMON, NAMES = COMMON_TEXT.split(), NAMES_TEXT.split()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        measure(options.side, options.folder, options.repeats, options.cores)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "rows.jsonl", options.rows)
        write_model(folder)
        print(json.dumps(compared(folder, options.sides.split(","), options.repeats), indent=2))


# --- the rows ---


def write_rows(path: Path, count: int) -> None:
    chance = random.Random(0)
    tools = [tool(n, chance) for n in range(40)]
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            row = dialog(chance.sample(tools, chance.randint(2, 4)), chance)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def words(least: int, most: int, chance: random.Random) -> str:
    """A sentence or more: common words more often than rare ones, a name or a number now and
    then.
    """
    text = []
    for _ in range(chance.randint(least, most)):
        kind = chance.random()
        if kind < 0.05:
            text.append(chance.choice(NAMES).replace("_", " "))
        elif kind < 0.08:
            text.append(f"{chance.uniform(0, 2000):.{chance.randint(0, 2)}f}")
        else:
            text.append(COMMON[int(len(COMMON) * chance.random() ** 2)])
        if chance.random() < 0.1:
            text[-1] += chance.choice([",", ".", ":", "?"])
    joined = " ".join(text)
    return joined[0].upper() + joined[1:] + "."


def tool(number: int, chance: random.Random) -> dict[str, Any]:
    parts = {
        f"{name}_{number % 7}": {"type": kind, "description": words(6, 14, chance)}
        for name, kind in chance.sample(
            [
                ("city", "string"),
                ("date", "string"),
                ("limit", "integer"),
                ("ratio", "number"),
                ("tags", "array"),
                ("exact", "boolean"),
            ],
            chance.randint(1, 4),
        )
    }
    parameters = {"type": "object", "properties": parts, "required": [next(iter(parts))]}
    name = f"{chance.choice(COMMON)}_{chance.choice(COMMON)}_{number}"
    return {
        "type": "function",
        "function": {"name": name, "description": words(8, 25, chance), "parameters": parameters},
    }


def dialog(tools: list[dict[str, Any]], chance: random.Random) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": words(12, 40, chance)}]
    left = chance.randint(1, 3)
    while left:
        messages.append({"role": "user", "content": words(15, 60, chance)})
        while left and (messages[-1]["role"] == "user" or chance.random() < 0.5):
            count = chance.randint(1, left)
            left -= count
            thought = words(5, 25, chance) if chance.random() < 0.4 else ""
            calls = [call(chance.choice(tools), f"call_{left}_{n}", chance) for n in range(count)]
            messages.append({"role": "assistant", "content": thought, "tool_calls": calls})
            messages += [
                {"role": "tool", "tool_call_id": each["id"], "content": result(chance)}
                for each in calls
            ]
        blank = "\n\n" if chance.random() < 0.01 else ""
        messages.append({"role": "assistant", "content": blank + words(20, 100, chance)})
    return {"messages": messages, "tools": tools}


def call(offered: dict[str, Any], identity: str, chance: random.Random) -> dict[str, Any]:
    values: dict[str, Callable[[], Any]] = {
        "string": lambda: chance.choice(NAMES),
        "integer": lambda: chance.randint(1, 500),
        "number": lambda: round(chance.random(), 3),
        "array": lambda: words(1, 3, chance).split(),
        "boolean": lambda: chance.random() < 0.5,
    }
    function = offered["function"]
    arguments = {
        name: values[part["type"]]() for name, part in function["parameters"]["properties"].items()
    }
    return {
        "id": identity,
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


def result(chance: random.Random) -> str:
    found = [
        {
            "id": chance.randint(1, 10**6),
            "name": words(2, 6, chance),
            "value": round(chance.uniform(0, 99), 2),
            "note": words(5, 20, chance),
        }
        for _ in range(chance.randint(1, 3))
    ]
    return json.dumps({"status": "ok", "results": found}, ensure_ascii=False)


def write_model(folder: Path) -> None:
    """What the sides load: SmolLM2's tokenizer, Qwen2.5's template, and a model of next to no
    weights.
    """
    import shutil

    from trl.chat_template_utils import qwen2_5_chat_template

    from agentlite.workspace.model_source import embedded_folder, load_template

    load_template(ALIAS)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(embedded_folder(ALIAS) / file, folder / file)
    (folder / "chat_template.jinja").write_text(qwen2_5_chat_template, encoding="utf-8")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 49152,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "max_position_embeddings": 8192,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "bos_token_id": None,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


# --- the sides: from a folder to a function that makes all rows, given a number of processes ---


def ours(folder: Path) -> Callable[[int], Any]:
    """What prep and sft call; each time with a template that remembers nothing yet."""
    from agentlite.data.formats import to_record
    from agentlite.rendering import choose, training_rows
    from agentlite.rendering.template import Template
    from agentlite.workspace.model_source import load_template

    loaded = load_template(str(folder))
    protocol = choose("chat", loaded).protocols["chat"]
    records = [to_record(row, "openai") for row in read_rows(folder)]

    def prepared(_: int) -> Rows:
        template = Template(loaded.name, loaded.tokenizer, loaded.chat_template, loaded.special)
        rows = [row for record in records for row in training_rows(record, protocol, template)]
        return [(row.input_ids, row.labels) for row in rows]

    return prepared


def trl(folder: Path) -> Callable[[int], Any]:
    """SFTTrainer's own preparation, without truncation; the trainer is made on one row
    beforehand.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer
    from trl.chat_template_utils import qwen2_5_training_chat_template

    _quiet_datasets()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    before, rest = qwen2_5_training_chat_template.split('{%- elif message.role == "assistant" %}')
    after = rest[rest.index('{%- elif message.role == "tool" %}') :]
    tokenizer.chat_template = before + MARKED + after
    dataset = _json_dataset(read_rows(folder))
    arguments = SFTConfig(
        output_dir=str(folder / "trl"),
        assistant_only_loss=True,
        max_length=None,
        use_cpu=True,
        bf16=False,
        report_to="none",
        shuffle_dataset=False,
    )
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    trainer = SFTTrainer(
        model=model, args=arguments, train_dataset=dataset.select([0]), processing_class=tokenizer
    )

    def prepared(processes: int) -> Any:
        arguments.dataset_num_proc = processes if processes > 1 else None
        return trainer._prepare_dataset(dataset, tokenizer, arguments, False, None, "train")

    return prepared


def _json_dataset(rows: list[dict[str, Any]]) -> Any:
    """Arguments and tools as JSON: as structs, Arrow would give every one the fields of all the
    others.
    """
    from datasets import Dataset, Features, Json, List, Value

    text = Value("string")
    function = {"name": text, "arguments": Json()}
    message = {
        "role": text,
        "content": text,
        "tool_calls": List({"id": text, "type": text, "function": function}),
        "tool_call_id": text,
    }
    keys = ("role", "content", "tool_calls", "tool_call_id")
    columns = {
        "messages": [
            [{key: message.get(key) for key in keys} for message in row["messages"]] for row in rows
        ],
        "tools": [json.dumps(row["tools"], ensure_ascii=False) for row in rows],
    }
    return Dataset.from_dict(columns, features=Features({"messages": List(message), "tools": text}))


def _quiet_datasets() -> None:
    import datasets

    datasets.disable_caching()
    datasets.disable_progress_bars()


SIDES = {
    "ours": ours,
    "trl": trl,
}


# --- measuring ---


def measure(side: str, folder: Path, repeats: int, cores: int) -> None:
    """One process of one side: its rows to a file, its times to stdout."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    make = SIDES[side](folder)
    made = make(cores)
    times = []
    for _ in range(repeats):
        started, used = time.perf_counter(), processor_time()
        made = make(cores)
        times.append((time.perf_counter() - started, processor_time() - used))
    rows = (
        made
        if isinstance(made, list)
        else list(zip(made["input_ids"], made["labels"], strict=True))
    )
    (folder / f"{side}.json").write_text(json.dumps(rows))
    milliseconds = {
        "ms_a_row": min(wall for wall, _ in times),
        "processor_ms_a_row": min(used for _, used in times),
    }
    print(
        json.dumps(
            {name: round(1000 * seconds / len(rows), 3) for name, seconds in milliseconds.items()}
        )
    )


def processor_time() -> float:
    """With that of the processes which have been started and have ended."""
    return sum(os.times()[:4])


def run(side: str, folder: Path, repeats: int, cores: int) -> dict[str, float]:
    command = [
        sys.executable,
        __file__,
        "--side",
        side,
        "--folder",
        folder,
        "--repeats",
        str(repeats),
        "--cores",
        str(cores),
    ]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    times: dict[str, float] = json.loads(output.splitlines()[-1])
    print(f"{side}, {cores} core(s): {times['ms_a_row']} ms a row", file=sys.stderr)
    return times


def compared(folder: Path, sides: list[str], repeats: int) -> dict[str, Any]:
    times = {side: run(side, folder, repeats, 1) for side in sides}
    result: dict[str, Any] = {"one_core": times}
    if "trl" in sides:
        cores = len(os.sched_getaffinity(0))
        result[f"trl_{cores}_cores"] = several = run("trl", folder, repeats, cores)
        ours = times["ours"]
        result["times_trl"] = round(
            min(times["trl"]["ms_a_row"], several["ms_a_row"]) / ours["ms_a_row"], 2
        )
        result["times_trl_one_core"] = round(times["trl"]["ms_a_row"] / ours["ms_a_row"], 2)
    rows = {side: read_made(folder, side) for side in sides}
    lengths = [len(ids) for ids, _ in rows["ours"]]
    return result | {
        "rows": len(lengths),
        "tokens_a_row": round(sum(lengths) / len(lengths)),
        "outputs": {
            side: against(rows["ours"], rows[side], folder) for side in sides if side != "ours"
        },
    }


def against(ours: Rows, theirs: Rows, folder: Path) -> dict[str, Any]:
    """How many rows are the same; what is in those whose ids differ; else the tokens that only one
    side trains.
    """
    from agentlite.workspace.model_source import load_template

    decode = load_template(str(folder)).decode
    told: dict[str, Counter[str]] = {
        "ids_differ": Counter(),
        "only_theirs": Counter(),
        "only_ours": Counter(),
    }
    equal = 0
    for row, own, other in zip(read_rows(folder), ours, theirs, strict=True):
        equal += own == other
        if own[0] != other[0]:
            told["ids_differ"][" and ".join(peculiar(row)) or "nothing peculiar"] += 1
            continue
        for token, mine, yours in zip(own[0], own[1], other[1], strict=True):
            if mine != yours:
                told["only_theirs" if mine < 0 else "only_ours"][decode([token])] += 1
    return {"rows": len(theirs), "equal": equal} | {
        name: dict(found.most_common(4)) for name, found in told.items()
    }


def peculiar(row: dict[str, Any]) -> list[str]:
    said = [message for message in row["messages"] if message["role"] == "assistant"]
    values = [
        value
        for message in said
        for call in message.get("tool_calls", ())
        for value in call["function"]["arguments"].values()
    ]
    found = {
        "a fraction as an argument": any(isinstance(value, float) for value in values),
        "an answer that begins with blank lines": any(
            message["content"].startswith("\n") for message in said
        ),
    }
    return [name for name, there in found.items() if there]


def read_made(folder: Path, side: str) -> Rows:
    return [(ids, labels) for ids, labels in json.loads((folder / f"{side}.json").read_text())]


def read_rows(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    ]


if __name__ == "__main__":
    main()
