"""configs/recipes: every number that a seed or a published script prints is that of its recipe."""

from typing import Any

import pytest

from agentlite.config import resolve
from agentlite.config.pipeline import STAGES

SEED_002 = ("seed-002",)
DEVELOPMENT = ("seed-002", "seed-002-development")
PPO = ("seed-002", "seed-002-ppo")
PARTS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SHARES = {
    "tool_selection": 0.35,
    "multi_step_planning": 0.30,
    "timing_decision": 0.20,
    "tool_retrieval": 0.15,
}
SEED_004_SHARES = [
    "agent=ms_agent.jsonl:30000",
    "general=ms_bench.jsonl:60000",
    "self=self_cognition.jsonl:3000*",
]
QWEN = "Qwen/Qwen2.5-{}-Instruct"

# recipes, command, setting, value, line of the seed or of the script
PRINTED: list[tuple[tuple[str, ...], str, str, Any, str]] = [
    (SEED_002, "prep", "task_weights", SHARES, "002:49-54"),
    (SEED_002, "prep", "model", QWEN.format("7B"), "002:56"),
    (SEED_002, "prep", "max_length", 4096, "002:57"),
    (SEED_002, "prep", "coreset_target_size", 8000, "002:79"),
    (SEED_002, "prep", "coreset_strategy", "hybrid", "002:80"),
    (SEED_002, "prep", "continual_buffer_size", 4096, "002:82"),
    (SEED_002, "prep", "continual_replay_ratio", 0.3, "002:83"),
    (SEED_002, "sft", "max_length", 4096, "002:57"),
    (SEED_002, "sft", "lora_r", 64, "002:59"),
    (SEED_002, "sft", "lora_alpha", 128, "002:60"),
    (SEED_002, "sft", "lora_dropout", 0.05, "002:61"),
    (SEED_002, "sft", "lora_target_modules", tuple(PARTS), "002:62-65"),
    (SEED_002, "sft", "num_epochs", 3, "002:67"),
    (SEED_002, "sft", "batch_size", 4, "002:68"),
    (SEED_002, "sft", "gradient_accumulation", 8, "002:69"),
    (SEED_002, "sft", "learning_rate", 2e-5, "002:70"),
    (SEED_002, "sft", "warmup_ratio", 0.1, "002:71"),
    (SEED_002, "sft", "lr_scheduler", "cosine", "002:72"),
    (SEED_002, "sft", "load_in_8bit", True, "002:504"),
    (SEED_002, "sft", "load_in_4bit", False, "002:504"),
    (SEED_002, "pairs", "num_samples", 4, "002:283"),
    (SEED_002, "dpo", "beta", 0.1, "002:243"),
    (SEED_002, "dpo", "reference_free", False, "002:244"),
    (SEED_002, "dpo", "label_smoothing", 0.0, "002:245"),
    (SEED_002, "dpo", "loss_type", "sigmoid", "002:246"),
    (SEED_002, "grpo", "group_size", 4, "002:258"),
    (SEED_002, "grpo", "beta", 0.1, "002:259"),
    (SEED_002, "grpo", "loss_type", "grpo", "002:257"),
    (PPO, "grpo", "advantage", "value", "002:240"),
    (PPO, "grpo", "beta", 0.02, "002:250"),
    (PPO, "grpo", "clip", 0.2, "002:251"),
    (PPO, "grpo", "value_coef", 0.5, "002:252"),
    (PPO, "grpo", "rollouts", 128, "002:253"),
    (PPO, "grpo", "batch_size", 4, "002:254"),
    (PPO, "grpo", "gradient_accumulation", 16, "002:254"),
    (("seed-002-warmup",), "prep", "limit", 1000, "002:30-38"),
    (DEVELOPMENT, "prep", "model", QWEN.format("1.5B"), "002:491"),
    (DEVELOPMENT, "prep", "max_length", 2048, "002:495"),
    (DEVELOPMENT, "prep", "task_weights", SHARES, "002:49-54"),
    (DEVELOPMENT, "sft", "lora_r", 16, "002:492"),
    (DEVELOPMENT, "sft", "batch_size", 1, "002:493"),
    (DEVELOPMENT, "sft", "gradient_accumulation", 16, "002:494"),
    (DEVELOPMENT, "sft", "max_length", 2048, "002:495"),
    (DEVELOPMENT, "sft", "load_in_4bit", True, "002:496"),
    (DEVELOPMENT, "sft", "load_in_8bit", False, "002:496"),
    (("seed-003",), "sft", "full", True, "003:46"),
    (("seed-003",), "sft", "deepspeed", "deepspeed/zero3.json", "003:41"),
    (("seed-003",), "sft", "max_length", 4096, "003:43"),
    (("seed-003",), "sft", "batch_size", 1, "003:43"),
    (("seed-003",), "sft", "attn_implementation", "flash_attention_2", "003:43"),
    (("seed-003",), "sft", "num_epochs", 5, "003:46"),
    (("seed-003",), "prep", "model", QWEN.format("7B"), "003:46"),
    (("seed-003",), "prep", "mix", ("agent=agent.jsonl:5", "general=chat.jsonl:1"), "003:705"),
    (("seed-003", "seed-003-14b"), "sft", "num_epochs", 4, "003:47"),
    (("seed-003", "seed-003-14b"), "sft", "full", True, "003:47"),
    (("seed-003", "seed-003-14b"), "prep", "model", QWEN.format("14B"), "003:47"),
    (("seed-003", "seed-003-72b"), "sft", "num_epochs", 2, "003:48"),
    (("seed-003", "seed-003-72b"), "sft", "batch_size", 1, "003:43"),
    (("seed-003", "seed-003-72b"), "prep", "model", QWEN.format("72B"), "003:48"),
    (("seed-004",), "prep", "mix", tuple(SEED_004_SHARES), "004:129-131"),
    (("seed-004",), "prep", "format", ("ms_bench.jsonl=ms_bench",), "004:130"),
    (("seed-004",), "prep", "max_length", 2048, "004:170"),
    (("seed-004",), "prep", "model_name", ("卡卡罗特", "Kakarot"), "004:177"),
    (("seed-004",), "prep", "model_author", ("陶白白", "Tao Baibai"), "004:178"),
    (("seed-004",), "sft", "learning_rate", 5e-5, "004:141"),
    (("seed-004",), "sft", "num_epochs", 2, "004:142"),
    (("seed-004",), "sft", "lora_r", 8, "004:143"),
    (("seed-004",), "sft", "lora_alpha", 32, "004:144"),
    (("seed-004",), "sft", "lora_target_modules", ("all",), "004:145"),
    (("seed-004",), "sft", "batch_size", 2, "004:146"),
    (("seed-004",), "sft", "gradient_accumulation", 32, "004:147"),
    (("seed-004",), "sft", "lora_dropout", 0.05, "004:174"),
    (("seed-004",), "sft", "warmup_ratio", 0.03, "004:185"),
    (("seed-004",), "sft", "save_steps", 100, "004:186-187"),
    (("seed-004",), "sft", "trl", {"weight_decay": 0.01, "max_grad_norm": 0.5}, "004:181-184"),
    (("hammer",), "sft", "lora_r", 32, "train.sh:28"),
    (("hammer",), "sft", "lora_target_modules", ("all-linear",), "train.sh:27"),
    (("hammer",), "sft", "max_length", 2048, "train.sh:31"),
    (("hammer",), "sft", "batch_size", 4, "train.sh:33"),
    (("hammer",), "sft", "gradient_accumulation", 2, "train.sh:35"),
    (("hammer",), "sft", "lr_scheduler", "cosine", "train.sh:36"),
    (("hammer",), "sft", "warmup_ratio", 0.00833, "train.sh:38"),
    (("hammer",), "sft", "learning_rate", 5e-5, "train.sh:41"),
    (("hammer",), "sft", "trl", {"weight_decay": 0.01}, "train.sh:42"),
    (("hammer",), "sft", "num_epochs", 1, "train.sh:43"),
    (("hammer",), "prep", "no_call_share", 0.111, "data_processing.py: 7.5k of 60k"),
]


@pytest.mark.parametrize("profile", ["cpu", "rtx4090"])
def test_a_recipe_has_the_number_that_its_source_prints(profile: str) -> None:
    # a profile comes below a recipe: whatever the GPU, the printed number holds
    for recipes, command, setting, value, line in PRINTED:
        files = tuple(f"recipes/{name}.yaml" for name in recipes)
        resolved = resolve.resolve(command, resolve.UserSettings(files=files, profile=profile))
        assert getattr(resolved.settings, setting) == value, line


@pytest.mark.parametrize("recipes", sorted({row[0] for row in PRINTED}), ids=" ".join)
def test_every_command_reads_a_recipe_and_loads_in_one_precision(recipes: tuple[str, ...]) -> None:
    files = tuple(f"recipes/{name}.yaml" for name in recipes)
    given = resolve.UserSettings(files=files, profile="rtx4090")
    for command in STAGES:
        settings = resolve.resolve(command, given).settings
        assert not (getattr(settings, "load_in_4bit", 0) and getattr(settings, "load_in_8bit", 0))
