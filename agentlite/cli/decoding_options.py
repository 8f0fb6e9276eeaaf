"""How a model answers in chat and serve: protocol, system text, lengths, engine and precision."""

from typing import Annotated

from agentlite.cli.options import Option
from agentlite.config.metavars import Metavar
from agentlite.config.settings import DATA, ENGINE, SAMPLING, Count, Engine

DECODING = [
    Option(
        ["--protocol"],
        Annotated[str, Metavar("PROTOCOL|FILE")],
        section=DATA.title,
        default="",
        words="that of the training",
        help="text format of tool calls, or the file of a prompt template",
    ),
    Option(
        ["--system"],
        str,
        section=DATA.title,
        common=True,
        default=None,
        words="that of the model's prep",
        help="system prompt of a dialog without one; '' for none",
    ),
    Option(
        ["--max-length"],
        Count,
        section=SAMPLING.title,
        common=True,
        default=2048,
        help="maximum tokens of dialog and answer together",
    ),
    Option(
        ["--max-new-tokens"],
        Count,
        section=SAMPLING.title,
        common=True,
        default=256,
        help="maximum tokens of an answer",
    ),
    Option(
        ["--engine"],
        Engine,
        section=ENGINE.title,
        default="unsloth",
        help="library: unsloth, or plain transformers with PEFT",
    ),
    Option(
        ["--load-in-4bit"],
        section=ENGINE.title,
        common=True,
        is_flag=True,
        help="load the base model in 4 bit (needs CUDA)",
    ),
    Option(
        ["--load-in-8bit"],
        section=ENGINE.title,
        is_flag=True,
        help="load the base model in 8 bit (needs CUDA)",
    ),
]
