"""The stages in pipeline order, and what the rest of the house must know of each."""

from typing import NamedTuple


class Stage(NamedTuple):
    """Its settings are in settings.py; its `run`, and its `key_figure` for `agentlite runs`, are in
    agentlite/stages. Nothing is imported here: `agentlite --help` reads it."""

    help: str
    examples: str
    other_names: str = ""  # what others call it, apart by blanks
    trains: bool = False  # leaves a language model, from which other stages can start
    torchrun: bool = False  # several processes can share its work
    candidates: str = ""  # the file in which it leaves sampled answers that pairs can rank
    group: str = ""  # the word before its name: `agentlite make templates`


STAGES = {
    "prep": Stage(
        "Check dialogs and split them into train, dev and test.",
        """
agentlite prep dialogs.jsonl
agentlite prep bfcl:simple_python,multiple,irrelevance --show 2
agentlite prep agent.jsonl chat.jsonl --mix general=chat.jsonl:0.2
agentlite prep dialogs.jsonl --holdout bench.jsonl --personal mask
cat rows.jsonl | agentlite prep - --run runs/weather --json
""",
        other_names="prepare preprocess process data",
    ),
    "retriever": Stage(
        "Train a model that finds the right tools among many.",
        """
agentlite retriever
agentlite retriever --tools agent_tools.jsonl --num-epochs 5 --json
agentlite retriever --model BAAI/bge-small-en-v1.5 --out retriever-bge
""",
    ),
    "sft": Stage(
        "Train an adapter on the assistant's answers and calls.",
        """
agentlite sft
agentlite sft --model Qwen/Qwen2.5-1.5B-Instruct --profile rtx4090
agentlite sft --out sft-r64 --lora-r 64 --set sft.trl.weight_decay=0.01
""",
        other_names="train tune finetune fine-tune fit",
        trains=True,
        torchrun=True,
    ),
    "pairs": Stage(
        "Sample answers at every step, score them, and pair them.",
        """
agentlite pairs -n 8 --gold
agentlite pairs --from pairs --weights tool_accuracy=.5 --out pairs-b
cat prompts.jsonl | agentlite pairs --data - --model sft --json
""",
        other_names="sample preferences",
        candidates="candidates.jsonl",
    ),
    "dpo": Stage(
        "Train an adapter to prefer chosen answers to rejected ones.",
        """
agentlite dpo
agentlite dpo --data pairs-b --out dpo-b --beta 0.3
agentlite dpo --loss-type ipo --out dpo-ipo
""",
        trains=True,
        torchrun=True,
    ),
    "grpo": Stage(
        "Train an adapter on its own answers, scored in groups.",
        """
agentlite grpo
agentlite grpo --model dpo --out grpo-2 --weights exact=1,task_completion=0
agentlite grpo --rewards mine.py:short
agentlite grpo --env shop.py:Shop --tasks tasks.jsonl
""",
        other_names="ppo rl rlhf",
        trains=True,  # not under torchrun: it samples while it trains
        candidates="rollouts.jsonl",
    ),
    "distill": Stage(
        "Train an adapter to go on as a teacher does.",
        """
agentlite distill
agentlite distill --model smollm2-135m --teacher dpo --out distill-dpo
agentlite distill --lmbda .5 --beta .5
""",
        other_names="distillation gkd teacher student opd",
        trains=True,  # not under torchrun: it samples while it trains
    ),
    "rollout": Stage(
        "Let a model act in an environment: it calls tools.",
        """
agentlite rollout --env shop.py:Shop --tasks tasks.jsonl
agentlite rollout --env bfcl:multi_turn_base --limit 20 --temperature 0
agentlite rollout --env shop.py:Shop --tasks tasks.jsonl --model dpo -n 4
""",
        other_names="env environment agent trajectories",
    ),
    "make": Stage(
        "Make training dialogs from tools alone.",
        """
agentlite make dialogs --env shop.py:Shop -n 500
agentlite make dialogs --env 'mcp:python server.py' --shares single=1,long=1
agentlite make queries --help
agentlite make templates --help
""",
        other_names="synthesize synthetic dialogs",
    ),
    "queries": Stage(
        "Let a model write new queries, without copies and leaks.",
        """
agentlite make queries --endpoint $URL --model NAME -n 500
agentlite make queries --holdout bench.jsonl --endpoint $URL --model NAME
agentlite pairs --data runs/default/queries/queries.jsonl
""",
        other_names="questions seed-queries self-instruct",
        group="make",
    ),
    "templates": Stage(
        "Let a model write prompt templates, and keep the better ones.",
        """
agentlite make templates --endpoint $URL --model NAME
agentlite make templates --endpoint $URL --model NAME -n 20 --epsilon 0.2
agentlite prep dialogs.jsonl --protocol hermes,runs/default/templates
""",
        other_names="meta-agent prompts prompt-templates",
        group="make",
    ),
    "eval": Stage(
        "Ask models at every test step, score and compare them.",
        """
agentlite eval
agentlite eval --model smollm2-135m --model sft
agentlite eval --gate 'tool_selection_accuracy>=0.8'
agentlite eval --env shop.py:Shop --tasks tasks.jsonl --model sft
agentlite eval --predictions others.jsonl --json
""",
        other_names="evaluate evaluation test bench benchmark",
    ),
    "ablate": Stage(
        "Train and compare every combination of weights and settings.",
        """
agentlite ablate --grid grids/rewards.yaml --dry-run
agentlite ablate --grid grids/rewards.yaml --by dpo
agentlite ablate --grid betas.yaml --by grpo
""",
        other_names="ablation grid sweep search hyperparameters tune-settings",
    ),
}
USUAL = ("prep", "sft", "pairs", "dpo", "grpo", "eval")  # the way from dialogs to a measured model
MAKE_COMMANDS = tuple(name for name, stage in STAGES.items() if stage.group)
TRAINERS = tuple(name for name, stage in STAGES.items() if stage.trains)
DEFAULT_MODEL = "sft"  # the stage whose model is meant where the user names none


def full_command(name: str) -> str:
    """A command as it is typed: `make templates`."""
    group = STAGES[name].group if name in STAGES else ""
    return f"{group} {name}" if group else name
