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
