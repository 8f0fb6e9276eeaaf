"""An environment of a few lines, its tasks, and a model that knows what to do in it; no test."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentlite.environments.registry import Environment, environment
from agentlite.environments.rollout import RolloutAnswer, RolloutPrompt

SHOP = '''
import os, pathlib, random

class Shop:
    def reset(self, prompt, item, stock=2, **row):
        self.item, self.stock, self.cart, self.asked = item, stock, [], 0
        self.row = row
        if row.get("broken"):
            raise RuntimeError("the shop is closed")
        return row.get("hint")

    def search(self, query: str) -> str:
        """Finds items.

        Args:
            query: A piece of the name
        """
        return f"{self.item}: {self.stock}"

    def buy(self, item: str) -> str:
        """Puts an item into the cart.

        Args:
            item: The name
        """
        if self.row.get("ends"):
            os._exit(7)
        if self.row.get("changes"):
            return str(random.random())
        if item != self.item:
            raise ValueError(f"no {item}")
        self.cart.append(item)
        return f"{len(self.cart)} in the cart"

    def next_user(self, words):
        self.asked += 1
        return "One more." if self.asked == 1 else None

    def get_reward(self):
        return len(self.cart) / 2
'''
ITEMS = ("apple", "pear", "plum", "fig")


def call(name: str, **arguments: str) -> str:
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def script(item: str) -> tuple[str, ...]:
    """What a good model says in the shop, turn by turn, under the protocol hermes."""
    buy = call("buy", item=item)
    return (call("search", query=item), buy, "One is in your cart.", buy, "Now there are two.")


def tasks(**columns: object) -> list[dict[str, object]]:
    return [{"id": item, "prompt": f"Buy a {item}.", "item": item, **columns} for item in ITEMS]


def with_gold() -> list[dict[str, object]]:
    """The tasks with the right calls of each turn of the user."""
    rows = tasks()
    for row in rows:
        search = {"name": "search", "arguments": {"query": row["item"]}}
        buy = {"name": "buy", "arguments": {"item": row["item"]}}
        row["gold"] = [[search, buy], [buy]]
    return rows


def shop(folder: Path, rows: Sequence[dict[str, object]]) -> Environment:
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    lines = (json.dumps(row) + "\n" for row in rows)
    (folder / "tasks.jsonl").write_text("".join(lines), encoding="utf-8")
    return environment(f"{folder / 'shop.py'}:Shop", folder / "tasks.jsonl")


def scripted(prompts: Sequence[RolloutPrompt]) -> Iterator[RolloutAnswer]:
    """The answers of that model; the second rollout of a task asks for what is not there."""
    for index, prompt in enumerate(prompts):
        item = prompt.key.task if prompt.key.sample == 0 else "melon"
        text = script(item)[prompt.turn]
        yield RolloutAnswer(index, text, "turn", len(text))
