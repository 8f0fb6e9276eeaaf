"""The Meta-Agent of seed 003: like requests -> prompt templates that a model writes, or why not."""

import re
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from agentlite.config.settings import TemplatesSettings
from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.curation.minhash import text_copies
from agentlite.data.curation.traits import normal
from agentlite.environments.simulators import SimulatorQuestion, SimulatorReply, question
from agentlite.rendering import Protocol, check_reading, reading_problem, render
from agentlite.rendering.protocols.prompt_template import (
    FORMATS,
    LISTINGS,
    SLOTS,
    PromptTemplate,
    slot_problem,
)
from agentlite.rendering.template import Template
from agentlite.retrieval.rankers import words
from agentlite.stages.teacher import reply_fault

LONGEST_REQUEST = 500  # characters of a request that are shown
STYLES = (
    "short and dry, like a form",
    "like the handbook of a new employee",
    "as a list of numbered rules",
    "as a friendly talk",
    "with a heading before each part",
    "strict, with what must never be done",
    "as a role that the agent plays",
    "for an expert, in few words",
)
META = """You design prompts for agents that use tools. Write one prompt template for an agent that gets requests such as these:
{requests}

Write it in the language of these requests, {style}. The template must fit any other request and any other tools, so name none.
It has six parts. Each part stands between its tags exactly once; their order is yours.
<Profile>who the agent is</Profile>
<Instruction>how the agent works</Instruction>
<Tools>your words around {{tools}}</Tools>
<Goal>your words around {{goal}}</Goal>
<Memory>your words around {{memory}}</Memory>
<Format>your words around {{format}}</Format>
The four words in braces are replaced later, by the list of tools, the request, what was said and done so far, and how the next step is to be written. Each of them stands exactly once, with its braces, in its own part. Use no other braces.
Write the template and nothing else."""  # noqa: E501  (a paragraph of the prompt is one line)
FIRST, LAST = re.compile(rf"<({'|'.join(SLOTS)})>"), re.compile(rf"</({'|'.join(SLOTS)})>")


class WrittenTemplate(NamedTuple):
    """`fault`: why the candidate cannot be used, as a kind, and its `detail`; "" if it can."""

    number: int
    template: PromptTemplate
    fault: str = ""
    detail: str = ""


def questions(settings: TemplatesSettings, requests: Sequence[str]) -> list[SimulatorQuestion]:
    """What the model is asked for each candidate: other like requests, and another style."""
    return [
        question(
            "teacher",
            META.format(
                requests="\n".join(_alike(settings, requests, number)),
                style=STYLES[number % len(STYLES)],
            ),
            temperature=settings.temperature,
            max_tokens=settings.max_new_tokens,
            seed=settings.seed * 1000 + number,
        )
        for number in range(settings.num_templates)
    ]


def _alike(settings: TemplatesSettings, requests: Sequence[str], number: int) -> list[str]:
    """A line for a request, and for those that share most words with it."""
    first = Random(f"{settings.seed} template {number}").choice(requests)
    own = {*words(first)}

    def shared(other: str) -> float:
        theirs = {*words(other)}
        return len(own & theirs) / max(1, len(own | theirs))

    alike = sorted(requests, key=lambda other: (other != first, -shared(other), other))
    return [
        f"- {' '.join(request.split())[:LONGEST_REQUEST]}" for request in alike[: settings.near]
    ]


def read_templates(
    replies: Sequence[SimulatorReply], records: Sequence[Record], template: Template
) -> list[WrittenTemplate]:
    """A candidate for each reply. `records`: those whose calls must read back."""
    read = [_read(number, reply, template, records) for number, reply in enumerate(replies)]
    whole = [draft for draft in read if not draft.fault]
    copies = text_copies([normal(draft.template.text) for draft in whole])
    of = {whole[place].number: whole[kept].template.name for place, kept in copies.items()}
    return [
        draft._replace(fault="copy", detail=f"of {of[draft.number]}")
        if draft.number in of
        else draft
        for draft in read
    ]


def _read(
    number: int, reply: SimulatorReply, template: Template, records: Sequence[Record]
) -> WrittenTemplate:
    formats, listings = [*FORMATS], [*LISTINGS]
    text = reply.words
    first, last = FIRST.search(text), [*LAST.finditer(text)]
    if first and last and last[-1].end() > first.start():
        text = text[first.start() : last[-1].end()]  # without what it says around the template
    draft = PromptTemplate(
        f"meta-{number + 1:02d}",
        text,
        formats[number % len(formats)],
        listings[number // len(formats) % len(listings)],
    )
    fault, detail = reply_fault(reply)
    if not fault and not first:
        fault, detail = "no template", f"{reply.words[:60]!r}"
    if not fault:
        fault, detail = slot_problem(text)
    if not fault and (detail := _unread(draft, template, records)):
        fault = "not read back"
    return WrittenTemplate(number, draft, fault, detail)


def _unread(draft: PromptTemplate, template: Template, records: Sequence[Record]) -> str:
    """Why the calls of a record do not read back; "" if they do. A record that the call
    format cannot hold, such as one with two calls in a turn, says nothing about the template.
    """
    if problem := reading_problem(draft.protocol, template):
        return problem
    for record in records:
        error = _reading_error(record, draft.protocol, template)
        if not error or error.code != "E215":
            continue
        if not _reading_error(record, FORMATS[draft.calls].protocol, template):
            return f"record {record.id}: {error.reason}"
    return ""


def _reading_error(record: Record, protocol: Protocol, template: Template) -> RowError | None:
    try:
        check_reading(record, render(record, protocol, template), protocol, template)
    except RowError as error:
        return error
    return None


def faults(templates: Sequence[WrittenTemplate]) -> dict[str, int]:
    return dict(Counter(draft.fault for draft in templates if draft.fault).most_common())
