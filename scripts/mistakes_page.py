"""docs/mistakes.md: common mistakes, and what the program says to each. Writes the page anew.

usage: python scripts/mistakes_page.py
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "mistakes.md"
HOME = "/home/ada/demo"  # in place of the folder that the commands ran in
Row = dict[str, Any]


class Mistake(NamedTuple):
    """What is typed in a folder with `files`, and the exit code. The commands `before` it prepare
    the folder, and are not shown.
    """

    title: str
    typed: str
    code: int
    files: Mapping[str, bytes] = {}
    before: Sequence[str] = ()


class BrokenRow(NamedTuple):
    """A row with a mistake, and the row that the screen leads to; None where an option of FIXES
    reads it as it is.
    """

    title: str
    row: bytes
    fixed: bytes | None = None


def tool(name: str, required: str, **properties: Row) -> Row:
    parameters = {"type": "object", "properties": properties, "required": required.split()}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
TOOLS = [
    tool("get_order", "order_id", order_id=TEXT),
    tool(
        "refund_order",
        "order_id amount_cents",
        order_id=TEXT,
        amount_cents=NUMBER,
        priority={**TEXT, "enum": ["low", "high"]},
    ),
    tool("track_parcel", "parcel_id", parcel_id=TEXT),
]


def call(name: str, arguments: str, id: str = "a") -> Row:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id: str, content: str = "sent") -> Row:
    return {"role": "tool", "tool_call_id": id, "content": content}


def dialog(*messages: Row, **fields: Any) -> bytes:
    """A row of a support dialog, whose messages are these or the usual four."""
    return line({"messages": [*(messages or turns(GET, result("a")))], "tools": TOOLS, **fields})


def turns(calls: Row | list[Row], *results: Row, answer: str = "It is on its way.") -> list[Row]:
    """A question, calls with their results, and an answer."""
    return [
        {"role": "user", "content": "Where is my order A9?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": calls if isinstance(calls, list) else [calls],
        },
        *results,
        {"role": "assistant", "content": answer},
    ]


def line(row: object) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def talk(*texts: str) -> list[Row]:
    roles = ("user", "assistant")
    return [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]


GET, TRACK = (
    call("get_order", '{"order_id": "A9"}'),
    call("track_parcel", '{"parcel_id": "P"}', "b"),
)
WRONG_ROLE = turns(GET, result("a"))
WRONG_ROLE[-1] = {**WRONG_ROLE[-1], "role": "asistant"}


def refund(amount: str, extra: str = "") -> list[Row]:
    arguments = f'{{"order_id": "A9", "amount_cents": {amount}{extra}}}'
    return turns(call("refund_order", arguments), result("a"))


def without(row: bytes, key: str) -> bytes:
    return line({name: value for name, value in json.loads(row).items() if name != key})


GOOD = dialog()
ORLEANS = turns(GET, result("a"), answer="Il est arrivé à Orléans.")
ROWS = [
    BrokenRow("`message` for `messages`", GOOD.replace(b'"messages"', b'"message"'), GOOD),
    BrokenRow("a role that is misspelt", dialog(*WRONG_ROLE), GOOD),
    BrokenRow(
        "arguments that are not JSON",
        dialog(*turns(call("refund_order", "order_id=A9, amount=502"), result("a"))),
        dialog(*refund("502")),
    ),
    BrokenRow(
        "a tool that the row does not offer",
        dialog(*turns(call("getOrder", '{"order_id": "A9"}'), result("a"))),
        GOOD,
    ),
    BrokenRow("no `tools`", without(GOOD, "tools"), GOOD),
    BrokenRow(
        "one of two results is missing",
        dialog(*turns([GET, TRACK], result("a"))),
        dialog(*turns([GET, TRACK], result("a"), result("b"))),
    ),
    BrokenRow("a result of nobody's call", dialog(*turns(GET, result("call_xyz"))), GOOD),
    BrokenRow("a number written as a word", dialog(*refund('"five"')), dialog(*refund("5"))),
    BrokenRow(
        "a value that the enum lacks",
        dialog(*refund("5", ', "priority": "urgent"')),
        dialog(*refund("5", ', "priority": "high"')),
    ),
    BrokenRow(
        "the dialog ends with the user",
        dialog(*talk("Where is it?")),
        dialog(*talk("Where is it?", "On its way.")),
    ),
    BrokenRow(
        "an empty answer",
        dialog(*talk("Where is it?", "")),
        dialog(*talk("Where is it?", "On its way.")),
    ),
    BrokenRow("a very long result", dialog(*turns(GET, result("a", "sent " * 2000)))),
    BrokenRow("a trailing comma", GOOD[:-2] + b",}\n"),
    BrokenRow("a Python dictionary", repr(json.loads(GOOD)).encode() + b"\n"),
    BrokenRow("a line that was cut", GOOD[:200] + b"\n", GOOD),
    BrokenRow(
        "a row of Windows-1252",
        dialog(*ORLEANS).decode().encode("windows-1252"),
        dialog(*ORLEANS),
    ),
]
FIXES = "--fix --long-rows cut"  # what the screen says of the other rows
MIXED = GOOD * 4 + b"".join(broken.row for broken in ROWS)
FIXED = GOOD * 4 + b"".join(broken.fixed or broken.row for broken in ROWS)
CSV = b'question,answer\nWhere is it?,On its way.\nAnd now?,"Still, on its way."\n'
SPREAD = json.dumps(json.loads(GOOD), indent=2).replace('"sent"\n', '"sent",\n').encode()
HAS_ROWS, DONE = {"rows.jsonl": GOOD * 4}, ["prep rows.jsonl"]


def settings(text: str) -> dict[str, bytes]:
    return {"agentlite.yaml": text.encode(), **HAS_ROWS}


MISTAKES: dict[str, list[Mistake]] = {
    "Rows": [Mistake("Rows with mistakes", "prep rows.jsonl", 4, {"rows.jsonl": MIXED})],
    "Files": [
        Mistake("A table", "prep orders.csv", 2, {"orders.csv": CSV}),
        Mistake("A ZIP archive", "prep rows.zip", 2, {"rows.zip": b"PK\x03\x04\x14\0rows"}),
        Mistake("A web page", "prep rows.jsonl", 2, {"rows.jsonl": b"<!DOCTYPE html>\n<html>\n"}),
        Mistake("UTF-16", "prep rows.jsonl", 2, {"rows.jsonl": GOOD.decode().encode("utf-16")}),
        Mistake("Broken JSON over several lines", "prep rows.json", 4, {"rows.json": SPREAD}),
        Mistake("An empty file", "prep rows.jsonl", 4, {"rows.jsonl": b""}),
        Mistake("A file that is misspelt", "prep rwos.jsonl", 2, HAS_ROWS),
    ],
    "Commands and options": [
        Mistake("A command of another tool", "train", 2),
        Mistake("A command that is misspelt", "evla", 2),
        Mistake("An option that is misspelt", "sft --learning-rat 1e-4", 2),
        Mistake("An option of another tool", "sft --per-device-train-batch-size 4", 2),
        Mistake("A word for a number", "sft --max-steps ten", 2),
        Mistake("A choice that is misspelt", "sft --lr-scheduler cosin", 2),
        Mistake("A setting that is misspelt", "sft --set sft.lorar=4", 2),
        Mistake("A file for sft", "sft rows.jsonl", 2, HAS_ROWS),
        Mistake("A model that is misspelt", "sft --model smollm2-135", 5, HAS_ROWS, DONE),
        Mistake("A folder that is not there", "sft --model ./mymodel", 5, HAS_ROWS, DONE),
        Mistake("A stage before its time", "sft", 2),
        Mistake("Another folder", "eval --run runs/weather", 2),
        Mistake("A format that is misspelt", "prep rows.jsonl --format opnai", 2, HAS_ROWS),
        Mistake("Other settings", "prep rows.jsonl --test 0.3", 3, HAS_ROWS, DONE),
        Mistake("A file for a workspace", "prep rows.jsonl --run rows.jsonl", 74, HAS_ROWS),
        Mistake("A code that is misspelt", "prep --explain E29", 2),
        Mistake("For a program", "prep nowhere.jsonl --json", 2),
    ],
    "agentlite.yaml": [
        Mistake("Wrong indentation", "sft", 2, settings("prep:\n  dev: 0.1\n   test: 0.2\n")),
        Mistake("A tab", "sft", 2, settings("prep:\n\ttest: 0.2\n")),
        Mistake("An open quote", "sft", 2, settings('prep:\n  system: "Be brief.\n  test: 0\n')),
        Mistake("An unknown key", "sft", 2, settings("prep:\n  tset: 0.2\n")),
        Mistake("An unknown command", "sft", 2, settings("perp:\n  test: 0.2\n")),
        Mistake("Settings without a command", "sft", 2, settings("test: 0.2\n")),
        Mistake("A number for a text", "prep rows.jsonl", 2, settings("prep:\n  system: 5\n")),
    ],
}
ABOUT = """# Common mistakes

