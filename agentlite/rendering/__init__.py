"""Record -> text with trained spans, and text -> calls; the protocols by name."""

from agentlite.rendering.encoding import (
    Encoded,
    Prompt,
    encode,
    encode_answer,
    prompt_at,
    prompts,
    show,
    training_rows,
)
from agentlite.rendering.protocol import Protocol
from agentlite.rendering.protocol_mix import (
    PROTOCOLS,
    Mixture,
    choose,
    mixture_of,
    native_problem,
    protocols_of,
)
from agentlite.rendering.renderer import (
    Rendered,
    check,
    check_reading,
    first_messages,
    reading_problem,
    render,
    render_last,
)

__all__ = [
    "PROTOCOLS",
    "Encoded",
    "Mixture",
    "Prompt",
    "Protocol",
    "Rendered",
    "check",
    "check_reading",
    "choose",
    "encode",
    "encode_answer",
    "first_messages",
    "mixture_of",
    "native_problem",
    "prompt_at",
    "prompts",
    "protocols_of",
    "reading_problem",
    "render",
    "render_last",
    "show",
    "training_rows",
]
