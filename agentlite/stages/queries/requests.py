"""Near queries -> a request for new ones, and the new queries that a reply holds."""

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from agentlite.config.settings import QueriesSettings
from agentlite.data.curation.stats import script_of
from agentlite.environments.simulators import SimulatorQuestion, SimulatorReply, question
from agentlite.stages.queries.seeds import SeedQuery
from agentlite.stages.teacher import reply_fault

SHORTEST, LONGEST = 8, 2000  # bytes and characters of a query
LONGEST_SHOWN = 500  # characters of a near query, and of what its tools do
MOST_TOOLS = 12
# a place that was to be filled: <city>, [your name], {date}, "..."
PLACE = re.compile(r"<[A-Za-z_ ]{2,30}>|\[[A-Za-z_ ]{2,30}\]|\{[A-Za-z_ ]{1,30}\}|^\W*\.\.\.\W*$")
LETTER = re.compile(r"[^\W\d_]")
REPEATED = re.compile(r"(.{1,20}?)\1{7,}", re.DOTALL)
ASK = """These are requests that users make of an assistant with tools:
{near}
{tools}
Write {count} new requests of the same kind by other users, in the same language. Each must ask for something else, with names, dates and numbers of its own, and say all that is needed. Vary length, tone and order.
Answer with a JSON list of {count} strings and nothing else."""  # noqa: E501  (a paragraph of the prompt is one line)


class NearQueries(NamedTuple):
    """What a request shows: seeds, by their numbers, of one cluster; the first is their anchor."""

    cluster: int
    seeds: tuple[int, ...]


class NewQuery(NamedTuple):
    """`fault`: the kind of why it is not kept; "" if it is."""

    text: str
    near: NearQueries
    fault: str = ""


def near_queries(
    settings: QueriesSettings, labels: Sequence[int], vectors: Any, number: int
) -> NearQueries:
    """Those of request `number`: the clusters take turns, each with another anchor."""
    import numpy

    cluster = number % (max(labels) + 1)
    members = [place for place, label in enumerate(labels) if label == cluster]
    anchor = Random(f"{settings.seed} queries {number}").choice(members)
    alike = numpy.asarray(vectors[members] @ vectors[anchor])
    order = sorted(range(len(members)), key=lambda at: (members[at] != anchor, -alike[at], at))
    return NearQueries(cluster, tuple(members[at] for at in order[: settings.near]))


def request(
    settings: QueriesSettings, near: NearQueries, seeds: Sequence[SeedQuery], number: int
) -> SimulatorQuestion:
    shown = "\n".join(f"- {_line(seeds[seed].text)}" for seed in near.seeds)
    tools = [f"- {tool.name}: {_line(tool.description)}" for tool in seeds[near.seeds[0]].tools]
    about = "\nThe tools:\n" + "\n".join(tools[:MOST_TOOLS]) + "\n" if tools else ""
    return question(
        "teacher",
        ASK.format(near=shown, tools=about, count=settings.per_request),
        temperature=settings.temperature,
        max_tokens=settings.max_new_tokens,
        seed=settings.seed * 100_000 + number,
    )


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_SHOWN]


def read_reply(
    reply: SimulatorReply, near: NearQueries, seeds: Sequence[SeedQuery]
) -> list[NewQuery]:
    """The queries of a reply, with what is wrong with each by itself; one with a fault for a reply
    that is not a list.
    """
    fault, _ = reply_fault(reply)
    if fault:
        return [NewQuery(reply.problem or reply.words, near, fault)]
    values = _list_in(reply.words)
    if values is None:
        return [NewQuery(reply.words, near, "not a list")]
    scripts = {script_of(seeds[seed].text) for seed in near.seeds}
    queries = []
    for value in values:
        if not isinstance(value, str):
            text, fault = json.dumps(value, ensure_ascii=False), "not a text"
        else:
            text = value.strip()
            fault = "nonsense" if _is_nonsense(text) else ""
            fault = fault or ("" if script_of(text) in scripts else "other language")
        queries.append(NewQuery(text, near, fault))
    return queries


def _list_in(text: str) -> list[Any] | None:
    """The first JSON list of a text; None if there is none that is whole."""
    start = text.find("[")
    while start >= 0:
        try:
            value, _ = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("[", start + 1)
            continue
        return value if isinstance(value, list) else None
    return None


def _is_nonsense(text: str) -> bool:
    """Half a sentence, a place to fill, one thing over and over, or no words at all."""
    if len(text.encode("utf-8", "replace")) < SHORTEST or len(text) > LONGEST:
        return True
    return bool(not LETTER.search(text) or PLACE.search(text) or REPEATED.search(text))
