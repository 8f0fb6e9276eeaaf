"""A model -> Ollama's Modelfile: dialogs are written by the chat template in its GGUF file."""

import json
from collections.abc import Sequence

from agentlite.core.errors import MODEL, UserError
from agentlite.core.records import Message, Record, Tool
from agentlite.rendering import Protocol, first_messages

FENCE = '"""'
REQUIRES = "0.30.0"  # the first Ollama that takes a file's own chat template
# architectures of GGUF whose dialogs Ollama 0.33 writes and reads by code of its own
OWN_CODE = ("gemma4", "laguna", "nemotron_h", "nemotron_h_moe", "nemotron_h_omni")
# Ollama has llama.cpp write and read dialogs by the file's own chat template where it finds one of
# these words in it; a comment is enough
TOOL_WORDS = ("tools", "tool_call")
MENTION = "{# tools #}"


def mention(chat_template: str) -> str:
    """What has to stand before a chat template, so that Ollama takes it."""
    return "" if any(word in chat_template for word in TOOL_WORDS) else MENTION


def refuse_own_code(architecture: str) -> None:
    """Raises UserError 5: no Modelfile can have such a model prompted as in training."""
    if architecture in OWN_CODE:
        raise UserError(
            f"Ollama writes the dialogs of {architecture} models by code of its own.",
            "Export --gguf instead, for `llama-server --jinja`.",
            location="--ollama",
            exit_code=MODEL,
        )


def system_text(tools: Sequence[Tool], protocol: Protocol) -> str:
    """The system turn of a dialog with these tools. Raises UserError 5 if there is none."""
    record = Record(messages=(Message("user", "x"), Message("assistant", "x")), tools=tuple(tools))
    first = {} if protocol.native else first_messages(record, 1, protocol)[0]
    if first.get("role") != "system":
        raise UserError(
            f"protocol {protocol.name} does not list its tools in a system turn.",
            "Leave --tools out, and let the client send the tools or write the prompts.",
            location="--tools",
            exit_code=MODEL,
        )
    return first["content"]


def modelfile(weights: str, stops: Sequence[str], system: str, context: int) -> str:
    """Raises UserError 5 for a text that a Modelfile cannot hold."""
    if FENCE in system:  # Ollama ends a text there
        raise UserError(
            f"a Modelfile cannot hold {FENCE}.",
            "Take it out of the descriptions of the tools.",
            location="--tools",
            exit_code=MODEL,
        )
    lines = [
        f"FROM ./{weights}",
        f"REQUIRES {REQUIRES}",
        *(f"PARAMETER stop {json.dumps(stop, ensure_ascii=False)}" for stop in stops),
        f"PARAMETER num_ctx {context}",
        "PARAMETER temperature 0",
        # 1.1 in Ollama 0.30: a name that stands in the prompt would be less likely in the call
        "PARAMETER repeat_penalty 1",
        *([f"SYSTEM {FENCE}{system}{FENCE}"] if system else []),
    ]
    return "\n".join(lines) + "\n"
