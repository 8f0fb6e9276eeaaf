"""eval and pairs by a server that fails in every way it can; then by one that answers, compared."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import injection
from commands import Subject, Take, Tally, fresh, subjects

sys.path.append(str(Path(__file__).parents[3] / "tests"))

from support.faulty_server import KINDS, FaultyServer

OPEN = 8
ROWS = {"eval": "eval/prep/*/answers.jsonl", "pairs": "pairs/candidates.jsonl"}
NAMES = ("record_id", "turn", "model", "sample")


def faulty_endpoints(work: Path, take: Take, only: list[str] | None) -> Iterator[Tally]:
    """Each kind of server, a subject at a time. The second command must end with 0, and ask only
    for what has no row yet."""
    base = next(one for one in subjects(work) if one.arguments[0] == "eval")
    server = FaultyServer()
    kinds = [kind for kind in KINDS if not KINDS[kind].url]  # the address is part of the plan
    try:
        for name in only or ROWS:
            if name in ROWS:
                tally = Tally(name, "endpoint")
                expected = _rows(_asking(base, name, server, 20.0), name, server, "it answers")[1]
                for kind in take(kinds, f"{name} endpoint"):
                    _judge(base, name, server, kind, tally, expected)
                yield tally
    finally:
        server.close()


def _judge(
    base: Subject,
    name: str,
    server: FaultyServer,
    kind: str,
    tally: Tally,
    expected: Counter[bytes],
) -> None:
    asking = _asking(base, name, server, KINDS[kind].seconds)
    end, kept = _rows(asking, name, server, kind)
    tally.injected += 1
    if end.code not in (0, OPEN) or (end.code == 0) != (KINDS[kind].outcome == "answered"):
        tally.unclear += 1
        tally.note(f"{kind}: exit {end.code}: {end.told[-600:]}")
    server.forget()
    end, found = _rows(_asking(base, name, server, 20.0), name, server, "it answers", again=True)
    if end.code:
        tally.unresumable += 1
        tally.note(f"{kind}: then exit {end.code}: {end.told[-600:]}")
        return
    wanted, there = (Counter(map(_named, rows.elements())) for rows in (expected, found))
    tally.lost += (wanted - there).total()
    tally.doubled += (there - wanted).total()
    if wanted != there:
        tally.note(f"{kind}: other rows than by a server that answers")
    if (more := server.asked.total() - (expected.total() - kept.total())) > 0:
        tally.lost += more
        tally.note(f"{kind}: {more} answers that were there were asked for again")
    if kept - found or (KINDS[kind].outcome != "answered" and found != expected):
        tally.silent += 1
        tally.note(f"{kind}: rows have changed")


def _asking(base: Subject, name: str, server: FaultyServer, seconds: float) -> Subject:
    sizes = ["-n", "2", "--limit", "2", "--margin", "0"] if name == "pairs" else ["--limit", "4"]
    asked = ["--endpoint", server.url, "--model", "theirs", "--endpoint-seconds", str(seconds)]
    split = ["--split", "test", "--endpoint-tries", "2", "--max-new-tokens", "8"]
    arguments = [name, "--run", str(base.run), *asked, *split, *sizes]
    return base._replace(name=name, arguments=arguments, stubbed=False)


def _rows(
    subject: Subject, name: str, server: FaultyServer, kind: str, *, again: bool = False
) -> tuple[injection.End, Counter[bytes]]:
    """Runs the command with such a server: how it ended, and the rows that it left."""
    from agentlite.core import openai_client

    def job() -> None:
        with patch.object(openai_client, "_pause", lambda endpoint, trial: 0.01):
            subject.job()

    if not again:
        fresh(subject)
        server.forget()
    server.kind = kind
    end = injection.forked(job)
    paths = subject.run.glob(ROWS[name])
    lines = (line for path in paths for line in path.read_bytes().splitlines())
    return end, Counter(line for line in lines if b'"(gold)"' not in line)


def _named(line: bytes) -> tuple[object, ...]:
    row = json.loads(line)
    return tuple(row.get(name) for name in NAMES)
