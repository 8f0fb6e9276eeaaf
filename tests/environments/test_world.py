"""Whatever a class does, its world answers, fails in time or is lost, and nobody else sees it."""

from pathlib import Path

import pytest
from support.shop import call

from agentlite.core.records import Call, Message
from agentlite.core.user_code import UserFunction
from agentlite.environments.registry import environment
from agentlite.environments.rollout import RolloutAnswer, RolloutSetup, roll
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import World, WorldError, WorldLimits
from agentlite.rendering import choose
from agentlite.scoring.rewards import total

SHOP = '''
class Shop:
    """A shop with stock and a cart, as TRL's guide would write it."""

    everyones = []

    def reset(self, **row):
        self.stock, self.cart = dict(row.get("stock", {"apple": 2})), []
        self.everyones.append(1)
        return row.get("hint")

    def search(self, query: str) -> str:
        """Finds items.

        Args:
            query: A piece of the name
        """
        return ", ".join(item for item in self.stock if query in item) or "nothing"

    def buy(self, item: str, count: int = 1) -> dict[str, int]:
        """Puts items into the cart.

        Args:
            item: The name
            count: How many
        """
        if self.stock.get(item, 0) < count:
            raise ValueError(f"not enough of {item}")
        self.stock[item] -= count
        self.cart += [item] * count
        return {"in the cart": len(self.cart)}

    def count_everyones(self) -> str:
        """How many worlds this class has seen."""
        return str(len(self.everyones))

    def odd(self) -> object:
        """Returns what JSON cannot hold."""
        return {1, }

    def _secret(self) -> str:
        return "no tool"

    def next_user(self, said):
        return "And a pear?" if "apple" in said else None

    def get_reward(self):
        return len(self.cart) / 2

    def get_scores(self):
        return {"left": sum(self.stock.values())}

    def state(self):
        return {"cart": self.cart}
'''


def world_of(folder: Path, text: str, name: str, **limits: float) -> World:
    path = folder / f"{name.lower()}.py"
    path.write_text(text, encoding="utf-8")
    return World(UserFunction(str(path), name), WorldLimits(**limits))


@pytest.fixture
def shop(tmp_path):
    with world_of(tmp_path, SHOP, "Shop") as world:
        yield world


def test_the_tools_are_the_public_methods_but_the_hooks(shop):
    assert shop.reset({"hint": "We have apples."}) == "We have apples."
    assert [tool.name for tool in shop.tools] == ["buy", "count_everyones", "odd", "search"]
    (buy,) = [tool for tool in shop.tools if tool.name == "buy"]
    assert buy.parameters["required"] == ["item"] and buy.description == "Puts items into the cart."


@pytest.mark.parametrize(
    ("name", "arguments", "text", "failed"),
    [
        ("search", {"query": "app"}, "apple", False),
        ("buy", {"item": "apple", "count": 2}, '{"in the cart": 2}', False),
        ("buy", {"item": "pear"}, "Error: ValueError: not enough of pear", True),
        ("buy", {"items": "pear"}, "Error: TypeError: ", True),
        ("sell", {}, "Error: no tool sell. The tools: buy, count_everyones, odd, search.", True),
        ("_secret", {}, "Error: no tool _secret. ", True),
        ("reset", {}, "Error: no tool reset. ", True),
        ("odd", {}, "[1]", False),
    ],
)
def test_a_call_gives_a_result_and_a_mistake_is_one_too(shop, name, arguments, text, failed):
    shop.reset({})
    result = shop.call(Call(name, arguments))
    assert result.text.startswith(text) and result.failed is failed
    assert shop.call(Call("search", {"query": "app"})).text == "apple"


def test_the_user_the_scores_and_the_state_are_those_of_the_class(shop):
    assert shop.reset({"stock": {"apple": 1}}) is None
    assert shop.state() == {"cart": []}
    shop.call(Call("buy", {"item": "apple"}))
    assert shop.next_user("One apple.") == "And a pear?" and shop.next_user("No.") is None
    assert shop.scores() == {"left": 0.0, "env": 0.5} and shop.state() == {"cart": ["apple"]}


