"""Our BFCL rules beside the checker of bfcl-eval itself: the same verdicts? And how many a second?

    python -m venv BFCL && BFCL/bin/pip install --no-deps bfcl-eval==2026.3.23
    BFCL/bin/pip install tenacity python-dotenv filelock
    .venv/bin/python scripts/bench/bfcl.py BFCL/bin/python [--cases 25000] [--seed 0]

Every accepted value of every row's gold is tried (gold), then calls with one to three mutations of
them. Both sides read the questions from the package's data, the other one in a process of its own.
There the table of models, which imports the client of every vendor, is replaced by one entry: it
only says whether a model has underscores for the dots of names. `raises`: the package's checker
ends with an exception; for ours the calls are wrong. What differs is in docs/eval.md. Seconds are
of the processor, on one core.
"""

import argparse
import ast
import json
import random
import subprocess
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import make_parser

Arguments = dict[str, Any]
Calls = list[tuple[str, Arguments]]
SHOWN = 5


# --- the cases: {"category", "row", "kind", "calls"} ---


def choices(accepted: dict[str, list[Any]]) -> Iterator[Arguments]:
    """The first accepted values; then with what may be left out; then each other accepted value,
    one at a time.
    """
    first = {
        name: value(next((v for v in values if v != ""), "")) for name, values in accepted.items()
    }
    least = {name: v for name, v in first.items() if "" not in accepted[name]}
    yield least
    yield first
    for name, values in accepted.items():
        yield from ({**least, name: value(other)} for other in values[1:] if other != "")


def value(accepted: Any) -> Any:
    """What an accepted value accepts: an object's values stand in lists of accepted ones."""
    if isinstance(accepted, dict):
        pairs = {
            key: inner if isinstance(inner, list) else [inner] for key, inner in accepted.items()
        }
        return {
            key: value(next((v for v in inner if v != ""), ""))
            for key, inner in pairs.items()
            if "" not in inner
        }
    return [value(inner) for inner in accepted] if isinstance(accepted, list) else accepted


def mutate(value: Any, draw: random.Random) -> Any:
    """Another value: of another type, spelled otherwise, or changed somewhere inside."""
    if isinstance(value, list | dict) and value and draw.random() < 0.5:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = draw.choice(list(keys))
        copy = value.copy()
        copy[key] = mutate(value[key], draw)
        return copy
    return draw.choice(MUTATIONS[type(value)] + MUTATIONS[object])(value, draw)


def _cut(text: str, draw: random.Random) -> str:
    index = draw.randrange(len(text) + 1)
    return text[:index] + text[index + 1 :]


def _put(text: str, draw: random.Random) -> str:
    index = draw.randrange(len(text) + 1)
    return text[:index] + draw.choice(" ,./-_*^'\"é\nLf0") + text[index:]


