"""pairs, grpo and chat with functions of a user's that hang, die, fork, print, take memory or lie:
each candidate or call has an answer or a reason, and nothing is left of what they started.
"""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import injection
from commands import Subject, Take, Tally, fresh, subjects

sys.path.append(str(Path(__file__).parents[3] / "tests"))

from support.hostile_code import AS_RESULTS, EXPECTED, HOSTILE, LATE, SECONDS
from support.processes import is_running, waits_until

Rows = dict[tuple[object, ...], dict[str, Any]]  # by candidate
PATIENT = 120.0  # seconds for what does not hang, on a busy machine
MEMORY = 0.5  # GiB
FAILED = 4  # the exit code where a reward fails for too many
# A reward that is hostile for one text in two, so that each hostile answer has others behind it.
# What gives a value does so once a process: twenty threads are within the limits, forty are not.
MIXED = """
done = []
def is_hostile(attempt): return sum(map(ord, attempt.text)) % 2 == 0
def once(): return {has_value} and (done or done.append(1))
def mixed(attempt): return {name}() if is_hostile(attempt) and not once() else 0.5
def fixed(attempt): return 0.5
"""


def hostile_children(work: Path, take: Take, only: list[str] | None) -> Iterator[Tally]:
    """Every hostile function as a reward of `pairs`, and as a tool of `chat --exec`."""
    base = next(one for one in subjects(work) if one.arguments[0] == "pairs")
    for name, judge in (("pairs", _reward), ("chat", _tool)):
        if not only or name in only:
            tally = Tally(name, "children")
            for function in take([*EXPECTED], f"{name} children"):
                tally.injected += 1
                judge(base, function, tally)
                _nothing_left(base, function, tally)
            yield tally


def hostile_training(grpo: Subject, take: Take) -> Iterator[Tally]:
    """Some hostile functions as a reward of a tiny model that is trained; then a good one."""
    tally = Tally("grpo", "children")
    for function in take([*EXPECTED], "grpo children"):
        tally.injected += 1
        file, limits = _mixed(grpo, function)
        rewards = grpo.arguments.index("--rewards")
        others = [*grpo.arguments[:rewards], *grpo.arguments[rewards + 2 :]]
        hostile = ["--rewards", f"{file}:mixed", *limits, "--set", "grpo.max_failures=1"]
        fresh(grpo)
        end = injection.forked(grpo._replace(arguments=[*others, *hostile]).job)
        if end.code:
            tally.unclear += 1
            tally.note(f"{function}: exit {end.code}: {end.told[-600:]}")
        found = _rows(grpo, "grpo", "rollouts")
        tally.lost += not found
        _judge_scores(function, found, found, tally)
        good = ["--rewards", f"{file}:fixed", "--out", "again"]
        end = injection.forked(grpo._replace(arguments=[*others, *good]).job)
        if end.code or any(map(_unlike_half, _rows(grpo, "again", "rollouts").values())):
            tally.unresumable += 1
            tally.note(f"{function}: then exit {end.code}: {end.told[-600:]}")
        _nothing_left(grpo, function, tally)
    yield tally


def _mixed(base: Subject, function: str) -> tuple[Path, list[str]]:
    """The file of a reward that is hostile at times, and options with its limits."""
    has_value = str(isinstance(EXPECTED[function], float))
    mixed = MIXED.replace("{name}", function).replace("{has_value}", has_value)
    seconds = SECONDS if EXPECTED[function] == LATE else PATIENT
    limits = ["--reward-seconds", f"{seconds}", "--reward-memory", f"{MEMORY}"]
    return _written(base, HOSTILE + mixed), limits


def _reward(base: Subject, function: str, tally: Tally) -> None:
    file, limits = _mixed(base, function)
    small = ["--limit", "3", "-n", "2", "--rewards", f"{file}:mixed", *limits]
    fresh(base)
    end = injection.forked(base._replace(arguments=[*base.arguments, *small]).job)
    if end.code not in (0, FAILED):
        tally.unclear += 1
        tally.note(f"{function}: exit {end.code}: {end.told[-600:]}")
    candidates = _rows(base, "pairs", "candidates")
    tally.lost += 6 - len(candidates)
    _judge_scores(function, candidates, _rows(base, "pairs", "scores"), tally)
    again = ["pairs", "--run", str(base.run), "--from", "pairs", "--rewards", f"{file}:fixed"]
    end = injection.forked(base._replace(arguments=[*again, "--out", "again"]).job)
    found = _rows(base, "again", "scores")
    if end.code or len(found) != 6 or any(map(_unlike_half, found.values())):
        tally.unresumable += 1
        tally.note(f"{function}: then exit {end.code}, {len(found)} scores: {end.told[-600:]}")


