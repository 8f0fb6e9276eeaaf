"""A setting such as `hermes=2,react` -> the protocol of each record, chosen by its id."""

import dataclasses
import hashlib
import re
from bisect import bisect
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

from agentlite.core.errors import MODEL, UserError, nearest
from agentlite.core.records import Record
from agentlite.rendering.protocol import Protocol
from agentlite.rendering.protocols import (
    autogpt,
    chat,
    hermes,
    kuaiagent,
    modelscope,
    ms_agent,
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
        """As a setting: `hermes`, or `hermes=2,react=1`."""
        if len(self.weights) == 1:
            return next(iter(self.weights))
        return ",".join(
            f"{name}={str(weight).removesuffix('.0')}" for name, weight in self.weights.items()
        )

    def of(self, record: Record) -> Protocol:
        """The protocol a record is rendered in: the one that prep chose for it, if it is here."""
        if (chosen := str(record.meta.get("protocol"))) in self.protocols:
            return self.protocols[chosen]
        if len(self.protocols) == 1:
            return next(iter(self.protocols.values()))
        weights = self._holding(max((len(message.calls) for message in record.messages), default=0))
        share = (
            int.from_bytes(hashlib.sha256(f"{self.seed} {record.id}".encode()).digest()[:8]) / 2**64
        )
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
    named = ",".join(re.sub(r"^auto\b", native, part.strip()) for part in setting.split(","))
    weights = protocol_weights(named)
    for name in weights:
        if name == "chat" and not template.takes_tools:
            raise UserError(
                "its chat template takes no tools.",
                "Use --protocol hermes or react, or auto.",
                location=template.name,
                exit_code=MODEL,
            )
    mixture = settled(named, template, seed)
    for protocol in mixture.protocols.values():
        check(protocol, template, PROTOCOLS.values())
    return mixture


def settled(setting: str, template: Template, seed: int = 0) -> Mixture:
    """The protocols of a setting that a stage has recorded."""
    weights = protocol_weights(setting)
    return Mixture({name: reader_for(PROTOCOLS[name], template) for name in weights}, weights, seed)


def protocol_weights(setting: str) -> dict[str, float]:
    """Raises UserError for an unknown protocol or an invalid weight."""
    weights: dict[str, float] = {}
    for part in setting.split(","):
        name, _, weight = part.strip().partition("=")
        if name not in PROTOCOLS:
            raise UserError(
                f"no protocol '{name}'.", nearest(name, ["auto", *PROTOCOLS]), location="--protocol"
            )
        if name in weights:
            raise UserError(
                f"'{name}' appears twice.",
                "Name each protocol once: hermes=2,react=1.",
                location="--protocol",
            )
        weights[name] = _weight(name, weight)
    return weights


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
