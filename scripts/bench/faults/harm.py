"""What was written -> the same, harmed: bits flipped, cut, emptied, gone, swapped; what is made of
it must be told.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import injection
from commands import (
    LOCAL,
    Subject,
    Take,
    Tally,
    _asked,
    answers_there,
    compare,
    fresh,
    state,
    undisturbed,
)

REFUSED = (2, 3, 5)
UNREAD = "sampled.json"  # by pairs that are finished
Way = Callable[[Path, random.Random], None]


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(max(1, len(content)))])


def zeros(path: Path, chance: random.Random) -> None:
    """What a power cut may leave: the length is right."""
    content = path.read_bytes()
    length = chance.randrange(max(1, len(content)))
    path.write_bytes(content[:length] + bytes(len(content) - length))


def gone(path: Path, chance: random.Random) -> None:
    path.unlink()


def longer(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes() + chance.randbytes(1 + chance.randrange(64)))


def swapped(path: Path, chance: random.Random) -> None:
    """With another file of the folder."""
    others = sorted(
        one
        for one in path.parent.iterdir()
        if one.is_file() and one != path and one.name not in LOCAL
    )
    if others:
        other = chance.choice(others)
        one, two = path.read_bytes(), other.read_bytes()
        path.write_bytes(two)
        other.write_bytes(one)


WAYS: dict[str, Way] = {
    "flip": flip,
    "cut": cut,
    "zeros": zeros,
    "gone": gone,
    "longer": longer,
    "swapped": swapped,
}


def harmed_stages(subject: Subject, take: Take, times: int = 1) -> Iterator[Tally]:
    """Each file of a finished stage, in each way; then the same command again: as undisturbed, or
    refused by name.
    """
    expected, _ = undisturbed(subject)
    done = subject.run.parent / "done"
    shutil.copytree(subject.run, done)
    folder = subject.arguments[0]
    files = sorted(
        path.relative_to(done)
        for path in (done / folder).rglob("*")
        if path.is_file() and path.name not in (*LOCAL, UNREAD)
    )
    for way in WAYS:
        tally = Tally(subject.name, f"harmed: {way}")
        every = [(file, n) for file in files for n in range(times if way in ("flip", "cut") else 1)]
        for file, n in take(every, f"{subject.name} {way}"):
            fresh(subject._replace(base=done))
            WAYS[way](subject.run / file, random.Random(f"{file} {n}"))
            if (subject.run / file).exists() and (subject.run / file).read_bytes() == (
                done / file
            ).read_bytes():
                continue  # an empty file, cut
            again(subject, tally, f"{file} {way} {n}", expected)
        yield tally
    shutil.rmtree(done)


def torn_tails(
    subject: Subject, left: list[str], file: str, count: int, seed: int
) -> Iterator[Tally]:
    """A folder as a kill leaves it, with rows up to a random byte. `left`: what is there beside
    them.
    """
    expected, asked = undisturbed(subject)
    done = subject.run.parent / "done"
    shutil.copytree(subject.run, done)
    (stage,) = {path.parent for path in done.rglob(file)}
    content = (stage / file).read_bytes()
    half = subject.run.parent / "half"
    shutil.copytree(done, half)
    here = half / stage.relative_to(done)
    for path in here.iterdir():
        if path.name not in left:
            path.unlink()
    for path in half.glob("report.*"):
        path.unlink()
    tally = Tally(subject.name, f"torn: {file}")
    chance = random.Random(f"{seed} {file}")
    for length in sorted(chance.sample(range(len(content)), min(count, len(content)))):
        (here / file).write_bytes(content[:length])
        fresh(subject._replace(base=half))
        there = answers_there(subject.run)
        again(subject, tally, f"{file} up to byte {length}", expected, refused=())
        if (more := _asked(subject) - (asked - there)) >= subject.batch:
            tally.lost += more
            tally.note(
                f"{file} up to byte {length}: {more} answers that were there were asked for again"
            )
    yield tally
    shutil.rmtree(done)
    shutil.rmtree(half)


def again(
    subject: Subject,
    tally: Tally,
    where: str,
    expected: dict[str, bytes],
    refused: Sequence[int] = REFUSED,
) -> None:
    """The same command: all is as it should be, or it says what is not."""
    tally.injected += 1
    end = injection.forked(subject.job)
    if end.code == 0:
        found = {
            name: content for name, content in state(subject.run).items() if ".broken" not in name
        }
        compare(tally, where, expected, found)
    elif end.code not in refused:
        tally.unresumable += end.code in REFUSED
        tally.unclear += end.code not in REFUSED
        tally.note(f"{where}: exit {end.code}: {end.told[-400:]}")
