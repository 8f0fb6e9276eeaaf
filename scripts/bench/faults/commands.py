"""prep, eval and pairs without a model -> each killed or failed at a file call; what a second run
leaves, compared.
"""

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import injection

KINDS = ("kill", "ENOSPC", "EIO")
TIMED = ("done.json", "manifest.json", "metrics.json")
Take = Callable[[list[Any], str], list[Any]]  # what there is -> what is tried of it
LOCAL = {".lock", ".holder", ".holder.new", "pace.jsonl"}  # not part of a result
DISK = 74
SECONDS = re.compile(rb"seconds: [0-9]+|[0-9]+ s</span>")
CITIES = (
    "Oslo",
    "Paris",
    "Rome",
    "Lyon",
    "Graz",
    "Bonn",
    "Bern",
    "Turin",
    "Kyiv",
    "Riga",
    "Cork",
    "Gent",
)
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@dataclass
class Tally:
    """What was injected into a command, of one kind, and what came of it. All but the first should
    be 0.

    `unclear`: ended otherwise than killed, done, or with exit 74; `told`: what was seen where
    something is not 0.
    """

    command: str
    kind: str
    injected: int = 0
    lost: int = 0
    doubled: int = 0
    unresumable: int = 0
    silent: int = 0
    unclear: int = 0
    told: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if len(self.told) < 20:
            self.told.append(text)


class Subject(NamedTuple):
    """A command line, and the workspace it starts from. `run` is where it is run; `base` is copied
    there each time.
    """

    name: str
    arguments: list[str]
    base: Path
    run: Path

    # answers that are asked for together, so that all are asked for again where one is missing
    batch: int = 1

    def job(self) -> None:
        """The command line, in this process."""
        from agentlite.cli.main import main

        answers = canned(self.run.parent / "asked")
        with answers, patch.object(sys, "argv", ["agentlite", *self.arguments]):
            main()


def sweep(subject: Subject, take: Take) -> Iterator[Tally]:
    """A fault at each file call that `take` chooses, of every kind."""
    expected, asked = undisturbed(subject)
    fresh(subject)
    found = injection.points(subject.job, subject.run)
    for kind in KINDS:
        tally = Tally(subject.name, kind)
        for point in take(
            [point for point in found if point.takes(kind)], f"{subject.name} {kind}"
        ):
            fresh(subject)
            end = injection.run(subject.job, subject.run, kind, point)
            if end.came:
                _judge(subject, tally, point, end, expected, asked)
        yield tally


def undisturbed(subject: Subject) -> tuple[dict[str, bytes], int]:
    """What it leaves, and how many answers it asks for; twice, which must be the same."""
    states = []
    for _ in range(2):
        fresh(subject)
        end = injection.forked(subject.job)
        if end.code:
            raise RuntimeError(f"{subject.name}: {end.told}")
        states.append((state(subject.run), _asked(subject)))
    if states[0] != states[1]:
        raise RuntimeError(
            f"{subject.name} is not the same twice: {differing(*(one for one, _ in states))}"
        )
    return states[0]


def _judge(
    subject: Subject,
    tally: Tally,
    point: injection.Point,
    end: injection.End,
    expected: dict[str, bytes],
    asked: int,
) -> None:
    tally.injected += 1
    where = f"{point.call} {point.number} ({point.told})"
    if tally.kind != "kill" and end.code not in (0, DISK):
        tally.unclear += 1
        tally.note(f"{where}: exit {end.code}: {end.told[-600:]}")
    there = answers_there(subject.run)
    _asked(subject)
    again = injection.forked(subject.job)
    if again.code:
        tally.unresumable += 1
        tally.note(f"{where}: then exit {again.code}: {again.told[-600:]}")
        return
    compare(tally, where, expected, state(subject.run))
    if (more := _asked(subject) - (asked - there)) >= subject.batch:
        tally.lost += more
        tally.note(f"{where}: {more} answers that were there were asked for again")


def compare(tally: Tally, where: str, expected: dict[str, bytes], found: dict[str, bytes]) -> None:
    """Counts rows that are missing or too many, and files that are otherwise than they should
    be.
    """
    for name in differing(expected, found):
        before, after = (Counter(one.get(name, b"").splitlines()) for one in (expected, found))
        lost, doubled = (before - after).total(), (after - before).total()
        rows = name.endswith(".jsonl") and name in found
        if rows and lost + doubled:
            tally.lost += lost
            tally.doubled += doubled
        else:
            tally.silent += 1
        tally.note(
            f"{where}: {name} "
            f"{'missing' if name not in found else 'differs' if name in expected else 'extra'}"
        )


def differing(expected: dict[str, bytes], found: dict[str, bytes]) -> list[str]:
    return [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]


def state(run: Path) -> dict[str, bytes]:
    """Every file under a workspace; times of day, and how long something took, left out."""
    paths = (path for path in sorted(run.rglob("*")) if path.is_file() and path.name not in LOCAL)
    return {
        path.relative_to(run).as_posix(): _timeless(path.name, path.read_bytes()) for path in paths
    }


def _timeless(name: str, content: bytes) -> bytes:
    if name.startswith("report."):
        return SECONDS.sub(b"", content)
    if name not in TIMED or is_broken(content):
        return content
    told = {
        key: value
        for key, value in json.loads(content).items()
        if key not in ("seconds", "latency_ms")
    }
    for files in ("files", "outputs"):
        if isinstance(told.get(files), dict):
            told[files] = {key: value for key, value in told[files].items() if key not in TIMED}
    if isinstance(told.get("figures"), dict):
        told["figures"].pop("latency_ms", None)
    return json.dumps(told).encode()


def is_broken(content: bytes) -> bool:
    try:
        return not isinstance(json.loads(content), dict)
    except ValueError:
        return True


