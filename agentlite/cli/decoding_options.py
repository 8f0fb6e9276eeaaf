"""How a model answers in chat and serve: protocol, system text, lengths, engine and precision."""

from functools import partial
from typing import Annotated

from agentlite.cli.options import Option
from agentlite.config.metavars import Metavar
from agentlite.config.settings import DATA, ENGINE, SAMPLING, Count, Engine

_data = partial(Option, section=DATA.title)
_length = partial(Option, section=SAMPLING.title, common=True)
_engine = partial(Option, section=ENGINE.title)
DECODING = [
    _data(
        ["--protocol"],
        Annotated[str, Metavar("PROTOCOL|FILE")],
        default="",
        words="that of the training",
        help="text format of tool calls, or the file of a prompt template",
    ),
    _data(
        ["--system"],
        str,
        common=True,
        default=None,
        words="that of the model's prep",
        help="system prompt of a dialog without one; '' for none",
    ),
    _length(
        ["--max-length"], Count, default=2048, help="maximum tokens of dialog and answer together"
    ),
    _length(["--max-new-tokens"], Count, default=256, help="maximum tokens of an answer"),
    _engine(
        ["--engine"],
        Engine,
        default="unsloth",
        help="library: unsloth, or plain transformers with PEFT",
    ),
    _engine(
        ["--load-in-4bit"],
        common=True,
        is_flag=True,
        help="load the base model in 4 bit (needs CUDA)",
    ),
    _engine(["--load-in-8bit"], is_flag=True, help="load the base model in 8 bit (needs CUDA)"),
]