def _without(pairs: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    dropped_key = draw.choice([*pairs, ""])
    return {key: value for key, value in pairs.items() if key != dropped_key}


MUTATIONS: dict[type, list[Any]] = {
    object: [
        lambda v, d: None,
        lambda v, d: [v],
        lambda v, d: str(v),
        lambda v, d: {"value": v},
        lambda v, d: v,
    ],
    bool: [
        lambda v, d: not v,
        lambda v, d: int(v),
        lambda v, d: str(v).lower(),
        lambda v, d: float(v),
    ],
    int: [
        lambda v, d: float(v),
        lambda v, d: v + 1,
        lambda v, d: -v,
        lambda v, d: bool(v),
        lambda v, d: f"{v}L",
    ],
    float: [lambda v, d: int(v), lambda v, d: v + 0.5, lambda v, d: f"{v}f", lambda v, d: round(v)],
    str: [
        lambda v, d: v.upper(),
        lambda v, d: v.lower(),
        lambda v, d: f" {v}.",
        _cut,
        _put,
        lambda v, d: "",
        lambda v, d: f'"{v}"',
        lambda v, d: v.strip("\"'"),
        lambda v, d: v.replace(" ", ""),
        lambda v, d: v.title(),
        lambda v, d: v.replace("'", '"'),
        lambda v, d: literal(v),
    ],
    list: [
        lambda v, d: v[::-1],
        lambda v, d: v[1:],
        lambda v, d: v + v[:1],
        lambda v, d: [*v, None],
        lambda v, d: [],
        lambda v, d: d.sample(v, len(v)),
        lambda v, d: [str(e) for e in v],
        lambda v, d: tuple(v),
        lambda v, d: [mutate(e, d) for e in v],
    ],
    dict: [
        _without,
        lambda v, d: {**v, "extra": 1},
        lambda v, d: {},
        lambda v, d: dict(reversed(v.items())),
        lambda v, d: {key.upper(): e for key, e in v.items()},
        lambda v, d: [v],
    ],
    tuple: [lambda v, d: list(v)],
    type(None): [],
}


def literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def vary_calls(calls: Calls, tools: list[dict[str, Any]], draw: random.Random) -> tuple[str, Calls]:
    """The kind of change, and the calls with it."""
    kind = draw.choice(
        [
            *["value"] * 8,
            *("drop", "extra", "rename", "swap values", "name", "order", "fewer", "more", "none"),
        ]
    )
    calls = [(name, dict(arguments)) for name, arguments in calls]
    index = draw.randrange(len(calls)) if calls else 0
    if not calls or kind == "none":
        return "none", []
    name, arguments = calls[index]
    names = [tool["name"] for tool in tools]
    if kind == "order":
        draw.shuffle(calls)
    elif kind == "fewer":
        del calls[index]
    elif kind == "more":
        calls.insert(draw.randrange(len(calls) + 1), (draw.choice([name, *names]), arguments))
    elif kind == "name":
        calls[index] = (
            draw.choice([*names, name.upper(), name.replace(".", "_"), f"{name}s", ""]),
            arguments,
        )
    elif kind == "extra":
        keys = [key for tool in tools for key in tool["parameters"]["properties"]]
        arguments[draw.choice([*keys, "extra"])] = draw.choice([1, "x", None, True, [], 0.5])
    elif arguments:
        key, other = draw.choice(list(arguments)), draw.choice(list(arguments))
        if kind == "drop":
            del arguments[key]
        elif kind == "rename":
            arguments[draw.choice([key.upper(), f"{key}_", key[:-1]])] = arguments.pop(key)
        elif kind == "swap values":
            arguments[key], arguments[other] = arguments[other], arguments[key]
        else:
            arguments[key] = mutate(arguments[key], draw)
    return kind, calls


def cases(count: int, seed: int) -> Iterator[dict[str, Any]]:
    from agentlite.data.formats import bfcl

    draw = random.Random(seed)
    pool = []
    for category in bfcl.CATEGORIES:
        if category in bfcl.LANGUAGES:  # literals of these are compared as texts
            continue
        for number, row in enumerate(bfcl.rows(bfcl.files(category))):
            for gold in gold_calls(row):
                yield {"category": category, "row": number, "kind": "gold", "calls": gold}
                pool.append((category, number, row["function"], gold))
    by_category: dict[str, list[Any]] = {}
    for entry in pool:
        by_category.setdefault(entry[0], []).append(entry)
    for _ in range(count):
        category, number, tools, gold = draw.choice(by_category[draw.choice(list(by_category))])
        kinds, calls = [], gold
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            kind, calls = vary_calls(calls, tools, draw)
            kinds.append(kind)
        case = {"category": category, "row": number}
        yield {**case, "kind": kinds[0] if len(kinds) == 1 else "several", "calls": calls}


def gold_calls(row: dict[str, Any]) -> Iterator[Calls]:
    """Calls made of accepted values; where none are named, a call of each tool, and none."""
    if "ground_truth" not in row:
        yield from ([(tool["name"], {})] for tool in row["function"])
        yield []
        return
    expected = [next(iter(answer.items())) for answer in row["ground_truth"]]
    options = [list(choices(accepted)) for _, accepted in expected]
    for index in range(max(map(len, options))):
        calls = [
            (name, option[min(index, len(option) - 1)])
            for (name, _), option in zip(expected, options, strict=True)
        ]
        yield calls


# --- the two sides: "" right, or what is wrong ---


def ours(cases: list[dict[str, Any]]) -> tuple[list[str], float]:
    """The verdicts, and how many of them a second of the processor."""
    from agentlite.core.records import Call, Gold, GoldCall
    from agentlite.data.formats import bfcl
    from agentlite.scoring.metrics.bfcl import is_right

    gold_and_tools = {}
    for category in bfcl.CATEGORIES:
        for number, row in enumerate(bfcl.rows(bfcl.files(category))):
            expected = (next(iter(answer.items())) for answer in row.get("ground_truth", ()))
            gold_and_tools[category, number] = (
                Gold(tuple(GoldCall(*call) for call in expected)),
                bfcl.tools_of(row),
            )
    calls_by_case = [tuple(Call(*call) for call in case["calls"]) for case in cases]
    began = time.process_time()
    verdicts = []
    for case, calls in zip(cases, calls_by_case, strict=True):
        category = case["category"]
        is_correct = is_right(category, calls, *gold_and_tools[category, case["row"]])
        verdicts.append("" if is_correct else "wrong")
    return verdicts, len(verdicts) / (time.process_time() - began)


def read_rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def theirs(path: Path) -> Iterator[str]:
    """The verdicts of bfcl-eval. Runs in its environment, and imports nothing of ours."""
    stand_in = types.ModuleType("bfcl_eval.constants.model_config")
    stand_in.MODEL_CONFIG_MAPPING = {"any": types.SimpleNamespace(underscore_to_dot=False)}  # type: ignore[attr-defined]
    sys.modules[stand_in.__name__] = stand_in
    import bfcl_eval
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    from bfcl_eval.utils import is_empty_output, is_function_calling_format_output

    data = Path(bfcl_eval.__file__).parent / "data"
    rows: dict[str, list[Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        case = ast.literal_eval(line)
        category = case["category"]
        if category not in rows:
            name = f"BFCL_v4_{category}.json"
            questions, answers = read_rows(data / name), data / "possible_answer" / name
            gold = read_rows(answers) if answers.exists() else []
            rows[category] = [
                (row, gold[i]["ground_truth"] if gold else None) for i, row in enumerate(questions)
            ]
        row, gold = rows[category][case["row"]]
        calls = [{name: arguments} for name, arguments in case["calls"]]
        if gold is None:
            is_right = is_empty_output(calls) == ("irrelevance" in category)
            yield "" if is_right else "calls or not"
        elif not is_function_calling_format_output(calls):
            yield "wrong format"
        else:
            try:
                result = ast_checker(row["function"], calls, gold, Language.PYTHON, category, "any")
                yield "" if result["valid"] else str(result["error_type"])
            except Exception as error:
                yield f"raises {type(error).__name__}"


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "python", help="of the environment that has bfcl-eval and what its checker needs"
    )
    parser.add_argument("--cases", type=int, default=25_000, help="mutated ones, beside all gold")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge:
        for verdict in theirs(Path(options.python)):
            print("\0" + json.dumps(verdict))
        return
    tried_cases = list(cases(options.cases, options.seed))
    our_verdicts, speed = ours(tried_cases)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.txt"
        path.write_text("".join(f"{case!r}\n" for case in tried_cases), encoding="utf-8")
        process = subprocess.run(
            [options.python, __file__, str(path), "--judge"],
            stdout=subprocess.PIPE,
            cwd=folder,
            check=True,
        )
    lines = process.stdout.decode("utf-8").split("\0")[1:]
    their_verdicts = [json.loads(line.splitlines()[0]) for line in lines]
    figures = compare(tried_cases, our_verdicts, their_verdicts)
    print(json.dumps({**figures, "checks_a_second": round(speed)}, indent=1))


def compare(
    cases: list[dict[str, Any]], our_verdicts: list[str], their_verdicts: list[str]
) -> dict[str, Any]:
    table: dict[str, Counter[str]] = {}
    printed = 0
    for case, our, their in zip(cases, our_verdicts, their_verdicts, strict=True):
        equal = (our == "") == (their == "")
        for name in (case["category"], case["kind"], "all"):
            counts = table.setdefault(name, Counter())
            counts += Counter(
                {
                    "cases": 1,
                    "agree": equal,
                    "right": their == "",
                    "raises": their.startswith("raises"),
                }
            )
        if not equal and (printed := printed + 1) <= SHOWN:
            print(f"{case}\n  ours: {our!r}  theirs: {their!r}", file=sys.stderr)
    return {"by": table}


if __name__ == "__main__":
    main()