def fresh(subject: Subject) -> None:
    """The workspace as it was before the command."""
    shutil.rmtree(subject.run, ignore_errors=True)
    shutil.copytree(subject.base, subject.run)
    _asked(subject)


# --- what a model would say ---


@contextmanager
def canned(asked: Path) -> Iterator[None]:
    """In here nothing is loaded, and what is said to a prompt depends on it alone; every answer is
    a line there.
    """
    from agentlite.engine import load, local_sampler, sampler

    def text(ids: Sequence[int], number: int) -> str:
        city = CITIES[(sum(ids) + number) % len(CITIES)]
        call = json.dumps({"name": "get_weather", "arguments": {"city": city}})
        return (
            f"It rains in {city}."
            if (len(ids) + number) % 3 == 0
            else f"<tool_call>\n{call}\n</tool_call>"
        )

    def told(count: int) -> None:
        with open(asked, "a", encoding="utf-8") as file:
            file.write("asked\n" * count)

    def generate(
        loaded: Any, prompts: Sequence[Sequence[int]], decoding: Any, *, batch_size: int
    ) -> Iterator[list[Any]]:
        for start in range(0, len(prompts), batch_size):
            batch = range(start, min(start + batch_size, len(prompts)))
            told(len(batch))
            yield [
                local_sampler.Sample(index, 0, [0] * 7, text(prompts[index], 0), "turn")
                for index in batch
            ]

    def sample(loaded: Any, prompts: Sequence[Any], decoding: Any) -> Iterator[Any]:
        for index, one in enumerate(prompts):
            told(len(one.seeds))
            yield from (
                local_sampler.Sample(index, n, [1, 2, 3], text(one.prompt, n), "turn")
                for n in range(len(one.seeds))
            )

    with (
        patch.object(sampler, "load_for_inference", lambda *_: None),
        patch.object(load, "load_for_inference", lambda *_: None),
        patch.object(local_sampler, "generate", generate),
        patch.object(local_sampler, "sample", sample),
    ):
        yield


def _asked(subject: Subject) -> int:
    """How many answers were asked for since this was last called."""
    path = subject.run.parent / "asked"
    count = path.read_bytes().count(b"\n") if path.exists() else 0
    path.unlink(missing_ok=True)
    return count


def answers_there(run: Path) -> int:
    """Whole rows of answers on disk: each was paid for."""
    paths = [*run.glob("**/answers.jsonl"), *run.glob("**/candidates.jsonl")]
    return sum(
        b'"(gold)"' not in line
        for path in paths
        for line in path.read_bytes().splitlines(True)
        if line.endswith(b"\n")
    )


# --- the workspaces ---


def row(city: str, calls: bool, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"role": "assistant", "content": f"Good morning, {name}!"}
    if calls:
        function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
        answer = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        }
    asked = f"Is it wet in {city}? I am {name}." if calls else f"Good morning from {name} in {city}"
    return {"messages": [{"role": "user", "content": asked}, answer], "tools": [TOOL]}


def write_rows(path: Path, count: int, *, first: int = 0, broken: int = 0) -> None:
    names = [
        f"{one}{other}"
        for other in ("a", "ta", "li", "dor", "mund", "wyn", "ric", "vin", "os")
        for one in ("An", "Ber", "Car", "Dan", "El")
    ]
    rows = [
        json.dumps(row(CITIES[n % 12], n % 3 != 2, names[n])) for n in range(first, first + count)
    ]
    rows += rows[:2] if broken else []  # copies
    rows += ['{"messages": [{"role": "tool"'] * broken
    path.write_text("".join(one + "\n" for one in rows), encoding="utf-8")


@cache
def subjects(work: Path) -> list[Subject]:
    """prep with all that it writes; eval of 30 steps; pairs of 12 prompts."""
    work.mkdir()
    write_rows(work / "rows.jsonl", 30, broken=2)
    write_rows(work / "more.jsonl", 12, first=30)
    run, empty, prepared = work / "run", work / "empty", work / "prepared"
    empty.mkdir()
    rows, base = (
        str(work / "rows.jsonl"),
        ["--run", str(run), "--model", "smollm2-135m", "--protocol", "hermes"],
    )
    prep = ["prep", rows, *base, "--max-rejects", "0.5", "--set", "prep.workers=1"]
    replay = ["--replay", str(run / "buffer"), "--set", "prep.continual_buffer_size=9"]
    made = Subject("prep", [*prep, "--test", "0.9", "--dev", "0.0"], empty, run)
    fresh(made)
    _do(made)
    shutil.copytree(run, prepared)
    asking = [
        "--run",
        str(run),
        "--model",
        "smollm2-135m",
        "--batch-size",
        "4",
        "--max-new-tokens",
        "8",
    ]
    learned = Subject("prep --replay", [*prep, *replay], work / "learned", run)
    fresh(made)
    _do(
        made._replace(
            arguments=["prep", str(work / "more.jsonl"), *base, *replay, "--out", "first"]
        )
    )
    shutil.copytree(run, work / "learned")
    found = [
        Subject(
            "prep",
            [*prep, "--dev", "0.2", "--test", "0.2", "--set", "prep.distractors=2"],
            empty,
            run,
        ),
        learned,
        Subject("prep --force", [*prep, "--dev", "0.2", "--test", "0.2", "--force"], prepared, run),
        Subject("eval", ["eval", *asking], prepared, run),
        Subject(
            "pairs",
            ["pairs", *asking, "-n", "3", "--split", "test", "--limit", "12", "--margin", "0"],
            prepared,
            run,
            batch=12,
        ),
    ]
    for subject in found:
        fresh(subject)
        _do(subject)
    return found


def _do(subject: Subject) -> None:
    """In this process: what it imports and remembers, its children have."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        subject.job()
