"""A rejected row -> the piece of it that is wrong, on one line, with carets under it."""

import json
import re

from agentlite.core.excerpt import pointed

MESSAGE = re.compile(r"\(message (\d+)\)")  # as reasons name one
LISTS = ('"messages"', '"conversations"')


def excerpt(content: bytes, at: str | int, reason: str) -> list[str]:
    """Two lines, or none where the place is not known. `at`: of a RowError; without it, `reason`
    may name a message.
    """
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    span = (at, at + 1) if isinstance(at, int) else _found(text, at, reason)
    if span is None or not 0 <= span[0] <= len(text):
        return []
    return pointed(text, *span)


def _found(text: str, at: str, reason: str) -> tuple[int, int] | None:
    """`at` in the message that `reason` names, or from the first message on, or anywhere; or the
    role of that message.
    """
    starts = [text.find(key) for key in LISTS if key in text]
    message = _message(text, int(named[1])) if (named := MESSAGE.search(reason)) else None
    if message and at and (span := _first(text[: message[1]], at, message[0])):
        return span
    if at:
        return next(filter(None, (_first(text, at, start) for start in (*starts, 0))), None)
    if not message:
        return None
    role = re.compile(r'"(?:role|from)"\s*:\s*"[^"]*"').search(text, *message)
    return role.span() if role else message


def _first(text: str, at: str, start: int) -> tuple[int, int] | None:
    """Where a text stands, as JSON writes it or as a text inside a text is written; whole ones
    first.
    """
    once = [json.dumps(at, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True)]
    twice = [json.dumps(form, ensure_ascii=False)[1:-1] for form in once]
    forms = dict.fromkeys((once[0], twice[0], once[1], twice[1], at))
    for quote in (r"\"", '"', ""):
        for form in forms:
            if (place := text.find(f"{quote}{form}{quote}", start)) >= 0:
                return place + len(quote), place + len(quote) + len(form)
    return None


def _message(text: str, number: int) -> tuple[int, int] | None:
    """Where the message of this number stands. None where readers may count in another way: they
    join words and the calls that follow them.
    """
    key = text.find(LISTS[0])
    if key < 0 or (place := text.find("[", key)) < 0:
        return None
    start, words_before = 0, False
    try:
        for _ in range(number):
            start = place + 1
            while text[start].isspace() or text[start] == ",":
                start += 1
            message, place = json.JSONDecoder().raw_decode(text, start)
            fields = message if isinstance(message, dict) else {}
            is_call = bool(fields.get("tool_calls"))
            if words_before and is_call:
                return None
            words_before = fields.get("role") == "assistant" and not is_call
            place -= 1
    except (ValueError, IndexError, RecursionError):
        return None
    return start, place + 1