What the screen shows for the commonest mistakes, and how to correct each. The page is made by
running the commands: `python scripts/mistakes_page.py` writes it anew, and a test compares it with
what the program prints.
"""
Runner = Callable[[Sequence[str], Path], tuple[int, str]]


def run(words: Sequence[str], folder: Path) -> tuple[int, str]:
    """The exit code and what the screen shows, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"}
    environment |= {"COLUMNS": "100", "CUDA_VISIBLE_DEVICES": "-1"}
    process = subprocess.run(
        [sys.executable, "-m", "agentlite", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )
    return process.returncode, process.stdout + process.stderr


def screen(mistake: Mistake, runner: Runner) -> tuple[int, str]:
    """The exit code, and what is typed and shown."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for file, content in mistake.files.items():
            (folder / file).write_bytes(content)
        for command in mistake.before:
            runner(command.split(), folder)
        code, text = runner(mistake.typed.split(), folder)
        return code, f"$ agentlite {mistake.typed}\n{text}".replace(str(folder), HOME)


def page(runner: Runner) -> str:
    """Raises AssertionError where an exit code is not the one that is named."""
    parts = [ABOUT]
    for section, mistakes in MISTAKES.items():
        parts.append(f"## {section}\n")
        if section == "Rows":
            kinds = "; ".join(f"{n}: {row.title}" for n, row in enumerate(ROWS, 5))
            parts.append(f"The rows of this file have these mistakes, by line. {kinds}.\n")
        for mistake in mistakes:
            code, text = screen(mistake, runner)
            assert code == mistake.code, f"{mistake.typed}: exit {code}\n{text}"
            parts.append(f"### {mistake.title}\n\n```text\n{text}```\n\nExit code {code}.\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(run), encoding="utf-8")
