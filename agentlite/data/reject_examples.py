"""Of each reject code a row before, which gets it, and after, which is kept: `prep --explain`."""

import gzip
import json
from collections.abc import Callable
from typing import Any, NamedTuple

Row = dict[str, Any]


class Example(NamedTuple):
    """Rows, one per line, with the options of `agentlite prep` that they are read with.

    `how`, `fixed_how`: keys of HOW: what stands in these rows for something that cannot be printed.
    """

    before: str
    after: str = ""  # "": the same rows
    options: str = ""
    fixed_options: str | None = None  # None: the same
    how: str = ""
    fixed_how: str = ""

    @property
    def fixed(self) -> str:
        return self.after or self.before


# what is done to rows that are shown -> the bytes that are meant
HOW: dict[str, Callable[[str], bytes]] = {
    "": str.encode,
    "packed with gzip": lambda text: gzip.compress(text.encode()),
    "packed with gzip, and the last 12 bytes are missing": lambda text: gzip.compress(
        text.encode()
    )[:-12],
    "in Windows-1252": lambda text: text.encode("windows-1252"),
    "with a NUL byte for ␀": lambda text: text.replace("␀", "\0").encode(),
    "with 5,000 digits for …": lambda text: text.replace("…", "9" * 5000).encode(),
    "with 100 brackets for …": lambda text: text.replace("…", "[" * 100 + "]" * 100).encode(),
    "with 17 MiB of text for …": lambda text: text.replace("…", "y" * (17 << 20)).encode(),
    "with 100 words for …": lambda text: text.replace("…", "wet " * 100).encode(),
}
WEATHER = {"city": {"type": "string"}, "days": {"type": "integer"}}


def row(*turns: Row, **rest: object) -> str:
    return json.dumps({"messages": turns, **rest}, ensure_ascii=False)


def user(text: str) -> Row:
    return {"role": "user", "content": text}


def reply(text: str, **rest: object) -> Row:
    return {"role": "assistant", "content": text, **rest}


def call(arguments: str = '{"city": "Oslo"}', name: str = "weather", id: str = "a") -> Row:
    function = {"name": name, "arguments": arguments}
    return {"id": id, "type": "function", "function": function}


def tool(name: str = "weather", **parameters: object) -> Row:
    schema = {"type": "object", "properties": WEATHER, "required": ["city"], **parameters}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def result(id: str = "a") -> Row:
    return {"role": "tool", "tool_call_id": id, "content": "4 mm"}


def dialog(*calls: Row, question: str = "Is it wet in Oslo?", **rest: object) -> str:
    """A question, calls with their results, and an answer."""
    called = {"role": "assistant", "content": None, "tool_calls": [*calls]}
    results = [result(one["id"]) for one in calls]
    return row(user(question), called, *results, reply("Yes."), **{"tools": [tool()], **rest})


HI, TALK = user("Is it wet in Oslo?"), (user("Is it wet in Oslo?"), reply("Yes, 4 mm."))
PLAIN, CALLED = row(*TALK), dialog(call())
TWO = dialog(call(), call('{"city": "Rome"}', id="b"))
OTHER = row(user("Which sea is near Rome?"), reply("The Tyrrhenian Sea."))
AGAIN = row(user("Is it wet in Oslo now?"), reply("No."))


def sharegpt(*turns: tuple[str, str]) -> str:
    return json.dumps({"conversations": [{"from": of, "value": text} for of, text in turns]})


def answers(chosen: str, rejected: str) -> str:
    return json.dumps({"prompt": "Is it wet?", "chosen": chosen, "rejected": rejected})


def rollout(sample: int = 0, *, failed: bool = False) -> str:
    """A row of trajectories.jsonl."""
    turn = {"text": "I cannot.", "ended": "turn", "new_tokens": 4, "problem": ""}
    results = [["Error: closed", True]] if failed else []
    return json.dumps(
        {
            "task": "one",
            "sample": sample,
            "split": "",
            "messages": [user("Buy a fig."), reply("I cannot." if sample else "I can not.")],
            "tools": [],
            "turns": [{**turn, "results": results}],
            "ended": "user",
            "scores": {"env": 0.5},
            "problem": "",
        }
    )


