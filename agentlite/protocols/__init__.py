"""Record -> text with the trained spans, text -> calls: one file a protocol, chosen here by name."""

from agentlite.errors import MODEL, UserError
from agentlite.protocols import chat, hermes, react
from agentlite.protocols.protocol import Protocol
from agentlite.protocols.rendering import (
    Encoded,
    Prompt,
    Rendered,
    Span,
    check,
    encode,
    encode_said,
    prompts,
    render,
    show,
    training_rows,
)
from agentlite.templates import Template

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol for protocol in (chat.PROTOCOL, hermes.PROTOCOL, react.PROTOCOL)
}

__all__ = [
    "PROTOCOLS",
    "Encoded",
    "Prompt",
    "Protocol",
    "Rendered",
    "Span",
    "check",
    "choose",
    "encode",
    "encode_said",
    "prompts",
    "render",
    "show",
    "training_rows",
]


def choose(name: str, template: Template) -> Protocol:
    """The protocol of that name; `auto`: chat where the template takes tools, else hermes. Raises UserError 2 or 5."""
    if name == "auto":
        name = "chat" if template.takes_tools else "hermes"
    if name not in PROTOCOLS:
        raise UserError(f"no protocol '{name}'.", f"Known: auto, {', '.join(PROTOCOLS)}.", place="--protocol")
    if name == "chat" and not template.takes_tools:
        raise UserError("its chat template takes no tools.", "Use --protocol hermes or react.", place=template.name,
                        exit_code=MODEL)  # fmt: skip
    protocol = PROTOCOLS[name].for_template(template)
    check(protocol, template)
    return protocol
