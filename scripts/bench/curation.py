"""How fast near copies are found, and how much of what is wrong in a data set is found at all.

    .venv/bin/python scripts/bench/curation.py speed [--texts 1000] [--seed 0]
    .venv/bin/python scripts/bench/curation.py planted [--rows 5000] [--seed 0] [--folder DIR]

speed: seconds of one core for the near copies among dialogs of about 5,000 characters, half of them
copies with some words changed; beside datasketch, with as many slots and the same bands, in the
same run (`ratio`, target: 5). `recall`: the share found of the copies whose Jaccard index is .8 or
more. Needs `pip install datasketch`.

planted: rows of tool use, 3 % of them near copies, 2 % rows of a held-out file, 1 % with personal
data. `found`: the share of what was planted (target: .98); `false_alarms`: the share of the other
rows (target: .005). --folder keeps rows.jsonl, held_out.jsonl and planted.json, for `agentlite
prep`.
"""

import argparse
import json
import random
import string
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.records import Call, Message, Record, Tool, to_row
from agentlite.data.curation.decontaminate import leaks, read_held_out
from agentlite.data.curation.dedup import call_copies, equal_copies, near_copies, near_text
from agentlite.data.curation.minhash import (
    SHINGLE,
    SLOTS,
    band_size,
    jaccard,
    near_ties,
    shingles,
    sketches,
)
from agentlite.data.curation.split import NEAR
from agentlite.data.curation.traits import traits

NEAR_SHARE, LEAKED_SHARE, PERSONAL_SHARE = 0.03, 0.02, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["speed", "planted"])
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.what == "speed":
        figures = speed(options.texts, random.Random(options.seed))
    else:
        with tempfile.TemporaryDirectory() as folder:
            figures = planted(
                options.rows, random.Random(options.seed), options.folder or Path(folder)
            )
    print(json.dumps(figures, indent=2))


# --- speed ---


def speed(count: int, chance: random.Random) -> dict[str, Any]:
    try:
        import datasketch
    except ImportError:
        sys.exit("datasketch is not installed: pip install datasketch")
    words = [
        "".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9))) for _ in range(5000)
    ]
    texts, true = copied(count, words, chance)
    ours, our_seconds = timed(lambda: our_copies(texts))
    theirs, their_seconds = timed(lambda: their_copies(texts, datasketch))
    return {
        "texts": len(texts),
        "characters": sum(map(len, texts)) // len(texts),
        "near_copies": len(true),
        "seconds": {"agentlite": round(our_seconds, 2), "datasketch": round(their_seconds, 2)},
        "ratio": round(their_seconds / our_seconds, 1),
        "recall": {"agentlite": share(true, ours), "datasketch": share(true, theirs)},
        "wrong": {"agentlite": len(ours - true), "datasketch": len(theirs - true)},
    }


