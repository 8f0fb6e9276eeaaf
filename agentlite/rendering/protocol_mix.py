"""A setting such as `hermes=2,react` -> the protocol of each record, chosen by its id."""

import dataclasses
import hashlib
from bisect import bisect
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from agentlite.core.errors import MODEL, UserError, nearest
from agentlite.core.records import Record
from agentlite.rendering.protocol import Protocol, json_object
from agentlite.rendering.protocols import (
    autogpt,
    chat,
    hermes,
    kuaiagent,
    modelscope,
    ms_agent,
    prompt_template,
    react,
    toolllama,
)
from agentlite.rendering.renderer import check, reading_problem
from agentlite.rendering.template import Template

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        chat.PROTOCOL,
        hermes.PROTOCOL,
        react.PROTOCOL,
        react.PROTOCOL_ZH,
        ms_agent.PROTOCOL,
        toolllama.PROTOCOL,
        modelscope.PROTOCOL,
        autogpt.PROTOCOL,
        kuaiagent.PROTOCOL,
        kuaiagent.PROTOCOL_ZH,
    )
}


class Mixture(NamedTuple):
    """Protocols by name, and how often each is taken, in relation to the others."""

    protocols: Mapping[str, Protocol]
    weights: Mapping[str, float]
    seed: int

    @property
    def name(self) -> str:
        """As a setting: `hermes`, or `hermes=2,react=1`. It holds prompt templates whole, so that a
        later stage needs no file.
        """
        named = {name: self.protocols[name].written or name for name in self.weights}
        if len(named) == 1:
            return next(iter(named.values()))
        return ",".join(
            f"{named[name]}={str(weight).removesuffix('.0')}"
            for name, weight in self.weights.items()
        )

    def of(self, record: Record) -> Protocol:
        """The protocol a record is rendered in: the one that prep chose for it, if it is here."""
        if (chosen := str(record.meta.get("protocol"))) in self.protocols:
            return self.protocols[chosen]
        if len(self.protocols) == 1:
            return next(iter(self.protocols.values()))
        weights = self._holding(max((len(message.calls) for message in record.messages), default=0))
        # a hash of its own: records that --limit draws by theirs would all get the first protocol
        place = hashlib.sha256(f"{self.seed} protocol {record.id}".encode()).digest()
        share = int.from_bytes(place[:8]) / 2**64
        ends = list(accumulate(weights.values()))
        return self.protocols[list(weights)[bisect(ends, share * ends[-1])]]

    def _holding(self, calls: int) -> Mapping[str, float]:
        """The protocols that hold so many calls in a turn; all, if none does."""
        weights = {
            name: weight
            for name, weight in self.weights.items()
            if calls < 2 or self.protocols[name].several
        }
        return weights or self.weights


def native_problem(template: Template) -> str:
    """Why `auto` does not take the template's own protocol: "" if that holds every row that hermes
    holds.
    """
    if not template.takes_tools:
        return "takes no tools"
    if reading_problem(reader_for(PROTOCOLS["chat"], template), template):
        return "writes calls that cannot be read back"
    lost = [] if template.keeps_text_with_calls else ["drops words beside a call"]
    lost += [] if template.takes_several_calls else ["holds one call per turn"]
    return " and ".join(lost)


def choose(setting: str, template: Template, seed: int = 0) -> Mixture:
    """The protocols of a setting; `auto`: chat where the template takes tools, its calls can be
    read and no part of a turn is lost, else hermes. Raises UserError 2 or 5.
    """
    native = "hermes" if native_problem(template) else "chat"
    mixture = _mixture(protocols_of(setting, auto=native), template, seed)
    for protocol in mixture.protocols.values():
        if protocol.native and not template.takes_tools:
            raise UserError(
                "its chat template takes no tools.",
                "Use --protocol hermes or react, or auto.",
                location=template.name,
                exit_code=MODEL,
            )
        check(protocol, template, PROTOCOLS.values())
    return mixture


