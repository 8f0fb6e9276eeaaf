"""A model, loaded once, that continues dialogs in the protocol it was trained in."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agentlite.config.settings import Engine
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.data.openai_messages import OpenDialog, Turn, open_dialog
from agentlite.engine import check_libraries
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loading, load_for_inference
from agentlite.engine.local_sampler import Listener, stream
from agentlite.rendering import choose, mixture_of
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import find_model, system_prompt_of


class ChatModel:
    """A model, and how long a dialog and an answer may be, in tokens."""

    def __init__(
        self,
        name: str,
        run: Path,
        *,
        protocol: str = "",
        system: str | None = None,
        engine: Engine = "unsloth",
        max_length: int = 2048,
        max_new_tokens: int = 256,
        load_in_4bit: bool = False,
        load_in_8bit: bool = False,
    ):
        """Finds model, template and protocol; raises UserError 2, 5 or 8 before anything is
        loaded.

        `name` is the model's, as the user gave it; `protocol` "" is that of the training.
        `system`: the text of a dialog without a system turn; None is that of the model's prep.
        """
        if max_new_tokens >= max_length:
            raise UserError(
                f"leaves no room for a prompt: max_length is {max_length}.",
                "Lower it, or raise --max-length.",
                location="--max-new-tokens",
            )
        self.loading = Loading(engine, max_length, load_in_4bit, load_in_8bit)
        self.max_length, self.max_new_tokens = max_length, max_new_tokens
        self.name, self.source = name, find_model(name, run)
        self.template = load_template(self.source.base)
        self.system = system_prompt_of(name, run) if system is None else system
        trained_protocol = self.source.settings.get("protocol")
        protocol_name = protocol or trained_protocol or "auto"
        find_mixture = mixture_of if protocol_name == trained_protocol else choose
        self.protocol = find_mixture(protocol_name, self.template).heaviest

    def load(self) -> None:
        """Raises UserError 5, 7 or 8."""
        check_libraries(self.loading.engine)
        console.notice(f"loading {self.name} (protocol {self.protocol.name})")
        with console.stdout_to_stderr():
            self.loaded = load_for_inference(self.source, self.loading)

    def open_dialog(self, messages: Sequence[object], tools: Sequence[object]) -> OpenDialog:
        """Raises RowError for anything but a dialog that waits for the assistant."""
        return open_dialog(self.with_system(messages), tools, self.protocol, self.template)

    def with_system(self, messages: Sequence[object]) -> Sequence[object]:
        """The messages with the model's system text, where they have no system turn."""
        first = messages[0] if messages else None
        has_system = isinstance(first, Mapping) and first.get("role") in ("system", "developer")
        if has_system or not self.system or not messages:
            return messages
        return [{"role": "system", "content": self.system}, *messages]

    def answer(
        self, dialog: OpenDialog, decoding: Decoding, listener: Listener = lambda text: True
    ) -> Turn:
        """The model's answer, in the room that is left. `listener` gets the text as it comes, and
        ends the answer by returning False. Raises UserError 7.
        """
        # as "Observation:" of ReAct, behind which the model would go on to write the result
        call_stops = self.protocol.stops if dialog.record.tools else ()
        decoding = decoding.under(self.template)._replace(
            stops=(*call_stops, *decoding.stops),
            max_new_tokens=min(decoding.max_new_tokens, self.max_length - len(dialog.ids)),
        )
        answer = stream(self.loaded, dialog.ids, decoding, listener)
        parsed = self.protocol.read(answer.text, dialog.record.tools)
        return Turn(answer.text, answer.ended, parsed, len(dialog.ids), len(answer.ids))
