"""Contents of Gemini's API and Vertex AI's tuning files -> Record: parts say, call and answer."""

from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.formats import openai
from agentlite.data.formats.extra_fields import rest
from agentlite.data.formats.json_decode import shortened

EXAMPLE = '{"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": [{"role": "user", "parts": [{"text": "Is it wet in Oslo?"}]}, {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}]}, {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"mm": 4}}}]}, {"role": "model", "parts": [{"text": "Yes."}]}], "tools": [{"functionDeclarations": [{"name": "weather", "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}}]}]}'  # noqa: E501  (a row is one line)
FIELDS = {"contents": list}
ROLES = {"user": "user", "model": "assistant", "function": "user", "tool": "user"}
# keys as JSON and as Python write them
CALL, RESULT = ("functionCall", "function_call"), ("functionResponse", "function_response")
SYSTEM = ("systemInstruction", "system_instruction")
DECLARED = ("functionDeclarations", "function_declarations")
KNOWN = ("text", "thought", *CALL, *RESULT)
Part = dict[str, Any]


def fits(row: dict[str, Any]) -> bool:
    return all(isinstance(content, dict) and "parts" in content for content in row["contents"])


def read(row: dict[str, Any]) -> Record:
    """A result answers the call of its id, or the next one of its name."""
    dialog = _GeminiDialog()
    for key in SYSTEM:
        if system := row.get(key):
            parts = _parts(system if isinstance(system, dict) else {"parts": [{"text": system}]}, 0)
            text = "".join(_text(part, "the system instruction") for part in parts)
            dialog.messages.append({"role": "system", "content": text})
    for number, content in enumerate(row["contents"], 1):
        dialog.add(content, number)
    openai.refuse_another(row, "contents", dialog.messages, "messages")
    extra = {"contents": dialog.extra} if dialog.extra else {}
    others = rest(row, "contents", "tools", *SYSTEM)
    return openai.read(
        {**others, **extra, "tools": _tools(row.get("tools")), "messages": dialog.messages}
    )


def _tools(value: object) -> object:
    """The declared functions; a tool that declares none stays as it is, to be read or refused."""
    tools: list[Any] = []
    for tool in value if isinstance(value, list) else [value] if value else []:
        found = [tool.get(key) for key in DECLARED if isinstance(tool, dict)]
        lists = [declared for declared in found if declared is not None]
        for declared in lists or [[tool]]:
            tools += declared
    return tools


class _GeminiDialog:
    """Collects messages as OpenAI writes them; results find the calls that they answer."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.waiting: list[dict[str, Any]] = []  # calls of the turn before
        self.calls = 0
        self.extra: list[dict[str, Any]] = []

    def add(self, content: Part, number: int) -> None:
        role = ROLES.get(str(content.get("role") or "user"))
        if role is None:
            raise openai.unknown_role(content.get("role"), ROLES, f"content {number}")
        parts = _parts(content, number)
        for part in parts:
            if more := rest(part, *KNOWN):
                self.extra.append({"content": number, **more})
        if role == "assistant":
            self._model(parts, number, content)
        else:
            self._user(parts, number)

    def _model(self, parts: list[Part], number: int, content: Part) -> None:
        place = f"content {number}"
        self.waiting = []
        texts: dict[bool, list[str]] = {True: [], False: []}  # thoughts, and what is said
        for part in parts:
            call = _held(part, CALL)
            if call:
                self.waiting.append({**call, "id": call.get("id") or f"call_{self.calls}"})
                self.calls += 1
            if part.get("text") or not call:
                texts[part.get("thought") is True].append(_text(part, place))
        turn = {"thinking": "".join(texts[True]), "content": "".join(texts[False])}
        loss = {key: content[key] for key in openai.LOSS if key in content}
        called = {"tool_calls": [*self.waiting]}
        self.messages.append({"role": "assistant", **turn, **loss, **called})

    def _user(self, parts: list[Part], number: int) -> None:
        place = f"content {number}"
        texts = []
        for part in parts:
            result = _held(part, RESULT)
            if part.get("text") or not result:
                texts.append(_text(part, place))
            if not result:
                continue
            if result.get("parts"):
                raise RowError("E216", f"a result with parts, which are not read ({place})")
            # it answers the call of its id, or else the first of its name that waits
            key, value = ("id", result["id"]) if result.get("id") else ("name", result.get("name"))
            call = next((call for call in self.waiting if call.get(key) == value), None)
            self.waiting = [other for other in self.waiting if other is not call]
            answered = call["id"] if call else str(value)
            self.messages.append(
                {"role": "tool", "tool_call_id": answered, "content": result.get("response")}
            )
        if texts or not parts:
            self.messages.append({"role": "user", "content": "".join(texts)})


def _parts(content: Part, number: int) -> list[Part]:
    parts = content.get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise RowError("E201", f"parts are not a list of objects (content {number})")
    return parts


def _held(part: Part, keys: tuple[str, ...]) -> Part:
    """The call or result that a part holds; {} if it holds none."""
    return next((held for key in keys if isinstance(held := part.get(key), dict)), {})


def _text(part: Part, place: str) -> str:
    text = part.get("text")
    if not isinstance(text, str):
        found = shortened(next((key for key in part if part[key] is not None), "nothing"))
        raise RowError("E216", f"a part of {found}: only text can be learned ({place})")
    return text
