"""One file of an environment runs in TRL and here: the same tools, results, ids and rewards."""

import importlib.util
import json
from pathlib import Path

import pytest
from support.shipped_templates import shipped, with_marks

from agentlite.environments.registry import environment
from agentlite.environments.rollout import RolloutAnswer, RolloutSetup, roll
from agentlite.environments.trajectories import Trajectory
from agentlite.environments.world import WorldLimits
from agentlite.rendering import choose

pytestmark = [pytest.mark.torch, pytest.mark.long]
# Without `-> str`: TRL prints the type of a result in the schema, for which OpenAI's shape has no
# place, and agentlite does not.
SHOP = '''
class Shop:
    def reset(self, wanted, **row):
        self.wanted, self.cart = wanted, []
        return " Today figs are cheap."

    def search(self, query: str):
        """Finds items in stock.

        Args:
            query: A word of the item's name
        """
        return f"{query}: 5"

    def buy(self, item: str, count: int = 1):
        """Puts an item into the cart.

        Args:
            item: The name of the item
            count: How many of it
        """
        self.cart += [item] * count
        return len(self.cart)

    def get_reward(self) -> float:
        return self.cart.count(self.wanted) / 2
'''
TASKS = [
    {"id": name, "prompt": [{"role": "user", "content": f"Buy two {name}s."}], "wanted": name}
    for name in ("fig", "pear")
]


def said(task: int, sample: int) -> list[str]:
    """Three turns, the second of which buys two, one, or none of what is wanted."""
    name = TASKS[task]["wanted"]
    item, count = (name, 2 - sample) if sample < 2 else ("nut", 3)
    return [call("search", query=name), call("buy", item=item, count=count), "They are yours."]


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    rows = "".join(json.dumps(task) + "\n" for task in TASKS)
    (tmp_path / "tasks.jsonl").write_text(rows, encoding="utf-8")
    return tmp_path


def here(shop: Path, template) -> dict[tuple[int, int], Trajectory]:
    acting = environment(f"{shop / 'shop.py'}:Shop", shop / "tasks.jsonl")
    protocol = choose("chat", template).protocols["chat"]
    setup = RolloutSetup(acting, protocol, template, 4000, 9, WorldLimits(60.0))
    places = {task["id"]: n for n, task in enumerate(TASKS)}

    def answers(prompts):
        for index, prompt in enumerate(prompts):
            text = said(places[prompt.key.task], prompt.key.sample)[prompt.turn]
            ids = (*template.encode(text, prompt.ids), template.token_id(template.turn_end))
            yield RolloutAnswer(index, text, "turn", len(ids), ids)

    waiting = [(task, sample) for task in acting.tasks() for sample in range(3)]
    return {(places[one.task], one.sample): one for one in roll(setup, waiting, answers, 6)}


def in_trl(shop: Path, template, source: str, tiny_model: Path, monkeypatch) -> dict[str, object]:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=template.tokenizer,
        eos_token=template.turn_end,
        pad_token="<|endoftext|>",
        chat_template=source,
    )
    spec = importlib.util.spec_from_file_location("same_shop", shop / "shop.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = GRPOConfig(
        output_dir=str(shop / "trl"),
        per_device_train_batch_size=6,
        num_generations=3,
        max_completion_length=2000,
        report_to=[],
        use_cpu=True,
        beta=0.0,
    )
    rows = [{key: value for key, value in task.items() if key != "id"} for task in TASKS]
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32")
    model.resize_token_embeddings(len(tokenizer))
    trainer = GRPOTrainer(
        model,
        args=config,
        train_dataset=Dataset.from_list(
            [{k: v for k, v in one.items() if k != "id"} for one in TASKS]
        ),
        processing_class=tokenizer,
        environment_factory=module.Shop,
    )
    turns: list[int] = []

    def scripted(prompt_ids, *_, **__):
        turn, texts = len(turns), [said(n // 3, n % 3)[len(turns)] for n in range(6)]
        turns.append(turn)
        end = template.token_id(template.turn_end)
        return [
            [*template.encode(text, ids), end] for text, ids in zip(texts, prompt_ids, strict=True)
        ], None

    monkeypatch.setattr(trainer, "_generate_single_turn", scripted)
    rewards = []
    calculate = trainer._calculate_rewards

    def calculated(*given):
        found = calculate(*given)
        rewards.extend(found[:, 0].tolist())
        return found

    monkeypatch.setattr(trainer, "_calculate_rewards", calculated)
    inputs = [dict(rows[n // 3]) for n in range(6)]
    trainer.model.train()
    made = trainer._generate_and_score_completions(inputs)
    return {
        "rewards": rewards,
        **{
            name: made[name].tolist()
            for name in (
                "prompt_ids",
                "prompt_mask",
                "completion_ids",
                "completion_mask",
                "tool_mask",
            )
        },
    }


def test_the_same_file_gives_the_same_rollouts(shop, smollm2, tiny_model, monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    source = dict(shipped())["trl/qwen3"]
    template = with_marks("qwen3", source, smollm2.tokenizer)
    ours = here(shop, template)
    theirs = in_trl(shop, template, source, tiny_model, monkeypatch)
    wanted = [1.0, 0.5, 0.0] * 2
    assert theirs["rewards"] == wanted
    for n in range(6):
        one = ours[n // 3, n % 3]
        assert one.scores == {"env": wanted[n]} and one.ended == "user"
        [row] = one.token_rows()
        assert [*row.prompt] == kept(theirs["prompt_ids"][n], theirs["prompt_mask"][n])
        mask = theirs["completion_mask"][n]
        assert [*row.ids] == kept(theirs["completion_ids"][n], mask)
        assert row.mask == kept(theirs["tool_mask"][n], mask)


def kept(values, mask):
    return [value for value, one in zip(values, mask, strict=True) if one]