@pytest.mark.long
def test_two_worlds_never_see_each_other(tmp_path):
    with world_of(tmp_path, SHOP, "Shop") as one, world_of(tmp_path, SHOP, "Shop") as other:
        for world in (one, other):
            world.reset({})
        one.call(Call("buy", {"item": "apple", "count": 2}))
        assert other.state() == {"cart": []} and other.scores()["left"] == 2
        # not even by what the class keeps for all its worlds
        assert other.call(Call("count_everyones")).text == "1"


ASYNC = '''
import asyncio

class Async:
    async def reset(self, **row):
        self.events = asyncio.Queue()
        return "Begin."

    async def put(self, word: str) -> str:
        """Keeps a word.

        Args:
            word: The word
        """
        await self.events.put(word)
        return f"kept {word}"

    async def take(self):
        """Gives a word back, and waits for one."""
        return {"word": await self.events.get()}

    async def get_reward(self):
        return 0.5
'''


def test_all_that_a_class_awaits_runs_in_one_loop(tmp_path):
    with world_of(tmp_path, ASYNC, "Async") as world:
        assert world.reset({}) == "Begin."
        assert world.call(Call("put", {"word": "fig"})).text == "kept fig"
        assert world.call(Call("take")).text == '{"word": "fig"}'
        assert world.scores() == {"env": 0.5}


BROKEN = """
import os, time

class Broken:
    def reset(self, **row): ...
    def get_reward(self):
        return 1
    def hangs(self) -> str:
        'Hangs.'
        time.sleep(60)
    def ends(self) -> str:
        'Ends.'
        os._exit(3)
    def half_a_character(self) -> str:
        'Half.'
        return "\\ud800"
"""


def test_a_world_that_dies_is_lost_with_its_reason_and_another_is_well(tmp_path):
    with world_of(tmp_path, BROKEN, "Broken") as other:
        other.reset({})
        with world_of(tmp_path, BROKEN, "Broken") as world:
            world.reset({})
            with pytest.raises(WorldError, match="ended with exit code 3"):
                world.call(Call("ends"))
        assert other.call(Call("half_a_character")).text == "\ufffd"


UNOPENED = """
class Unopened:
    def reset(self, file):
        self.file = open(file)
    def close(self):
        self.file.close()
"""


def test_a_world_whose_reset_failed_says_why_each_time_and_may_begin_anew(tmp_path):
    with world_of(tmp_path, UNOPENED, "Unopened") as world:
        for _ in range(2):
            with pytest.raises(WorldError, match="reset raised FileNotFoundError"):
                world.reset({"file": str(tmp_path / "none")})
        assert world.reset({"file": __file__}) is None


def test_a_call_that_hangs_costs_the_timeout_penalty_and_the_score_of_its_rollout(
    tmp_path, smollm2, capsys
):
    """By the default weights; the calls behind it in its turn are not made."""
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    acting = environment(f"{tmp_path / 'broken.py'}:Broken", tmp_path / "tasks.jsonl")
    protocol = choose("hermes", smollm2).protocols["hermes"]
    setup = RolloutSetup(acting, protocol, smollm2, 10**6, 3, WorldLimits(seconds=1.0))
    tasks = [EnvironmentTask(name, (Message("user", "Go."),), {}, ((),)) for name in "ab"]

    def answers(prompts):
        for index, prompt in enumerate(prompts):
            hangs = prompt.key.task == "a"
            text = f"{call('hangs')}\n{call('half_a_character')}" if hangs else "No."
            yield RolloutAnswer(index, text, "turn", 3)

    waiting = [(task, 0) for task in tasks]
    ended = {one.task: one for one in roll(setup, waiting, answers, 2)}
    problem = "Error: TimeoutError: the call took longer than 1 s"
    hung, well = ended["a"], ended["b"]
    assert (hung.ended, hung.problem, hung.scores) == ("hung", problem, {"env": 0.0})
    assert hung.turns[0].results == ((problem, True),)
    said = "hangs: the call took longer than 1 s; its world is stopped"
    assert capsys.readouterr().err.count(said) == 1
    assert (well.ended, well.scores) == ("user", {"env": 1.0})
    scorer = RolloutScorer(tasks, {})
    weights = scorer.weights(["env"], {})
    costs = scorer(hung).components
    assert (costs["timeout"], weights["timeout"]) == (1.0, -0.5)
    assert total(scorer(well).components, weights) == 2.0 > total(costs, weights) + 1
