"""A kept record -> what a person should look at in it, by the checks of doubts.toml."""

import re
import tomllib
from pathlib import Path

from agentlite.core.records import Record, to_json
from agentlite.core.tool_results import says_error
from agentlite.data.curation.pii import texts_of
from agentlite.data.curation.traits import normalize

CHECKS: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
PATTERNS = {
    name: re.compile(check.get("pattern", ""), re.VERBOSE | re.IGNORECASE | re.MULTILINE)
    for name, check in CHECKS.items()
}
SECRETS = {"key", "password"}  # kinds of personal values, which prep finds with all others
CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
# A320, ORD-1234, 482137; not 150000
IDENTIFIER = re.compile(r"[A-Za-z]+[-_#]?[0-9][\w-]+|[0-9]{3,}(?!000)[0-9]{3}")
NAME = re.compile(r"[A-Z][a-z]{2,}(?: [A-Z][a-z]+){0,2}")


def doubts(record: Record) -> dict[str, str]:
    """By check: the first piece of the record that is doubtful. The secrets are left to prep."""
    pieces: dict[str, str] = {}
    for before, message in zip(record.messages, record.messages[1:], strict=False):
        answer = message.content
        if message.role != "assistant" or not message.loss or message.calls:
            continue
        # an answer in words that is learned, by the checks that it has to pass
        suspects = {
            "placeholder": CODE.sub("", answer),
            "failure": answer if before.role == "tool" and says_error(before.content) else "",
            "promise": answer if record.tools and "?" not in answer else "",
        }
        for check, text in suspects.items():
            if match := PATTERNS[check].search(text):
                pieces.setdefault(check, match[0].strip())
    if value := _unknown_value(record):
        pieces["value"] = value
    return pieces


def _unknown_value(record: Record) -> str:
    """An identifier, or a name of which no word begins as a word that was said."""
    # what was said and offered so far, without blanks: "7:30 am" is known as 730am
    known_text = normalize(to_json([tool.schema for tool in record.tools]))
    for message in record.messages:
        arguments = [call.arguments for call in message.calls]
        for _, value in texts_of(arguments) if message.loss else ():
            starts = [normalize(word)[:3] for word in value.split()]  # Rome, Roman
            is_name = NAME.fullmatch(value) and known_text.isascii()  # else it may be translated
            if is_name and not any(start in known_text for start in starts):
                return value
            if IDENTIFIER.fullmatch(value) and normalize(value) not in known_text:
                return value
        known_text += normalize(message.content + to_json(arguments))
    return ""
