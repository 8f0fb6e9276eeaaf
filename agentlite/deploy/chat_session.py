"""A chat on the terminal: a person's messages, the model's, tool results; kept as an OpenAI row.

Results come from the person, or from functions of the person's own.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError, UserError
from agentlite.core.plain_words import utf8_text
from agentlite.core.records import Call, Message, Tool, to_json, wire_message
from agentlite.core.tool_results import result_text, says_error
from agentlite.core.user_code import UserCode, UserFunction, await_result
from agentlite.data.formats.own_rows import is_to_learn
from agentlite.data.formats.tool_calls import read_tools
from agentlite.data.tool_catalogue import SHAPE
from agentlite.deploy.chat_model import ChatModel
from agentlite.engine.decoding import Decoding

Observe = Callable[[Call], str]
CALL_SECONDS = 10.0  # that one call may take
MOST_STEPS = 8  # of one turn of the person's: a model may call for ever


class ChatSession:
    """`tell` is given what the model says while it comes, `note` what else a reader should know.
    `messages` are OpenAI's; a turn that `prep --from` would not learn from a rollout has
    `"loss": false`.
    """

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
        self.tools_by_name = {tool.name: tool for tool in tools}
        self.messages: list[dict[str, Any]] = []

    @property
    def row(self) -> dict[str, Any]:
        """As prep reads it, with the system turn that the model was shown."""
        messages = list(self.chat_model.with_system(self.messages))
        return {"messages": messages} | ({"tools": self.tools} if self.tools else {})

    def say(self, text: str, decoding: Decoding) -> None:
        """One turn of the person's and all that follows. One that cannot go on is taken back."""
        before = len(self.messages)
        self.messages.append({"role": "user", "content": text})
        try:
            for _ in range(MOST_STEPS):
                if not self._step(decoding):
                    return
            reason = f"{MOST_STEPS} steps without an answer"
        except RowError as error:
            reason = error.reason
        except KeyboardInterrupt:
            reason = "stopped"
        except UserError:
            del self.messages[before:]
            raise
        del self.messages[before:]
        self.note(f"{reason}; this turn is taken back")

    def _step(self, decoding: Decoding) -> bool:
        """One turn of the model's, and the results of its calls. Whether it is to go on."""
        dialog = self.chat_model.open_dialog(self.messages, self.tools)
        length, longest = len(dialog.ids), self.chat_model.max_length
        if length >= longest:
            raise RowError("E217", f"the dialog has {length} tokens, --max-length is {longest}")

        def listener(text: str) -> bool:
            self.tell(text)
            return True

        turn = self.chat_model.answer(dialog, decoding, listener)
        self.tell("\n")
        if turn.ended == "cut":
            self.note(f"cut after {turn.new_tokens} tokens: --max-new-tokens")
        if turn.parsed.problem:
            self.note(f"no call that can be read: {turn.parsed.problem}")
        is_readable = turn.ended != "cut" and not turn.parsed.problem
        count = sum(message["role"] == "tool" for message in self.messages)  # ids are counted on
        calls = tuple(
            replace(call, id=f"call{number:05}")
            for number, call in enumerate(turn.parsed.calls if is_readable else (), count)
        )
        # what cannot be read as a call stays as it was said
        message = Message("assistant", turn.parsed.content if is_readable else turn.text, calls)
        if not (calls or message.content.strip()):
            raise RowError("E216", "the model says nothing")
        row = wire_message(message)
        self.messages.append(row)
        results = [Message("tool", self.observe(call), call_id=call.id) for call in calls]
        self.messages += map(wire_message, results)
        has_failed = not is_readable or any(says_error(result.content) for result in results)
        if has_failed or not is_to_learn(message, self.tools_by_name):
            row["loss"] = False
        return bool(calls)


def read_toolbox(path: str) -> tuple[Tool, ...]:
    """A JSON list of tools, or an object with "tools". Raises UserError 2."""
    try:
        value = json.loads(utf8_text(Path(path).read_bytes(), path))
        if tools := read_tools(value.get("tools") if isinstance(value, dict) else value):
            return tools
        problem = "holds no tool."
    except RowError as error:
        problem = f"{error.reason} ({error.code})."
    except (OSError, ValueError, RecursionError) as error:
        problem = f"cannot be read: {error}."
    raise UserError(problem, f"Write a list of tools: [{SHAPE}].", location=path)


@contextmanager
def executor(path: str, tools: Sequence[Tool]) -> Iterator[Observe]:
    """Results of the user's functions, which have the names of the tools; run in a child process
    with limits of time and memory.

    An error in one is its result. Raises UserError 2 where the file has no such function.
    """
    if not Path(path).is_file():
        raise UserError(
            "no such file.", "Name a file of functions with the names of the tools.", location=path
        )
    code = UserCode([UserFunction(path, tool.name) for tool in tools], _call, CALL_SECONDS)

    def observe(call: Call) -> str:
        if call.name not in {tool.name for tool in tools}:
            return to_json({"error": f"no tool {call.name}"})
        text, problem = code.ask(call.name, call.arguments)
        return to_json({"error": problem}) if problem else str(text)

    code.start()  # before the model is loaded: a file that cannot be imported is refused at once
    try:
        yield observe
    finally:
        code.stop()


def _call(function: Callable[..., object], arguments: dict[str, object]) -> tuple[str, str]:
    """Done by the child: the result as text, as a model is shown it."""
    return result_text(await_result(function(**arguments))), ""