def copied(
    count: int, words: list[str], chance: random.Random
) -> tuple[list[str], set[tuple[int, int]]]:
    """Texts, the second half copies of the first with up to a tenth of their words changed; the
    pairs that are near.
    """
    originals = [chance.choices(words, k=1000) for _ in range(count // 2)]
    changed = []
    for original in originals:
        most = chance.uniform(0, 0.1)
        changed.append(
            [chance.choice(words) if chance.random() < most else word for word in original]
        )
    texts = ["".join(text) for text in [*originals, *changed]]
    pairs = zip(range(count // 2), range(count // 2, 2 * (count // 2)), strict=True)
    return texts, {
        (a, b) for a, b in pairs if jaccard(shingles(texts[a]), shingles(texts[b])) >= NEAR
    }


def our_copies(texts: Sequence[str]) -> set[tuple[int, int]]:
    return set(near_ties(texts, NEAR))


def their_copies(texts: Sequence[str], datasketch: Any) -> set[tuple[int, int]]:
    size = band_size(NEAR)
    lsh = datasketch.MinHashLSH(num_perm=SLOTS, params=(SLOTS // size, size))
    found = set()
    for number, text in enumerate(texts):
        hashes = datasketch.MinHash(num_perm=SLOTS)
        hashes.update_batch(
            {text[start : start + SHINGLE].encode() for start in range(len(text) - SHINGLE + 1)}
        )
        found |= {(other, number) for other in lsh.query(hashes)}
        lsh.insert(number, hashes)
    return found


def timed(find: Callable[[], set[tuple[int, int]]]) -> tuple[set[tuple[int, int]], float]:
    started = time.process_time()
    return find(), time.process_time() - started


def share(true: set[Any], found: set[Any]) -> float:
    return round(len(true & found) / len(true), 4) if true else 1.0


# --- planted ---


class Template(NamedTuple):
    """How a tool, if any, is asked for and answered. Names in braces are arguments, but for
    {aside}.
    """

    tool: str
    queries: tuple[str, ...]
    answer: str


TEMPLATES = [
    Template(
        "book_flight",
        (
            "Book a flight from {place} to {place_2} on {day} for {number} people.",
            "We are {number} and want to fly from {place} to {place_2}, leaving {day}.",
        ),
        "Your flight from {place} to {place_2} on {day} is booked.",
    ),
    Template(
        "send_message",
        ("Tell {person} that {text}.", "Please write to {person}: {text}"),
        "{person} has your message.",
    ),
    Template(
        "convert_money",
        (
            "How much are {price} kroner in {place}'s money?",
            "Change {price} kroner into the currency they use in {place}.",
        ),
        "{price} kroner are worth about half.",
    ),
    Template(
        "find_paper",
        (
            "Find papers about {text}, not older than {number} years.",
            "What was published on {text} in the last {number} years?",
        ),
        "There are {number_2} papers on {text}.",
    ),
    Template(
        "track_parcel",
        ("Where is my parcel {code}?", "Parcel {code} should have come on {day}. Where is it?"),
        "Parcel {code} is in {place} and comes on {day}.",
    ),
    Template(
        "measure_distance",
        (
            "How far is it from {point} to {point_2}?",
            "Give me the distance between {point} and {point_2}, in metres.",
        ),
        "It is {price} m.",
    ),
    Template(
        "tell_time",
        ("{aside}. By the way, what time is it in {town}?", "{aside}. Is it late in {town}?"),
        "It is {time} in {town}.",
    ),
    Template(
        "",
        ("What is meant by {text}?", "{aside}. What do you say to that?"),
        "That would be {aside} {text}.",
    ),
    Template(
        "查询天气",
        (
            "请问{place}在{day}的天气怎么样？我要带{number}个朋友去。",
            "帮我看看{day}{place}会不会下雨。",
        ),
        "{place}{day}的天气晴，气温{number}度。",
    ),
    Template(
        "订餐厅",
        (
            "帮我在{place}订一家餐厅，{day}，一共{number}位，备注：{text}。",
            "{number}个人{day}想在{place}吃饭，要求{text}，请订位。",
        ),
        "已经在{place}订好了{day}的{number}人位。",
    ),
]
TOWNS = ["Oslo", "Bergen", "Lima", "Cork", "Kyoto", "上海", "北京", "Graz", "Turku", "Perth"]
SYLLABLES = [
    "ka",
    "lo",
    "mi",
    "ren",
    "sto",
    "vik",
    "dal",
    "ber",
    "ha",
    "nor",
    "fjo",
    "tun",
    "es",
    "gri",
    "ul",
    "pem",
]


class Planted(NamedTuple):
    """The rows, those of the held-out file, and what was planted where: a near copy beside its
    original.
    """

    rows: list[Record]
    held_out: list[Record]
    copies: dict[int, int]
    leaked: set[int]
    personal: set[int]


def planted(count: int, chance: random.Random, folder: Path) -> dict[str, Any]:
    made = plant(count, chance)
    write(folder, made)
    held_out = read_held_out([str(folder / "held_out.jsonl")]).traits
    known = [traits(record) for record in made.rows]
    texts = [near_text(record) for record in made.rows]
    started = time.process_time()
    copies = equal_copies(known, [one.source for one in known]) | near_copies(
        known, list(sketches(texts)), texts.__getitem__, seed=0
    )
    copies |= {
        copy: kept for copy, kept in call_copies(known, seed=0).items() if copy not in copies
    }
    near_seconds = time.process_time() - started
    leaking = set(leaks(known, held_out))
    leak_seconds = time.process_time() - started - near_seconds
    pairs = {frozenset(pair) for pair in made.copies.items()}
    found = {pair for pair in pairs if tied(pair, copies)}
    return {
        "rows": len(made.rows),
        "near": {
            **verdict(
                len(pairs), len(found), len(copies.keys() - set().union(*pairs)), len(made.rows)
            ),
            "seconds": round(near_seconds, 2),
        },
        "leaks": {
            **verdict(
                len(made.leaked),
                len(made.leaked & leaking),
                len(leaking - made.leaked),
                len(made.rows),
            ),
            "seconds": round(leak_seconds, 2),
        },
        "personal": personal(made),
    }


def tied(pair: frozenset[int], copies: dict[int, int]) -> bool:
    """Whether at most one of the two is kept."""
    return len({copies.get(index, index) for index in pair}) == 1


def personal(made: Planted) -> dict[str, Any] | str:
    try:
        from agentlite.data.curation.pii import find
    except ImportError:
        return "agentlite.data.curation.pii is not there"
    found = {index for index, record in enumerate(made.rows) if any(find(record).values())}
    return verdict(
        len(made.personal), len(found & made.personal), len(found - made.personal), len(made.rows)
    )


def verdict(planted: int, found: int, others: int, rows: int) -> dict[str, Any]:
    return {
        "planted": planted,
        "found": round(found / max(1, planted), 4),
        "false_alarms": round(others / max(1, rows - planted), 4),
    }


def plant(count: int, chance: random.Random) -> Planted:
    """Rows that have nothing to do with each other but their templates, and those planted among
    them.
    """
    near, leaked, marked = (
        round(part * count) for part in (NEAR_SHARE, LEAKED_SHARE, PERSONAL_SHARE)
    )
    words = ["".join(chance.choices(SYLLABLES, k=chance.randint(1, 3))) for _ in range(4000)]
    held_out = [row(words, chance) for _ in range(max(leaked, count // 10))]
    rows = [row(words, chance) for _ in range(count - near - leaked)]
    originals = chance.sample(range(len(rows)), near + marked)
    for index in originals[near:]:
        rows[index] = with_personal(rows[index], chance)
    plants = [nearly(rows[index], words, chance) for index in originals[:near]]
    plants += [leaking(record, words, chance) for record in chance.sample(held_out, leaked)]
    order = chance.sample(range(count), count)
    places = {old: new for new, old in enumerate(order)}
    mixed = [[*rows, *plants][old] for old in order]
    first = len(rows)
    copies = {
        places[first + number]: places[index] for number, index in enumerate(originals[:near])
    }
    leaks = {places[index] for index in range(first + near, count)}
    return Planted(mixed, held_out, copies, leaks, {places[index] for index in originals[near:]})


def row(words: list[str], chance: random.Random) -> Record:
    template = chance.choice(TEMPLATES)
    values = slots(words, chance)
    query = chance.choice(template.queries)
    if not template.tool:
        return Record(
            messages=(
                Message("user", query.format(**values)),
                Message("assistant", template.answer.format(**values)),
            )
        )
    names = [name for name in values if f"{{{name}}}" in query and name != "aside"]
    call = Call(template.tool, {name: values[name] for name in names}, "call_0")
    parameters = {
        "type": "object",
        "properties": {name: {"type": kind(value)} for name, value in values.items()},
    }
    tools = [
        Tool(one.tool, f"Can {one.tool}.", parameters)
        for one in TEMPLATES
        if one.tool not in ("", template.tool)
    ]
    offered = [*chance.sample(tools, chance.randint(0, 3)), Tool(template.tool, "", parameters)]
    result = json.dumps({"id": chance.randrange(10**9), "at": values["time"], "ok": True})
    return Record(
        messages=(
            Message("user", query.format(**values)),
            Message("assistant", "", (call,)),
            Message("tool", result, call_id="call_0"),
            Message("assistant", template.answer.format(**values)),
        ),
        tools=tuple(sorted(offered, key=lambda tool: tool.name)),
    )


def slots(words: list[str], chance: random.Random) -> dict[str, Any]:
    """Values of arguments, some of which look like what they are not: codes, times, points."""

    def text() -> str:
        return " ".join(chance.choices(words, k=chance.randint(4, 12)))

    def point() -> str:
        return f"{chance.uniform(-90, 90):.6f},{chance.uniform(-180, 180):.6f}"

    day = f"20{chance.randint(20, 29)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
    return {
        "place": chance.choice(words).title() + chance.choice(words),
        "place_2": chance.choice(words).title() + "stad",
        "person": chance.choice(words).title(),
        "day": day,
        "number": chance.randint(2, 40),
        "number_2": chance.randint(2, 4000),
        "price": round(chance.uniform(1, 10**5), 2),
        "text": text(),
        "aside": text(),
        "town": chance.choice(TOWNS),
        "code": "".join(chance.choices(string.ascii_uppercase + string.digits, k=12)),
        "point": point(),
        "point_2": point(),
        "time": f"{day}T{chance.randint(0, 23):02}:{chance.randint(0, 59):02}:00Z",
    }


def kind(value: Any) -> str:
    return {str: "string", int: "integer", float: "number"}[type(value)]


def nearly(record: Record, words: list[str], chance: random.Random) -> Record:
    """The same calls, the question a little different; at times the answer, too."""
    asked, *between, answer = record.messages
    changed = [replace(asked, content=edited(asked.content, words, chance)), *between]
    last = (
        replace(answer, content=edited(answer.content, words, chance))
        if chance.random() < 0.3
        else answer
    )
    return replace(record, messages=(*changed, last))


def edited(text: str, words: list[str], chance: random.Random) -> str:
    """One of: other case and punctuation, a word before or after it, two letters changed places, a
    word taken out.
    """
    place = chance.randrange(len(text) - 1)
    parts = text.split()
    left = [
        part for number, part in enumerate(parts) if len(parts) < 6 or number != place % len(parts)
    ]
    return chance.choice(
        [
            text.upper() + "!!",
            f"{chance.choice(words)}, {text}",
            f"{text} {chance.choice(words)}?",
            text[:place] + text[place + 1] + text[place] + text[place + 2 :],
            " ".join(left),
        ]
    )


def leaking(record: Record, words: list[str], chance: random.Random) -> Record:
    """A held-out row as it is, its question a little different, or its question with another
    answer.
    """
    asked, *rest = record.messages
    way = chance.randrange(3)
    if way == 1:
        return replace(
            record, messages=(replace(asked, content=edited(asked.content, words, chance)), *rest)
        )
    if way == 2:
        return replace(
            record, messages=(asked, Message("assistant", " ".join(chance.choices(words, k=8))))
        )
    return record


def with_personal(record: Record, chance: random.Random) -> Record:
    """One thing nobody should learn, in the question."""
    asked, *rest = record.messages
    said = chance.choice(
        ["My contact, if you need it: {}.", "我的联系方式是{}。", "(reach me by {})"]
    )
    content = f"{asked.content} {said.format(chance.choice(PERSONAL)(chance))}"
    return replace(record, messages=(replace(asked, content=content), *rest))


def digits(chance: random.Random, count: int) -> str:
    return "".join(chance.choices(string.digits, k=count))


def mail(chance: random.Random) -> str:
    name, host = ("".join(chance.choices(string.ascii_lowercase, k=7)) for _ in range(2))
    return f"{name}.{digits(chance, 2)}@{host}.{chance.choice(['com', 'no', 'cn', 'org'])}"


def card(chance: random.Random) -> str:
    """A number that passes Luhn's check."""
    body = chance.choice(["4", "51", "53"])
    body += digits(chance, 15 - len(body))
    doubled = [int(digit) * (2 if place % 2 == 0 else 1) for place, digit in enumerate(body)]
    number = body + str(-sum(value // 10 + value % 10 for value in doubled) % 10)
    return (
        number
        if chance.random() < 0.5
        else " ".join(number[start : start + 4] for start in range(0, 16, 4))
    )


def identity(chance: random.Random) -> str:
    """18 digits of a Chinese identity card, the last one a check."""
    born = f"19{chance.randint(50, 99)}{chance.randint(1, 12):02}{chance.randint(1, 28):02}"
    body = chance.choice(["110105", "310112", "440305"]) + born + digits(chance, 3)
    total = sum(int(digit) * (2 ** (17 - place) % 11) for place, digit in enumerate(body))
    return body + "10X98765432"[total % 11]


PERSONAL: list[Callable[[random.Random], str]] = [
    mail,
    card,
    identity,
    lambda chance: f"1{chance.choice('3578')}{digits(chance, 9)}",
    lambda chance: (
        f"+47 {chance.choice('49')}{digits(chance, 2)} {digits(chance, 2)} {digits(chance, 3)}"
    ),
    lambda chance: "sk-" + "".join(chance.choices(string.ascii_letters + string.digits, k=48)),
    lambda chance: "AKIA" + "".join(chance.choices(string.ascii_uppercase + string.digits, k=16)),
]


def write(folder: Path, made: Planted) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in {"rows": made.rows, "held_out": made.held_out}.items():
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as file:
            for record in records:
                shape = to_row(record)
                kept = {"messages": shape["messages"], "tools": json.loads(shape["tools"])}
                file.write(json.dumps(kept, ensure_ascii=False) + "\n")
    marks = {
        "copies": made.copies,
        "leaked": sorted(made.leaked),
        "personal": sorted(made.personal),
    }
    (folder / "planted.json").write_text(json.dumps(marks), encoding="utf-8")


if __name__ == "__main__":
    main()