def settled(setting: str, template: Template, seed: int = 0) -> Mixture:
    """The protocols of a setting that a stage has recorded."""
    return _mixture(protocols_of(setting), template, seed)


class WeightedProtocol(NamedTuple):
    """A protocol of a mixture, and how often it is taken in relation to the others."""

    protocol: Protocol
    weight: float


def _mixture(found: Mapping[str, WeightedProtocol], template: Template, seed: int) -> Mixture:
    return Mixture(
        {name: reader_for(one.protocol, template) for name, one in found.items()},
        {name: one.weight for name, one in found.items()},
        seed,
    )


def protocols_of(setting: str, auto: str = "") -> dict[str, WeightedProtocol]:
    """The protocols of a setting by name, not yet as a template has them: built in, or prompt
    templates of a file or folder. `auto`: the name that stands for that word. Raises UserError for
    one that does not exist, is named twice, or has an invalid weight.
    """
    weighted: dict[str, WeightedProtocol] = {}
    for name, weight in _parts(setting):
        for protocol in _named(auto if name == "auto" and auto else name):
            if protocol.name in weighted:
                raise UserError(
                    f"'{protocol.name}' appears twice.",
                    "Name each protocol once: hermes=2,react=1.",
                    location="--protocol",
                )
            weighted[protocol.name] = WeightedProtocol(protocol, _weight(protocol.name, weight))
    return weighted


def _parts(setting: str) -> Iterator[tuple[str, str]]:
    """Name and weight of each part; a prompt template in JSON stands for its name."""
    rest, more = setting, ","
    while more:
        template = ""
        if rest.lstrip().startswith("{"):
            try:
                _, end = json_object(rest)
            except ValueError as error:
                raise UserError(
                    f"not a prompt template: {error}.", location="--protocol"
                ) from error
            template, rest = rest[:end].strip(), rest[end:]
        part, more, rest = rest.partition(",")
        name, _, weight = part.strip().partition("=")
        yield template or name, weight


def _named(name: str) -> list[Protocol]:
    """Several for a folder of prompt templates. Raises UserError."""
    if name in PROTOCOLS:
        return [PROTOCOLS[name]]
    if name.startswith("{"):
        try:
            templates = [prompt_template.from_setting(name)]
        except ValueError as error:
            raise UserError(f"not a prompt template: {error}.", location="--protocol") from error
    elif name.endswith(prompt_template.SUFFIX) or (name and Path(name).is_dir()):
        templates = prompt_template.read_templates(Path(name))
    else:
        fix = nearest(name, ["auto", *PROTOCOLS])
        raise UserError(f"no protocol '{name}'.", fix, location="--protocol")
    if own := next((one.name for one in templates if one.name in PROTOCOLS), ""):
        raise UserError(
            f"a prompt template is named {own}, and so is a built-in protocol.",
            "Rename its file.",
            location="--protocol",
        )
    return [one.protocol for one in templates]


def _weight(name: str, text: str) -> float:
    try:
        weight = float(text or 1)
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise UserError(
            f"{text!r} is not a weight for '{name}'.",
            "Write hermes=2,react=1.",
            location="--protocol",
        )
    return weight


def reader_for(protocol: Protocol, template: Template) -> Protocol:
    """A protocol as the template has it. A native one gets the first of its readers that
    understands the template's syntax, and holds as many calls in a turn as the template prints.
    """
    if template.prompt_opens_thought:
        protocol = dataclasses.replace(protocol, prompt_opens_thought=True)
    if not protocol.native:
        return dataclasses.replace(protocol, answer_head=template.answer_head)
    several = template.takes_several_calls
    candidates = (
        dataclasses.replace(protocol, parse=parse, several=several) for parse in protocol.readers
    )
    return next(
        (reader for reader in candidates if not reading_problem(reader, template)), protocol
    )