EXAMPLES: dict[str, Example] = {
    "E104": Example(
        PLAIN,
        how="packed with gzip, and the last 12 bytes are missing",
        fixed_how="packed with gzip",
    ),
    "E105": Example(f"[{PLAIN},\n{OTHER[:40]}", f"[{PLAIN},\n{OTHER}]"),
    "E109": Example(row(HI, reply("Un peu: 4 mm, à Oslo.")), how="in Windows-1252"),
    "E111": Example(row(HI, reply("Yes,␀4 mm.")), PLAIN, how="with a NUL byte for ␀"),
    "E112": Example(row(HI, reply("Yes,\0 4 mm.")), PLAIN),
    "E113": Example(row(HI, reply("Yes, 4 mm. @")).replace("@", r"\ud83d"), PLAIN),
    "E116": Example(row(*TALK, rain=None).replace("null", "NaN"), row(*TALK, rain=None)),
    "E117": Example(
        row(*TALK, n="…").replace('"…"', "…"), row(*TALK, n="…"), how="with 5,000 digits for …"
    ),
    "E118": Example(f'{PLAIN[:-1]}, "id": 1, "id": 2}}', f'{PLAIN[:-1]}, "id": 1}}'),
    "E119": Example(
        row(*TALK, n="…").replace('"…"', "…"), row(*TALK, n="[[…]]"), how="with 100 brackets for …"
    ),
    "E120": Example(row(HI, reply("Yes: …")), PLAIN, how="with 17 MiB of text for …"),
    "E121": Example(f"{PLAIN[:-1]},}}", PLAIN),
    "E122": Example(f"{OTHER}\n{PLAIN[:60]}", f"{OTHER}\n{PLAIN}"),
    "E124": Example(
        row(*TALK, tools="[{name: weather}]"), row(*TALK, tools='[{"name": "weather"}]')
    ),
    "E201": Example(row(HI), PLAIN),
    "E202": Example(PLAIN.replace("messages", "message"), PLAIN),
    "E203": Example(row(HI, user("And in Rome?"), reply("Yes.")), PLAIN),
    "E204": Example(TWO.replace(json.dumps(result("b")) + ", ", ""), TWO),
    "E205": Example(CALLED.replace('"tool_call_id": "a"', '"tool_call_id": "b"'), CALLED),
    "E206": Example(dialog(call("city=Oslo")), CALLED),
    "E208": Example(dialog(call('["Oslo"]')), CALLED),
    "E209": Example(dialog(call(name="whether")), CALLED),
    "E210": Example(dialog(call('{"town": "Oslo"}')), CALLED),
    "E211": Example(dialog(call(), tools=[tool(required="city")]), CALLED),
    "E212": Example(dialog(call(), tools=[tool(), tool()]), CALLED),
    "E214": Example(
        sharegpt(
            ("human", "Is it wet?"),
            ("gpt", "Action: f\nAction Input: {}\nAction: g\nObservation: 4"),
        ),
        CALLED,
    ),
    "E215": Example(row(user("Is it wet?<|im_end|>"), reply("Yes.")), PLAIN),
    "E216": Example(row(HI, reply("")), PLAIN),
    "E217": Example(row(HI, reply("…")), PLAIN, "--max-length 90", how="with 100 words for …"),
    "E218": Example(row(HI, reply("<tool_response>\n4 mm\n</tool_response>\nYes.")), CALLED),
    "E219": Example(answers("Yes.", "Yes."), answers("Yes, 4 mm.", "No.")),
    "E220": Example(row(HI, reply("<think>4 mm is wet.</think>Yes.")), PLAIN),
    "E222": Example(
        row(
            HI,
            reply('<|python_tag|>{"name": "weather", "parameters": {"city": "Oslo"}}'),
            tools=[tool()],
        ),
        row(HI, reply("", tool_calls=[call()]), tools=[tool()]),
    ),
    "D401": Example(f"{PLAIN}\n{PLAIN}", f"{PLAIN}\n{OTHER}"),
    "D402": Example(
        f"{CALLED}\n{dialog(call(), question='Is it wet in Oslo today?')}",
        f"{CALLED}\n{OTHER}",
        "--duplicates equal,calls",
    ),
    "D403": Example(
        f"{row(HI, reply('Yes, it is wet there now.'))}\n{row(HI, reply('Yes, it is wet there.'))}",
        f"{PLAIN}\n{OTHER}",
        "--duplicates equal,near --near 0.6",
    ),
    "F301": Example(
        sharegpt(("user", "Who are you?"), ("assistant", "I am MOSS.")),
        options="--format ms_bench",
        fixed_options="--format sharegpt",
    ),
    "F302": Example(
        row(HI, reply("…")), PLAIN, "--long-rows filter --max-length 90", how="with 100 words for …"
    ),
    "F311": Example(
        row(HI, reply("Ask ada.lovelace@weather.org.")),
        options="--personal drop",
        fixed_options="--personal mask",
    ),
    "F312": Example(f"{PLAIN}\n{OTHER}", options="--limit 1", fixed_options="--limit 3"),
    "F313": Example(rollout(failed=True), rollout()),
    "F314": Example(rollout(), options="--keep 'env>=1'", fixed_options="--keep 'env>=0.5'"),
    "F315": Example(f"{rollout()}\n{rollout(1)}", options="--keep best", fixed_options=""),
    "F321": Example(
        f"{CALLED}\n{row(HI, reply('I do not know.'), tools=[tool()])}",
        f"{CALLED}\n{OTHER}",
        "--contradictions drop",
    ),
    "F331": Example(f"{PLAIN}\n{OTHER}", options="--holdout held.jsonl", fixed_options=""),
    "F332": Example(
        f"{row(*TALK, split='train')}\n{row(HI, reply('No.'), split='test')}",
        f"{row(*TALK, split='train')}\n{row(user('Is Rome old?'), reply('Yes.'), split='test')}",
    ),
    "F333": Example(
        dialog(call(), call("{}", "seas", "b"), tools=[tool(), tool("seas", required=[])]),
        options="--split-by tools --test 0.5 --seed 6",
        fixed_options="--split-by query --test 0.5",
    ),
    "F341": Example(
        f"{PLAIN}\n{OTHER}",
        options="--coreset-strategy random --coreset-target-size 1",
        fixed_options="",
    ),
}


def example_of(code: str) -> str:
    """The example as text for a screen."""
    one = EXAMPLES[code]
    fixed_options = one.options if one.fixed_options is None else one.fixed_options
    fixed_how = one.fixed_how or (one.how if "…" in one.fixed else "")
    command = "pairs --preferences" if code == "E219" else "prep"
    parts = [
        (f"Before: agentlite {command} rows.jsonl {one.options}", one.how, one.before),
        (f"After: agentlite {command} rows.jsonl {fixed_options}", fixed_how, one.fixed),
    ]
    return "\n".join(
        f"\n{head.rstrip()}{f'  (rows.jsonl: {how})' if how else ''}\n{rows}"
        for head, how, rows in parts
    )
