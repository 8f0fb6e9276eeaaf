"""Scripted models for `make`: a user that follows its prompt and an agent that follows the hint,
good or with one fault; not a test itself.
"""

import json
import re
from typing import Any

GOAL = re.compile(
    r"(?:Ask|When that is done, ask) the assistant to (.*?)\.(?= When that| You say|\n|$)"
)
FACT = re.compile(r"^- ([^:\n]+): (.*?)( \(tell it only when the assistant asks for it\))?$", re.M)
DUE = re.compile(r"left to make now: (\[.*\])\. Make them, and do not")
TOOLS = (
    *("find_book", "give_back", "reserve_room", "opening_hours", "write_note", "lucky_number"),
    *("find_station", "next_train", "book_bike"),
)
ASKS = (
    "I cannot do that yet. Which title, book id, days, size, day, text, city, station or place is "
    "the right one?"
)


def is_user(body: dict[str, Any]) -> bool:
    return "You play a user" in str(body["messages"][0]["content"])


def user(body: dict[str, Any], fault: str = "") -> str:
    """The next goal with all facts; what it is asked for behind the first; then the stop word."""
    prompt, dialog = body["messages"][0]["content"], body["messages"][1]["content"]
    goals = GOAL.findall(prompt)
    known = FACT.findall(prompt.partition("What you know:")[2])
    told = ", ".join(f"{name}: {value}" for name, value, later in known if not later)
    later = [f"The {name} is {value}." for name, value, mark in known if mark]
    said = [f"Please {goals[0]} ({told})." if told else f"Please {goals[0]}.", *later]
    said += [f"Now {goal} ({told})." if told else f"Now {goal}." for goal in goals[1:]]
    spoken = dialog.count('{"you"')
    if fault == "leaked goal" and not spoken:
        return f"{said[0]} One of {', '.join(TOOLS)} does it."
    if fault == "contradiction" and not spoken:
        return f"{said[0]} My number is 90210."
    if spoken < len(said):
        return said[spoken]
    return re.findall(r"\[\[end\]\]", prompt)[0]


def agent(body: dict[str, Any], fault: str = "") -> dict[str, Any]:
    """The calls of the hint one by one, and words from the last result."""
    messages = body["messages"]
    last = max(at for at, one in enumerate(messages) if one["role"] == "user")
    results = [one["content"] for one in messages[last:] if one["role"] == "tool"]
    due = DUE.search(messages[last]["content"])
    if due and fault != "no call":
        first = json.loads(due[1])[0]
        arguments = first["arguments"]
        if fault == "wrong call":
            arguments = {name: f"{value}x" for name, value in arguments.items()}
            if len(results) > 2:
                return {"content": "I looked it up."}
        function = {"name": first["name"], "arguments": json.dumps(arguments)}
        call = {"id": f"c{len(messages)}", "type": "function", "function": function}
        return {"content": None, "tool_calls": [call]}
    if not results:
        return {"content": ASKS if fault != "no call" else "It is taken care of."}
    if any("rror" in result for result in results):
        return {"content": f"That failed. {ASKS}"}
    if fault == "invented result":
        return {"content": "It has the number 90210."}
    if fault == "nonsense":
        return {"content": '{"name": "find_book", "argu'}
    return {"content": f"I got this: {results[-1]}"}