def _judge_scores(function: str, candidates: Rows, scores: Rows, tally: Tally) -> None:
    for key, row in scores.items():
        is_hostile = sum(map(ord, candidates[key]["text"])) % 2 == 0
        if problem := _misfit(function, row) if is_hostile else _unlike_half(row):
            tally.silent += 1
            tally.note(f"{function}: {problem}")


def _misfit(function: str, row: dict[str, Any]) -> str:
    """What is wrong with the score of a candidate that such a function looked at."""
    expected, value = EXPECTED[function], row["components"].get("mixed")
    if isinstance(expected, float):
        return "" if value == expected else f"{value} in place of {expected}: {row['error']}"
    # what is not a number from 0 to 1 is a reason of its own
    is_told = expected in row["error"] or "not a number from 0 to 1" in row["error"]
    return "" if is_told and value is None else f"{value}, {row['error']!r}: not {expected!r}"


def _unlike_half(row: dict[str, Any]) -> str:
    values = [value for name, value in row["components"].items() if name in ("mixed", "fixed")]
    return "" if values == [0.5] and not row["error"] else f"{values}, {row['error']!r}: not 0.5"


def _tool(base: Subject, function: str, tally: Tally) -> None:
    """A dialog of two turns: the model calls the hostile tool, and then a good one."""
    file = _written(base, HOSTILE)
    names = sorted({function, "fine"})
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    file.with_name("tools.json").write_text(json.dumps(tools), encoding="utf-8")
    seconds = SECONDS if EXPECTED[function] == LATE else PATIENT
    given = ["--tools", str(file.with_name("tools.json")), "--exec", str(file), "--json"]
    limits = ["--seconds", f"{seconds}", "--memory", f"{MEMORY}", "--protocol", "hermes"]
    command = ["chat", "smollm2-135m", "--run", str(base.run), *given, *limits]
    chat = base._replace(arguments=command, stubbed=False)
    end = injection.forked(_talking(chat.job, function))
    said = [line for line in end.told.splitlines() if line.startswith('{"model": ')]
    if end.code or len(said) != 1:
        tally.unclear += 1
        tally.note(f"{function}: exit {end.code}: {end.told[-600:]}")
        return
    results = [one["content"] for one in json.loads(said[0])["messages"] if one["role"] == "tool"]
    tally.lost += 2 - len(results)
    expected = AS_RESULTS.get(function, str(EXPECTED[function]))
    wanted = json.dumps(expected, ensure_ascii=False)[1:-1]
    if expected not in results[0] and wanted not in results[0]:
        tally.silent += 1
        tally.note(f"{function}: {results[0][:300]!r}: not {expected!r}")
    if results[1:] != ["0.5"]:
        tally.unresumable += 1
        tally.note(f"{function}: then {results[1:]}")


def _talking(job: Callable[[], None], function: str) -> Callable[[], None]:
    """The command with two lines on stdin, and with a model that calls a tool at each."""

    def talk() -> None:
        from agentlite.core.records import Call, Parsed
        from agentlite.data.openai_messages import Turn
        from agentlite.deploy.chat_model import ChatModel

        names = [function, "", "fine", ""]

        def answer(*_: object, **__: object) -> Turn:
            name = names.pop(0)
            calls = (Call(name, {}, ""),) if name else ()
            return Turn("It is.", "turn", Parsed("" if name else "It is.", calls), 9, 9)

        with (
            patch.object(ChatModel, "load", lambda _: None),
            patch.object(ChatModel, "answer", answer),
            patch.object(sys, "stdin", io.StringIO("Is it?\nAnd now?\n")),
        ):
            job()

    return talk


def _nothing_left(base: Subject, function: str, tally: Tally) -> None:
    """What was started ends with the command; where the guard itself was killed, the system ends
    it.
    """
    file = base.run.parent / "pids"
    started = [int(line) for line in file.read_text().split()] if file.exists() else []
    file.unlink(missing_ok=True)
    if not waits_until(lambda: not any(map(is_running, started))):
        tally.silent += 1
        tally.note(f"{function}: {len([*filter(is_running, started)])} processes are left")


def _written(base: Subject, text: str) -> Path:
    file = base.run.parent / "hostile.py"
    file.write_text(text, encoding="utf-8")
    return file


def _rows(base: Subject, stage: str, name: str) -> Rows:
    """The rows of a stage by candidate, without those that are the gold."""
    path = base.run / stage / f"{name}.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if b'"(gold)"' not in line]
    return {_key(row): row for row in rows}


def _key(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple(row[name] for name in ("record_id", "turn", "protocol", "model", "sample"))
