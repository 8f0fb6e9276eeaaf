"""A model's name -> a speaker, loaded once, that goes on with dialogs in the protocol the model was
trained in.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import Engine
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.data.openai_messages import Opened, Turn, opened
from agentlite.rendering import choose, settled
from agentlite.workspace.lineage import setting_of
from agentlite.workspace.model_source import find_model, load_template

Listener = Callable[[str], bool]


class Speaking(NamedTuple):
    """How a model is loaded, and how long a dialog and an answer may be, in tokens."""

    protocol: str = ""  # "": that of the training
    engine: Engine = "unsloth"
    max_length: int = 2048
    max_new_tokens: int = 256
    load_in_4bit: bool = False
    load_in_8bit: bool = False


class Wanted(NamedTuple):
    """What one answer is asked with: temperature 0 takes the likeliest token."""

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stops: tuple[str, ...] = ()


class ChatModel:
    """`name` is the model's, as the user gave it."""

    def __init__(self, name: str, run: Path, how: Speaking):
        """Finds model, template and protocol; raises UserError 2, 5 or 8 before anything is
        loaded.
        """
        if how.max_new_tokens >= how.max_length:
            raise UserError(
                f"leaves no room for a prompt: max_length is {how.max_length}.",
                "Lower it, or raise --max-length.",
                location="--max-new-tokens",
            )
        self.name, self.how, self.source = name, how, find_model(name, run)
        self.template = load_template(self.source.base)
        trained = setting_of(name, "protocol", run)
        named = how.protocol or trained or "auto"
        mixture = (
            settled(named, self.template) if named == trained else choose(named, self.template)
        )
        heaviest = max(mixture.weights, key=lambda one: mixture.weights[one])
        self.protocol = mixture.protocols[heaviest]

    def load(self) -> None:
        """Raises UserError 5, 7 or 8."""
        from agentlite.engine import check_libraries
        from agentlite.engine.load import Loading, load_to_ask

        how = self.how
        check_libraries(how.engine)
        console.notice(f"loading {self.name} (protocol {self.protocol.name})")
        with console.stdout_to_stderr():
            self.loaded = load_to_ask(
                self.source, Loading(how.engine, how.max_length, how.load_in_4bit, how.load_in_8bit)
            )

    def opened(self, messages: Sequence[Any], tools: Sequence[Any]) -> Opened:
        """Raises RowError for what is no dialog that waits for the assistant."""
        return opened(messages, tools, self.protocol, self.template)

    def room(self, dialog: Opened) -> int:
        """Tokens that are left for an answer: none or less where the dialog is too long."""
        return self.how.max_length - len(dialog.ids)

    def answer(
        self, dialog: Opened, wanted: Wanted, listener: Listener = lambda text: True
    ) -> Turn:
        """What the model says; `listener` is told as it comes, and ends it with False. Raises
        UserError 7.
        """
        from agentlite.engine.stream import Speech, speak

        own = self.protocol.stops if dialog.record.tools else ()
        stops = (*own, *wanted.stops)
        tokens = min(wanted.max_new_tokens, self.room(dialog))
        how = Speech(
            self.template.token_id(self.template.turn_end),
            stops,
            tokens,
            wanted.temperature,
            wanted.top_p,
            wanted.seed,
        )
        spoken = speak(self.loaded, dialog.ids, how, listener)
        parsed = self.protocol.read(spoken.text, dialog.record.tools)
        return Turn(spoken.text, spoken.ended, parsed, len(dialog.ids), spoken.new_tokens)
