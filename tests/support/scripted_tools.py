"""Scripted models for `make` with a list of tools: one that makes up arguments and results, and a
judge that compares words with results; not a test itself.
"""

import json
import re
from itertools import pairwise
from typing import Any

from support.scripted_roles import agent, is_user, user

CITIES = ("Oslo", "Bergen", "Turku", "Malmo", "Lund", "Vaasa", "Odense", "Aarhus")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find_station",
            "description": "Finds the railway station of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
            "returns": {
                "type": "object",
                "properties": {"station_id": {"type": "string"}},
                "required": ["station_id"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "next_train",
            "description": "Shows the next train of a station.",
            "parameters": {
                "type": "object",
                "properties": {"station_id": {"type": "string"}},
                "required": ["station_id"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "book_bike",
            "description": "Books a rental bike for some days.",
            "parameters": {
                "type": "object",
                "properties": {"days": {"type": "integer"}, "city": {"type": "string"}},
                "required": ["days", "city"],
            },
        },
    },
]


def is_judge(body: dict[str, Any]) -> bool:
    return "You check a dialog" in str(body["messages"][0]["content"])


def made_up(body: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The arguments that are asked for; None where this is another question."""
    text = str(body["messages"][0]["content"])
    if not text.startswith("An assistant can call this tool"):
        return None
    number = body.get("seed", 0) % 7
    if '"find_station"' in text:
        return [{"city": f"{city} {number}" if number else city} for city in CITIES]
    if '"next_train"' in text:
        return [{"station_id": f"S-{number}{at}"} for at in range(8)]
    return [{"days": 2 + at, "city": f"{city}by"} for at, city in enumerate(CITIES)]


def result(body: dict[str, Any]) -> str | None:
    """What a tool returns; None where this is another question."""
    if "You stand in for the tools" not in str(body["messages"][0]["content"]):
        return None
    call = json.loads(body["messages"][1]["content"].splitlines()[-1])
    arguments = call["arguments"]
    if call["name"] == "find_station":
        if arguments["city"].split(" ")[0] not in CITIES:
            return "Error: no such city"
        return json.dumps({"station_id": f"S-{arguments['city']}"})
    if call["name"] == "next_train":
        return json.dumps({"train": f"IC {len(arguments['station_id'])}", "late": False})
    return json.dumps({"booking": f"bike-{arguments['days']}"})


def verdict(body: dict[str, Any]) -> str:
    """A judge that knows one thing: an answer names a value of the last result before it."""
    dialog = re.findall(r"<dialog \w+>\n(.*?)\n</dialog", body["messages"][0]["content"], re.S)[-1]
    messages = [json.loads(line) for line in dialog.splitlines()]
    found = []
    for before, one in pairwise(messages):
        said = one.get("content") if before["role"] == "tool" else None
        if said and "rror" not in before["content"] and before["content"] not in said:
            found.append("invented result")
    return json.dumps({"reason": "compared", "faults": sorted({*found})})


def roles(body: dict[str, Any], fault: str = "") -> str | dict[str, Any]:
    """All roles at one address."""
    if is_judge(body):
        return verdict(body)
    if (arguments := made_up(body)) is not None:
        return f"Here they are:\n{json.dumps(arguments)}"
    if (returned := result(body)) is not None:
        return returned
    return user(body, fault) if is_user(body) else agent(body, fault)
