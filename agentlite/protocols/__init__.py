"""Record -> text with the trained spans, text -> calls: one file a protocol, chosen by name in mixture.py."""

from agentlite.protocols.mixture import PROTOCOLS, Mixture, choose, protocol_weights, settled
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
from agentlite.protocols.weights import TABLES, Table

__all__ = [
    "PROTOCOLS",
    "TABLES",
    "Encoded",
    "Mixture",
    "Prompt",
    "Protocol",
    "Rendered",
    "Span",
    "Table",
    "check",
    "choose",
    "encode",
    "encode_said",
    "prompts",
    "protocol_weights",
    "render",
    "settled",
    "show",
    "training_rows",
]
