"""How a model answers in chat and serve: protocol, system text, lengths, engine and precision."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from agentlite.cli.options import RunOptions
from agentlite.config.fields import ARGUMENT, COMMON, Count
from agentlite.config.metavars import Metavar, Model
from agentlite.config.pipeline import TRAINED
from agentlite.config.settings import DATA, ENGINE, SAMPLING, Engine

if TYPE_CHECKING:
    from agentlite.deploy.chat_model import ChatModel


class DecodingOptions(RunOptions, frozen=True, kw_only=True):
    """What every command that answers with a model can be told."""

    model: Annotated[Model, ARGUMENT] = TRAINED
    protocol: Annotated[str, Metavar("PROTOCOL|FILE"), DATA] = ""
    """text format of tool calls, or the file of a prompt template [that of the training]"""
    system: Annotated[str | None, DATA, COMMON] = None
    """system prompt of a dialog without one; '' for none [that of the model's prep]"""
    max_length: Annotated[Count, SAMPLING, COMMON] = 2048
    """maximum tokens of dialog and answer together"""
    max_new_tokens: Annotated[Count, SAMPLING, COMMON] = 256
    """maximum tokens of an answer"""
    engine: Annotated[Engine, ENGINE] = "unsloth"
    """library: unsloth, or plain transformers with PEFT"""
    load_in_4bit: Annotated[bool, ENGINE, COMMON] = False
    """load the base model in 4 bit (needs CUDA)"""
    load_in_8bit: Annotated[bool, ENGINE] = False
    """load the base model in 8 bit (needs CUDA)"""

    def chat_model(self) -> "ChatModel":
        from agentlite.deploy.chat_model import ChatModel

        return ChatModel(
            self.model,
            Path(self.run),
            protocol=self.protocol,
            system=self.system,
            engine=self.engine,
            max_length=self.max_length,
            max_new_tokens=self.max_new_tokens,
            load_in_4bit=self.load_in_4bit,
            load_in_8bit=self.load_in_8bit,
        )
