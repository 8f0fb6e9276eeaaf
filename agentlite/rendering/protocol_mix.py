"""A setting such as `hermes=2,react` -> the protocol of each record, chosen by its id."""

import dataclasses
import hashlib
from bisect import bisect
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from agentlite.core.errors import UserError, suggest
from agentlite.core.records import Record
from agentlite.rendering.protocol import Protocol, json_object
from agentlite.rendering.protocols import (
    autogpt,
    hermes,
    kuaiagent,
    modelscope,
    prompt_template,
    react,
    toolllama,
)
from agentlite.rendering.protocols.native_calls import native_calls
from agentlite.rendering.renderer import VALUES_PROBE, check_protocol, reading_problem
from agentlite.rendering.template import Template

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        hermes.CHAT,
        hermes.PROTOCOL,
        react.PROTOCOL,
        react.PROTOCOL_ZH,
        react.MS_AGENT,
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
    seed: int = 0

    @property
    def setting(self) -> str:
        """As it is set: `hermes=2,react=1`. Prompt templates are in it, so no file is needed."""
        names = [self.protocols[name].template_json or name for name in self.weights]
        if len(names) == 1:
            return names[0]
        weights = (str(weight).removesuffix(".0") for weight in self.weights.values())
        return ",".join(map("=".join, zip(names, weights, strict=True)))

    def protocol_of(self, record: Record) -> Protocol:
        """The protocol a record is rendered in: the one that prep chose for it, if it is here."""
        if (chosen := str(record.meta.get("protocol"))) in self.protocols:
            return self.protocols[chosen]
        if len(self.protocols) == 1:
            return next(iter(self.protocols.values()))
        # those that hold as many calls in a turn as the record has; all, if none does
        is_parallel = any(len(message.calls) > 1 for message in record.messages)
        names = [n for n in self.weights if self.protocols[n].parallel_calls or not is_parallel]
        names = names or list(self.weights)
        # a hash of its own: records that --limit draws by theirs would all get the first protocol
        digest = hashlib.sha256(f"{self.seed} protocol {record.id}".encode()).digest()
        share = int.from_bytes(digest[:8]) / 2**64  # in [0, 1)
        ends = list(accumulate(self.weights[name] for name in names))
        return self.protocols[names[bisect(ends, share * ends[-1])]]

    @property
    def heaviest(self) -> Protocol:
        """Of a model that was trained in several protocols, the one that it has seen most of."""
        return self.protocols[max(self.weights, key=self.weights.__getitem__)]

    def for_template(self, template: Template) -> "Mixture":
        """The same protocols, as the template has them."""
        protocols = {name: adapt_protocol(p, template) for name, p in self.protocols.items()}
        return self._replace(protocols=protocols)


def native_problem(template: Template) -> str:
    """Why `auto` takes hermes instead of chat; "" if chat holds every row that hermes holds."""
    if not template.prints_tools:
        return "takes no tools"
    if not template.prints_calls:
        return "prints tools, but no call with its name"
    reader = adapt_protocol(PROTOCOLS["chat"], template)
    if problem := reading_problem(reader, template):
        return f"writes calls that cannot be read back: {problem}"
    if reading_problem(reader, template, VALUES_PROBE):
        return "writes some arguments so that they cannot be read back"
    problems = [] if template.keeps_text_with_calls else ["writes no words before a call"]
    problems += [] if template.parallel_calls else ["holds one call per turn"]
    return " and ".join(problems)


def choose(setting: str, template: Template, seed: int = 0) -> Mixture:
    """The protocols of a setting; `auto`: chat where the template takes tools, its calls can be
    read and no part of a turn is lost, else hermes.
    """
    native = "hermes" if native_problem(template) else "chat"
    mixture = parse_mixture(setting, seed, auto=native).for_template(template)
    for protocol in mixture.protocols.values():
        check_protocol(protocol, template, PROTOCOLS.values())
    return mixture


