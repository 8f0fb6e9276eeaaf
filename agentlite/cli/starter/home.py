"""A home in which a model acts, and the generator of its tasks.

`python home.py` writes train.jsonl, dev.jsonl and test.jsonl: with other rooms, numbers and words.
"""

import json
import random
from itertools import chain
from pathlib import Path
from typing import Any

TOOLS = {  # a place is a room, or the list; a device is "hall light", "hall heating" or "timer"
    "look": {"place": {"type": "string"}},
    "set": {"device": {"type": "string"}, "value": {"type": "string"}},
    "add": {"item": {"type": "string"}, "amount": {"type": "integer"}},
}


class Home:
    """A task is done if the home ends as the right calls leave it, without a needless change.

    `home` is flat: {"hall light": "off", "hall heating": "19", "timer": "0", "list milk": "2"}.
    `answer`: what the user left out, and says to the model's first words; "" if it is nothing.
    """

    def reset(self, start: dict[str, str], gold: list[list[Any]], answer: str, **_: Any) -> None:
        # the right calls are made first, to see how the home must end and in how many changes
        self.home, self.answer, self.changes = {**start}, answer, 0
        for call in chain(*gold):
            self.call(**call)
        self.gold_home, self.gold_changes = self.home, self.changes
        self.home, self.changes = {**start}, 0

    def tools(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "parameters": {"type": "object", "properties": properties}}
            for name, properties in TOOLS.items()
        ]

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        match name, arguments:
            case "look", {"place": str(place)}:
                values = [" ".join(p) for p in self.home.items() if p[0].startswith(f"{place} ")]
                return ", ".join(values).replace(f"{place} ", "") or "nothing"
            case "set", {"device": str(key), "value": str(value)} if key in self.home:
                pass
            case "add", {"item": str(item), "amount": int(amount)}:
                key, value = f"list {item}", str(int(self.home.get(f"list {item}", 0)) + amount)
            case _:
                raise ValueError("no such tool or device, or other arguments than it takes")
        self.changes += self.home.get(key) != value
        self.home[key] = value
        return "ok"

    def next_user(self, words: str) -> str | None:
        answer, self.answer = self.answer, ""
        return answer or None

    def state(self) -> dict[str, str]:
        return self.home | {"answer": self.answer}

    def get_reward(self) -> float:
        return float(self.home == self.gold_home and self.changes == self.gold_changes)


# how often a task asks for changes, for some on a condition, for one without its number, for none
FORMS = {"do": 3, "do do": 3, "do do do": 2, "if": 5, "do if": 2, "if if": 1, "ask": 2, "no": 1}
KINDS = ("heating", "timer", "list", "light", "door")  # the first three need a number


def draw(rng: random.Random, words: dict[str, Any]) -> dict[str, Any]:
    """A task: what its user says, the home before, and the right calls."""
    rooms, items = rng.sample(words["room"], 3), rng.sample(words["item"], 5)
    start = {"timer": "0"} | {
        f"list {item}": str(rng.randint(1, 6)) for item in rng.sample(items, 3)
    }
    for room in rooms:
        start[f"{room} light"] = rng.choice(("on", "off"))
        start[f"{room} door"] = rng.choice(("locked", "open"))
        start[f"{room} heating"] = rng.choice(("9", "11", "26", "28"))
    sentences, calls, answer = [], [], ""
    (forms,) = rng.choices([*FORMS], [*FORMS.values()])
    kinds = rng.sample(KINDS[:3] if forms == "ask" else KINDS, 3)
    for form, kind, room, item in zip(forms.split(), kinds, rooms, items, strict=False):
        slots = {name: rng.choice(numbers) for name, numbers in words["number"].items()}
        is_dark, is_open = start[f"{room} light"] == "off", start[f"{room} door"] == "open"
        slots |= {"light": "on" if is_dark else "off", "door": "locked" if is_open else "open"}
        device = "timer" if kind == "timer" else f"{room} {kind}"
        change = {"name": "set", "arguments": {"device": device, "value": str(slots[kind])}}
        if kind == "list":
            change = {"name": "add", "arguments": {"item": item, "amount": slots[kind]}}
        text = rng.choice(words[{"ask": f"ask {kind}", "no": "no"}.get(form, kind)])
        is_due = form != "no"
        if form == "if":
            holds = {"dark": is_dark, "open": is_open, "missing": f"list {item}" not in start}
            holds["cold"] = int(start[f"{room} heating"]) < slots["heating"]
            # if it does not hold, looking is all that is right
            condition, is_due = rng.choice([*holds.items()])
            text = rng.choice(words[f"if {condition}"]).replace("...", text)
            look = {"place": "list" if condition == "missing" else room}
            calls.append({"name": "look", "arguments": look})
        calls += [change] if is_due else []
        answer = f"{slots[kind]}." if form == "ask" else ""
        text = text.format(**slots, room=room, item=item, lock="lock" if is_open else "unlock")
        sentences.append(f"{text[0].upper()}{text[1:]}.")
    # by turn of the user: without its number nothing can be called before the second one
    gold = [[], calls] if answer else [calls]
    return {"prompt": " ".join(sentences), "start": start, "answer": answer, "gold": gold}


if __name__ == "__main__":
    for split, words in json.loads(Path("home_words.json").read_text()).items():
        rng, tasks = random.Random(split), dict[str, str]()
        while len(tasks) < words["tasks"]:
            task = draw(rng, words)
            tasks[task["prompt"]] = json.dumps(task) + "\n"
        Path(f"{split}.jsonl").write_text("".join(tasks.values()))
