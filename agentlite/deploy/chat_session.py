"""A chat on the terminal: a person's messages, the model's, tool results; kept as an OpenAI row."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from agentlite.core.call_results import says_error
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Message, Tool, wire_calls
from agentlite.data.formats.trajectory import is_to_learn
from agentlite.data.openai_messages import Turn
from agentlite.deploy.chat_model import ChatModel
from agentlite.deploy.tool_results import Observe
from agentlite.engine.decoding import Decoding

MOST_STEPS = 8  # of one turn of the person's: a model may call for ever


class GivenUp(Exception):
    """The person ends the turn, by a command: `say` takes it back, and passes this on."""

    def __init__(self, command: str):
        super().__init__(command)
        self.command = command


class ChatSession:
    """`tell` is given what the model says while it comes, `note` what else a reader should know."""

    def __init__(
        self,
        chat_model: ChatModel,
        tools: Sequence[Tool],
        observe: Observe,
        tell: Callable[[str], None],
        note: Callable[[str], None],
    ):
        self.chat_model, self.observe, self.tell, self.note = chat_model, observe, tell, note
        self.tools = [tool.schema for tool in tools]
        self.by_name = {tool.name: tool for tool in tools}
        self.messages: list[dict[str, Any]] = []
        self.unlearned: set[int] = set()  # places of the model's turns that are not to be learned

    @property
    def row(self) -> dict[str, Any]:
        """As prep reads it, with the system turn that the model was shown. A turn is shown and not
        learned where `prep --from` would not learn it from a rollout.
        """
        marked = [
            {**message, "loss": False} if place in self.unlearned else message
            for place, message in enumerate(self.messages)
        ]
        messages = list(self.chat_model.with_system(marked))
        return {"messages": messages, **({"tools": self.tools} if self.tools else {})}

    def say(self, text: str, decoding: Decoding) -> None:
        """One turn of the person's, and all that follows. A turn that cannot be continued is taken
        back, and the reason is printed.
        """
        self.messages.append({"role": "user", "content": text})
        try:
            for _ in range(MOST_STEPS):
                if not self._step(decoding):
                    return
            self._take_back(f"{MOST_STEPS} steps without an answer")
        except RowError as error:
            self._take_back(error.reason)
        except KeyboardInterrupt:
            self._take_back("stopped")
        except (UserError, GivenUp):
            self.undo()
            raise

    def undo(self) -> bool:
        """Takes the last turn of the person's back, with what followed. False if there is none."""
        users = [
            number for number, message in enumerate(self.messages) if message["role"] == "user"
        ]
        del self.messages[users[-1] if users else 0 :]
        self.unlearned = {place for place in self.unlearned if place < len(self.messages)}
        return bool(users)

    def reset(self) -> None:
        """Forgets the dialog."""
        self.messages.clear()
        self.unlearned.clear()

    def prompt(self) -> str:
        """What the model would be shown, if the person said `...` now."""
        dialog = self.chat_model.opened(
            [*self.messages, {"role": "user", "content": "..."}], self.tools
        )
        return self.chat_model.template.decode(dialog.ids)

    def _step(self, decoding: Decoding) -> bool:
        """One turn of the model's, and the results of its calls. Whether it is to go on."""
        dialog = self.chat_model.opened(self.messages, self.tools)
        if self.chat_model.room(dialog) < 1:
            raise RowError(
                "E217",
                f"the dialog has {len(dialog.ids)} tokens, --max-length is "
                f"{self.chat_model.max_length}",
            )
        turn = self.chat_model.answer(dialog, decoding, self._heard)
        self.tell("\n")
        if turn.ended == "cut":
            self.note(f"cut after {turn.new_tokens} tokens: --max-new-tokens")
        if self._is_words(turn):
            return False
        made = sum(message["role"] == "tool" for message in self.messages)
        calls = [
            replace(call, id=f"call{made + number:05}")
            for number, call in enumerate(turn.parsed.calls)
        ]
        content, place = turn.parsed.content or None, len(self.messages)
        self.messages.append(
            {"role": "assistant", "content": content, "tool_calls": wire_calls(calls)}
        )
        for call in calls:
            self.messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": self.observe(call)}
            )
        failed = any(says_error(one["content"]) for one in self.messages[place + 1 :])
        self._judge(place, Message("assistant", content or "", tuple(calls)), failed=failed)
        return True

    def _judge(self, place: int, message: Message, *, failed: bool) -> None:
        if failed or not is_to_learn(message, self.by_name):
            self.unlearned.add(place)

    def _is_words(self, turn: Turn) -> bool:
        """An answer, or what cannot be read as a call and stays as it was said."""
        if turn.parsed.problem:
            self.note(f"no call that can be read: {turn.parsed.problem}")
        elif turn.parsed.calls and turn.ended != "cut":
            return False
        text = turn.text if turn.parsed.problem or turn.ended == "cut" else turn.parsed.content
        if not text.strip():
            raise RowError("E216", "the model says nothing")
        failed = bool(turn.parsed.problem) or turn.ended == "cut"
        self._judge(len(self.messages), Message("assistant", text), failed=failed)
        self.messages.append({"role": "assistant", "content": text})
        return True

    def _heard(self, text: str) -> bool:
        self.tell(text)
        return True

    def _take_back(self, why: str) -> None:
        self.undo()
        self.note(f"{why}; this turn is taken back")