def mixture_of(setting: str, template: Template, seed: int = 0) -> Mixture:
    """The protocols of a setting that a stage has recorded, or else those of `auto`."""
    if not setting:
        return choose("auto", template, seed)
    return parse_mixture(setting, seed).for_template(template)


def parse_mixture(setting: str, seed: int = 0, auto: str = "") -> Mixture:
    """The protocols of a setting, not yet as a template has them: built in, or prompt templates of
    a file or folder. `auto`: the name that stands for that word. Raises UserError for one that does
    not exist, is named twice, or has an invalid weight.
    """
    protocols: dict[str, Protocol] = {}
    weights: dict[str, float] = {}
    for name, text in _split_setting(setting):
        for protocol in _find_protocols(auto if name == "auto" and auto else name):
            if protocol.name in protocols:
                raise _refusal(
                    f"'{protocol.name}' appears twice.",
                    "Name each protocol once: hermes=2,react=1.",
                )
            try:
                weight = float(text or 1)
            except ValueError:
                weight = 0.0
            if not 0 < weight < float("inf"):
                raise _refusal(
                    f"{text!r} is not a weight for '{protocol.name}'.", "Write hermes=2,react=1."
                )
            protocols[protocol.name], weights[protocol.name] = protocol, weight
    return Mixture(protocols, weights, seed)


def _refusal(problem: str, fix: str = "") -> UserError:
    return UserError(problem, fix, location="--protocol")


def _split_setting(setting: str) -> Iterator[tuple[str, str]]:
    """Name and weight of each part; a prompt template in JSON stands for its name, and its commas
    divide nothing: `hermes=2,{"name": ..., "text": ...}=1` has two parts.
    """
    rest, comma = setting, ","
    while comma:
        template = ""
        if rest.lstrip().startswith("{"):
            try:
                _, end = json_object(rest)
            except ValueError as error:
                raise _refusal(f"not a prompt template: {error}.") from error
            template, rest = rest[:end].strip(), rest[end:]
        part, comma, rest = rest.partition(",")
        name, _, weight = part.strip().partition("=")
        yield template or name, weight


def _find_protocols(name: str) -> list[Protocol]:
    """The protocol of a name; several for a folder of prompt templates."""
    if name in PROTOCOLS:
        return [PROTOCOLS[name]]
    if name.startswith("{"):
        try:
            templates = [prompt_template.from_setting(name)]
        except ValueError as error:
            raise _refusal(f"not a prompt template: {error}.") from error
    elif name.endswith(prompt_template.SUFFIX) or (name and Path(name).is_dir()):
        templates = prompt_template.read_templates(Path(name))
    else:
        raise _refusal(f"no protocol '{name}'.", suggest(name, ["auto", *PROTOCOLS]))
    for template in templates:
        if template.name in PROTOCOLS:
            raise _refusal(
                f"a prompt template is named {template.name}, and so is a built-in protocol.",
                "Rename its file.",
            )
    return [template.protocol for template in templates]


def adapt_protocol(protocol: Protocol, template: Template) -> Protocol:
    """A protocol as the template has it. A native one gets the first reader that understands
    the template's syntax: Hermes', Llama 3's, or the one that the template's own writing gives;
    and it holds as many calls in a turn as the template prints.
    """
    protocol = dataclasses.replace(
        protocol,
        prompt_opens_thought=template.prompt_opens_thought,
        thought_marks=template.thought_marks,
        answer_head=template.answer_head,
    )
    if not protocol.native or not template.prints_calls:
        return protocol
    stops = (template.call_end,) if template.call_end else ()
    protocol = dataclasses.replace(protocol, parallel_calls=template.parallel_calls, stops=stops)
    for parse in (hermes.parse, hermes.parse_json):
        reader = dataclasses.replace(protocol, parse=parse)
        if not reading_problem(reader, template):
            return reader
    if calls := native_calls(template):
        return dataclasses.replace(protocol, parse=calls.parse)
    return protocol
